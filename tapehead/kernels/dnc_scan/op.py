"""The scan on a fused backend as a function that autograd knows. Legend in contract.py."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tapehead.kernels.dnc_scan.contract import DNCState, FusedDNC, state_shapes
from tapehead.kernels.dnc_scan.spec import DNCSpec
from tapehead.kernels.memory import is_plain
from tapehead.kernels.ntm_scan.contract import refuse_forward_mode
from tapehead.kernels.ntm_scan.direct import dense, operator_needed


class Call(NamedTuple):
    """What a scan needs beside the tensors that may have gradients."""

    backend: FusedDNC
    spec: DNCSpec
    lengths: Tensor  # [S, B]
    slots: Tensor  # [S, B]
    tape: int


def readable(*tensors: Tensor) -> bool:
    """Whether a kernel may work on these: not under torch.compile or `torch.func`, and not on lazy tensors."""
    return not operator_needed() and all(map(is_plain, tensors))


def scan(call: Call, parameters: Tensor, inputs: Tensor, state: DNCState | None) -> tuple[Tensor, DNCState]:
    """Outputs and final state, differentiable once, by parameters, inputs and state; None is the start."""
    refuse_forward_mode()
    parts = () if state is None else state
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (parameters, inputs, *parts)):
        run: Any = _Scan.apply
        outputs, *final = run(call, parameters, inputs, *parts)
        return outputs, DNCState(*final)
    given = (call.lengths, call.slots, call.tape, state)
    return call.backend.forward(call.spec, parameters, inputs, *given, keep=False)[:2]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, parameters: Tensor, inputs: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        state = DNCState(*parts) if parts else None
        given = (call.lengths, call.slots, call.tape, state)
        outputs, final, kept = call.backend.forward(call.spec, parameters, inputs, *given, keep=True)
        ctx.call, ctx.parts = call, len(parts)
        ctx.save_for_backward(parameters, inputs, kept)
        ctx.set_materialize_grads(False)
        return (outputs, *final)

    @staticmethod
    def backward(ctx: Any, d_outputs: Tensor | None, *d_final: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_forward_mode()
        run: Any = _Gradients.apply if torch.is_grad_enabled() else _gradients
        d_parameters, d_inputs, *d_state = run(ctx, d_outputs, *d_final)
        return (None, d_parameters, d_inputs, *d_state)


def _gradients(ctx: Any, d_outputs: Tensor | None, *d_parts: Tensor | None) -> tuple[Tensor | None, ...]:
    call, (parameters, inputs, kept) = ctx.call, ctx.saved_tensors
    shape = (*inputs.shape[:3], call.spec.output_size)
    d_outputs = inputs.new_zeros(shape) if d_outputs is None else dense(d_outputs)
    d_final = None
    if any(d is not None for d in d_parts):
        shapes = state_shapes(call.spec, tuple(call.lengths.shape), call.tape).values()
        d_final = DNCState(
            *(inputs.new_zeros(shape) if d is None else dense(d) for d, shape in zip(d_parts, shapes, strict=True))
        )
    given = (parameters, inputs, call.lengths, call.slots, call.tape, kept, d_outputs, d_final)
    d_parameters, d_inputs, d_state = call.backend.backward(call.spec, *given, state_gradient=ctx.parts > 0)
    return (d_parameters, d_inputs, *(d_state or ()))


class _Gradients(torch.autograd.Function):
    """The gradients inside a graph of their own, which says that there is no second derivative."""

    @staticmethod
    def forward(ctx: Any, of: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        return _gradients(of, *d_results)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(
            "The fused backends differentiate the scan once; for second derivatives choose backend='reference'."
        )
