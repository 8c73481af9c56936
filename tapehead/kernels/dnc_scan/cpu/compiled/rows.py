"""The beginning and the end of a row: its state, its cost, and their gradients. All else is as in the NTM's scan."""

from typing import Any

from tapehead.kernels.dnc_scan.cpu.compiled.plan import D_FINAL, D_STATE, FINAL, STATE
from tapehead.kernels.dnc_scan.cpu.compiled.state import CELL, load, store
from tapehead.kernels.dnc_scan.cpu.compiled.step import tape_at
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import array_at, view
from tapehead.kernels.ntm_scan.cpu.compiled.memory import slot_norms
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, inlined
from tapehead.kernels.ntm_scan.cpu.compiled.plan import COSTS, D_INPUTS, OUTPUTS
from tapehead.kernels.ntm_scan.cpu.compiled.rows import _cost_of_padding as cost_of_padding
from tapehead.kernels.ntm_scan.cpu.compiled.state import state_part
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import copy, fill_zero


@inlined
def start_row(p: Any, table: Array, at: int, n: int, record: Array, work: Array) -> None:
    """The initial state of a row, from where it starts."""
    usage, precedence = view(record, p.usage_at, n), view(record, p.precedence_at, n)
    weightings = view(record, p.weighting_at, (p.R + 1) * p.N)
    load(p, table, STATE, at, n, work, p.memory_w, p.link_w, usage, precedence, weightings, p.reads_w, p.hidden_w)
    if p.lstm == 1:
        for layer in range(p.L):
            cell = view(record, p.cells_at + layer * (p.steps + 1) * p.C, p.C)
            if table[STATE] == 0:
                fill_zero(cell)
            else:
                copy(view(state_part(p, table, STATE + CELL, at, p.L * p.C, work), layer * p.C, p.C), cell)
    slot_norms(tape_at(p, work, p.memory_w, n), view(record, p.norms_at, n))


@inlined
def keep_tape(p: Any, t: int, record: Array, work: Array, n: int) -> None:
    """Memory and link as they stand before every `segment`-th step."""
    if p.time_mask != 1 and t % p.segment == 0:
        at = t // p.segment
        copy(view(work, p.memory_w, p.M * n), view(record, p.memory_at + at * p.M * p.N, p.M * n))
        copy(view(work, p.link_w, n * n), view(record, p.link_at + at * p.N * p.N, n * n))


@inlined
def finish_row(
    p: Any, table: Array, seed: int, b: int, length: int, n: int, cost: float, record: Array, work: Array
) -> None:
    """What a row leaves behind: its cost, or its final state and zeros for outputs beyond its length."""
    at = seed * p.B + b
    if p.loss != 0:
        for t in range(length, p.T):
            cost += cost_of_padding(p, table, (seed * p.T + t) * p.B + b, work)
        array_at(table[COSTS], work, p.S * p.B)[at] = cost
        return
    outputs = array_at(table[OUTPUTS], work, p.S * p.T * p.B * p.O)
    for t in range(length, p.T):
        fill_zero(view(outputs, ((seed * p.T + t) * p.B + b) * p.O, p.O))
    last = length & p.time_mask
    usage, precedence = view(record, p.usage_at + last * p.N, n), view(record, p.precedence_at + last * p.N, n)
    weightings = view(record, p.weighting_at + last * (p.R + 1) * p.N, (p.R + 1) * p.N)
    store(
        p, table, STATE, FINAL, at, n, work, p.memory_w, p.link_w, usage, precedence, weightings, p.reads_w, p.hidden_w
    )
    if p.lstm == 1:
        cells = state_part(p, table, FINAL + CELL, at, p.L * p.C, work)
        for layer in range(p.L):
            cell_at = p.cells_at + (layer * (p.steps + 1) + last) * p.C
            copy(view(record, cell_at, p.C), view(cells, layer * p.C, p.C))


@inlined
def start_back(p: Any, table: Array, at: int, n: int, work: Array) -> None:
    """Gradients of a row's final state, from where the backward pass starts."""
    usage, precedence = view(work, p.d_usage_w, n), view(work, p.d_precedence_w, n)
    weightings, cell = view(work, p.d_weighting_w, (p.R + 1) * p.N), view(work, p.d_cell_w, p.L * p.C)
    fill_zero(view(work, p.d_hidden_w, p.L * p.C))
    fill_zero(cell)
    # Gradients of outputs are padded to eights: what is never written must be zero.
    fill_zero(view(work, p.d_logits_w, p.logits_stride))
    fill_zero(view(work, p.d_raw_w, p.F_stride))
    fill_zero(view(work, p.d_gates_w, p.gates_stride))
    load(
        p, table, D_FINAL, at, n, work, p.d_memory_w, p.d_link_w, usage, precedence, weightings, p.d_reads_w,
        p.d_hidden_w,
    )  # fmt: skip
    if p.lstm == 1 and table[D_FINAL] != 0:
        copy(state_part(p, table, D_FINAL + CELL, at, p.L * p.C, work), cell)


@inlined
def finish_back(p: Any, table: Array, seed: int, b: int, length: int, n: int, work: Array) -> None:
    """Gradients of a row's initial state and zeros for those of inputs beyond its length; when training neither.

    Beyond the row's slots the gradients of the final state pass through.
    """
    if p.loss != 0:
        return
    at = seed * p.B + b
    d_inputs = array_at(table[D_INPUTS], work, p.S * p.T * p.B * p.I)
    for t in range(length, p.T):
        fill_zero(view(d_inputs, ((seed * p.T + t) * p.B + b) * p.I, p.I))
    if table[D_STATE] == 0:  # nothing asked for them
        return
    usage, precedence = view(work, p.d_usage_w, n), view(work, p.d_precedence_w, n)
    weightings = view(work, p.d_weighting_w, (p.R + 1) * p.N)
    store(
        p, table, D_FINAL, D_STATE, at, n, work, p.d_memory_w, p.d_link_w, usage, precedence, weightings, p.d_reads_w,
        p.d_hidden_w,
    )  # fmt: skip
    if p.lstm == 1:
        copy(view(work, p.d_cell_w, p.L * p.C), state_part(p, table, D_STATE + CELL, at, p.L * p.C, work))
