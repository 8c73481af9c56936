"""The compiled functions of the scan that Python calls."""

import importlib
from pathlib import Path
from typing import Any

import numba
import torch

from tapehead.kernels import jit
from tapehead.kernels.dnc_scan.cpu import compiled
from tapehead.kernels.dnc_scan.cpu.compiled import scan
from tapehead.kernels.ntm_scan.cpu import compiled as common
from tapehead.kernels.ntm_scan.cpu.compiled.options import OPTIONS
from tapehead.kernels.update.cpu import UPDATE


def _types(real: Any) -> tuple[Any, ...]:
    integers = numba.int64[::1]
    return integers, integers, real[::1], integers, numba.float64[::1], numba.int64, numba.int64


_MODULES = [
    importlib.import_module(f"{package.__name__}.{file.stem}")
    for package in (compiled, common)
    for file in sorted(Path(package.__path__[0]).glob("*.py"))
    if file.stem != "__init__"
]
FORWARD = jit.Kernel(f"{__name__}:FORWARD", scan.run_forward, OPTIONS, _types, _MODULES)
BACKWARD = jit.Kernel(f"{__name__}:BACKWARD", scan.run_backward, OPTIONS, _types, _MODULES)

ready: dict[torch.dtype, tuple[jit.Entry, jit.Entry]] = {}


def make_ready(dtype: torch.dtype) -> tuple[jit.Entry, jit.Entry]:
    """Forward and backward pass for a type of numbers. Training needs the update too."""
    forward, backward = jit.load([FORWARD, BACKWARD], jit.DTYPES[dtype], beside=[UPDATE])
    ready[dtype] = forward, backward
    return forward, backward


def identity(dtype: torch.dtype, device: torch.device) -> str:
    """A word for the compiled code, known before it is compiled."""
    return f"cpu-{jit.identity([FORWARD, BACKWARD], jit.DTYPES[dtype])}"
