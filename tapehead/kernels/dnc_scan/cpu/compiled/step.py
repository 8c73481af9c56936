"""One step of one row's memory. `now` and `following` are where a record holds what was before and after the step."""

from typing import Any

from tapehead.kernels.dnc_scan.cpu.compiled import interface, links, writing
from tapehead.kernels.dnc_scan.cpu.compiled.content import Head, address, address_back, masked_norms
from tapehead.kernels.dnc_scan.cpu.compiled.interface import (
    ALLOCATION_GATE,
    FREE_GATE,
    MODES,
    READ_ASKS,
    SHARPNESS,
    WRITE_ASKS,
    WRITE_GATE,
    Reading,
    Writing,
)
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.memory import (
    Tape,
    tape_row,
    weigh_rows,
    weigh_slots,
    write,
    write_back,
    write_from,
)
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled, inlined
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import LANES, copy, fill_zero


@inlined
def tape_at(p: Any, buffer: Array, at: int, n: int) -> Tape:
    return Tape(view(buffer, at, p.M * n), n, p.M)


@inlined
def link_at(buffer: Array, at: int, n: int) -> Tape:
    return Tape(view(buffer, at, n * n), n, n)


@inlined
def _ask_at(p: Any, head: int, now: int) -> int:
    """Head R is the write head."""
    at: int = p.ask_at + now * p.asks + head * p.ask_read
    return at


@inlined
def _weighting_at(p: Any, head: int, now: int) -> int:
    at: int = p.weighting_at + (now * (p.R + 1) + head) * p.N
    return at


@inlined
def _reading(p: Any) -> Reading:
    return Reading(
        p.read_strength, p.read_free_gate, p.read_modes, p.read_mask, p.read_sharpness, p.oneplus, p.masked, p.sharp
    )


@inlined
def _writing(p: Any) -> Writing:
    return Writing(
        p.write_strength, p.write_erase, p.write_add, p.write_allocation_gate, p.write_write_gate, p.write_mask,
        p.oneplus, p.masked,
    )  # fmt: skip


@compiled
def _head(p: Any, record: Array, shared: Array, head: int, now: int, seen: int, tape: Tape) -> Head:
    """A head in the record; `seen` is the step whose memory it addresses, `tape`."""
    n, at = tape.n, (now * (p.R + 1) + head) * p.N
    ask = view(record, _ask_at(p, head, now), p.ask_read)
    mask = view(ask, p.M + (READ_ASKS if head < p.R else WRITE_ASKS), p.M)
    norms = view(record, p.norms_at + seen * p.N, n)
    if p.masked == 1:
        norms = view(shared, p.norms_g, n)
        masked_norms(tape, mask, norms)
    similarity, content = view(record, p.similarity_at + at, n), view(record, p.content_at + at, n)
    key, focus = view(shared, p.key_g, p.M), view(shared, p.focus_g, p.M)
    return Head(ask, mask, p.masked, norms, similarity, content, key, focus)


@inlined
def _ask_all(p: Any, record: Array, now: int) -> None:
    raw, at = view(record, p.raw_at + now * p.F_stride, p.F), _ask_at(p, 0, now)
    for h in range(p.R):
        own = view(raw, h * p.raw_read, p.raw_read)
        interface.activate_read(own, _reading(p), view(record, at + h * p.ask_read, p.ask_read), p.M)
    write_at = p.R * p.ask_read
    own = view(raw, p.R * p.raw_read, p.raw_write)
    interface.activate_write(own, _writing(p), view(record, at + write_at, p.asks - write_at), p.M)


@compiled
def _retain(p: Any, record: Array, now: int, psi: Array) -> None:
    asks, weightings = view(record, _ask_at(p, 0, now), p.asks), view(record, _weighting_at(p, 0, now), p.R * p.N)
    interface.retention(asks, p.ask_read, p.M, weightings, p.N, p.R, psi)


@compiled
def _deallocate(tape: Tape, psi: Array, target: Array) -> None:
    """psi(i) M(i)."""
    leaf()
    for m in range(tape.width):
        x, y = tape_row(tape, m, 0, tape.n), view(target, m * tape.n, tape.n)
        for i in range(tape.n):
            y[i] = psi[i] * x[i]


@inlined
def _kept(p: Any, record: Array, now: int, tape: Tape, shared: Array) -> Tape:
    """The memory that the write of a step changes: after de-allocation, elsewhere, if the machine has one."""
    kept = tape
    if p.deallocation == 1:
        psi = view(shared, p.retention_g, tape.n)
        _retain(p, record, now, psi)
        kept = tape_at(p, shared, p.kept_g, tape.n)
        _deallocate(tape, psi, kept.entries)
    return kept


@inlined
def _erases(p: Any, record: Array, now: int) -> Array:
    """Erase, then add."""
    erases: Array = view(record, _ask_at(p, p.R, now) + 2 * p.M + WRITE_ASKS, 2 * p.M)
    return erases


@compiled
def _write_step(p: Any, record: Array, now: int, following: int, tape: Tape, shared: Array, norms: Array) -> None:
    """The write of one step."""
    if p.deallocation == 1:
        copy(_kept(p, record, now, tape, shared).entries, tape.entries)
    weighting = view(record, _weighting_at(p, p.R, following), tape.n)
    write(tape, weighting, p.N, 1, _erases(p, record, now), 0, norms)


@inlined
def _write_head(p: Any, record: Array, shared: Array, now: int, following: int, tape: Tape) -> None:
    """Usage, allocation and the write weighting."""
    n = tape.n
    psi, lanes = view(shared, p.retention_g, n), view(shared, p.lanes_g, LANES)
    order = view(record, p.order_at + now * p.N, n)
    usage, allocation = view(record, p.usage_at + following * p.N, n), view(record, p.allocation_at + now * p.N, n)
    _retain(p, record, now, psi)
    writing.use(view(record, p.usage_at + now * p.N, n), view(record, _weighting_at(p, p.R, now), n), psi, usage)
    head = _head(p, record, shared, p.R, now, now, tape)
    address(head, tape, lanes)
    writing.sort_slots(usage, order)
    writing.allocate(usage, order, allocation)
    g_a, g_w = head.ask[p.M + ALLOCATION_GATE], head.ask[p.M + WRITE_GATE]
    writing.weigh(allocation, head.content, g_a, g_w, view(record, _weighting_at(p, p.R, following), n))


@compiled
def _mix(modes: Array, backward: Array, content: Array, forward: Array, weighting: Array) -> None:
    leaf()
    p_b, p_c, p_f = modes[0], modes[1], modes[2]
    for i in range(weighting.size):
        weighting[i] = p_b * backward[i] + p_c * content[i] + p_f * forward[i]


@compiled
def _mix_back(
    modes: Array, backward: Array, content: Array, forward: Array, d_weighting: Array, d_backward: Array,
    d_content: Array, d_forward: Array, d_modes: Array,
) -> None:  # fmt: skip
    leaf()
    p_b, p_c, p_f = modes[0], modes[1], modes[2]
    zero = modes.dtype.type(0)
    d_b, d_c, d_f = zero, zero, zero
    for i in range(d_weighting.size):
        g = d_weighting[i]
        d_b += g * backward[i]
        d_c += g * content[i]
        d_f += g * forward[i]
        d_backward[i] = p_b * g
        d_content[i] = p_c * g
        d_forward[i] = p_f * g
    d_modes[0], d_modes[1], d_modes[2] = d_b, d_c, d_f


@inlined
def _follow_links(p: Any, record: Array, now: int, link: Tape) -> None:
    """Forward and backward weightings of all read heads."""
    n, at = link.n, now * p.R * p.N
    forward_at, backward_at = p.forward_at + at, p.backward_at + at
    if p.sharp == 1:
        forward_at, backward_at = p.raw_forward_at + at, p.raw_backward_at + at
    previous = view(record, _weighting_at(p, 0, now), p.R * p.N)
    backward = view(record, backward_at, p.R * p.N)
    fill_zero(backward)
    links.add_backward(link.entries, n, previous, p.N, backward, p.N, p.R)
    for h in range(p.R):
        weigh_slots(view(previous, h * p.N, n), link, view(record, forward_at + h * p.N, n))


@compiled
def _read_head(p: Any, record: Array, shared: Array, h: int, now: int, following: int, tape: Tape, read: Array) -> None:
    n, at = tape.n, (now * p.R + h) * p.N
    lanes = view(shared, p.lanes_g, LANES)
    head = _head(p, record, shared, h, now, following, tape)
    address(head, tape, lanes)
    forward, backward = view(record, p.forward_at + at, n), view(record, p.backward_at + at, n)
    weighting = view(record, _weighting_at(p, h, following), n)
    if p.sharp == 1:
        raw_forward, raw_backward = view(record, p.raw_forward_at + at, n), view(record, p.raw_backward_at + at, n)
        sharpness, logs = view(head.ask, p.M + SHARPNESS, 2), view(shared, p.alpha_g, n)
        links.sharpen(raw_forward, sharpness[0], logs, forward, lanes)
        links.sharpen(raw_backward, sharpness[1], logs, backward, lanes)
    _mix(view(head.ask, p.M + MODES, 3), backward, head.content, forward, weighting)
    weigh_slots(weighting, tape, read)


@inlined
def memory_step(p: Any, record: Array, work: Array, shared: Array, now: int, following: int, n: int) -> None:
    """Write, link, read."""
    tape, link = tape_at(p, work, p.memory_w, n), link_at(work, p.link_w, n)
    _ask_all(p, record, now)
    _write_head(p, record, shared, now, following, tape)
    _write_step(p, record, now, following, tape, shared, view(record, p.norms_at + following * p.N, n))
    weighting = view(record, _weighting_at(p, p.R, following), n)
    precedence = view(record, p.precedence_at + now * p.N, n)
    links.link_step(link.entries, weighting, precedence)
    links.precedence_step(precedence, weighting, view(record, p.precedence_at + following * p.N, n))
    _follow_links(p, record, now, link)
    for h in range(p.R):
        read = view(work, p.reads_w + h * p.M, p.M)
        _read_head(p, record, shared, h, now, following, tape, read)


@compiled
def _read_head_back(
    p: Any, record: Array, work: Array, shared: Array, h: int, t: int, tape: Tape, d_tape: Tape
) -> None:
    """The gradients of its forward and backward weightings are noted, with the other halves of their outer products."""
    n, at = tape.n, (t * p.R + h) * p.N
    head = _head(p, record, shared, h, t, t + 1, tape)
    d_read, d_weighting = view(work, p.d_reads_w + h * p.M, p.M), view(work, p.d_weighting_w + h * p.N, n)
    previous, weighting = view(record, _weighting_at(p, h, t), n), view(record, _weighting_at(p, h, t + 1), n)
    forward, backward = view(record, p.forward_at + at, n), view(record, p.backward_at + at, n)
    left, right = view(shared, p.left_g + 2 * h * p.N, 2 * p.N), view(shared, p.right_g + 2 * h * p.N, 2 * p.N)
    d_forward, d_backward, d_content = view(left, 0, n), view(right, p.N, n), view(shared, p.d_content_g, n)
    alpha, delta = view(shared, p.alpha_g, n), view(shared, p.delta_g, n)
    d_ask = view(shared, p.d_ask_g + h * p.ask_read, p.ask_read)
    weigh_rows(d_read, tape, d_weighting)
    _mix_back(
        view(head.ask, p.M + MODES, 3), backward, head.content, forward, d_weighting, d_backward, d_content, d_forward,
        view(d_ask, p.M + MODES, 3),
    )  # fmt: skip
    d_mask = view(d_ask, p.M + READ_ASKS, p.M)
    address_back(
        head, tape, d_tape, d_content, weighting, d_read, alpha, delta, view(shared, p.squares_g, p.M), d_ask, d_mask
    )
    if p.sharp == 1:
        s, d_s = view(head.ask, p.M + SHARPNESS, 2), view(d_ask, p.M + SHARPNESS, 2)
        raw_forward, raw_backward = view(record, p.raw_forward_at + at, n), view(record, p.raw_backward_at + at, n)
        d_s[0] = links.sharpen_back(raw_forward, s[0], forward, alpha, d_forward)
        d_s[1] = links.sharpen_back(raw_backward, s[1], backward, alpha, d_backward)
    copy(previous, view(right, 0, n))
    copy(previous, view(left, p.N, n))


@inlined
def _follow_links_back(p: Any, work: Array, shared: Array, link: Tape) -> None:
    """The read heads' d_weightings become those of the weightings before."""
    n, d_weightings = link.n, view(work, p.d_weighting_w, p.R * p.N)
    for h in range(p.R):
        weigh_slots(view(shared, p.right_g + (2 * h + 1) * p.N, n), link, view(d_weightings, h * p.N, n))
    links.add_backward(link.entries, n, view(shared, p.left_g, 2 * p.R * p.N), 2 * p.N, d_weightings, p.N, p.R)


@compiled
def _deallocate_back(tape: Tape, psi: Array, d_tape: Tape, d_psi: Array) -> None:
    leaf()
    for m in range(tape.width):
        x, d = tape_row(tape, m, 0, tape.n), tape_row(d_tape, m, 0, tape.n)
        for i in range(tape.n):
            d_psi[i] += d[i] * x[i]
            d[i] *= psi[i]


@inlined
def _link_step_back(p: Any, record: Array, work: Array, shared: Array, t: int, link: Tape, d_written: Array) -> None:
    """Backward of links and precedence, for the link before the step."""
    n = link.n
    written, precedence = view(record, _weighting_at(p, p.R, t + 1), n), view(record, p.precedence_at + t * p.N, n)
    d_precedence = view(work, p.d_precedence_w, n)
    links.precedence_back(precedence, written, d_precedence, d_written)
    left, right = view(shared, p.left_g, p.pairs * p.N), view(shared, p.right_g, p.pairs * p.N)
    d_link = view(work, p.d_link_w, n * n)
    links.link_back(link.entries, written, precedence, left, right, p.pairs, p.N, d_link, d_written, d_precedence)


@inlined
def _write_head_back(
    p: Any, record: Array, work: Array, shared: Array, t: int, tape: Tape, d_tape: Tape, d_psi: Array
) -> None:
    """Backward of the write head, for the memory before the step. Its d_weighting becomes that of the weighting
    before."""
    n = tape.n
    d_written, d_usage = view(work, p.d_weighting_w + p.R * p.N, n), view(work, p.d_usage_w, n)
    usage, order = view(record, p.usage_at + (t + 1) * p.N, n), view(record, p.order_at + t * p.N, n)
    d_allocation, d_content = view(shared, p.d_allocation_g, n), view(shared, p.d_content_g, n)
    d_ask = view(shared, p.d_ask_g + p.R * p.ask_read, p.asks - p.R * p.ask_read)
    head = _head(p, record, shared, p.R, t, t, tape)
    writing.weigh_back(
        view(record, p.allocation_at + t * p.N, n), head.content, head.ask[p.M + ALLOCATION_GATE],
        head.ask[p.M + WRITE_GATE], d_written, d_allocation, d_content, view(d_ask, p.M + ALLOCATION_GATE, 2),
    )  # fmt: skip
    zeros, squares = view(shared, p.zeros_g, p.M), view(shared, p.squares_g, p.M)
    alpha, delta, d_mask = view(shared, p.alpha_g, n), view(shared, p.delta_g, n), view(d_ask, p.M + WRITE_ASKS, p.M)
    address_back(head, tape, d_tape, d_content, head.content, zeros, alpha, delta, squares, d_ask, d_mask)
    writing.allocate_back(usage, order, d_allocation, view(shared, p.products_g, n), d_usage)
    psi, before = view(shared, p.retention_g, n), view(record, p.usage_at + t * p.N, n)
    writing.use_back(before, view(record, _weighting_at(p, p.R, t), n), psi, d_usage, d_written, d_psi, p.detached)


@inlined
def _retain_back(p: Any, record: Array, work: Array, shared: Array, t: int, d_psi: Array) -> None:
    asks, weightings = view(record, _ask_at(p, 0, t), p.asks), view(record, _weighting_at(p, 0, t), p.R * p.N)
    d_gates = view(shared, p.d_gates_g, p.R)
    interface.retention_back(
        asks, p.ask_read, p.M, weightings, view(work, p.d_weighting_w, p.R * p.N), p.N, p.R, d_psi,
        view(shared, p.before_g, p.R * p.N), view(shared, p.products_g, d_psi.size), d_gates,
    )  # fmt: skip
    for h in range(p.R):
        shared[p.d_ask_g + h * p.ask_read + p.M + FREE_GATE] = d_gates[h]


@inlined
def _ask_all_back(p: Any, record: Array, work: Array, shared: Array, t: int) -> None:
    raw, d_raw = view(record, p.raw_at + t * p.F_stride, p.F), view(work, p.d_raw_w, p.F)
    at = _ask_at(p, 0, t)
    for h in range(p.R):
        own, d_own = view(raw, h * p.raw_read, p.raw_read), view(d_raw, h * p.raw_read, p.raw_read)
        ask = view(record, at + h * p.ask_read, p.ask_read)
        d_ask = view(shared, p.d_ask_g + h * p.ask_read, p.ask_read)
        interface.activate_read_back(own, _reading(p), ask, d_ask, d_own, p.M)
    first, size = p.R * p.ask_read, p.asks - p.R * p.ask_read
    own, d_own = view(raw, p.R * p.raw_read, p.raw_write), view(d_raw, p.R * p.raw_read, p.raw_write)
    ask, d_ask = view(record, at + first, size), view(shared, p.d_ask_g + first, size)
    interface.activate_write_back(own, _writing(p), ask, d_ask, d_own, p.M)


@inlined
def memory_step_back(p: Any, record: Array, work: Array, shared: Array, t: int, n: int) -> None:
    """Backward of `memory_step`: gradients of the interface and of the state before the step."""
    at, link_from = p.replay_w + (t % p.segment) * p.M * p.N, p.replay_link_w + (t % p.segment) * p.N * p.N
    before, after = tape_at(p, work, at, n), tape_at(p, work, at + p.M * p.N, n)
    link_before, link_after = link_at(work, link_from, n), link_at(work, link_from + p.N * p.N, n)
    d_tape, d_written = tape_at(p, work, p.d_memory_w, n), view(work, p.d_weighting_w + p.R * p.N, n)
    psi, d_psi = view(shared, p.retention_g, n), view(shared, p.d_retention_g, n)
    for h in range(p.R):
        _read_head_back(p, record, work, shared, h, t, after, d_tape)
    _follow_links_back(p, work, shared, link_after)
    _link_step_back(p, record, work, shared, t, link_before, d_written)
    _retain(p, record, t, psi)
    fill_zero(d_psi)
    kept, erases = _kept(p, record, t, before, shared), _erases(p, record, t)
    d_raw = view(work, p.d_raw_w + p.R * p.raw_read, p.raw_write)
    write_back(
        kept, d_tape, view(record, _weighting_at(p, p.R, t + 1), n), d_written, view(erases, 0, p.M),
        view(erases, p.M, p.M), view(d_raw, p.write_erase, p.M), view(d_raw, p.write_add, p.M),
    )  # fmt: skip
    if p.deallocation == 1:
        _deallocate_back(before, psi, d_tape, d_psi)
    _write_head_back(p, record, work, shared, t, before, d_tape, d_psi)
    _retain_back(p, record, work, shared, t, d_psi)
    _ask_all_back(p, record, work, shared, t)


@compiled
def replay(p: Any, record: Array, work: Array, shared: Array, t: int, n: int) -> None:
    """Memories and links before the steps of t's segment up to t, and after t, as in the forward pass."""
    size, square, begin = p.M * n, n * n, t - t % p.segment
    copy(view(record, p.memory_at + (t // p.segment) * p.M * p.N, size), view(work, p.replay_w, size))
    copy(view(record, p.link_at + (t // p.segment) * p.N * p.N, square), view(work, p.replay_link_w, square))
    for k in range(t - begin + 1):
        at, link_from, now = p.replay_w + k * p.M * p.N, p.replay_link_w + k * p.N * p.N, begin + k
        old, tape = tape_at(p, work, at, n), tape_at(p, work, at + p.M * p.N, n)
        old_link, link = link_at(work, link_from, n), link_at(work, link_from + p.N * p.N, n)
        weighting = view(record, _weighting_at(p, p.R, now + 1), n)
        kept, spare = _kept(p, record, now, old, shared), view(shared, p.alpha_g, n)
        write_from(kept, tape, weighting, p.N, 1, _erases(p, record, now), 0, spare)
        precedence = view(record, p.precedence_at + now * p.N, n)
        links.link_step_from(old_link.entries, link.entries, weighting, precedence)
