"""States in and out. `at` is s * B + b, the place of a row in them."""

from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import array_at, leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.memory import Tape, tape_row
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled, inlined
from tapehead.kernels.ntm_scan.cpu.compiled.plan import Plan
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import copy


@compiled
def _load_tape(source: Array, tape: Tape) -> None:
    """[N, M] -> [M, n]"""
    leaf()
    for m in range(tape.width):
        row = tape_row(tape, m, 0, tape.n)
        for i in range(tape.n):
            row[i] = source[i * tape.width + m]


@compiled
def _store_tape(tape: Tape, target: Array) -> None:
    """[M, n] -> [N, M]"""
    leaf()
    for i in range(tape.n):
        row = view(target, i * tape.width, tape.width)
        for m in range(tape.width):
            row[m] = tape.entries[m * tape.n + i]


@inlined
def state_part(p: Plan, table: Array, index: int, at: int, size: int, like: Array) -> Array:
    """A row's numbers, `size` of them, in one tensor of a state."""
    part: Array = view(array_at(table[index], like, p.S * p.B * size), at * size, size)
    return part


@inlined
def load_state(
    p: Plan, table: Array, first: int, at: int, tape: Tape, weightings: Array, reads: Array, hidden: Array
) -> None:
    """A row's part of a state (or of its gradient), all but the cell."""
    n = tape.n
    _load_tape(state_part(p, table, first, at, p.N * p.M, reads), tape)
    reading = state_part(p, table, first + 1, at, p.R * p.N, reads)
    for h in range(p.R):
        copy(view(reading, h * p.N, n), view(weightings, h * p.N, n))
    writing = state_part(p, table, first + 2, at, p.W * p.N, reads)
    for h in range(p.W):
        copy(view(writing, h * p.N, n), view(weightings, (p.R + h) * p.N, n))
    copy(state_part(p, table, first + 3, at, p.R * p.M, reads), reads)
    if p.lstm == 1:
        copy(state_part(p, table, first + 4, at, p.L * p.C, reads), hidden)


@inlined
def store_state(
    p: Plan, table: Array, old: int, new: int, at: int, tape: Tape, weightings: Array, reads: Array, hidden: Array
) -> None:
    """The inverse of `load_state`; what lies beyond the row's slots is copied from the state at `old`."""
    n = tape.n
    memory = state_part(p, table, new, at, p.N * p.M, reads)
    _store_tape(tape, memory)
    unused = (p.N - n) * p.M
    copy(
        view(state_part(p, table, old, at, p.N * p.M, reads), n * p.M, unused),
        view(memory, n * p.M, unused),
    )
    for h in range(p.R + p.W):
        heads, index, place = (p.R, 1, h) if h < p.R else (p.W, 2, h - p.R)
        target = state_part(p, table, new + index, at * heads + place, p.N, reads)
        copy(view(weightings, h * p.N, n), view(target, 0, n))
        source = state_part(p, table, old + index, at * heads + place, p.N, reads)
        copy(view(source, n, p.N - n), view(target, n, p.N - n))
    copy(reads, state_part(p, table, new + 3, at, p.R * p.M, reads))
    if p.lstm == 1:
        copy(hidden, state_part(p, table, new + 4, at, p.L * p.C, reads))
