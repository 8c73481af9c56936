"""One step of one row's memory. `now` and `following` are where a record holds what was before and after the step."""

from typing import Any

from tapehead.kernels.ntm_scan.cpu.compiled.addressing import Head, Spare, address, address_back
from tapehead.kernels.ntm_scan.cpu.compiled.interface import Raw, activate, activate_back, clip_all
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import view
from tapehead.kernels.ntm_scan.cpu.compiled.maths import sigmoid
from tapehead.kernels.ntm_scan.cpu.compiled.memory import (
    SLOT_BLOCK,
    Tape,
    slot_norms,
    weigh_rows,
    weigh_slots,
    write,
    write_back,
    write_back_many,
    write_from,
)
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled, inlined
from tapehead.kernels.ntm_scan.cpu.compiled.plan import Plan
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import LANES, copy, fill_zero, sigmoid_all, tanh_all


@inlined
def tape_at(p: Plan, buffer: Array, at: int, n: int) -> Tape:
    return Tape(view(buffer, at, p.M * n), n, p.M)


@inlined
def _ask_at(p: Plan, head: int, now: int) -> int:
    at = p.ask_at + now * p.asks
    return at + (head * p.ask_read if head < p.R else p.R * p.ask_read + (head - p.R) * p.ask_write)


@inlined
def _raw_start(p: Plan, head: int) -> int:
    """Where a head's part of the interface begins."""
    return head * p.raw_read if head < p.R else p.R * p.raw_read + (head - p.R) * p.raw_write


@inlined
def _raw_parts(p: Plan) -> Raw:
    return Raw(p.raw_key, p.raw_strength, p.raw_gate, p.raw_shift, p.raw_sharpening)


@inlined
def _head(p: Plan, record: Array, head: int, now: int, following: int, seen: int, n: int) -> Head:
    """A head in the record; `seen` is the step whose memory it addresses."""
    at = (now * (p.R + p.W) + head) * p.N
    return Head(
        view(record, _ask_at(p, head, now), p.ask_read),
        view(record, p.norms_at + seen * p.N, n),
        view(record, p.weighting_at + at, n),
        view(record, p.similarity_at + at, n),
        view(record, p.content_at + at, n),
        view(record, p.weighting_at + (following * (p.R + p.W) + head) * p.N, n),
    )


@inlined
def _spare(p: Plan, shared: Array, n: int) -> Spare:
    return Spare(
        view(shared, p.key_g, p.M),
        view(shared, p.ring_g, n + 2 * p.r),
        view(shared, p.d_ring_g, n + 2 * p.r),
        view(shared, p.spare_g, n),
        view(shared, p.logs_g, n),
        view(shared, p.lanes_g, LANES),
    )


@compiled
def _effective(p: Plan, record: Array, now: int, following: int, n: int, target: Array) -> None:
    """Write weightings [W, N] times the write gates."""
    for h in range(p.W):
        g = record[_ask_at(p, p.R + h, now) + p.ask_read + 2 * p.M]
        source = view(record, p.weighting_at + (following * (p.R + p.W) + p.R + h) * p.N, n)
        for i in range(n):
            target[h * p.N + i] = g * source[i]


@inlined
def _written(p: Plan, record: Array, now: int, following: int, n: int, shared: Array) -> Array:
    """The weightings [W, N] with which the heads write."""
    weightings: Array = view(record, p.weighting_at + (following * (p.R + p.W) + p.R) * p.N, p.W * p.N)
    if p.write_gate == 1:
        weightings = view(shared, p.effective_g, p.W * p.N)
        _effective(p, record, now, following, n, weightings)
    return weightings


@inlined
def _erases(p: Plan, record: Array, now: int) -> Array:
    erases: Array = view(record, _ask_at(p, p.R, now) + p.ask_read, p.W * p.ask_write - p.ask_read)
    return erases


@compiled
def _write_step(p: Plan, record: Array, now: int, following: int, tape: Tape, norms: Array, shared: Array) -> None:
    """The writes of one step."""
    if p.W == 0:
        slot_norms(tape, norms)
        return
    weightings = _written(p, record, now, following, tape.n, shared)
    write(tape, weightings, p.N, p.W, _erases(p, record, now), p.ask_write, norms)


@inlined
def _ask_all(p: Plan, clip: Any, record: Array, now: int, shared: Array) -> None:
    """The activations of the whole interface."""
    one = record.dtype.type(1)
    raw = view(record, p.raw_at + now * p.F_stride, p.F)
    if p.clipped == 1:
        clip_all(clip, raw, view(shared, p.raw_g, p.F))
        raw = view(shared, p.raw_g, p.F)
    for h in range(p.R + p.W):
        own = view(raw, _raw_start(p, h), p.raw_read)
        ask = view(record, _ask_at(p, h, now), p.ask_read)
        activate(own, _raw_parts(p), ask, p.M, p.r, p.key_tanh, p.soft_shift)
        if h >= p.R:
            own = view(raw, _raw_start(p, h), p.raw_write)
            ask = view(record, _ask_at(p, h, now) + p.ask_read, 2 * p.M + 1)
            add = view(own, p.raw_add, p.M)
            sigmoid_all(view(own, p.raw_erase, p.M), view(ask, 0, p.M))
            if p.add_kind == 0:
                copy(add, view(ask, p.M, p.M))
            elif p.add_kind == 1:
                tanh_all(add, view(ask, p.M, p.M))
            else:
                sigmoid_all(add, view(ask, p.M, p.M))
            ask[2 * p.M] = sigmoid(own[p.raw_write_gate], one) if p.write_gate == 1 else one


@inlined
def memory_step(
    p: Plan, clip: Any, record: Array, work: Array, shared: Array, now: int, following: int, n: int
) -> None:
    """All heads on the tape of one row, in the order of the specification."""
    _ask_all(p, clip, record, now, shared)
    tape, spare = tape_at(p, work, p.memory_w, n), _spare(p, shared, n)
    for turn in range(2):
        writing = turn == 0 if p.read_after_write == 1 else turn == 1
        seen = now if writing or p.read_after_write == 0 else following
        first, last = (p.R, p.R + p.W) if writing else (0, p.R)
        for h in range(first, last):
            head = _head(p, record, h, now, following, seen, n)
            address(head, spare, tape, p.r)
            if not writing:
                weigh_slots(head.weighting, tape, view(work, p.reads_w + h * p.M, p.M))
        if writing:
            _write_step(p, record, now, following, tape, view(record, p.norms_at + following * p.N, n), shared)


@inlined
def _write_step_back(p: Plan, record: Array, work: Array, shared: Array, t: int, tape: Tape, d_tape: Tape) -> None:
    """Backward of Eqs. 3 and 4, of the write gates and of the activations of erase and add."""
    zero, one = record.dtype.type(0), record.dtype.type(1)
    weightings_at = p.weighting_at + ((t + 1) * (p.R + p.W) + p.R) * p.N
    weightings, d_weightings = (
        view(record, weightings_at, p.W * p.N),
        view(work, p.d_weighting_w + p.R * p.N, p.W * p.N),
    )
    effective, d_effective = weightings, d_weightings
    if p.write_gate == 1:
        effective, d_effective = view(shared, p.effective_g, p.W * p.N), view(shared, p.d_effective_g, p.W * p.N)
        _effective(p, record, t, t + 1, tape.n, effective)
        fill_zero(d_effective)
    asks = view(record, _ask_at(p, p.R, t) + p.ask_read, p.W * p.ask_write - p.ask_read)
    # from the first head's erase on; add follows it there and in `asks`
    d_raws = view(work, p.d_raw_w + _raw_start(p, p.R) + p.raw_erase, p.W * p.raw_write - p.raw_erase)
    if p.W == 1:
        erase, add, d_erase, d_add = asks, view(asks, p.M, p.M), view(d_raws, 0, p.M), view(d_raws, p.M, p.M)
        write_back(tape, d_tape, effective, d_effective, erase, add, d_erase, d_add)
    else:
        before, after = view(shared, p.before_g, p.W * SLOT_BLOCK), view(shared, p.after_g, SLOT_BLOCK)
        write_back_many(
            tape, d_tape, effective, d_effective, p.N, p.W, asks, p.ask_write, d_raws, p.raw_write, before, after
        )
    for h in range(p.W):
        ask, d_raw = view(asks, h * p.ask_write, 2 * p.M + 1), view(d_raws, h * p.raw_write, 2 * p.M)
        for m in range(p.M):
            d_raw[m] *= ask[m] * (one - ask[m])
        for m in range(p.M, 2 * p.M):
            if p.add_kind == 1:
                d_raw[m] *= one - ask[m] * ask[m]
            elif p.add_kind == 2:
                d_raw[m] *= ask[m] * (one - ask[m])
        if p.write_gate == 1:
            g, d_g = ask[2 * p.M], zero
            for i in range(h * p.N, h * p.N + tape.n):
                d_g += d_effective[i] * weightings[i]
                d_weightings[i] += g * d_effective[i]
            work[p.d_raw_w + _raw_start(p, p.R + h) + p.raw_write_gate] = d_g * g * (one - g)


@inlined
def memory_step_back(p: Plan, clip: Any, record: Array, work: Array, shared: Array, t: int, n: int) -> None:
    """Backward of `memory_step`: gradients of the interface, of the memory and of the weightings before the step."""
    raw, seen_raw = view(record, p.raw_at + t * p.F_stride, p.F), view(record, p.raw_at + t * p.F_stride, p.F)
    if p.clipped == 1:
        seen_raw = view(shared, p.raw_g, p.F)
        clip_all(clip, raw, seen_raw)
    at = p.replay_w + (t % p.segment) * p.M * p.N
    before, after = tape_at(p, work, at, n), tape_at(p, work, at + p.M * p.N, n)
    d_tape, spare = tape_at(p, work, p.d_memory_w, n), _spare(p, shared, n)
    d_ask, d_read = view(shared, p.d_ask_g, p.ask_read), view(shared, p.zeros_g, p.M)
    for turn in range(2):
        writing = turn == 1 if p.read_after_write == 1 else turn == 0
        if writing and p.W > 0:
            _write_step_back(p, record, work, shared, t, before, d_tape)
        late = not writing and p.read_after_write == 1
        first, last = (p.R, p.R + p.W) if writing else (0, p.R)
        for h in range(first, last):
            tape = after if late else before
            d_weighting = view(work, p.d_weighting_w + h * p.N, n)
            d_read = view(shared, p.zeros_g, p.M)
            if not writing:
                d_read = view(work, p.d_reads_w + h * p.M, p.M)
                weigh_rows(d_read, tape, d_weighting)
            head = _head(p, record, h, t, t + 1, t + 1 if late else t, n)
            address_back(head, spare, tape, p.r, d_tape, d_weighting, d_read, d_ask)
            own, d_own = (
                view(seen_raw, _raw_start(p, h), p.raw_read),
                view(work, p.d_raw_w + _raw_start(p, h), p.raw_read),
            )
            activate_back(own, _raw_parts(p), head.ask, d_ask, d_own, p.M, p.r, p.key_tanh, p.soft_shift)
    if p.clipped == 1:
        for i in range(p.F):
            if raw[i] > clip or raw[i] < -clip:
                work[p.d_raw_w + i] = record.dtype.type(0)


@compiled
def replay(p: Plan, record: Array, work: Array, shared: Array, t: int, n: int) -> None:
    """The memories before the steps of t's segment up to t, and after t: the same writes as in the forward pass."""
    size = p.M * n
    begin = t - t % p.segment
    copy(view(record, p.memory_at + (t // p.segment) * p.M * p.N, size), view(work, p.replay_w, size))
    for k in range(t - begin + p.read_after_write):
        at, now = p.replay_w + k * p.M * p.N, begin + k
        old, tape = tape_at(p, work, at, n), tape_at(p, work, at + p.M * p.N, n)
        if p.W == 0:
            copy(old.entries, tape.entries)
        else:
            weightings, spare = _written(p, record, now, now + 1, n, shared), view(shared, p.spare_g, n)
            write_from(old, tape, weightings, p.N, p.W, _erases(p, record, now), p.ask_write, spare)
