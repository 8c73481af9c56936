"""The scan on the CPU: forward, backward and training step of whole sequences, compiled.

The derivation of the backward pass, what is kept and the figures are in ../README.md; how rows, groups and threads
work, and all that is about the controller, is the NTM's (`ntm_scan/cpu`). What is compiled stands in `compiled/`.
"""

from tapehead.kernels.dnc_scan.cpu.backend import backward, forward, loss_and_gradient, refusal
from tapehead.kernels.dnc_scan.cpu.entries import identity, make_ready

__all__ = ["backward", "forward", "identity", "loss_and_gradient", "make_ready", "refusal"]
