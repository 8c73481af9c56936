"""The only switch: which backend runs a scan.

A named backend that cannot run is refused with the reason, never replaced. `auto` takes the fused backend of the
device if there is one that can, otherwise the reference; `choose` says which, and a run's folder records it.
"""

from typing import Any, Literal, cast

import torch
from torch import Tensor

from tapehead.kernels.ntm_scan import reference
from tapehead.kernels.ntm_scan.contract import FusedBackend, ScanSpec, ScanState, Trace, check_shapes, is_vmapped
from tapehead.kernels.update.contract import Update

Backend = Literal["auto", "reference", "cpu", "gpu"]
BACKENDS: tuple[Backend, ...] = ("auto", "reference", "cpu", "gpu")


def fused(name: str) -> FusedBackend:
    """The module of a fused backend. Imported here, because numba and NVRTC are slow to load and may be absent."""
    if name == "cpu":
        from tapehead.kernels.ntm_scan import cpu

        return cast(FusedBackend, cpu)
    from tapehead.kernels.ntm_scan import gpu

    return cast(FusedBackend, gpu)


def choose(backend: str, spec: ScanSpec, dtype: torch.dtype, device: torch.device) -> str:
    """The backend that a scan will run on: "reference", "cpu" or "gpu"."""
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}, but it must be one of {', '.join(BACKENDS)}.")
    if backend == "reference":
        return backend
    if backend == "auto":
        candidate = {"cpu": "cpu", "cuda": "gpu"}.get(device.type)
        return candidate if candidate and fused(candidate).refusal(spec, dtype, device) is None else "reference"
    reason = fused(backend).refusal(spec, dtype, device)
    if reason is not None:
        raise ValueError(f"backend {backend!r} cannot run this machine: {reason}")
    return backend


def scan(
    backend: str,
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
) -> tuple[Tensor, ScanState]:
    """Outputs and final state, differentiable, on a backend that `choose` returned."""
    check_shapes(spec, parameters, inputs, lengths, slots, state)
    if backend == "reference":
        outputs, final, _ = reference.scan(spec, parameters, inputs, lengths, slots, state)
        return outputs, final
    everything = (parameters, inputs, *state)
    if not torch.is_grad_enabled() and not any(map(is_vmapped, everything)):  # nothing to keep for a backward pass
        outputs, final, _ = fused(backend).forward(spec, parameters, inputs, lengths, slots, state, keep=False)
        return outputs, final
    from tapehead.kernels.ntm_scan import op

    return op.scan(spec, parameters, inputs, lengths, slots, state)


def trace(
    backend: str,
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
) -> tuple[Tensor, ScanState, Trace]:
    """Outputs, final state and trace, without gradients."""
    check_shapes(spec, parameters, inputs, lengths, slots, state)
    with torch.no_grad():
        if backend == "reference":
            outputs, final, done = reference.scan(spec, parameters, inputs, lengths, slots, state, with_trace=True)
            assert done is not None
            return outputs, final, done
        return fused(backend).trace(spec, parameters, inputs, lengths, slots, state)


def update_kernel(backend: str, device: torch.device) -> Update:
    """The optimiser step for tensors on a device; the reference's own if the run is on the reference."""
    update: Update = _update_module(backend, device).update
    return update


def kernel_identity(backend: str, dtype: torch.dtype, device: torch.device) -> str:
    """What names the code that a run executes on a backend that `choose` returned: where two differ, bits may.

    Hashes of source and compiler for the fused kernels, torch's version for the rest. Compiles nothing.
    """
    scan = fused(backend).identity(dtype, device) if backend in ("cpu", "gpu") else f"torch-{torch.__version__}"
    return f"scan {scan}, update {_update_module(backend, device).identity(dtype, device)}"


def prepare(backend: str, dtype: torch.dtype, device: torch.device) -> None:
    """Load the CPU kernels that a run will need on a backend that `choose` returned, compiled if they are not there.

    Otherwise their first calls do. The GPU's compile in seconds, and for each length of the tape anew.
    """
    if backend == "cpu":
        from tapehead.kernels.ntm_scan.cpu import entries

        entries.make_ready(dtype)
    update = _update_module(backend, device)
    if hasattr(update, "make_ready"):
        update.make_ready(dtype)


def _update_module(backend: str, device: torch.device) -> Any:
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
