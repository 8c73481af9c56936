"""Kernels that numba compiles: each for explicit types, in processes of their own, kept in `cache`.

A process never runs code that it compiled itself. Numba links a function that it has just compiled with its parts as
they were compiled one by one; a process that loads the function links the copies inside it, which were optimised
together with it. The two round differently, and a run that is resumed must not. So child processes compile, and what
they send is loaded from those bytes, whether or not it could be kept.
"""

import contextlib
import functools
import hashlib
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
import numba.core.compiler
import numba.core.compiler_lock
import numba.core.registry
import numba.core.serialize
import numpy as np
import torch

from tapehead import notices
from tapehead.kernels import cache
from tapehead.kernels.errors import CompilationError

DTYPES = {torch.float32: "float32", torch.float64: "float64"}
SECONDS = 25
# Of numba's settings those that change the code; the processor's name and features are asked for themselves.
SETTINGS = (
    "OPT",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "ENABLE_AVX",
    "USING_SVML",
    "DISABLE_INTEL_SVML",
    "BOUNDSCHECK",
    "DEBUGINFO_DEFAULT",
    "ENABLE_PROFILING",
    "EXTEND_VARIABLE_LIFETIMES",
    "LLVM_REFPRUNE_PASS",
    "LLVM_REFPRUNE_FLAGS",
    "JIT_COVERAGE",
    "ENABLE_SYS_MONITORING",
)
PACKAGE = Path(__file__).absolute().parents[1]
# A child is started without the working directory on its path, and takes over this process's path without it (unless it
# is one of Python's own folders), so that no file that lies there is run; and it imports this package, not one of the
# same name that comes earlier.
CHILD = """
import importlib.util, json, sys
job = json.loads(sys.argv[1])
sys.path[:] = [entry for entry in job["path"] if entry in sys.path or entry not in job["here"]]
spec = importlib.util.spec_from_file_location("tapehead", job["package"] + "/__init__.py")
sys.modules["tapehead"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from tapehead.kernels import jit
jit.answer(**job["kernel"])
"""
Entry = Callable[..., None]

core: Any = numba.core  # has no types

_lock = threading.Lock()
_not_kept: dict[str, bytes] = {}  # by file, what this process had compiled and the cache could not take


def _after_fork() -> None:
    """A lock that another thread of the parent held would never be free again."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Kernel:
    """A function and how it is compiled.

    place: "module:name" of this object, by which a child finds it. types: of the arguments, for a type of numbers.
    sources: the modules of the function and of all that it calls; numbers, words and tuples that they import from
    elsewhere count by their values.
    """

    def __init__(
        self,
        place: str,
        function: Callable[..., Any],
        options: dict[str, Any],
        types: Callable[[Any], tuple[Any, ...]],
        sources: Sequence[ModuleType],
    ) -> None:
        self.place, self._function, self._options, self._types = place, function, options, types
        self._sources = _hash_of_sources(sources)  # now: the file of a module may change after it was imported

    def file(self, dtype: str) -> str:
        """The name of its file in the cache."""
        return f"{self._function.__name__}-{dtype}-{self.key(dtype)[:32]}.numba"

    def key(self, dtype: str) -> str:
        """SHA-256 of everything that the compiled code depends on."""
        options = {name: sorted(value) if isinstance(value, set) else value for name, value in self._options.items()}
        words = [self.place, self._sources, str(self._arguments(dtype)), json.dumps(options, sort_keys=True)]
        return hashlib.sha256("\0".join([*words, _compiler()]).encode()).hexdigest()

    def compile(self, dtype: str) -> bytes:
        """Compile here and now. Only for a process that does nothing else."""
        dispatcher: Any = numba.njit(**self._options)(self._function)
        dispatcher.compile(self._arguments(dtype))
        (result,) = dispatcher.overloads.values()
        if result.library.has_dynamic_globals:
            raise CompilationError(f"{self.place} holds addresses of this process, so that no other can load it.")
        code: bytes = core.serialize.dumps(result._reduce())
        return code

    def _arguments(self, dtype: str) -> tuple[Any, ...]:
        return self._types(getattr(numba, dtype))


def refusal() -> str | None:
    """None if kernels can be compiled or loaded here, otherwise one sentence that says why not."""
    if core.config.DISABLE_JIT:
        return "NUMBA_DISABLE_JIT is set, so that numba compiles nothing: unset it, or use the reference backend."
    return None


def load(kernels: Sequence[Kernel], dtype: str, beside: Sequence[Kernel] = ()) -> list[Entry]:
    """The kernels for "float32" or "float64", to be called with exactly the types that they were compiled for.

    beside: compiled along with them, if something must be compiled, because they will be needed soon.
    """
    reason = refusal()
    if reason is not None:
        raise CompilationError(reason)
    with _lock:
        codes = [_find(kernel, dtype) for kernel in kernels]
        if None in codes:
            with cache.lock("another process compiles the CPU kernel; waiting for it."):
                _compile_missing([*kernels, *beside], dtype)
            codes = [_find(kernel, dtype) for kernel in kernels]
        return [_rebuilt(code) for code in codes if code is not None]


def identity(kernels: Sequence[Kernel], dtype: str) -> str:
    """A short hash: two processes in which it is equal run the same code."""
    return hashlib.sha256("".join(kernel.key(dtype) for kernel in kernels).encode()).hexdigest()[:16]


def kept(kernels: Sequence[Kernel], dtype: str) -> bool:
    """Whether they are all in the cache."""
    return all(cache.read(kernel.file(dtype)) is not None for kernel in kernels)


def _find(kernel: Kernel, dtype: str) -> bytes | None:
    file = kernel.file(dtype)
    return _not_kept.get(file) or cache.read(file)


def _compile_missing(kernels: Sequence[Kernel], dtype: str) -> None:
    missing = [kernel for kernel in kernels if _find(kernel, dtype) is None]  # now: another process may have made them
    if missing:
        notices.tell(f"compiling the CPU kernel, about {SECONDS} s")
        for kernel, code in zip(missing, _compile_elsewhere(missing, dtype), strict=True):
            file = kernel.file(dtype)
            if not cache.write(file, code):
                _not_kept[file] = code


def _compile_elsewhere(kernels: Sequence[Kernel], dtype: str) -> list[bytes]:
    """Compile side by side in child processes, which end with this call, however it ends."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(_child(kernel, dtype)) for kernel in kernels]
        return [_received(child, kernel, dtype) for child, kernel in zip(children, kernels, strict=True)]


@contextlib.contextmanager
def _child(kernel: Kernel, dtype: str) -> Iterator["subprocess.Popen[bytes]"]:
    try:
        child = _start(kernel, dtype)
    except OSError as error:
        reason = f"{sys.executable!r} could not be started, {error.strerror}"
        raise CompilationError(f"the CPU kernel could not be compiled: {reason}; use the reference backend.") from error
    with child:  # closes its pipes and waits for it
        try:
            yield child
        finally:
            child.kill()


def _start(kernel: Kernel, dtype: str) -> "subprocess.Popen[bytes]":
    absolute = [entry for entry in sys.path if Path(entry).is_absolute()]
    try:
        here = [entry for entry in absolute if Path(entry).resolve() == Path.cwd().resolve()]
    except OSError:  # the working directory is gone
        here = []
    wanted = {"place": kernel.place, "dtype": dtype, "file": kernel.file(dtype)}
    job = {"path": absolute, "here": here, "package": str(PACKAGE), "kernel": wanted}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", CHILD, json.dumps(job)],
        stdin=subprocess.PIPE,  # when it closes, the child ends
        stdout=subprocess.PIPE,
        env=environment | {"PYTHONHASHSEED": "0"},  # sets are in the same order every time
        start_new_session=True,  # Ctrl-C at a terminal reaches this process alone
    )


def _received(child: "subprocess.Popen[bytes]", kernel: Kernel, dtype: str) -> bytes:
    assert child.stdout is not None
    said = child.stdout.read()
    code, status = cache.unseal(kernel.file(dtype), said), child.wait()
    if code is None or status != 0:
        reason = said.decode(errors="replace") if status == 1 and said else f"its process ended with status {status}"
        raise CompilationError(
            f"the CPU kernel could not be compiled ({kernel.place} for {dtype}: {reason}): "
            "try again, or use the reference backend."
        )
    return code


def answer(place: str, dtype: str, file: str) -> None:
    """The whole work of a child: compile one kernel, send it, end."""
    out = os.dup(1)
    os.dup2(2, 1)  # numba prints there, if it is asked to
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        module, _, name = place.partition(":")
        kernel: Kernel = getattr(importlib.import_module(module), name)
        if kernel.file(dtype) != file:
            raise CompilationError("its source or numba's settings changed since this program was started")
        said, status = cache.seal(file, kernel.compile(dtype)), 0
    except BaseException as error:
        said, status = " ".join(f"{type(error).__name__}: {error}".split()).encode(), 1
    with os.fdopen(out, "wb") as pipe:
        pipe.write(said)
    os._exit(status)


def _leave_with_parent() -> None:
    """The parent holds the other end of our input, and never writes: it ends when the parent does, however it ends."""
    os.read(0, 1)
    os._exit(2)


def _rebuilt(code: bytes) -> Entry:
    context = core.registry.cpu_target.target_context
    with core.compiler_lock.global_compiler_lock:
        context.refresh()
        result = core.compiler.CompileResult._rebuild(context, *core.serialize.loads(code))
    entry: Entry = result.entry_point
    return entry


@functools.cache
def _compiler() -> str:
    """Everything about numba and this processor that changes code."""
    settings = {name: str(getattr(core.config, name, None)) for name in SETTINGS}
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag)
    return repr((versions, core.registry.cpu_target.target_context.codegen().magic_tuple(), settings))


def _hash_of_sources(modules: Sequence[ModuleType]) -> str:
    digest = hashlib.sha256()
    for module in sorted(modules, key=lambda module: module.__name__):
        assert module.__file__ is not None
        constants = {
            name: repr(value)
            for name, value in vars(module).items()
            if not name.startswith("__") and isinstance(value, int | float | str | tuple)
        }
        digest.update(json.dumps([module.__name__, constants], sort_keys=True).encode())
        digest.update(hashlib.sha256(Path(module.__file__).read_bytes()).digest())
    return digest.hexdigest()
