"""The scan as a torch operator: autograd, fake tensors, vmap, on the fused backend of the tensors' device.

`tapehead::ntm_scan` runs forward, `tapehead::ntm_scan_backward` computes its gradients; both take the specification as
JSON, because operators take no other structured arguments, and states as six tensors. The operator is differentiable
once. The backends are imported when first needed: importing this module imports neither numba nor CUDA.

An operator costs more than the host's share of a short scan. `scan_directly` runs one machine on plain tensors without
it; whatever needs the operator (torch.compile, export, `torch.func`, modes) takes `scan`, to the same numbers.

Both operators refuse arguments that do not fit together, and look at the values of lengths and slots, which waits for
the device. Callers that have done so already, as `scan` has, say `checked`.

Legend as in contract.py; V is the dimension that `vmap` adds. It is folded into S: a vmapped machine is more machines.
"""

import functools
import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from tapehead.kernels.ntm_scan.contract import (
    FusedBackend,
    ScanSpec,
    ScanState,
    check_arguments,
    check_counts,
    check_tensor,
)

# Outputs, the six parts of the final state, and what the backward pass needs.
ScanResult = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
# Gradients of parameters, inputs and the six parts of the initial state.
ScanGradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]

BACKENDS = {"cpu": "tapehead.kernels.ntm_scan.cpu", "cuda": "tapehead.kernels.ntm_scan.gpu"}


def backend_for(device: torch.device) -> FusedBackend:
    """The module of the fused backend that runs on a device."""
    return cast(FusedBackend, importlib.import_module(BACKENDS[device.type]))


def scan(
    spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, state: ScanState
) -> tuple[Tensor, ScanState]:
    """The scan of contract.py on the fused backend of the parameters' device: outputs and final state.

    The values of lengths and slots are the caller's business on a GPU.
    """
    check_arguments(spec, parameters, inputs, lengths, slots, state)
    needed = torch.is_grad_enabled() and any(part.requires_grad for part in (parameters, inputs, *state))
    outputs, *final, _ = _run(_Scan, spec.to_json(), parameters, inputs, lengths, slots, *state, needed, True)
    return outputs, ScanState(*final)


class Call(NamedTuple):
    """What a scan of one machine needs beside the tensors that may have gradients."""

    backend: FusedBackend
    spec: ScanSpec
    flat: Tensor | None  # [1, P], the parameters in one piece where they are; None: they are gathered
    lengths: Tensor  # [1, B], of values that fit
    slots: Tensor  # [1, B], likewise
    start: ScanState | None  # with leading S = 1; None: the state is among the tensors


def operator_needed() -> bool:
    """Whether something watches torch's operators, so that a scan has to be one."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def scan_directly(
    call: Call, parameters: Sequence[Tensor], inputs: Tensor, state: ScanState | None
) -> tuple[Tensor, ScanState]:
    """Outputs [T, B, O] and final state of one machine, differentiable by its parameters, inputs [T, B, I] and state.

    The caller has checked shapes, types, devices and values, and that all tensors are plain (`is_plain`).
    """
    parts = () if state is None else state
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*parameters, inputs, *parts)):
        outputs, *final = _run(_Direct, call, len(parameters), inputs, *parameters, *parts)
    else:
        outputs, final_state, _ = _forward_one(call, parameters, inputs, parts, keep=False)
        final = list(final_state)
    return outputs, ScanState(*final)


def _gathered(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([parameter.reshape(-1) for parameter in parameters]).unsqueeze(0)


def _with_seed(parts: Sequence[Tensor]) -> ScanState:
    return ScanState(*(part.unsqueeze(0) for part in parts))


def _forward_one(
    call: Call, parameters: Sequence[Tensor], inputs: Tensor, parts: Sequence[Tensor], keep: bool
) -> tuple[Tensor, list[Tensor], Tensor]:
    flat = _gathered(parameters) if call.flat is None else call.flat
    state = call.start or _with_seed(parts)
    outputs, final, kept = call.backend.forward(
        call.spec, flat, inputs.unsqueeze(0), call.lengths, call.slots, state, keep
    )
    # In place, because a view that an autograd function made cannot be changed in place.
    return outputs.squeeze_(0), [part.squeeze_(0) for part in final], kept


class _Direct(torch.autograd.Function):
    """The scan of one machine on its backend, with nothing in between."""

    @staticmethod
    def forward(ctx: Any, call: Call, count: int, inputs: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        outputs, final, kept = _forward_one(call, tensors[:count], inputs, tensors[count:], keep=True)
        ctx.call, ctx.count = call, count
        ctx.save_for_backward(inputs, *tensors, kept)
        ctx.set_materialize_grads(False)
        return (outputs, *final)

    @staticmethod
    def backward(ctx: Any, d_outputs: Tensor | None, *d_parts: Tensor | None) -> tuple[Tensor | None, ...]:
        call, (inputs, *tensors, kept) = ctx.call, ctx.saved_tensors
        parameters, parts = tensors[: ctx.count], tensors[ctx.count :]
        inputs = inputs.unsqueeze(0)
        state = call.start or _with_seed(parts)
        d_outputs = (
            inputs.new_zeros(*inputs.shape[:3], call.spec.output_size)
            if d_outputs is None
            else _dense(d_outputs).unsqueeze(0)
        )
        d_final = None
        if any(d is not None for d in d_parts):
            d_final = ScanState(
                *(
                    torch.zeros_like(part) if d is None else _dense(d).unsqueeze(0)
                    for d, part in zip(d_parts, state, strict=True)
                )
            )
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():  # for a second derivative: the operator says that there is none
            flat = _gathered(parameters)
            zeros = d_final or ScanState(*(torch.zeros_like(part) for part in state))
            given = (flat, inputs, call.lengths, call.slots, *state, kept, d_outputs, *zeros)
            d_flat, d_inputs, *d_start = _run(_ScanBackward, call.spec.to_json(), *given, True)
        else:
            flat = _gathered(parameters) if call.flat is None else call.flat
            d_flat, d_inputs, d_start = call.backend.backward(
                call.spec,
                flat,
                inputs,
                call.lengths,
                call.slots,
                state,
                kept,
                d_outputs,
                d_final,
                inputs_gradient=wanted[2],
                state_gradient=any(wanted[3 + ctx.count :]),
            )
        # Views of one tensor: an optimiser can take the gradients as the flat tensor that they are.
        d_parameters = [d_flat.as_strided(*place) for place in call.spec.parameter_places]
        d_state = [None] * len(parts) if d_start is None else [d.squeeze(0) for d in d_start[: len(parts)]]
        return (None, None, d_inputs.squeeze(0) if wanted[2] else None, *d_parameters, *d_state)


@torch.library.custom_op("tapehead::ntm_scan", mutates_args=(), device_types=tuple(BACKENDS))
def ntm_scan(
    spec: str,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    memory: Tensor,
    read_weightings: Tensor,
    write_weightings: Tensor,
    reads: Tensor,
    hidden: Tensor,
    cell: Tensor,
    keep: bool,
    checked: bool = False,
) -> ScanResult:
    machine = ScanSpec.from_json(spec)
    state = ScanState(memory, read_weightings, write_weightings, reads, hidden, cell)
    if not checked:
        check_arguments(machine, parameters, inputs, lengths, slots, state)
        check_counts(lengths, slots, inputs.shape[1], memory.shape[2])
    backend = backend_for(parameters.device)
    reason = backend.refusal(machine, parameters.dtype, parameters.device, memory.shape[2])
    if reason is not None:
        raise ValueError(reason)
    outputs, final, kept = backend.forward(machine, parameters, inputs, lengths, slots, state, keep, clear=True)
    return (outputs, *final, kept if keep else parameters.new_empty(parameters.shape[0], 0))


@torch.library.custom_op("tapehead::ntm_scan_backward", mutates_args=(), device_types=tuple(BACKENDS))
def ntm_scan_backward(
    spec: str,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    memory: Tensor,
    read_weightings: Tensor,
    write_weightings: Tensor,
    reads: Tensor,
    hidden: Tensor,
    cell: Tensor,
    kept: Tensor,
    d_outputs: Tensor,
    d_memory: Tensor,
    d_read_weightings: Tensor,
    d_write_weightings: Tensor,
    d_reads: Tensor,
    d_hidden: Tensor,
    d_cell: Tensor,
    checked: bool = False,
) -> ScanGradients:
    machine = ScanSpec.from_json(spec)
    state = ScanState(memory, read_weightings, write_weightings, reads, hidden, cell)
    d_final = ScanState(d_memory, d_read_weightings, d_write_weightings, d_reads, d_hidden, d_cell)
    backend = backend_for(parameters.device)
    if not checked:
        check_arguments(machine, parameters, inputs, lengths, slots, state)
        check_counts(lengths, slots, inputs.shape[1], memory.shape[2])
        _check_gradients(machine, parameters, inputs, state, d_outputs, d_final)
        _check_kept(machine, parameters, inputs, memory, kept)
    if kept.numel() == 0 and inputs.numel() > 0:  # the need for gradients was not known in time: run it again
        kept = backend.forward(machine, parameters, inputs, lengths, slots, state, True)[2]
    given = (parameters, inputs, lengths, slots, state, kept, d_outputs, d_final)
    d_parameters, d_inputs, d_state = backend.backward(machine, *given, inputs_gradient=True, state_gradient=True)
    assert d_inputs is not None
    assert d_state is not None
    return (d_parameters, d_inputs, *d_state)


def _check_gradients(
    spec: ScanSpec, parameters: Tensor, inputs: Tensor, state: ScanState, d_outputs: Tensor, d_final: ScanState
) -> None:
    like = parameters.dtype, parameters.device
    check_tensor("d_outputs", d_outputs, (*inputs.shape[:3], spec.output_size), *like)
    for name, d_part, part in zip(ScanState._fields, d_final, state, strict=True):
        check_tensor(f"d_{name}", d_part, tuple(part.shape), *like)


def _check_kept(spec: ScanSpec, parameters: Tensor, inputs: Tensor, memory: Tensor, kept: Tensor) -> None:
    """What a forward pass kept is for this pass alone; nothing at all is the answer of one that was not to keep."""
    seeds, steps, batch, _ = inputs.shape
    shape: tuple[int, ...] = (seeds, 0)
    if tuple(kept.shape) != shape:
        shape = (seeds, batch, _record_size(spec, steps, memory.shape[2], parameters.device))
    check_tensor("kept", kept, shape, parameters.dtype, parameters.device)


@ntm_scan.register_fake
def _fake_scan(
    spec: str,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    *state_and_flags: Any,
    checked: bool = False,
) -> ScanResult:
    *state, keep = state_and_flags[:7]
    machine = ScanSpec.from_json(spec)
    check_arguments(machine, parameters, inputs, lengths, slots, ScanState(*state))  # one tensor on "meta" leads here
    seeds, steps, batch, _ = inputs.shape
    outputs = inputs.new_empty(seeds, steps, batch, machine.output_size)
    final = [part.new_empty(part.shape) for part in state]
    return cast(ScanResult, (outputs, *final, _fake_kept(machine, parameters, inputs, state[0], keep)))


def _fake_kept(spec: ScanSpec, parameters: Tensor, inputs: Tensor, memory: Tensor, keep: bool) -> Tensor:
    seeds, steps, batch, _ = inputs.shape
    if not keep:
        return parameters.new_empty(seeds, 0)
    if parameters.device.type == "cpu":
        return parameters.new_empty(seeds, batch, _record_size(spec, steps, memory.shape[-2], parameters.device))
    return parameters.new_empty(seeds, batch, torch.library.get_ctx().new_dynamic_size())


def _record_size(spec: ScanSpec, steps: int, slots: int, device: torch.device) -> int:
    """Numbers that a backend keeps of one sequence."""
    if device.type == "cpu":
        from tapehead.kernels.ntm_scan import cpu

        return cpu.record_size(spec, steps, slots)
    from tapehead.kernels.ntm_scan import gpu

    return gpu.record_size(spec, steps, slots, device)


@ntm_scan_backward.register_fake
def _fake_backward(
    spec: str, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, *rest: Any, checked: bool = False
) -> ScanGradients:
    machine, state, d_final = ScanSpec.from_json(spec), ScanState(*rest[:6]), ScanState(*rest[8:14])
    check_arguments(machine, parameters, inputs, lengths, slots, state)
    _check_gradients(machine, parameters, inputs, state, rest[7], d_final)
    check_tensor("kept", rest[6], tuple(rest[6].shape), parameters.dtype, parameters.device)
    return cast(ScanGradients, tuple(part.new_empty(part.shape) for part in (parameters, inputs, *state)))


def _save(ctx: Any, inputs: tuple[Any, ...], output: ScanResult) -> None:
    spec, *tensors, _, _ = inputs
    ctx.spec = spec
    ctx.save_for_backward(*tensors, output[-1])


def _differentiate(ctx: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
    *tensors, kept = ctx.saved_tensors
    _, inputs, _, _, *state = tensors
    shape = (*inputs.shape[:-1], ScanSpec.from_json(ctx.spec).output_size)
    wanted = [inputs.new_zeros(shape) if d_results[0] is None else _dense(d_results[0])]
    wanted += [
        torch.zeros_like(part) if d is None else _dense(d) for d, part in zip(d_results[1:7], state, strict=True)
    ]
    d_parameters, d_inputs, *d_state = _run(_ScanBackward, ctx.spec, *tensors, kept, *wanted, True)
    return (None, d_parameters, d_inputs, None, None, *d_state, None, None)


def _dense(gradient: Tensor) -> Tensor:
    """Autograd sees to a gradient's shape, type and device, but lets sparse ones through."""
    return gradient if gradient.layout == torch.strided else gradient.to_dense()


ntm_scan.register_autograd(_differentiate, setup_context=_save)


def _fold(info: Any, in_dims: tuple[int | None, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """Arguments with V folded into S; tensors without V are the same for all of it."""
    folded: list[Any] = []
    for argument, dim in zip(arguments, in_dims, strict=True):
        if not isinstance(argument, Tensor):
            folded.append(argument)
        elif dim is None:
            folded.append(argument.unsqueeze(0).expand(info.batch_size, *argument.shape).flatten(0, 1))
        else:
            folded.append(argument.movedim(dim, 0).flatten(0, 1))
    return folded


def _vmap(operator: Any) -> Any:
    def run(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        results = operator(*_fold(info, in_dims, arguments))
        # The number of seeds is said, not inferred: a feedforward machine's hidden state has no elements to count.
        seeds = results[0].shape[0] // info.batch_size
        return tuple(part.unflatten(0, (info.batch_size, seeds)) for part in results), (0,) * len(results)

    return run


ntm_scan.register_vmap(_vmap(ntm_scan))
ntm_scan_backward.register_vmap(_vmap(ntm_scan_backward))


def _run(function: type[torch.autograd.Function], *arguments: Any) -> tuple[Tensor, ...]:
    return cast(tuple[Tensor, ...], function.apply(*arguments))


class _ScanBackward(torch.autograd.Function):
    """The backward operator, for the same reason as `_Scan`."""

    @staticmethod
    def forward(*arguments: Any) -> ScanGradients:
        return cast(ScanGradients, ntm_scan_backward(*arguments))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: ScanGradients) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(
            "The fused backends differentiate the scan once; for second derivatives choose backend='reference'."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
        return _vmap(functools.partial(_run, _ScanBackward))(info, in_dims, *arguments)


class _Scan(torch.autograd.Function):
    """The operator once more, for `torch.func`: its transforms differentiate functions like this one, not operators."""

    @staticmethod
    def forward(*arguments: Any) -> ScanResult:
        return cast(ScanResult, ntm_scan(*arguments))

    setup_context = staticmethod(_save)
    backward = staticmethod(_differentiate)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
        return _vmap(functools.partial(_run, _Scan))(info, in_dims, *arguments)
