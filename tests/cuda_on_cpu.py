"""Runs scan.cu on the CPU through cuda_on_cpu.h: the same source and the same Python as on a GPU, thread by thread."""

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapehead.kernels.ntm_scan import gpu
from tapehead.kernels.ntm_scan.gpu_plan import Plan

COMPILER = shutil.which("c++") or shutil.which("g++")
KERNELS = (
    "ntm_forward", "ntm_pack_forward", "ntm_outputs", "ntm_backward", "ntm_pack_backward",
    "ntm_gradient", "ntm_add_chunks", "ntm_input_gradient",
)  # fmt: skip
_folder = tempfile.TemporaryDirectory(prefix="cuda-on-cpu-")


class EmulatedKernels:
    """Stands in for `nvrtc.Kernels`."""

    def __init__(self, plan: Plan) -> None:
        header = Path(__file__).with_name("cuda_on_cpu.h").read_text()
        text = header + gpu.source(plan) + "\n".join(f"EMULATED({kernel})" for kernel in KERNELS)
        stem = Path(_folder.name) / hashlib.sha256(text.encode()).hexdigest()[:16]
        if not stem.with_suffix(".so").exists():
            stem.with_suffix(".cpp").write_text(text)
            command = [str(COMPILER), "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing"]
            subprocess.run([*command, f"{stem}.cpp", "-o", f"{stem}.so"], check=True)
        self._library = ctypes.CDLL(f"{stem}.so")

    def launch(self, kernel: str, grid: Sequence[int], threads: int, shared_bytes: int, argument: Any) -> None:
        x, y, z = (*grid, 1, 1)[:3]
        self._library[f"run_{kernel}"](ctypes.byref(argument), x, y, z, threads)
