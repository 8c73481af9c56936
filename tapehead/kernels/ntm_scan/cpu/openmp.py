"""Torch's own threads, for a scan among operations of torch.

After a parallel operation torch's OpenMP threads spin for some milliseconds, in case another one follows; clipping the
gradients of a large layer is one. Threads of our own would share the cores with them, so a scan in a user's loop takes
torch's: they are awake, and it begins at once. `GOMP_parallel` is what `#pragma omp parallel` compiles to; it is looked
up in the runtime that torch is linked with, and the team has the size that torch's own operations have, because another
one would make the runtime end threads and start new ones. Where there is no such runtime, `Pool` does the work.
"""

import ctypes
import functools
import itertools
import os
import sys
from typing import Any

import torch

from tapehead.kernels.ntm_scan.cpu.threads import Job

IDLE = 2
"""Threads for each item at most: every thread of a team has to wait for Python's lock, those without an item too."""

_jobs: dict[int, Job] = {}
_keys = itertools.count(1)
_forked = False


def _after_fork() -> None:
    """A child has none of its parent's threads, but the runtime would wait for them."""
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_Function = ctypes.CFUNCTYPE(None, ctypes.c_size_t)
_take_part = _Function(lambda key: _jobs[key].help())  # which raises nothing


@functools.cache
def _parallel() -> Any:
    """`GOMP_parallel(function, argument, threads, flags)`; None if torch has no such runtime."""
    if sys.platform != "linux":
        return None
    try:
        found = ctypes.CDLL(torch._C.__file__).GOMP_parallel  # searches the libraries that it depends on, too
    except (OSError, AttributeError):
        return None
    found.argtypes, found.restype = (_Function, ctypes.c_size_t, ctypes.c_uint, ctypes.c_uint), None
    return found


def usable(threads: int, items: int) -> bool:
    """Whether to run so many items on torch's threads."""
    return threads <= IDLE * items and not _forked and _parallel() is not None


def run(job: Job, threads: int) -> None:
    """Takes part in the job, and returns or raises when no thread works on it any more."""
    key = next(_keys)
    _jobs[key] = job
    try:
        _parallel()(_take_part, key, threads, 0)
    finally:
        del _jobs[key]
    error = job.end()
    if error is not None:
        raise error
