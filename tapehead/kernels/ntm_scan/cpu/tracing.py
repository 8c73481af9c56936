"""Traces, read from the records that the forward pass keeps."""

import math

import torch
from torch import Tensor

from tapehead import equations
from tapehead.kernels.ntm_scan.contract import HeadTrace, Trace
from tapehead.kernels.ntm_scan.cpu.compiled.interface import GATE, SHARPENING, SHIFTS, STRENGTH
from tapehead.kernels.ntm_scan.cpu.compiled.plan import Plan


def trace_of_row(plan: Plan, record: Tensor, length: int, n: int, final: Tensor) -> Trace:
    """One sequence's trace, [T, ...]; what lies beyond its length and its slots is zero."""
    p, steps, heads = plan, plan.T, plan.R + plan.W

    def part(at: int, *shape: int) -> Tensor:
        return record[at : at + math.prod(shape)].reshape(shape)

    def whole(values: Tensor, slot_axis: int | None = None) -> Tensor:
        """`length` steps and `n` slots of values, in tensors of zeros for all steps and the whole tape."""
        shape = [steps, *values.shape[1:]]
        if slot_axis is not None:
            shape[slot_axis] = p.N
            values = values.narrow(slot_axis, 0, n)
        padded = values.new_zeros(shape)
        target = padded if slot_axis is None else padded.narrow(slot_axis, 0, n)
        target[:length] = values[:length]
        return padded

    asks = part(p.ask_at, steps, p.asks)
    content = part(p.content_at, steps, heads, p.N)[..., :n]
    weightings = part(p.weighting_at, steps + 1, heads, p.N)[..., :n]
    split = p.R * p.ask_read

    def head_trace(ask: Tensor, first: int, last: int) -> HeadTrace:
        """ask [T, H, ...]; the stages between content and weighting are not recorded but follow from the two."""
        m = p.M
        key, strength, gate, gamma = ask[..., :m], ask[..., m + STRENGTH], ask[..., m + GATE], ask[..., m + SHARPENING]
        shifts = ask[..., m + SHIFTS : p.ask_read]
        chosen = content[:, first:last]
        interpolated = equations.interpolate(gate, chosen, weightings[:-1, first:last])
        shifted = equations.shift(interpolated, shifts)
        stages = (chosen, interpolated, shifted, weightings[1:, first:last])
        return HeadTrace(*map(whole, (key, strength, gate, shifts, gamma)), *(whole(x, 2) for x in stages))

    writing = asks[:, split:].reshape(steps, p.W, p.ask_write)
    memories = torch.empty(steps, n, p.M, dtype=record.dtype)
    memories[:-1] = part(p.memory_at, steps, p.M * p.N)[1:, : p.M * n].reshape(steps - 1, p.M, n).transpose(1, 2)
    if length > 0:
        memories[length - 1] = final[:n]
    summary = part(p.summary_at, steps, p.summary)
    reads = summary[:, p.hidden_stride : p.hidden_stride + p.R * p.M]
    return Trace(
        read=head_trace(asks[:, :split].reshape(steps, p.R, p.ask_read), 0, p.R),
        write=head_trace(writing, p.R, heads),
        erase=whole(writing[..., p.ask_read : p.ask_read + p.M]),
        add=whole(writing[..., p.ask_read + p.M : p.ask_read + 2 * p.M]),
        write_gates=whole(writing[..., p.ask_read + 2 * p.M]),
        memory=whole(memories, 1),
        reads=whole(reads.reshape(steps, p.R, p.M)),
        hidden=whole(summary[:, : p.C]),
    )


def stack(traces: list[Trace], axis: int) -> Trace:
    heads = [
        HeadTrace(*(torch.stack(parts, axis) for parts in zip(*(t[k] for t in traces), strict=True))) for k in (0, 1)
    ]
    rest = (torch.stack(parts, axis) for parts in zip(*(t[2:] for t in traces), strict=True))
    return Trace(heads[0], heads[1], *rest)
