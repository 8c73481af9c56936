"""Runs the CUDA sources on the CPU through cuda_on_cpu.h: the same source and Python as on a GPU, by threads."""

import atexit
import contextlib
import ctypes
import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tapehead.kernels.dnc_scan import gpu as dnc_gpu
from tapehead.kernels.lstm_scan import gpu as lstm_gpu
from tapehead.kernels.lstm_scan.contract import LSTMSpec
from tapehead.kernels.ntm_scan import gpu
from tapehead.kernels.update import gpu as update_gpu

COMPILER = shutil.which("c++") or shutil.which("g++")
SCAN = (
    "ntm_forward", "ntm_pack_forward", "ntm_outputs", "ntm_backward", "ntm_pack_backward",
    "ntm_gradient", "ntm_add_chunks", "ntm_input_gradient",
)  # fmt: skip
UPDATE = ("update_look", "update_apply")
LSTM = (
    "lstm_order", "lstm_pack", "lstm_begin", "lstm_inputs", "lstm_below", "lstm_gradient", "lstm_forward",
    "lstm_backward", "lstm_outputs", "lstm_outputs_back", "lstm_sums", "lstm_ends",
)  # fmt: skip
DNC = (
    "dnc_pack", "dnc_forward", "dnc_outputs", "dnc_backward", "dnc_gradient", "dnc_add_chunks", "dnc_input_gradient",
)  # fmt: skip
LSTM_CLUSTERS = ("lstm_layer", "lstm_layer_back")
DECLARATION = "extern __shared__ float4 shared_memory[];"
HEADER = Path(__file__).with_name("cuda_on_cpu.h")
# -Og: these sources are compiled for longer than they run.
FLAGS = ["-std=c++17", "-Og", "-w", "-fPIC", "-fno-strict-aliasing"]
FLAGS += ["-U_FORTIFY_SOURCE"]  # which takes a jump to another stack for an error
# Of sources and libraries; conftest.py gives all processes of a test run one.
folder = Path(tempfile.mkdtemp(prefix="cuda-on-cpu-"))
atexit.register(shutil.rmtree, folder, ignore_errors=True)


class EmulatedKernels:
    """Stands in for `nvrtc.Kernels`."""

    def __init__(self, source: str, kernels: Sequence[str], clusters: Mapping[str, int] | None = None) -> None:
        self._library = ctypes.CDLL(str(_compiled(whole_source(source, kernels, clusters))))

    def launch(
        self, kernel: str, grid: Sequence[int], threads: int, shared_bytes: int, argument: Any, *, urgent: bool = False
    ) -> None:
        x, y, z = (*grid, 1, 1)[:3]
        bad = self._library[f"run_{kernel}"](ctypes.byref(argument), x, y, z, threads, shared_bytes)
        assert not bad, (
            f"{bad} blocks of {kernel} wrote outside their shared memory, left copies behind, or waited for ever"
        )


def whole_source(source: str, kernels: Sequence[str], clusters: Mapping[str, int] | None = None) -> str:
    """For a compiler of C++: with a function for each kernel that runs a launch. clusters: of how many blocks."""
    sizes = dict.fromkeys(kernels, 1) | dict(clusters or {})
    runs = [f"EMULATED({name}, {size})" for name, size in sizes.items()]
    return "\n".join(['#include "cuda_on_cpu.h"', source.replace(DECLARATION, ""), *runs])


def name_of(text: str) -> str:
    """Of a source."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compiled(text: str) -> Path:
    """The library of a source, which one process compiles and the others wait for."""
    stem = folder / name_of(text)
    library = stem.with_suffix(".so")
    with stem.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            stem.with_suffix(".cpp").write_text(text)
            _compile("-I", _header(), "-shared", f"{stem}.cpp", into=library)
    return library


def _header() -> str:
    """A folder with the header and its compiled form."""
    header = folder / HEADER.name
    with header.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not header.exists():
            _compile("-x", "c++-header", HEADER, into=folder / f"{HEADER.name}.gch")
            shutil.copy(HEADER, header)
    return str(folder)


def _compile(*words: str | Path, into: Path) -> None:
    """What another process may take is whole."""
    whole = into.with_name(f"{into.name}.new")
    subprocess.run([str(COMPILER), *FLAGS, *words, "-o", whole], check=True)
    whole.replace(into)


@contextlib.contextmanager
def emulated(blocks: int = 3) -> Iterator[None]:
    """Inside, the GPU's kernels run on the CPU; blocks: as many multiprocessors as the device is said to have."""
    replaced = (
        (gpu, "_kernels", lambda plan, device: EmulatedKernels(gpu.source(plan), SCAN)),
        (gpu, "_blocks_at_once", lambda device: blocks),
        (update_gpu, "_kernels", lambda device: EmulatedKernels(update_gpu.source(), UPDATE)),
        (dnc_gpu, "_kernels", lambda plan, device: EmulatedKernels(dnc_gpu.source(plan), DNC)),
        (lstm_gpu, "_kernels", emulated_lstm),
        (lstm_gpu, "_cluster", lambda spec, device: 0),
    )
    gpu._plan.cache_clear()
    gpu._shape.cache_clear()
    dnc_gpu._plan.cache_clear()
    with contextlib.ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def emulated_lstm(spec: LSTMSpec, rows: int, cluster: int, device: Any) -> EmulatedKernels:
    clusters = dict.fromkeys(LSTM_CLUSTERS, cluster) if cluster else {}
    return EmulatedKernels(lstm_gpu.source(spec, rows, cluster), LSTM, clusters)
