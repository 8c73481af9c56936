"""The CPU backend's functions (`FusedBackend`): tensors in, a plan and a table of addresses, tensors out."""

import functools
import math
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from tapehead.kernels import jit
from tapehead.kernels.ntm_scan.contract import Learned, ScanState, Trace, check_counts
from tapehead.kernels.ntm_scan.cpu import buffers, entries
from tapehead.kernels.ntm_scan.cpu.compiled.plan import (
    COSTS,
    D_FINAL,
    D_INPUTS,
    D_OUTPUTS,
    D_PARAMETERS,
    D_STATE,
    FINAL,
    INPUTS,
    KEPT,
    LENGTHS,
    MASK,
    OUTPUTS,
    PARAMETERS,
    SLOTS,
    STATE,
    TABLE_SIZE,
    TARGETS,
    Plan,
)
from tapehead.kernels.ntm_scan.cpu.execution import add_groups, dense, execute, whole, with_state, zeros
from tapehead.kernels.ntm_scan.cpu.planning import make_plan
from tapehead.kernels.ntm_scan.cpu.tracing import stack, trace_of_row
from tapehead.kernels.ntm_scan.spec import ScanSpec, unknown_option

Array = npt.NDArray[Any]

KNOWN: dict[str, tuple[Any, ...]] = {
    "controller": ("lstm", "feedforward"),
    "shift": ("softmax", "scalar"),
    "order": ("write_then_read", "read_then_write"),
    "key_activation": ("linear", "tanh"),
    "add_activation": ("linear", "tanh", "sigmoid"),
    "output_from": ("hidden_and_reads", "hidden"),
    "write_gate": (False, True),
}
"""The values of every choice of a specification that the kernel computes; it refuses any other."""


def refusal(spec: ScanSpec, dtype: torch.dtype, device: torch.device, slots: int = 1) -> str | None:
    """None if this backend can run such a machine here, otherwise one sentence that says why not."""
    if device.type != "cpu":
        return f"the CPU kernel runs on the CPU, but the tensors are on {device}."
    if dtype not in jit.DTYPES:
        return f"the CPU kernel computes in float32 and float64, but the parameters are {dtype}."
    return _unknown_option(spec) or jit.refusal()


@functools.cache  # asked before every update
def _unknown_option(spec: ScanSpec) -> str | None:
    return unknown_option("CPU", spec, KNOWN)


def _execute(plan: Plan, sizes: Array, table: dict[int, Tensor], clip: float | None, dtype: torch.dtype) -> None:
    limit = math.inf if clip is None else float(clip)
    execute(entries.ready.get(dtype) or entries.make_ready(dtype), plan, sizes, table, TABLE_SIZE, dtype, limit)


def _shape(inputs: Tensor) -> tuple[int, int, int]:
    """S, T and B of inputs [S, T, B, I], or [T, B, I] of one machine."""
    seeds, steps, batch, _ = inputs.shape if inputs.ndim == 4 else (1, *inputs.shape)
    return seeds, steps, batch


def _forward(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    mode: str,
    clear: bool = False,
    checked: bool = False,
) -> tuple[Tensor, ScanState, Tensor, Plan]:
    seeds, steps, batch = _shape(inputs)
    tape, dtype = state.memory.shape[-2], parameters.dtype
    plan, sizes = make_plan(spec, seeds, steps, batch, tape, mode)
    lengths, slots = whole(lengths), whole(slots)
    if not checked:
        check_counts(lengths, slots, steps, tape)  # the kernel does not check bounds
    state = ScanState(*map(dense, state))
    outputs = buffers.empty((*inputs.shape[:-1], spec.output_size), dtype)
    final = ScanState(*map(buffers.empty_like, state))
    kept = buffers.empty_record((seeds, batch, plan.record) if plan.keep else (0,), dtype)
    if clear and not buffers.POISON:
        kept.zero_()  # some of it is never written
    table = {PARAMETERS: dense(parameters), INPUTS: dense(inputs), LENGTHS: lengths, SLOTS: slots}
    table.update({OUTPUTS: outputs, KEPT: kept})
    with_state(table, STATE, state)
    _execute(plan, sizes, with_state(table, FINAL, final), spec.interface_clip, dtype)
    return outputs, final, kept, plan


def forward(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    keep: bool,
    clear: bool = False,
    checked: bool = False,
) -> tuple[Tensor, ScanState, Tensor]:
    """Outputs, final state, and one opaque tensor for `backward` (empty unless `keep`)."""
    mode = "keep" if keep else "forward"
    return _forward(spec, parameters, inputs, lengths, slots, state, mode, clear, checked)[:3]


def backward(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    kept: Tensor,
    d_outputs: Tensor,
    d_final: ScanState | None,
    inputs_gradient: bool = True,
    state_gradient: bool = True,
) -> tuple[Tensor, Tensor | None, ScanState | None]:
    """Gradients of parameters, inputs and initial state. May be called again with the same `kept`."""
    seeds, steps, batch = _shape(inputs)
    dtype = parameters.dtype
    plan, sizes = make_plan(spec, seeds, steps, batch, state.memory.shape[-2], "backward")
    d_parameters = buffers.empty((seeds, plan.groups, plan.P), dtype)
    d_inputs = buffers.empty(inputs.shape, dtype)  # the kernel writes them always
    table = {PARAMETERS: dense(parameters), LENGTHS: whole(lengths), SLOTS: whole(slots), KEPT: dense(kept)}
    table.update({D_OUTPUTS: dense(d_outputs), D_PARAMETERS: d_parameters, D_INPUTS: d_inputs})
    if d_final is None:  # the kernel only reads them, so one piece of zeros will do for all
        nothing = zeros(max(map(Tensor.numel, state)), dtype)
        with_state(table, D_FINAL, ScanState(*(nothing for _ in state)))
    else:
        with_state(table, D_FINAL, ScanState(*map(dense, d_final)))
    d_state = None
    if state_gradient:
        d_state = ScanState(*(buffers.empty(part.shape, dtype) for part in state))
        with_state(table, D_STATE, d_state)
    _execute(plan, sizes, table, spec.interface_clip, dtype)
    return add_groups(d_parameters), d_inputs if inputs_gradient else None, d_state


def loss_and_gradient(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    targets: Tensor,
    mask: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    state_gradient: bool,
    loss: str,
    checked: bool = False,
) -> Learned:
    """One training step without autograd: costs [S, B], gradients [S, P] of the mean costs and of the initial state."""
    seeds, steps, batch = inputs.shape[:3]
    tape, dtype = state.memory.shape[-2], parameters.dtype
    plan, sizes = make_plan(spec, seeds, steps, batch, tape, "train", loss)
    lengths, slots = whole(lengths), whole(slots)
    if not checked:
        check_counts(lengths, slots, steps, tape)  # the kernel does not check bounds
        mask = mask != 0  # nor whether a mask is one: one so small that it rounds to zero would not count there
    costs = buffers.empty((seeds, batch), dtype)
    d_parameters = buffers.empty((seeds, plan.groups, plan.P), dtype)
    table = {PARAMETERS: dense(parameters), INPUTS: dense(inputs), LENGTHS: lengths, SLOTS: slots}
    table.update({TARGETS: dense(targets.to(dtype)), MASK: dense(mask.to(dtype))})
    table.update({COSTS: costs, D_PARAMETERS: d_parameters})
    with_state(table, STATE, ScanState(*map(dense, state)))
    d_state = None
    if state_gradient:
        # dense, also where `state` is not
        d_state = ScanState(*(torch.zeros(part.shape, dtype=dtype) for part in state))
        with_state(table, D_STATE, d_state)
    _execute(plan, sizes, table, spec.interface_clip, dtype)
    return Learned(costs, add_groups(d_parameters), d_state, squares=None)


def trace(
    spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, state: ScanState
) -> tuple[Tensor, ScanState, Trace]:
    """Outputs, final state and trace, without gradients: the record of a forward pass that keeps every memory."""
    outputs, final, kept, plan = _forward(spec, parameters, inputs, lengths, slots, state, "trace")
    columns = []
    for s in range(plan.S):
        rows: list[Trace] = []
        for first in range(0, plan.B, plan.rows):
            order = sorted(range(first, min(first + plan.rows, plan.B)), key=lambda b: -int(lengths[s, b]))
            place = {b: first + k for k, b in enumerate(order)}  # the kernel keeps the longest sequence's record first
            for b in sorted(order):
                record = kept[s, place[b]]
                rows.append(trace_of_row(plan, record, int(lengths[s, b]), int(slots[s, b]), final.memory[s, b]))
        columns.append(stack(rows, 1))
    return outputs, final, stack(columns, 0)
