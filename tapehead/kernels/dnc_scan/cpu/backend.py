"""The CPU backend's functions (`FusedDNC`): tensors in, a plan and a table of addresses, tensors out."""

import functools
from typing import Any

import torch
from torch import Tensor

from tapehead.kernels import jit
from tapehead.kernels.dnc_scan.contract import DNCState, state_shapes
from tapehead.kernels.dnc_scan.cpu import entries
from tapehead.kernels.dnc_scan.cpu.compiled.plan import D_FINAL, D_STATE, FINAL, STATE, TABLE_SIZE, Plan
from tapehead.kernels.dnc_scan.cpu.planning import make_plan
from tapehead.kernels.dnc_scan.spec import DNCSpec
from tapehead.kernels.ntm_scan.contract import check_counts
from tapehead.kernels.ntm_scan.cpu import buffers
from tapehead.kernels.ntm_scan.cpu.compiled.plan import (
    COSTS,
    D_INPUTS,
    D_OUTPUTS,
    D_PARAMETERS,
    INPUTS,
    KEPT,
    LENGTHS,
    MASK,
    OUTPUTS,
    PARAMETERS,
    SLOTS,
    TARGETS,
)
from tapehead.kernels.ntm_scan.cpu.execution import add_groups, dense, execute, whole, with_state
from tapehead.kernels.ntm_scan.spec import unknown_option

KNOWN: dict[str, tuple[Any, ...]] = {
    "controller": ("lstm", "feedforward"),
    "strength": ("oneplus", "softplus"),
    "detached_usage": (False, True),
    "masked_content": (False, True),
    "deallocation": (False, True),
    "link_sharpness": (False, True),
}
"""The values of every choice of a specification that the kernel computes; it refuses any other."""


def refusal(spec: DNCSpec, dtype: torch.dtype, device: torch.device, slots: int = 1) -> str | None:
    """None if this backend can run such a machine here, otherwise one sentence that says why not."""
    if device.type != "cpu":
        return f"the CPU kernel runs on the CPU, but the tensors are on {device}."
    if dtype not in jit.DTYPES:
        return f"the CPU kernel computes in float32 and float64, but the parameters are {dtype}."
    return _unknown_option(spec) or jit.refusal()


@functools.cache  # asked before every update
def _unknown_option(spec: DNCSpec) -> str | None:
    return unknown_option("CPU", spec, KNOWN)


def _execute(plan: Plan, sizes: Any, table: dict[int, Tensor], dtype: torch.dtype) -> None:
    execute(entries.ready.get(dtype) or entries.make_ready(dtype), plan, sizes, table, TABLE_SIZE, dtype)


def _counts(lengths: Tensor, slots: Tensor, steps: int, tape: int, checked: bool) -> dict[int, Tensor]:
    lengths, slots = whole(lengths), whole(slots)
    if not checked:
        check_counts(lengths, slots, steps, tape)  # the kernel does not check bounds
    return {LENGTHS: lengths, SLOTS: slots}


def forward(
    spec: DNCSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    tape: int,
    state: DNCState | None,
    keep: bool,
) -> tuple[Tensor, DNCState, Tensor]:
    """Outputs, final state, and one opaque tensor for `backward` (empty unless `keep`)."""
    seeds, steps, batch, _ = inputs.shape
    dtype = parameters.dtype
    plan, sizes = make_plan(spec, seeds, steps, batch, tape, "keep" if keep else "forward")
    table = _counts(lengths, slots, steps, tape, checked=False)
    outputs = buffers.empty((*inputs.shape[:-1], spec.output_size), dtype)
    final = _empty_state(spec, seeds, batch, tape, dtype)
    kept = buffers.empty_record((seeds, batch, plan.record) if keep else (0,), dtype)
    table |= {PARAMETERS: dense(parameters), INPUTS: dense(inputs), OUTPUTS: outputs, KEPT: kept}
    if state is not None:
        with_state(table, STATE, tuple(map(dense, state)))
    _execute(plan, sizes, with_state(table, FINAL, final), dtype)
    return outputs, final, kept


def _empty_state(spec: DNCSpec, seeds: int, batch: int, tape: int, dtype: torch.dtype) -> DNCState:
    return DNCState(*(buffers.empty(shape, dtype) for shape in state_shapes(spec, (seeds, batch), tape).values()))


def backward(
    spec: DNCSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    tape: int,
    kept: Tensor,
    d_outputs: Tensor,
    d_final: DNCState | None,
    state_gradient: bool = True,
) -> tuple[Tensor, Tensor, DNCState | None]:
    """Gradients of parameters, inputs and initial state. May be called again with the same `kept`."""
    seeds, steps, batch, _ = inputs.shape
    dtype = parameters.dtype
    plan, sizes = make_plan(spec, seeds, steps, batch, tape, "backward")
    d_parameters = buffers.empty((seeds, plan.groups, plan.P), dtype)
    d_inputs = buffers.empty(tuple(inputs.shape), dtype)
    table = _counts(lengths, slots, steps, tape, checked=True) | {PARAMETERS: dense(parameters), KEPT: kept}
    table |= {D_OUTPUTS: dense(d_outputs), D_PARAMETERS: d_parameters, D_INPUTS: d_inputs}
    if d_final is not None:
        with_state(table, D_FINAL, tuple(map(dense, d_final)))
    d_state = _empty_state(spec, seeds, batch, tape, dtype) if state_gradient else None
    if d_state is not None:
        with_state(table, D_STATE, d_state)
    _execute(plan, sizes, table, dtype)
    return add_groups(d_parameters), d_inputs, d_state


def loss_and_gradient(
    spec: DNCSpec,
    parameters: Tensor,
    inputs: Tensor,
    targets: Tensor,
    mask: Tensor,
    lengths: Tensor,
    slots: Tensor,
    tape: int,
    loss: str,
    checked: bool = False,
) -> tuple[Tensor, Tensor]:
    """One training step without autograd: costs [S, B] and gradients [S, P] of the mean costs."""
    seeds, steps, batch, _ = inputs.shape
    dtype = parameters.dtype
    plan, sizes = make_plan(spec, seeds, steps, batch, tape, "train", loss)
    table = _counts(lengths, slots, steps, tape, checked)
    if not checked:
        mask = mask != 0  # the kernel takes it for one: a number so small that it rounds to zero would not count there
    costs = buffers.empty((seeds, batch), dtype)
    d_parameters = buffers.empty((seeds, plan.groups, plan.P), dtype)
    table |= {PARAMETERS: dense(parameters), INPUTS: dense(inputs), COSTS: costs, D_PARAMETERS: d_parameters}
    table |= {TARGETS: dense(targets.to(dtype)), MASK: dense(mask.to(dtype))}
    _execute(plan, sizes, table, dtype)
    return costs, add_groups(d_parameters)
