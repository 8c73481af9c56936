"""CUDA source to running kernels without a toolchain: NVRTC compiles, the CUDA driver loads and launches.

Both libraries are on every machine with a CUDA build of torch: NVRTC comes with torch's wheels, the driver with the
GPU. They are called through ctypes, because torch's own way in (`torch.cuda._compile_kernel`) is private. Compiled
kernels are kept in `cache`, because a compilation takes seconds.
"""

import ctypes
import ctypes.util
import functools
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tapehead.kernels import cache
from tapehead.kernels.errors import CompilationError

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PRIORITY = 8  # CU_LAUNCH_ATTRIBUTE_PRIORITY
_OPTIONS = ("--std=c++17", "--device-as-default-execution-space")


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute of the driver, for attributes that are one number."""

    _fields_ = [("name", ctypes.c_int), ("_gap", ctypes.c_int), ("value", ctypes.c_int), ("_rest", ctypes.c_byte * 60)]


class _Launch(ctypes.Structure):
    """CUlaunchConfig of the driver."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        *((name, ctypes.c_void_p) for name in ("stream", "attributes")),
        ("attribute_count", ctypes.c_uint),
    ]


_FIRST = _Attribute(name=_PRIORITY, value=-1)  # 0 is everyone's, lower numbers come first
_OneAddress = ctypes.c_void_p * 1
MOST_LAUNCHES = 1024
"""Launches that a source's kernels keep ready: one for each kernel, grid and stream."""


def _nvrtc_candidates() -> Iterator[str]:
    """Files that may be NVRTC, best first: torch's own, its wheels', a CUDA installation's, the system's."""
    torch_folder = Path(torch.__file__).parent
    folders = [torch_folder / "lib"]
    folders += sorted(torch_folder.parent.glob("nvidia/*/lib")) + sorted(torch_folder.parent.glob("nvidia/*/bin"))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if variable in os.environ:
            root = Path(os.environ[variable])
            folders += [root / "lib64", root / "lib", root / "bin"]
    folders.append(Path("/usr/local/cuda/lib64"))
    pattern = "nvrtc64_*.dll" if sys.platform == "win32" else "libnvrtc.so*"
    for folder in folders:
        yield from (str(file) for file in sorted(folder.glob(pattern), reverse=True) if ".alt." not in file.name)
    found = ctypes.util.find_library("nvrtc")
    if found:
        yield found


@functools.cache
def _nvrtc() -> ctypes.CDLL:
    reasons = []
    for candidate in _nvrtc_candidates():
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            reasons.append(f"{candidate}: {error}")
    tried = "; ".join(reasons) or "none was found"
    raise RuntimeError(f"NVRTC could not be loaded ({tried}): install torch with CUDA, or set CUDA_HOME.")


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def missing() -> str | None:
    """None if kernels can be compiled and loaded here, otherwise one sentence that says what is missing."""
    try:
        _nvrtc()
        _driver()
    except (RuntimeError, OSError) as error:
        return str(error)
    return None


def nvrtc_version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check_nvrtc(_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


def _check_nvrtc(status: int, call: str) -> None:
    if status != 0:
        library = _nvrtc()
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"{call} failed: {library.nvrtcGetErrorString(status).decode()}.")


def _check_driver(status: int, call: str) -> None:
    if status != 0:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"{call} failed: {(text.value or b'unknown error').decode()}.")


def _compile(source: str, name: str, target: str) -> bytes:
    library, program = _nvrtc(), ctypes.c_void_p()
    create = library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    _check_nvrtc(create, "nvrtcCreateProgram")
    try:
        options = [f"--gpu-architecture={target}", *_OPTIONS]
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = library.nvrtcCompileProgram(program, len(options), array)
        size = ctypes.c_size_t()
        if status != 0:
            _check_nvrtc(library.nvrtcGetProgramLogSize(program, ctypes.byref(size)), "nvrtcGetProgramLogSize")
            log = ctypes.create_string_buffer(size.value)
            _check_nvrtc(library.nvrtcGetProgramLog(program, log), "nvrtcGetProgramLog")
            raise CompilationError(f"NVRTC could not compile {name} for {target}:\n{log.value.decode()}")
        _check_nvrtc(library.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
        code = ctypes.create_string_buffer(size.value)
        _check_nvrtc(library.nvrtcGetCUBIN(program, code), "nvrtcGetCUBIN")
        return code.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def architecture(device: torch.device) -> str:
    """What is compiled for a device: "sm_90" and the like."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def key(source: str, target: str) -> str:
    """SHA-256 of everything that the compiled code depends on."""
    return hashlib.sha256("\0".join([source, target, *_OPTIONS, str(nvrtc_version())]).encode()).hexdigest()


def compiled(source: str, name: str, target: str) -> bytes:
    """Machine code of `source` for an architecture: from the cache, or compiled now and put there."""
    file = f"{Path(name).stem}-{target}-{key(source, target)[:32]}.cubin"
    code = cache.read(file)
    if code is None:
        code = _compile(source, name, target)
        cache.write(file, code)
    return code


class Kernels:
    """The kernels of one source, loaded on one device."""

    def __init__(self, source: str, name: str, device: torch.device) -> None:
        code = compiled(source, name, architecture(device))
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._allowed: dict[str, int] = {}
        self._launches: dict[tuple[Any, ...], tuple[Any, ctypes.c_void_p]] = {}
        self._module = ctypes.c_void_p()
        self.device = device
        self._index = torch.cuda.current_device() if device.index is None else device.index
        with torch.cuda.device(device):
            torch.cuda.current_stream()  # makes the device's context current for the driver
            torch.empty(1, device=device)
            _check_driver(_driver().cuModuleLoadData(ctypes.byref(self._module), code), "cuModuleLoadData")

    def _function(self, kernel: str, shared_bytes: int) -> ctypes.c_void_p:
        function = self._functions.get(kernel)
        if function is None:
            function = ctypes.c_void_p()
            status = _driver().cuModuleGetFunction(ctypes.byref(function), self._module, kernel.encode())
            _check_driver(status, f"cuModuleGetFunction({kernel})")
            self._functions[kernel] = function
        if shared_bytes > self._allowed.get(kernel, 48 * 1024):
            status = _driver().cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes)
            _check_driver(status, f"cuFuncSetAttribute({kernel}, {shared_bytes} bytes of shared memory)")
            self._allowed[kernel] = shared_bytes
        return function

    def launch(
        self,
        kernel: str,
        grid: tuple[int, ...],
        threads: int,
        shared_bytes: int,
        argument: Any,
        *,
        urgent: bool = False,
    ) -> None:
        """Runs `kernel` on torch's current stream. Its one argument is a ctypes structure, passed by value.

        urgent: its blocks come before those of other kernels that wait for a place on the device.
        """
        if torch._C._cuda_getDevice() != self._index:  # the context manager costs as much as the launch
            with torch.cuda.device(self.device):
                self.launch(kernel, grid, threads, shared_bytes, argument, urgent=urgent)
            return
        what = (kernel, grid, threads, shared_bytes, urgent, torch._C._cuda_getCurrentRawStream(self._index))
        launch, function = self._launches.get(what) or self._new_launch(*what)
        status = _driver().cuLaunchKernelEx(launch, function, _OneAddress(ctypes.addressof(argument)), None)
        if status != 0:
            _check_driver(status, f"launching {kernel}")

    def _new_launch(
        self, kernel: str, grid: tuple[int, ...], threads: int, shared_bytes: int, urgent: bool, stream: int
    ) -> tuple[Any, ctypes.c_void_p]:
        """What the driver takes for such a launch, kept. Nothing changes it, so several threads may use it at once."""
        x, y, z = (*grid, 1, 1)[:3]
        launch = _Launch(x, y, z, threads, 1, 1, shared_bytes, stream, ctypes.addressof(_FIRST), int(urgent))
        made = ctypes.byref(launch), self._function(kernel, shared_bytes)
        if len(self._launches) >= MOST_LAUNCHES:
            self._launches.clear()
        self._launches[kernel, grid, threads, shared_bytes, urgent, stream] = made
        return made
