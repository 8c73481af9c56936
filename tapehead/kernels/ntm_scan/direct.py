"""The scan of one machine on plain tensors, without an operator of torch around it.

An operator costs more than the host's share of a short scan. What needs one (torch.compile, export, `torch.func`,
modes) takes `op.scan`, to the same numbers. Tensors have no seed axis here, but for the flat parameters [1, P], lengths
and slots [1, B].
"""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tapehead.kernels.ntm_scan.contract import FusedBackend, ScanState, refuse_forward_mode
from tapehead.kernels.ntm_scan.spec import ScanSpec

NOTHING = (None,) * len(ScanState._fields)


class Call(NamedTuple):
    """What a scan needs beside the tensors that may have gradients; the same for many calls."""

    backend: FusedBackend
    spec: ScanSpec
    lengths: Tensor  # [1, B], of values that fit
    slots: Tensor  # [1, B], likewise
    start: ScanState | None  # None: the state is among the tensors


def operator_needed() -> bool:
    """Whether something watches torch's operators, so that a scan has to be one."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def scan(
    call: Call, flat: Tensor | None, parameters: Sequence[Tensor], inputs: Tensor, state: ScanState | None
) -> tuple[Tensor, ScanState]:
    """Outputs [T, B, O] and final state, differentiable by parameters, inputs [T, B, I] and state.

    flat: the parameters in one piece, [1, P], where they are; None: they are gathered. The caller has checked shapes,
    types, devices and values, and that all tensors are plain (`is_plain`).
    """
    refuse_forward_mode()
    parts = () if state is None else state
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*parameters, inputs, *parts)):
        outputs, *final = _apply(call, flat, len(parameters), inputs, *parameters, *parts)
        return outputs, ScanState(*final)
    outputs, final_state, _ = _forward(call, flat, parameters, inputs, parts, keep=False)
    return outputs, final_state


def dense(gradient: Tensor) -> Tensor:
    """Autograd sees to a gradient's shape, type and device, but lets sparse ones through."""
    return gradient if gradient.layout == torch.strided else gradient.to_dense()


def _gathered(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([parameter.reshape(-1) for parameter in parameters]).unsqueeze(0)


def _forward(
    call: Call, flat: Tensor | None, parameters: Sequence[Tensor], inputs: Tensor, parts: Sequence[Tensor], keep: bool
) -> tuple[Tensor, ScanState, Tensor]:
    flat = _gathered(parameters) if flat is None else flat
    state = call.start or ScanState(*parts)
    return call.backend.forward(call.spec, flat, inputs, call.lengths, call.slots, state, keep, checked=True)


class _Scan(torch.autograd.Function):
    """The scan on its backend, with nothing in between."""

    @staticmethod
    def forward(
        ctx: Any, call: Call, flat: Tensor | None, count: int, inputs: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        outputs, final, kept = _forward(call, flat, tensors[:count], inputs, tensors[count:], keep=True)
        ctx.given = call, flat, count
        ctx.save_for_backward(inputs, *tensors, kept)
        ctx.set_materialize_grads(False)
        return (outputs, *final)

    @staticmethod
    def backward(ctx: Any, d_outputs: Tensor | None, *d_parts: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_forward_mode()
        (call, flat, count), (inputs, *tensors, kept) = ctx.given, ctx.saved_tensors
        parameters, parts = tensors[:count], tensors[count:]
        state = call.start or ScanState(*parts)
        if d_outputs is None:
            d_outputs = inputs.new_zeros(*inputs.shape[:2], call.spec.output_size)
        d_outputs = dense(d_outputs)
        d_final = None
        if any(map(operator.is_not, d_parts, NOTHING)):
            d_final = ScanState(
                *(torch.zeros_like(part) if d is None else dense(d) for d, part in zip(d_parts, state, strict=True))
            )
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():
            d_flat, d_inputs, d_start = _by_operator(call, parameters, inputs, state, kept, d_outputs, d_final)
        else:
            flat = _gathered(parameters) if flat is None else flat
            given = (flat, inputs, call.lengths, call.slots, state, kept, d_outputs, d_final)
            d_flat, d_inputs, d_start = call.backend.backward(
                call.spec, *given, inputs_gradient=wanted[3], state_gradient=any(wanted[4 + count :])
            )
        # Views of one tensor: an optimiser can take the gradients as the flat tensor that they are.
        d_parameters = [d_flat.as_strided(*place) for place in call.spec.parameter_places]
        d_state = [None] * len(parts) if d_start is None else d_start[: len(parts)]
        return (None, None, None, d_inputs if wanted[3] else None, *d_parameters, *d_state)


# the last line of `Function.apply`: the others are about tensors that are not plain
_apply: Any = super(torch.autograd.Function, _Scan).apply


def _by_operator(
    call: Call,
    parameters: Sequence[Tensor],
    inputs: Tensor,
    state: ScanState,
    kept: Tensor,
    d_outputs: Tensor,
    d_final: ScanState | None,
) -> tuple[Tensor, Tensor, ScanState]:
    """The gradients inside a graph of their own: the operator's, which says that there is no second derivative."""

    from tapehead.kernels.ntm_scan import op  # registers operators, which takes its time

    def with_seed(parts: ScanState) -> list[Tensor]:
        return [part.unsqueeze(0) for part in parts]

    zeros = d_final or ScanState(*map(torch.zeros_like, state))
    counts = (call.lengths, call.slots)
    given = (_gathered(parameters), inputs.unsqueeze(0), *counts, *with_seed(state), kept, d_outputs.unsqueeze(0))
    d_flat, d_inputs, *d_start = op.run_function(op.ScanBackward, call.spec.to_json(), *given, *with_seed(zeros), True)
    return d_flat, d_inputs.squeeze(0), ScanState(*(d.squeeze(0) for d in d_start))
