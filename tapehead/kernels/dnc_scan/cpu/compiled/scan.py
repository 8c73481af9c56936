"""The two functions that Python calls: forward and backward pass of group `group` of seed `seed`.

sizes: a Plan. table: addresses. scratch: working memory, of the type of all numbers. integers, costs: of rows.
"""

from typing import Any

from tapehead.kernels.dnc_scan.cpu.compiled.plan import PLAN_SIZE, Plan
from tapehead.kernels.dnc_scan.cpu.compiled.rows import finish_back, finish_row, keep_tape, start_back, start_row
from tapehead.kernels.dnc_scan.cpu.compiled.step import memory_step, memory_step_back, replay
from tapehead.kernels.ntm_scan.cpu.compiled import plan as weights
from tapehead.kernels.ntm_scan.cpu.compiled import rows as common
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import array_at, flush_denormals, restore_denormals, view
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array
from tapehead.kernels.ntm_scan.cpu.compiled.plan import D_PARAMETERS, GAP, PENDING, fixed_tuple
from tapehead.kernels.ntm_scan.cpu.compiled.rows import GROUP_ROWS
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import LANES, fill_zero


def run_forward(
    sizes: Array, table: Array, scratch: Array, integers: Array, costs: Array, seed: int, group: int
) -> None:
    mode = flush_denormals()
    p: Any = Plan(*fixed_tuple(sizes, PLAN_SIZE))
    rows = common.sort_rows(p, table, integers, seed, group)
    order, lengths, slots = integers, view(integers, GROUP_ROWS, rows), view(integers, 2 * GROUP_ROWS, rows)
    works, shared = view(scratch, GAP, p.rows * p.work), view(scratch, GAP + p.rows * p.work, p.shared)
    records = common.records_of(p, table, scratch, seed, group)
    weights.pack_all(p, table, seed, shared)
    for row in range(rows):
        costs[row] = 0.0
        record, work = view(records, row * p.record, p.record), view(works, row * p.work, p.work)
        start_row(p, table, seed * p.B + order[row], slots[row], record, work)
    active = rows
    for t in range(lengths[0]):
        now, following = t & p.time_mask, (t + 1) & p.time_mask
        step = (seed * p.T + t) * p.B
        while lengths[active - 1] <= t:
            active -= 1
        for row in range(active):
            record, work = view(records, row * p.record, p.record), view(works, row * p.work, p.work)
            common.first_input(p, table, step + order[row], record, work, now)
            keep_tape(p, t, record, work, slots[row])
        for layer in range(p.L):
            gates_at = p.gates_at + (layer * p.steps + now) * p.gates_stride
            weights.apply(p, layer, shared, records, weights.input_at(p, layer, now), gates_at, active)
            for row in range(active):
                record, work = view(records, row * p.record, p.record), view(works, row * p.work, p.work)
                common.layer_output(p, layer, record, work, now, following)
        summary_at, logits_at = p.summary_at + now * p.summary, p.logits_at + now * p.logits_stride
        weights.apply(p, p.L, shared, records, summary_at, p.raw_at + now * p.F_stride, active)
        for row in range(active):
            record, work = view(records, row * p.record, p.record), view(works, row * p.work, p.work)
            memory_step(p, record, work, shared, now, following, slots[row])
            common.note_reads(p, record, work, now)
        weights.apply(p, p.L + 1, shared, records, summary_at, logits_at, active)
        for row in range(active):
            record = view(records, row * p.record, p.record)
            if p.loss != 0:
                logits, lanes = view(record, logits_at, p.O), view(shared, p.lanes_g, LANES)
                costs[row] += common.cost_of(p, table, step + order[row], logits, lanes)
            else:
                common.give_outputs(p, table, step + order[row], record, now)
    for row in range(rows):
        record, work = view(records, row * p.record, p.record), view(works, row * p.work, p.work)
        finish_row(p, table, seed, order[row], lengths[row], slots[row], costs[row], record, work)
    restore_denormals(mode)


def run_backward(
    sizes: Array, table: Array, scratch: Array, integers: Array, costs: Array, seed: int, group: int
) -> None:
    """When training it follows the forward pass in the same scratch, and finds the packed weights there."""
    mode = flush_denormals()
    p: Any = Plan(*fixed_tuple(sizes, PLAN_SIZE))
    rows = common.sort_rows(p, table, integers, seed, group)
    order, lengths, slots = integers, view(integers, GROUP_ROWS, rows), view(integers, 2 * GROUP_ROWS, rows)
    works, shared = view(scratch, GAP, p.rows * p.work), view(scratch, GAP + p.rows * p.work, p.shared)
    records = common.records_of(p, table, scratch, seed, group)
    if p.loss == 0:
        weights.pack_all(p, table, seed, shared)
    fill_zero(view(shared, p.d_packed_g, p.pending_g - p.d_packed_g))
    fill_zero(view(shared, p.zeros_g, p.M))
    fill_zero(view(shared, p.left_g, p.pairs * p.N))  # up to a multiple of eight pairs
    fill_zero(view(shared, p.right_g, p.pairs * p.N))
    for row in range(rows):
        start_back(p, table, seed * p.B + order[row], slots[row], view(works, row * p.work, p.work))
    pairs = 0
    active = 0
    for t in range(lengths[0] - 1, -1, -1):
        step = (seed * p.T + t) * p.B
        summary_at = p.summary_at + t * p.summary
        while active < rows and lengths[active] > t:
            active += 1
        if pairs + active > PENDING:
            weights.flush(p, pairs, shared)
            pairs = 0
        for row in range(active):
            record, work = view(records, row * p.record, p.record), view(works, row * p.work, p.work)
            common.take_d_logits(p, table, step + order[row], record, work, t)
            weights.pend(p, p.L + 1, pairs + row, shared, record, summary_at, work, p.d_logits_w)
        weights.apply_back(p, p.L + 1, shared, works, p.d_logits_w, p.d_summary_w, active)
        for row in range(active):
            record, work = view(records, row * p.record, p.record), view(works, row * p.work, p.work)
            common.take_d_summary(p, work, True)
            if t == lengths[row] - 1 or t % p.segment == p.segment - 1:
                replay(p, record, work, shared, t, slots[row])
            memory_step_back(p, record, work, shared, t, slots[row])
            weights.pend(p, p.L, pairs + row, shared, record, summary_at, work, p.d_raw_w)
        weights.apply_back(p, p.L, shared, works, p.d_raw_w, p.d_summary_w, active)
        for row in range(active):
            common.take_d_summary(p, view(works, row * p.work, p.work), False)
        for layer in range(p.L - 1, -1, -1):
            for row in range(active):
                record, work = view(records, row * p.record, p.record), view(works, row * p.work, p.work)
                common.layer_output_back(p, layer, record, work, t)
                weights.pend(p, layer, pairs + row, shared, record, weights.input_at(p, layer, t), work, p.d_gates_w)
            weights.apply_back(p, layer, shared, works, p.d_gates_w, p.d_v_w, active)
            for row in range(active):
                common.input_back(p, layer, view(works, row * p.work, p.work))
        if p.loss == 0:
            for row in range(active):
                common.give_d_inputs(p, table, step + order[row], view(works, row * p.work, p.work))
        pairs += active
    if pairs > 0:
        weights.flush(p, pairs, shared)
    to = (seed * p.groups + group) * p.P
    weights.unpack_all(p, shared, view(array_at(table[D_PARAMETERS], shared, p.S * p.groups * p.P), to, p.P))
    for row in range(rows):
        finish_back(p, table, seed, order[row], lengths[row], slots[row], view(works, row * p.work, p.work))
    restore_denormals(mode)
