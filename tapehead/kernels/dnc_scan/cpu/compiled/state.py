"""States in and out. `at` is s * B + b, the place of a row in them; `first` is where the table has the state's first
address; zero there stands for a state of zeros. Parts that run along the slots have N of them there and n, those that
the row uses, here."""

from typing import Any

from tapehead.kernels.dnc_scan.cpu.compiled.step import link_at, tape_at
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled
from tapehead.kernels.ntm_scan.cpu.compiled.state import state_part
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import copy, fill_zero

MEMORY, USAGE, LINK, PRECEDENCE, READ_WEIGHTINGS, WRITE_WEIGHTING, READS, HIDDEN, CELL = range(9)


@compiled
def _turn(source: Array, rows: int, columns: int, target: Array) -> None:
    """[rows, columns] -> [columns, rows]"""
    leaf()
    for j in range(columns):
        row = view(target, j * rows, rows)
        for i in range(rows):
            row[i] = source[i * columns + j]


@compiled
def _copy_corner(source: Array, stride: int, rows: int, columns: int, target: Array, target_stride: int) -> None:
    """The first `columns` numbers of `rows` rows."""
    leaf()
    for i in range(rows):
        copy(view(source, i * stride, columns), view(target, i * target_stride, columns))


@compiled
def load(
    p: Any, table: Array, first: int, at: int, n: int, work: Array, memory: int, link: int, usage: Array,
    precedence: Array, weightings: Array, reads: int, hidden: int,
) -> None:  # fmt: skip
    """A row's part of a state (or of its gradient), all but the cell. memory, link, reads, hidden: places in `work`."""
    size = p.N * p.N
    tape = tape_at(p, work, memory, n)
    if table[first] == 0:
        fill_zero(tape.entries)
        fill_zero(link_at(work, link, n).entries)
        fill_zero(view(usage, 0, n))
        fill_zero(view(precedence, 0, n))
        fill_zero(view(weightings, 0, (p.R + 1) * p.N))
        fill_zero(view(work, reads, p.R * p.M))
        fill_zero(view(work, hidden, p.L * p.C))
        return
    _turn(state_part(p, table, first + MEMORY, at, p.N * p.M, work), n, p.M, tape.entries)
    copy(state_part(p, table, first + USAGE, at, p.N, work), view(usage, 0, n))
    _copy_corner(state_part(p, table, first + LINK, at, size, work), p.N, n, n, link_at(work, link, n).entries, n)
    copy(state_part(p, table, first + PRECEDENCE, at, p.N, work), view(precedence, 0, n))
    reading = state_part(p, table, first + READ_WEIGHTINGS, at, p.R * p.N, work)
    _copy_corner(reading, p.N, p.R, n, weightings, p.N)
    copy(state_part(p, table, first + WRITE_WEIGHTING, at, p.N, work), view(weightings, p.R * p.N, n))
    copy(state_part(p, table, first + READS, at, p.R * p.M, work), view(work, reads, p.R * p.M))
    if p.lstm == 1:
        copy(state_part(p, table, first + HIDDEN, at, p.L * p.C, work), view(work, hidden, p.L * p.C))


@compiled
def store(
    p: Any, table: Array, old: int, new: int, at: int, n: int, work: Array, memory: int, link: int, usage: Array,
    precedence: Array, weightings: Array, reads: int, hidden: int,
) -> None:  # fmt: skip
    """The inverse of `load`; what lies beyond the row's slots is copied from the state at `old`."""
    if n < p.N:
        for part in range(MEMORY, READS):
            size = p.N
            if part == MEMORY:
                size *= p.M
            elif part == LINK:
                size *= p.N
            elif part == READ_WEIGHTINGS:
                size *= p.R
            target = state_part(p, table, new + part, at, size, work)
            if table[old] == 0:
                fill_zero(target)
            else:
                copy(state_part(p, table, old + part, at, size, work), target)
    size = p.N * p.N
    tape = tape_at(p, work, memory, n)
    _turn(tape.entries, p.M, n, state_part(p, table, new + MEMORY, at, p.N * p.M, work))
    copy(usage, view(state_part(p, table, new + USAGE, at, p.N, work), 0, n))
    _copy_corner(link_at(work, link, n).entries, n, n, n, state_part(p, table, new + LINK, at, size, work), p.N)
    copy(precedence, view(state_part(p, table, new + PRECEDENCE, at, p.N, work), 0, n))
    reading = state_part(p, table, new + READ_WEIGHTINGS, at, p.R * p.N, work)
    _copy_corner(weightings, p.N, p.R, n, reading, p.N)
    copy(view(weightings, p.R * p.N, n), view(state_part(p, table, new + WRITE_WEIGHTING, at, p.N, work), 0, n))
    copy(view(work, reads, p.R * p.M), state_part(p, table, new + READS, at, p.R * p.M, work))
    if p.lstm == 1:
        copy(view(work, hidden, p.L * p.C), state_part(p, table, new + HIDDEN, at, p.L * p.C, work))
