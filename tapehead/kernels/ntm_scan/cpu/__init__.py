"""The scan on the CPU: forward, backward and training step of whole sequences, compiled.

The derivation of the backward pass, the layout of memory and the figures are in ../README.md.

Legend: S seeds, B sequences of each, T time, I inputs, O outputs, C controller size, L layers, R read heads, W write
heads, H = R + W heads (reads first), N slots of the tape, n slots that one sequence uses, M memory width, r shift
range. `d_x` is the gradient of x. A memory is stored width-major, [M, n]: the inner loops run along the slots.

How it works. The B sequences of a seed are cut into groups (`rows_per_group`), and a group is the unit of work of a
thread. Its sequences, called rows, run in lockstep, the longest first: those still running are always a prefix, padding
costs nothing, and the controller's weights are read once a step for the whole group. What the backward pass needs is
kept in one record a row. The same compiled code serves every machine: all sizes and options are run-time integers.

What is compiled stands in `compiled/`, alone; the modules beside this one may be edited without a compilation.
"""

from tapehead.kernels.ntm_scan.cpu.backend import backward, forward, loss_and_gradient, refusal, trace
from tapehead.kernels.ntm_scan.cpu.entries import identity
from tapehead.kernels.ntm_scan.cpu.planning import record_size

__all__ = ["backward", "forward", "identity", "loss_and_gradient", "record_size", "refusal", "trace"]
