"""Plans: from a machine and a shape to all sizes and offsets that steer the kernel."""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from tapehead.kernels.dnc_scan.cpu.compiled.interface import READ_ASKS, WRITE_ASKS
from tapehead.kernels.dnc_scan.cpu.compiled.plan import Plan
from tapehead.kernels.dnc_scan.spec import DNCSpec
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import LANES
from tapehead.kernels.ntm_scan.cpu.layout import Layout, Offsets, up

Array = npt.NDArray[Any]

SLOT_VECTORS = (
    *("norms_g", "retention_g", "d_retention_g", "products_g"),
    *("d_allocation_g", "d_content_g", "alpha_g", "delta_g"),
)
"""Parts of a group's working memory with a number for each slot."""


@functools.lru_cache(maxsize=512)
def make_plan(
    spec: DNCSpec, seeds: int, steps: int, batch: int, slots: int, mode: str, loss: str = "binary"
) -> tuple[Plan, Array]:
    """mode: that of a `Layout`, without trace."""
    layout = Layout(spec, mode)
    asks, pairs = _asks(spec), up(2 * spec.read_heads, 8)
    record, work, shared = _record(layout, steps, slots), _work(layout, slots), _shared(layout, asks, pairs, slots)
    read, write = spec.interface.read, spec.interface.write
    assert read["key"].start == write["key"].start == 0, "the kernel takes keys from the beginning of a head's entries"
    plan = Plan(
        **layout.sizes(seeds, steps, batch, slots, loss),
        oneplus=int(spec.strength == "oneplus"),
        detached=int(spec.detached_usage),
        masked=int(spec.masked_content),
        deallocation=int(spec.deallocation),
        sharp=int(spec.link_sharpness),
        **{f"read_{name}": read[name].start for name in read.sizes if name != "key"},
        **{f"write_{name}": write[name].start for name in write.sizes if name != "key"},
        ask_read=_ask_read(spec),
        asks=asks,
        pairs=pairs,
        record=record.size,
        work=work.size,
        shared=shared.size,
        **record.offsets,
        **work.offsets,
        **shared.offsets,
    )
    return plan, np.array(plan, dtype=np.int64)


def _ask_read(spec: DNCSpec) -> int:
    """Numbers that a read head asks for, after the activations: see compiled/interface.py."""
    return 2 * spec.memory_width + READ_ASKS


def _asks(spec: DNCSpec) -> int:
    """The same of all heads."""
    return spec.read_heads * _ask_read(spec) + 4 * spec.memory_width + WRITE_ASKS


def _record(layout: Layout, steps: int, n: int) -> Offsets:
    spec, r, steps = layout.spec, layout.spec.read_heads, layout.steps(steps)
    assert isinstance(spec, DNCSpec)
    segments = 0 if layout.mode == "forward" else -(-steps // layout.segment)
    return Offsets(
        **layout.record(steps),
        ask_at=steps * _asks(spec),
        similarity_at=steps * (r + 1) * n,
        content_at=steps * (r + 1) * n,
        weighting_at=(steps + 1) * (r + 1) * n,
        forward_at=steps * r * n,
        backward_at=steps * r * n,
        raw_forward_at=steps * r * n * spec.link_sharpness,
        raw_backward_at=steps * r * n * spec.link_sharpness,
        order_at=steps * n,
        allocation_at=steps * n,
        usage_at=(steps + 1) * n,
        precedence_at=(steps + 1) * n,
        norms_at=(steps + 1) * n,
        memory_at=segments * spec.memory_width * n,
        link_at=segments * n * n,
    )


def _work(layout: Layout, n: int) -> Offsets:
    m, heads, segment = layout.spec.memory_width, layout.spec.read_heads + 1, layout.segment
    back = dict(
        d_memory_w=m * n,
        d_link_w=n * n,
        d_weighting_w=heads * n,
        d_usage_w=n,
        d_precedence_w=n,
        replay_w=(segment + 1) * m * n,
        replay_link_w=(segment + 1) * n * n,
    )
    return Offsets(
        memory_w=m * n, link_w=n * n, **{name: size * layout.back for name, size in back.items()}, **layout.work()
    )


def _shared(layout: Layout, asks: int, pairs: int, n: int) -> Offsets:
    m, r, along = layout.spec.memory_width, layout.spec.read_heads, dict.fromkeys(SLOT_VECTORS, n)
    width = dict.fromkeys(("key_g", "focus_g", "squares_g", "zeros_g"), m)
    rest = dict(d_ask_g=asks, before_g=r * n, d_gates_g=r, left_g=pairs * n, right_g=pairs * n, kept_g=m * n)
    return Offsets(**width, **along, **rest, lanes_g=LANES, **layout.weights())
