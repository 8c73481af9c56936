"""The rows of a group: their order, their inputs and outputs, and their gradients."""

import math

from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import array_at, view
from tapehead.kernels.ntm_scan.cpu.compiled.linear import lstm_cell, lstm_cell_back, tanh_layer_back
from tapehead.kernels.ntm_scan.cpu.compiled.losses import binary, categorical
from tapehead.kernels.ntm_scan.cpu.compiled.memory import slot_norms
from tapehead.kernels.ntm_scan.cpu.compiled.memory_step import tape_at
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, inlined
from tapehead.kernels.ntm_scan.cpu.compiled.plan import (
    CATEGORICAL,
    COSTS,
    D_FINAL,
    D_INPUTS,
    D_OUTPUTS,
    D_STATE,
    FINAL,
    GAP,
    INPUTS,
    KEPT,
    LENGTHS,
    MASK,
    OUTPUTS,
    SLOTS,
    STATE,
    TARGETS,
    Plan,
    input_at,
)
from tapehead.kernels.ntm_scan.cpu.compiled.state import load_state, state_part, store_state
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import add_to, copy, fill_zero, tanh_all

GROUP_ROWS = 8  # rows of a group at most


@inlined
def sort_rows(p: Plan, table: Array, integers: Array, seed: int, group: int) -> int:
    """How many rows there are; into `integers` their places in the batch, lengths and slots, the longest row first."""
    first = group * p.rows
    rows = min(p.rows, p.B - first)
    lengths = view(array_at(table[LENGTHS], integers, p.S * p.B), seed * p.B, p.B)
    slots = view(array_at(table[SLOTS], integers, p.S * p.B), seed * p.B, p.B)
    for i in range(rows):  # insertion sort, stable
        j = i
        while j > 0 and integers[GROUP_ROWS + j - 1] < lengths[first + i]:
            integers[j], integers[GROUP_ROWS + j] = integers[j - 1], integers[GROUP_ROWS + j - 1]
            j -= 1
        integers[j], integers[GROUP_ROWS + j] = first + i, lengths[first + i]
    for i in range(rows):
        integers[2 * GROUP_ROWS + i] = slots[integers[i]]
    return rows


@inlined
def records_of(p: Plan, table: Array, scratch: Array, seed: int, group: int) -> Array:
    """The records of the group's rows: in `kept`, or in scratch memory behind the working memory."""
    at = GAP + p.rows * p.work + p.shared
    found: Array = view(scratch, at, scratch.size - at)
    if p.keep == 1:
        at = (seed * p.B + group * p.rows) * p.record
        found = view(array_at(table[KEPT], scratch, p.S * p.B * p.record), at, p.S * p.B * p.record - at)
    return found


@inlined
def start_row(p: Plan, table: Array, at: int, n: int, record: Array, work: Array) -> None:
    """The initial state of a row, from where it starts."""
    tape = tape_at(p, work, p.memory_w, n)
    weightings = view(record, p.weighting_at, (p.R + p.W) * p.N)
    reads, hidden = view(work, p.reads_w, p.R * p.M), view(work, p.hidden_w, p.L * p.C)
    load_state(p, table, STATE, at, tape, weightings, reads, hidden)
    if p.lstm == 1:
        cells = state_part(p, table, STATE + 5, at, p.L * p.C, work)
        for layer in range(p.L):
            copy(view(cells, layer * p.C, p.C), view(record, p.cells_at + layer * (p.steps + 1) * p.C, p.C))
    slot_norms(tape, view(record, p.norms_at, n))


@inlined
def _set_one(x: Array, at: int) -> None:
    """The input's one for the bias, and zeros behind it."""
    fill_zero(view(x, at, x.size - at))
    x[at] = x.dtype.type(1)


@inlined
def first_input(p: Plan, table: Array, step: int, record: Array, work: Array, now: int) -> None:
    """[x; reads; hidden; 1]"""
    reads = p.R * p.M
    x = view(array_at(table[INPUTS], record, p.S * p.T * p.B * p.I), step * p.I, p.I)
    v = view(record, input_at(p, 0, now), p.first_stride)
    copy(x, view(v, 0, p.I))
    copy(view(work, p.reads_w, reads), view(v, p.I, reads))
    if p.lstm == 1:
        copy(view(work, p.hidden_w, p.C), view(v, p.I + reads, p.C))
    _set_one(v, p.first_width)


@inlined
def layer_output(p: Plan, layer: int, record: Array, work: Array, now: int, following: int) -> None:
    """The controller's nonlinearity, and its result handed on to the next layer or to the summary."""
    gates = view(record, p.gates_at + (layer * p.steps + now) * p.gates_stride, p.gates)
    hidden = view(work, p.hidden_w + layer * p.C, p.C)
    if p.lstm == 1:
        cells_at = p.cells_at + layer * (p.steps + 1) * p.C
        cell, new_cell = view(record, cells_at + now * p.C, p.C), view(record, cells_at + following * p.C, p.C)
        lstm_cell(gates, cell, new_cell, view(record, p.tanh_at + (layer * p.steps + now) * p.C, p.C), hidden)
    else:
        tanh_all(gates, hidden)
        copy(hidden, gates)
    if layer + 1 < p.L:
        v = view(record, input_at(p, layer + 1, now), p.next_stride)
        copy(hidden, view(v, 0, p.C))
        if p.lstm == 1:
            copy(view(work, p.hidden_w + (layer + 1) * p.C, p.C), view(v, p.C, p.C))
        _set_one(v, p.next_width)
    else:
        v = view(record, p.summary_at + now * p.summary, p.hidden_stride)
        copy(hidden, view(v, 0, p.C))
        _set_one(v, p.C)


@inlined
def keep_memory(p: Plan, t: int, record: Array, work: Array, n: int) -> None:
    """The memory as it stands before every `segment`-th step."""
    if p.time_mask != 1 and t % p.segment == 0:
        size = p.M * n
        copy(view(work, p.memory_w, size), view(record, p.memory_at + (t // p.segment) * p.M * p.N, size))


@inlined
def note_reads(p: Plan, record: Array, work: Array, now: int) -> None:
    """The reads into the summary, which the output layer sees."""
    reads = view(record, p.summary_at + now * p.summary + p.hidden_stride, p.summary - p.hidden_stride)
    fill_zero(reads)
    copy(view(work, p.reads_w, p.R * p.M), view(reads, 0, p.R * p.M))


@inlined
def cost_of(p: Plan, table: Array, step: int, logits: Array, lanes: Array) -> float:
    """The cost of one step, whose logits become the gradients of the mean cost over the batch. A mask is 0 or 1."""
    batch = logits.dtype.type(p.B)
    weight = array_at(table[MASK], logits, p.S * p.T * p.B)[step]
    cost = 0.0
    if weight == 0:
        fill_zero(logits)
        return cost
    targets = view(array_at(table[TARGETS], logits, p.S * p.T * p.B * p.O), step * p.O, p.O)
    if p.loss == CATEGORICAL:
        cost = categorical(logits, targets, batch, lanes)
    else:
        cost = binary(logits, targets, weight, batch)
    return cost


@inlined
def _cost_of_padding(p: Plan, table: Array, step: int, like: Array) -> float:
    """The cost of a step beyond a row's length, where logits are zeros."""
    weight = array_at(table[MASK], like, p.S * p.T * p.B)[step]
    if p.loss != CATEGORICAL:
        cost: float = weight * p.O * math.log(2.0)
        return cost
    if weight == 0:  # targets that do not count may be NaN
        return 0.0
    targets = view(array_at(table[TARGETS], like, p.S * p.T * p.B * p.O), step * p.O, p.O)
    total = 0.0
    for o in range(p.O):
        total += targets[o]
    return total * math.log(p.O)


@inlined
def give_outputs(p: Plan, table: Array, step: int, record: Array, now: int) -> None:
    outputs = array_at(table[OUTPUTS], record, p.S * p.T * p.B * p.O)
    copy(view(record, p.logits_at + now * p.logits_stride, p.O), view(outputs, step * p.O, p.O))


@inlined
def finish_row(
    p: Plan, table: Array, seed: int, b: int, length: int, n: int, cost: float, record: Array, work: Array
) -> None:
    """What a row leaves behind: its cost, or its final state and zeros for outputs beyond its length."""
    at = seed * p.B + b
    if p.loss != 0:
        for t in range(length, p.T):
            cost += _cost_of_padding(p, table, (seed * p.T + t) * p.B + b, work)
        array_at(table[COSTS], work, p.S * p.B)[at] = cost
        return
    outputs = array_at(table[OUTPUTS], work, p.S * p.T * p.B * p.O)
    for t in range(length, p.T):
        fill_zero(view(outputs, ((seed * p.T + t) * p.B + b) * p.O, p.O))
    last = length & p.time_mask
    weightings = view(record, p.weighting_at + last * (p.R + p.W) * p.N, (p.R + p.W) * p.N)
    reads, hidden = view(work, p.reads_w, p.R * p.M), view(work, p.hidden_w, p.L * p.C)
    store_state(p, table, STATE, FINAL, at, tape_at(p, work, p.memory_w, n), weightings, reads, hidden)
    if p.lstm == 1:
        cells = state_part(p, table, FINAL + 5, at, p.L * p.C, work)
        for layer in range(p.L):
            cell_at = p.cells_at + (layer * (p.steps + 1) + last) * p.C
            copy(view(record, cell_at, p.C), view(cells, layer * p.C, p.C))


@inlined
def start_back(p: Plan, table: Array, at: int, n: int, work: Array) -> None:
    """Gradients of a row's final state, from where the backward pass starts."""
    d_tape = tape_at(p, work, p.d_memory_w, n)
    d_weightings = view(work, p.d_weighting_w, (p.R + p.W) * p.N)
    d_reads, d_hidden = view(work, p.d_reads_w, p.R * p.M), view(work, p.d_hidden_w, p.L * p.C)
    d_cell = view(work, p.d_cell_w, p.L * p.C)
    fill_zero(d_hidden)
    # Gradients of outputs are padded to eights: what is never written must be zero.
    fill_zero(view(work, p.d_logits_w, p.logits_stride))
    fill_zero(view(work, p.d_raw_w, p.F_stride))
    fill_zero(view(work, p.d_gates_w, p.gates_stride))
    if p.loss != 0:
        fill_zero(d_tape.entries)
        fill_zero(d_weightings)
        fill_zero(d_reads)
        fill_zero(d_cell)
        return
    load_state(p, table, D_FINAL, at, d_tape, d_weightings, d_reads, d_hidden)
    if p.lstm == 1:
        copy(state_part(p, table, D_FINAL + 5, at, p.L * p.C, work), d_cell)


@inlined
def take_d_logits(p: Plan, table: Array, step: int, record: Array, work: Array, t: int) -> None:
    d_logits = view(work, p.d_logits_w, p.O)
    if p.loss != 0:
        copy(view(record, p.logits_at + t * p.logits_stride, p.O), d_logits)
    else:
        copy(view(array_at(table[D_OUTPUTS], work, p.S * p.T * p.B * p.O), step * p.O, p.O), d_logits)


@inlined
def take_d_summary(p: Plan, work: Array, with_reads: bool) -> None:
    """Adds the gradients of hidden state and reads that came through the output layer or the interface."""
    add_to(view(work, p.d_summary_w, p.C), view(work, p.d_hidden_w + (p.L - 1) * p.C, p.C))
    if with_reads:
        reads = p.R * p.M
        add_to(view(work, p.d_summary_w + p.hidden_stride, reads), view(work, p.d_reads_w, reads))


@inlined
def layer_output_back(p: Plan, layer: int, record: Array, work: Array, t: int) -> None:
    """Gradients of a layer's pre-activations."""
    gates = view(record, p.gates_at + (layer * p.steps + t) * p.gates_stride, p.gates)
    d_hidden, d_gates = view(work, p.d_hidden_w + layer * p.C, p.C), view(work, p.d_gates_w, p.gates)
    if p.lstm == 1:
        cell = view(record, p.cells_at + (layer * (p.steps + 1) + t) * p.C, p.C)
        tanh_cell = view(record, p.tanh_at + (layer * p.steps + t) * p.C, p.C)
        lstm_cell_back(gates, cell, tanh_cell, d_hidden, view(work, p.d_cell_w + layer * p.C, p.C), d_gates)
    else:
        tanh_layer_back(gates, d_hidden, d_gates)


@inlined
def input_back(p: Plan, layer: int, work: Array) -> None:
    """A layer's input gradient, handed to the previous step and to the layer below."""
    width = p.first_width if layer == 0 else p.next_width
    d_hidden = view(work, p.d_hidden_w + layer * p.C, p.C)
    if p.lstm == 1:
        copy(view(work, p.d_v_w + width - p.C, p.C), d_hidden)
    else:
        fill_zero(d_hidden)
    if layer > 0:
        add_to(view(work, p.d_v_w, p.C), view(work, p.d_hidden_w + (layer - 1) * p.C, p.C))
    else:
        copy(view(work, p.d_v_w + p.I, p.R * p.M), view(work, p.d_reads_w, p.R * p.M))


@inlined
def give_d_inputs(p: Plan, table: Array, step: int, work: Array) -> None:
    d_inputs = array_at(table[D_INPUTS], work, p.S * p.T * p.B * p.I)
    copy(view(work, p.d_v_w, p.I), view(d_inputs, step * p.I, p.I))


@inlined
def finish_back(p: Plan, table: Array, seed: int, b: int, length: int, n: int, work: Array) -> None:
    """Gradients of a row's initial state and zeros for those of inputs beyond its length.

    Beyond the row's slots the gradients of the final state (when training, zeros) pass through.
    """
    at = seed * p.B + b
    if p.loss == 0:
        d_inputs = array_at(table[D_INPUTS], work, p.S * p.T * p.B * p.I)
        for t in range(length, p.T):
            fill_zero(view(d_inputs, ((seed * p.T + t) * p.B + b) * p.I, p.I))
    if table[D_STATE] == 0:  # nobody wants them
        return
    old = D_STATE if p.loss != 0 else D_FINAL
    d_tape, d_weightings = tape_at(p, work, p.d_memory_w, n), view(work, p.d_weighting_w, (p.R + p.W) * p.N)
    d_reads, d_hidden = view(work, p.d_reads_w, p.R * p.M), view(work, p.d_hidden_w, p.L * p.C)
    store_state(p, table, old, D_STATE, at, d_tape, d_weightings, d_reads, d_hidden)
    if p.lstm == 1:
        copy(view(work, p.d_cell_w, p.L * p.C), state_part(p, table, D_STATE + 5, at, p.L * p.C, work))
