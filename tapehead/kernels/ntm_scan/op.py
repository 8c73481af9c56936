"""The scan as a torch operator: autograd, fake tensors, vmap, on the fused backend of the tensors' device.

`tapehead::ntm_scan` runs forward, `tapehead::ntm_scan_backward` computes its gradients; both take the specification as
JSON, because operators take no other structured arguments, and states as six tensors. The operator is differentiable
once. The backends are imported when first needed: importing this module imports neither numba nor CUDA.

An operator costs more than the host's share of a short scan: direct.py runs one machine on plain tensors without it.

Both operators refuse arguments that do not fit together, and look at the values of lengths and slots, which waits for
the device. Callers that have done so already, as `scan` has, say `checked`.

Legend as in contract.py; V is the dimension that `vmap` adds. It is folded into S: a vmapped machine is more machines.
"""

import functools
import importlib
from typing import Any, cast

import torch
from torch import Tensor

from tapehead.kernels.ntm_scan.contract import (
    FusedBackend,
    ScanState,
    check_arguments,
    check_counts,
    check_tensor,
    refuse_forward_mode,
)
from tapehead.kernels.ntm_scan.direct import dense
from tapehead.kernels.ntm_scan.spec import ScanSpec

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
    refuse_forward_mode()  # before torch does, for other reasons
    check_arguments(spec, parameters, inputs, lengths, slots, state)
    needed = torch.is_grad_enabled() and any(part.requires_grad for part in (parameters, inputs, *state))
    outputs, *final, _ = run_function(_Scan, spec.to_json(), parameters, inputs, lengths, slots, *state, needed, True)
    return outputs, ScanState(*final)


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
    refuse_forward_mode()
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
    refuse_forward_mode()
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
    wanted = [inputs.new_zeros(shape) if d_results[0] is None else dense(d_results[0])]
    wanted += [torch.zeros_like(part) if d is None else dense(d) for d, part in zip(d_results[1:7], state, strict=True)]
    d_parameters, d_inputs, *d_state = run_function(ScanBackward, ctx.spec, *tensors, kept, *wanted, True)
    return (None, d_parameters, d_inputs, None, None, *d_state, None, None)


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


def run_function(function: type[torch.autograd.Function], *arguments: Any) -> tuple[Tensor, ...]:
    return cast(tuple[Tensor, ...], function.apply(*arguments))


class ScanBackward(torch.autograd.Function):
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
        return _vmap(functools.partial(run_function, ScanBackward))(info, in_dims, *arguments)


class _Scan(torch.autograd.Function):
    """The operator once more, for `torch.func`: its transforms differentiate functions like this one, not operators."""

    @staticmethod
    def forward(*arguments: Any) -> ScanResult:
        return cast(ScanResult, ntm_scan(*arguments))

    setup_context = staticmethod(_save)
    backward = staticmethod(_differentiate)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
        return _vmap(functools.partial(run_function, _Scan))(info, in_dims, *arguments)
