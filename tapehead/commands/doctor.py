"""`tapehead doctor`: checks of this installation."""

import importlib.metadata
import os
import platform
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from tapehead.kernels import cache, dispatch, jit
from tapehead.kernels.ntm_scan.cpu import entries
from tapehead.kernels.update import reference as update_reference
from tapehead.kernels.update.contract import UpdateRule, UpdateState
from tapehead.models.config import NTMConfig
from tapehead.models.ntm import NTM

if TYPE_CHECKING:
    from tapehead import arguments

PACKAGES = ("torch", "numpy", "numba", "safetensors", "tyro", "rich", "matplotlib")


def run(options: "arguments.Doctor") -> int:
    sound = True
    for name, check in CHECKS.items():
        try:
            good, says = check()
        except Exception as error:  # whatever is broken is reported, not raised
            good, says = False, f"{type(error).__name__}: {error}"
        sound = sound and good
        print(f"{'ok  ' if good else 'FAIL'} {name}: {says}")
    print("Everything is in order." if sound else "Something is wrong: see the lines marked FAIL.")
    return 0 if sound else 1


def _versions() -> tuple[bool, str]:
    found = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return True, f"Python {platform.python_version()}, {found}"


def _machine() -> tuple[bool, str]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
    return True, f"{os.cpu_count()} CPUs, torch uses {torch.get_num_threads()} threads, {gpu}"


def _folder() -> tuple[bool, str]:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        return bool(folder), "runs can be written here"


def _backends() -> tuple[bool, str]:
    spec = NTMConfig(input_size=9, output_size=8).spec
    says = []
    for name, device in (("cpu", "cpu"), ("gpu", "cuda" if torch.cuda.is_available() else "cpu")):
        reason = dispatch.fused(name).refusal(spec, torch.float32, torch.device(device))
        says.append(f"{name} {'ready' if reason is None else f'not usable ({reason})'}")
    return True, "; ".join(says)


def _agreement() -> tuple[bool, str]:
    """The fused backend of the device against the reference, on a small machine."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    fast = NTM(9, 8, memory_slots=16, device=device)
    slow = NTM(9, 8, memory_slots=16, device=device, backend="reference")
    slow.load_state_dict(fast.state_dict())
    x = torch.rand(7, 3, 9, device=device)
    gradients = []
    for model in (fast, slow):
        y, _ = model(x)
        y.square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).double())
    error = float((gradients[0] - gradients[1]).norm() / gradients[1].norm())
    return error < 1e-4, f"gradients of the {fast.backend_in_use()} backend differ from the reference by {error:.1e}"


def _update() -> tuple[bool, str]:
    """One optimiser step of the device's kernel against the reference's."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(0)
    weights, gradient = (torch.randn(2, 99, generator=generator).to(device) for _ in range(2))
    rule, after = UpdateRule(), []
    kernel = dispatch.update_kernel("auto", device, rule.optimiser)
    for update in (kernel, update_reference.update):
        state = UpdateState(rule, weights.clone())
        update(rule, state, gradient, torch.ones(2, 1, device=device), torch.full((2,), 1e-2, device=device), None)
        after.append(state.parameters)
    error = float((after[0] - after[1]).abs().max())
    return error < 1e-6, f"one step of {kernel.__module__} differs from the reference by {error:.1e}"


def _cache() -> tuple[bool, str]:
    """Comes after the checks that compile. Without a cache every process compiles for itself: slow, but not wrong."""
    where, problem = cache.folder(), cache.problem()
    if jit.refusal() is not None:
        return True, f"{where}, not needed"
    kernels = "holds the CPU kernels" if jit.kept(entries.ALL, "float32") else "does not hold the CPU kernels"
    writing = "can be written" if problem is None else f"cannot be written, because {problem}"
    return True, f"{where} {kernels} and {writing}"


CHECKS: dict[str, Callable[[], tuple[bool, str]]] = {
    "versions": _versions,
    "machine": _machine,
    "folder": _folder,
    "backends": _backends,
    "agreement": _agreement,
    "update": _update,
    "cache": _cache,
}
