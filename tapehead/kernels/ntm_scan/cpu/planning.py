"""Plans: from a machine and a shape to all sizes and offsets that steer the kernel."""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from tapehead.kernels.ntm_scan.cpu.compiled.interface import SHIFTS
from tapehead.kernels.ntm_scan.cpu.compiled.memory import SLOT_BLOCK
from tapehead.kernels.ntm_scan.cpu.compiled.plan import Plan
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import LANES
from tapehead.kernels.ntm_scan.cpu.layout import SEGMENT, Layout, Offsets
from tapehead.kernels.ntm_scan.spec import ScanSpec

Array = npt.NDArray[Any]


@functools.lru_cache(maxsize=512)
def make_plan(
    spec: ScanSpec, seeds: int, steps: int, batch: int, slots: int, mode: str, loss: str = "binary"
) -> tuple[Plan, Array]:
    """mode: that of a `Layout`."""
    layout = Layout(spec, mode)
    m, n, r, w, back = spec.memory_width, slots, spec.read_heads, spec.write_heads, layout.back
    heads, segment = r + w, layout.segment
    ask_read, ask_write = _ask_sizes(spec)
    raw = spec.interface.write
    assert raw["add"].start == raw["erase"].stop, "the kernel's gradients of erase and add are one vector"
    record = _record(spec, layout.steps(steps), slots, 0 if mode == "forward" else segment)
    work = Offsets(
        memory_w=m * n,
        d_memory_w=m * n * back,
        d_weighting_w=heads * n * back,
        replay_w=(segment + 1) * m * n * back,
        **layout.work(),
    )
    shared = Offsets(
        raw_g=spec.interface.size,
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
        **layout.weights(),
    )
    plan = Plan(
        **layout.sizes(seeds, steps, batch, slots, loss),
        W=w,
        r=spec.shift_range,
        key_tanh=int(spec.key_activation == "tanh"),
        add_kind=("linear", "tanh", "sigmoid").index(spec.add_activation),
        soft_shift=int(spec.shift == "softmax"),
        read_after_write=int(spec.order == "write_then_read"),
        write_gate=int(spec.write_gate),
        clipped=int(spec.interface_clip is not None),
        **{f"raw_{name}": raw[name].start for name in raw.sizes},
        ask_read=ask_read,
        ask_write=ask_write,
        asks=r * ask_read + w * ask_write,
        record=record.size,
        work=work.size,
        shared=shared.size,
        **record.offsets,
        **work.offsets,
        **shared.offsets,
    )
    return plan, np.array(plan, dtype=np.int64)


def _ask_sizes(spec: ScanSpec) -> tuple[int, int]:
    """Numbers that a read head and a write head ask for, after the activations: see compiled/interface.py."""
    read = spec.memory_width + SHIFTS + 2 * spec.shift_range + 1
    return read, read + 2 * spec.memory_width + 1


def _record(spec: ScanSpec, steps: int, slots: int, segment: int) -> Offsets:
    """The parts of a row's record; segment 0 keeps no memories."""
    heads = spec.read_heads + spec.write_heads
    ask_read, ask_write = _ask_sizes(spec)
    return Offsets(
        **Layout(spec, "keep").record(steps),
        ask_at=steps * (spec.read_heads * ask_read + spec.write_heads * ask_write),
        similarity_at=steps * heads * slots,
        content_at=steps * heads * slots,
        weighting_at=(steps + 1) * heads * slots,
        norms_at=(steps + 1) * slots,
        memory_at=(steps + segment - 1) // segment * spec.memory_width * slots if segment else 0,
    )


def record_size(spec: ScanSpec, steps: int, slots: int) -> int:
    """Numbers that one sequence's record holds: the last dimension of `kept`."""
    return _record(spec, steps, slots, SEGMENT).size
