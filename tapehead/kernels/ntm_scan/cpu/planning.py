"""Plans: from a machine and a shape to all sizes and offsets that steer the kernel."""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from tapehead.kernels.ntm_scan.cpu.compiled.interface import SHIFTS
from tapehead.kernels.ntm_scan.cpu.compiled.memory import SLOT_BLOCK
from tapehead.kernels.ntm_scan.cpu.compiled.plan import BINARY, CATEGORICAL, GAP, PENDING, Plan
from tapehead.kernels.ntm_scan.cpu.compiled.rows import GROUP_ROWS
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import LANES
from tapehead.kernels.ntm_scan.spec import ScanSpec

Array = npt.NDArray[Any]

LOSSES = {"binary": BINARY, "categorical": CATEGORICAL}
SEGMENT = 8  # the memory itself is kept before every 8th step; the backward pass replays the writes in between


def rows_per_group(batch: int) -> int:
    """How many sequences of a seed run in lockstep. It depends on nothing else, and so do the bits of the gradients."""
    return min(GROUP_ROWS, -(-batch // 4))


@functools.lru_cache(maxsize=512)
def make_plan(
    spec: ScanSpec, seeds: int, steps: int, batch: int, slots: int, mode: str, loss: str = "binary"
) -> tuple[Plan, Array]:
    """mode: forward (nothing kept), keep, trace (keep every memory), backward or train, which has a loss."""
    c, m, n, r, w = spec.controller_size, spec.memory_width, slots, spec.read_heads, spec.write_heads
    layers, heads, lstm = spec.controller_layers, r + w, spec.controller == "lstm"
    kept_steps = 2 if mode == "forward" else steps
    segment = 1 if mode == "trace" else SEGMENT
    back = mode in ("backward", "train")
    first_width, next_width = spec.input_size + r * m + c * lstm, c + c * lstm
    gates = 4 * c if lstm else c
    hidden_stride = _up(c + 1, 16)
    summary = hidden_stride + _up(r * m, 16)
    all_seen = spec.output_from == "hidden_and_reads"
    ask_read, ask_write = _ask_sizes(spec)
    asks = r * ask_read + w * ask_write
    raw, face, outs = spec.interface.write, spec.interface.size, spec.output_size
    assert raw["add"].start == raw["erase"].stop, "the kernel's gradients of erase and add are one vector"
    first_p = gates * (first_width + 1)
    interface_p = first_p + (layers - 1) * gates * (next_width + 1)
    strides = [(_up(first_width + 1, 16), _up(gates, 8))]
    strides += [(_up(next_width + 1, 16), _up(gates, 8))] * (layers - 1)
    strides += [(hidden_stride, _up(face, 8)), (summary if all_seen else hidden_stride, _up(outs, 8))]
    record = _record(spec, kept_steps, slots, 0 if mode == "forward" else segment)
    widest = max(rows for _, rows in strides)
    work = _Offsets(
        hidden_w=layers * c,
        reads_w=r * m,
        memory_w=m * n,
        d_memory_w=m * n * back,
        d_weighting_w=heads * n * back,
        d_hidden_w=layers * c * back,
        d_cell_w=layers * c * back,
        d_reads_w=r * m * back,
        replay_w=(segment + 1) * m * n * back,
        d_summary_w=summary * back,
        d_v_w=max(stride for stride, _ in strides) * back,
        d_logits_w=widest * back,
        d_gates_w=widest * back,
        d_raw_w=widest * back,
    )
    shared = _Offsets(
        raw_g=face,
        d_ask_g=ask_write,
        key_g=m,
        zeros_g=m,
        ring_g=n + 2 * spec.shift_range,
        d_ring_g=n + 2 * spec.shift_range,
        spare_g=n,
        logs_g=n,
        effective_g=w * n,
        d_effective_g=w * n,
        before_g=w * SLOT_BLOCK * back,
        after_g=SLOT_BLOCK * back,
        lanes_g=LANES,
        packed_g=sum(stride * rows for stride, rows in strides),
        d_packed_g=sum(stride * rows for stride, rows in strides) * back,
        pending_g=PENDING * sum(stride + rows for stride, rows in strides) * back,
    )
    rows = rows_per_group(batch)
    plan = Plan(
        S=seeds,
        T=steps,
        B=batch,
        N=n,
        I=spec.input_size,
        O=outs,
        C=c,
        L=layers,
        R=r,
        W=w,
        M=m,
        r=spec.shift_range,
        P=spec.parameter_count,
        lstm=int(lstm),
        key_tanh=int(spec.key_activation == "tanh"),
        add_kind=("linear", "tanh", "sigmoid").index(spec.add_activation),
        soft_shift=int(spec.shift == "softmax"),
        read_after_write=int(spec.order == "write_then_read"),
        write_gate=int(spec.write_gate),
        clipped=int(spec.interface_clip is not None),
        forward=int(mode != "backward"),
        backward=int(back),
        loss=LOSSES[loss] if mode == "train" else 0,
        keep=int(mode in ("keep", "trace", "backward")),
        segment=segment,
        time_mask=1 if mode == "forward" else -1,
        rows=rows,
        groups=-(-batch // rows) if rows else 0,
        first_width=first_width,
        next_width=next_width,
        first_stride=strides[0][0],
        next_stride=_up(next_width + 1, 16),
        gates=gates,
        gates_stride=_up(gates, 8),
        hidden_stride=hidden_stride,
        summary=summary,
        output_width=c + r * m if all_seen else c,
        output_stride=strides[-1][0],
        logits_stride=_up(outs, 8),
        F=face,
        F_stride=_up(face, 8),
        raw_read=spec.interface.read.size,
        raw_write=raw.size,
        **{f"raw_{name}": raw[name].start for name in raw.sizes},
        ask_read=ask_read,
        ask_write=ask_write,
        asks=asks,
        interface_p=interface_p,
        output_p=interface_p + face * (c + 1),
        steps=kept_steps,
        record=record.size,
        work=work.size,
        shared=shared.size,
        **record.offsets,
        **work.offsets,
        **shared.offsets,
    )
    return plan, np.array(plan, dtype=np.int64)


class _Offsets:
    """Parts one after the other; each begins at a multiple of 64 bytes (of float32)."""

    def __init__(self, **sizes: int) -> None:
        self.offsets: dict[str, int] = {}
        self.size = 0
        for name, size in sizes.items():
            self.offsets[name] = self.size
            self.size += _up(size, 16) + GAP


def _up(size: int, step: int) -> int:
    """The next multiple of `step`."""
    return (size + step - 1) // step * step


def _ask_sizes(spec: ScanSpec) -> tuple[int, int]:
    """Numbers that a read head and a write head ask for, after the activations: see compiled/interface.py."""
    read = spec.memory_width + SHIFTS + 2 * spec.shift_range + 1
    return read, read + 2 * spec.memory_width + 1


def _record(spec: ScanSpec, steps: int, slots: int, segment: int) -> _Offsets:
    """The parts of a row's record; segment 0 keeps no memories."""
    c, m, lstm, layers = spec.controller_size, spec.memory_width, spec.controller == "lstm", spec.controller_layers
    heads, reads = spec.read_heads + spec.write_heads, spec.read_heads * m
    ask_read, ask_write = _ask_sizes(spec)
    asks = spec.read_heads * ask_read + spec.write_heads * ask_write
    first, following = spec.input_size + reads + c * lstm + 1, c + c * lstm + 1
    return _Offsets(
        v_at=(_up(first, 16) + (layers - 1) * _up(following, 16)) * steps,
        gates_at=layers * steps * _up(4 * c if lstm else c, 8),
        tanh_at=layers * steps * c * lstm,
        cells_at=layers * (steps + 1) * c * lstm,
        summary_at=steps * (_up(c + 1, 16) + _up(reads, 16)),
        raw_at=steps * _up(spec.interface.size, 8),
        ask_at=steps * asks,
        logits_at=steps * _up(spec.output_size, 8),
        similarity_at=steps * heads * slots,
        content_at=steps * heads * slots,
        weighting_at=(steps + 1) * heads * slots,
        norms_at=(steps + 1) * slots,
        memory_at=(steps + segment - 1) // segment * m * slots if segment else 0,
    )


def record_size(spec: ScanSpec, steps: int, slots: int) -> int:
    """Numbers that one sequence's record holds: the last dimension of `kept`."""
    return _record(spec, steps, slots, SEGMENT).size
