"""The only switch: which backend runs a scan, of an NTM, a DNC or an LSTM, and an update.

A named backend that cannot run is refused with the reason, never replaced. `auto` takes the fused backend of the
device if there is one that can, otherwise the reference; `choose` says which, and a run's folder records it.
"""

from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch import Tensor

from tapehead import checks
from tapehead.kernels.dnc_scan.contract import FusedDNC
from tapehead.kernels.dnc_scan.spec import DNCSpec
from tapehead.kernels.lstm_scan.contract import LSTMBackend, LSTMSpec
from tapehead.kernels.memory import is_plain
from tapehead.kernels.ntm_scan import reference
from tapehead.kernels.ntm_scan.contract import (
    FusedBackend,
    Learned,
    ScanState,
    Trace,
    check_arguments,
    check_counts,
    check_tensor,
    refuse_forward_mode,
)
from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.kernels.update.contract import Update
from tapehead.kernels.update.optimisers import Graves, Optimiser
from tapehead.losses import Loss

Backend = Literal["auto", "reference", "cpu", "gpu"]
FUSED_LOSSES = ("binary", "categorical")
FUSED_OPTIMISERS = ("graves", "adam")
DEFAULT_OPTIMISER = Graves()
BACKENDS: tuple[Backend, ...] = ("auto", "reference", "cpu", "gpu")


def fused(name: str) -> FusedBackend:
    """The module of a fused backend. Imported here, because numba and NVRTC are slow to load and may be absent."""
    if name == "cpu":
        from tapehead.kernels.ntm_scan import cpu

        return cast(FusedBackend, cpu)
    from tapehead.kernels.ntm_scan import gpu

    return cast(FusedBackend, gpu)


def fused_lstm(name: str) -> LSTMBackend:
    """The module of a fused backend of the LSTM."""
    if name == "cpu":
        from tapehead.kernels.lstm_scan import cpu

        return cast(LSTMBackend, cpu)
    from tapehead.kernels.lstm_scan import gpu

    return cast(LSTMBackend, gpu)


def fused_dnc(name: str) -> FusedDNC:
    """The module of a fused backend of the DNC."""
    if name == "cpu":
        from tapehead.kernels.dnc_scan import cpu

        return cast(FusedDNC, cpu)
    from tapehead.kernels.dnc_scan import gpu

    return cast(FusedDNC, gpu)


def choose(backend: str, spec: ScanSpec, dtype: torch.dtype, device: torch.device, slots: int) -> tuple[str, str]:
    """The backend that a scan on a tape of so many slots will run on: "reference", "cpu" or "gpu"; and why "auto" took
    the reference, if it did."""
    return _choose(backend, device, lambda name: fused(name).refusal(spec, dtype, device, slots))


def choose_lstm(backend: str, spec: LSTMSpec, dtype: torch.dtype, device: torch.device) -> tuple[str, str]:
    """The same for a population of LSTMs, whose reference is `PaperLSTM` in torch."""
    return _choose(backend, device, lambda name: fused_lstm(name).refusal(spec, dtype, device))


def choose_dnc(backend: str, spec: DNCSpec, dtype: torch.dtype, device: torch.device, slots: int) -> tuple[str, str]:
    """The same for a DNC, on a tape of so many slots."""
    return _choose(backend, device, lambda name: fused_dnc(name).refusal(spec, dtype, device, slots))


def _choose(backend: str, device: torch.device, refusal: Callable[[str], str | None]) -> tuple[str, str]:
    if backend not in BACKENDS:
        raise ValueError(f"backend is {checks.shown(backend)}, but it must be one of {', '.join(BACKENDS)}.")
    if backend == "reference":
        return backend, ""
    if backend == "auto":
        candidate = {"cpu": "cpu", "cuda": "gpu"}.get(device.type)
        if candidate is None:
            return "reference", f"there is no fused backend for {device.type}."
        reason = refusal(candidate)
        return (candidate, "") if reason is None else ("reference", reason)
    reason = refusal(backend)
    if reason is not None:
        raise ValueError(f"backend {backend!r} cannot run this machine: {reason}")
    return backend, ""


def is_fused(backend: str, loss: Loss) -> bool:
    """Whether a backend computes a loss and its gradient in its kernels; a subclass of a built-in loss is another
    one."""
    return backend in ("cpu", "gpu") and type(loss).__dict__.get("kernel") in FUSED_LOSSES


def scan(
    backend: str,
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
) -> tuple[Tensor, ScanState]:
    """Outputs and final state, differentiable, on a backend that `choose` returned.

    The values of lengths and slots are not looked at on the gpu backend, which never waits for the device: those
    from outside are checked where they come in (`SequenceModel.forward`).
    """
    if backend == "reference":
        _check(backend, spec, parameters, inputs, lengths, slots, state)
        outputs, final, _ = reference.scan(spec, parameters, inputs, lengths, slots, state)
        return outputs, final
    if torch.is_grad_enabled() or not all(map(is_plain, (parameters, inputs, lengths, slots, *state))):
        from tapehead.kernels.ntm_scan import op

        _check_device(parameters)
        return op.scan(spec, parameters, inputs, lengths, slots, state)
    refuse_forward_mode()
    _check(backend, spec, parameters, inputs, lengths, slots, state)
    outputs, final, _ = fused(backend).forward(spec, parameters, inputs, lengths, slots, state, keep=False)
    return outputs, final


def scan_compiled(
    backend: str,
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
) -> tuple[Tensor, ScanState]:
    """`scan` inside torch.compile and torch.export, which cannot look at the values of lengths and slots: the operator
    checks them when it runs, and on the reference every sequence has to use the whole tape."""
    check_arguments(spec, parameters, inputs, lengths, slots, state)
    if backend == "reference":
        outputs, final, _ = reference.scan_tape(spec, parameters, inputs, lengths, state, with_trace=False)
        return outputs, final
    from tapehead.kernels.ntm_scan import op

    outputs, *parts, _ = op.ntm_scan(
        spec.to_json(), parameters, inputs, lengths, slots, *state, torch.is_grad_enabled()
    )
    return outputs, ScanState(*parts)


def trace(
    backend: str,
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
) -> tuple[Tensor, ScanState, Trace]:
    """Outputs, final state and trace, without gradients.

    The reference does it also where a kernel has nothing to work on, or tensors that only torch can read.
    """
    _check(backend, spec, parameters, inputs, lengths, slots, state)
    plain = inputs.numel() > 0 and all(map(is_plain, (parameters, inputs, lengths, slots, *state)))
    with torch.no_grad():
        if backend == "reference" or not plain:
            outputs, final, done = reference.scan(spec, parameters, inputs, lengths, slots, state, with_trace=True)
            assert done is not None
            return outputs, final, done
        refuse_forward_mode()
        return fused(backend).trace(spec, parameters, inputs, lengths, slots, state)


def loss_and_gradient(
    backend: str,
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    targets: Tensor,
    mask: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    state_gradient: bool,
    loss: Loss,
    checked: bool = False,
) -> Learned:
    """One training step on a fused backend, without autograd: see `FusedBackend.loss_and_gradient`.

    checked: a call with tensors of the same shapes, types and devices has been made, their counts are those of a
    sampler, and the mask is of zeros and ones.
    """
    if checked:
        given = (parameters, inputs, targets, mask, lengths, slots, state)
        return fused(backend).loss_and_gradient(spec, *given, state_gradient, str(loss.kernel), checked=True)
    _check(backend, spec, parameters, inputs, lengths, slots, state)
    seeds, steps, batch, _ = inputs.shape
    if batch == 0:
        raise ValueError("inputs has no sequences, but a mean cost needs at least one.")
    check_tensor("targets", targets, (seeds, steps, batch, spec.output_size), targets.dtype, parameters.device)
    check_tensor("mask", mask, (seeds, steps, batch), mask.dtype, parameters.device)
    if not all(map(is_plain, (parameters, inputs, targets, mask, lengths, slots, *state))):
        raise ValueError("a tensor of this training step is lazy or wrapped, but a kernel needs its numbers in memory.")
    given = (parameters, inputs, targets, mask, lengths, slots, state)
    if not is_fused(backend, loss) or loss.kernel is None:
        raise ValueError(
            f"the loss {type(loss).__name__} is not in the kernels, which have {', '.join(FUSED_LOSSES)}: use autograd."
        )
    return fused(backend).loss_and_gradient(spec, *given, state_gradient, loss.kernel)


def _check(
    backend: str,
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
) -> None:
    _check_device(parameters)
    check_arguments(spec, parameters, inputs, lengths, slots, state)
    if backend == "reference":  # the cpu backend checks them itself
        check_counts(lengths, slots, inputs.shape[1], state.memory.shape[2])


def _check_device(parameters: Tensor) -> None:
    if parameters.device.type == "meta":
        raise ValueError("the parameters are on meta, a device that holds no numbers: use to_empty() and load them.")


def update_kernel(backend: str, device: torch.device, optimiser: Optimiser) -> Update:
    """The optimiser step for tensors on a device; in torch if the run is on the reference, or the optimiser is not
    fused."""
    update: Update = _update_module(backend, device, optimiser).update
    return update


def scan_identity(backend: str, dtype: torch.dtype, device: torch.device) -> str:
    """What names the code of a scan on a backend that `choose` returned: where two differ, bits may. Compiles nothing.

    A hash of source and compiler for the fused kernels, torch's version for the reference.
    """
    return fused(backend).identity(dtype, device) if backend in ("cpu", "gpu") else f"torch-{torch.__version__}"


def update_identity(
    backend: str, dtype: torch.dtype, device: torch.device, optimiser: Optimiser = DEFAULT_OPTIMISER
) -> str:
    """The same for the optimiser step."""
    identity: str = _update_module(backend, device, optimiser).identity(dtype, device)
    return identity


def prepare_scan(backend: str, dtype: torch.dtype) -> None:
    """Load the CPU kernel that a run will need on a backend that `choose` returned, compiled if it is not there.

    Otherwise its first call does. The GPU's compile in seconds, and for each length of the tape anew.
    """
    if backend == "cpu":
        from tapehead.kernels.ntm_scan.cpu import entries

        entries.make_ready(dtype)


def prepare_update(
    backend: str, dtype: torch.dtype, device: torch.device, optimiser: Optimiser = DEFAULT_OPTIMISER
) -> None:
    """The same for the optimiser step."""
    update = _update_module(backend, device, optimiser)
    if hasattr(update, "make_ready"):
        update.make_ready(dtype)


def _update_module(backend: str, device: torch.device, optimiser: Optimiser) -> Any:
    if type(optimiser).__dict__.get("kernel") not in FUSED_OPTIMISERS:  # a subclass of a fused one is another one
        backend = "reference"
    if backend != "reference" and device.type == "cpu":
        from tapehead.kernels import jit
        from tapehead.kernels.update import cpu

        if jit.refusal() is None:  # a scan on this backend was refused then, but a model without one may be trained
            return cpu
    elif backend != "reference" and device.type == "cuda":
        from tapehead.kernels.update import gpu

        return gpu
    from tapehead.kernels.update import reference as update_reference

    return update_reference
