"""Memory that starts without values."""

import collections
import contextlib
import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tapehead.kernels.ntm_scan.cpu.compiled.rows import GROUP_ROWS

Array = npt.NDArray[Any]
Scratch = tuple[Array, Array, Array]

LARGE, MOST_SPARE = 1 << 20, 1 << 26
"""Bytes: the allocator returns larger blocks to the system, which has to clear their pages when they are used again, a
tenth of the time of a scan; and the most that is kept for that reason."""

POISON = False  # tests set it: memory that nothing has written to then holds NaN

_scratch: dict[torch.dtype, dict[int, Scratch]] = collections.defaultdict(dict)  # by the thread that had it last
_spare: list[Array] = []


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """All memory of the backend that starts without values comes from here."""
    return torch.full(shape, math.nan, dtype=dtype) if POISON else torch.empty(shape, dtype=dtype)


def empty_like(tensor: Tensor) -> Tensor:
    """The same for the shape and type of a contiguous tensor."""
    return torch.full_like(tensor, math.nan) if POISON else torch.empty_like(tensor)


def empty_record(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The same for what a forward pass keeps: large, and made anew in every call."""
    size = math.prod(shape) * dtype.itemsize
    if not LARGE <= size <= MOST_SPARE or POISON:
        return empty(shape, dtype)
    return torch.from_numpy(np.asarray(_Block(size))).view(dtype).view(shape)


class _Block:
    """Bytes for one tensor. They are spare again when nothing refers to its memory any more."""

    def __init__(self, size: int) -> None:
        self._array: Array = _take_spare(size)
        address = self._array.__array_interface__["data"]
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": address, "version": 3}

    def __del__(self) -> None:
        _spare.append(self._array)
        while len(_spare) > 1 and sum(array.nbytes for array in _spare) > MOST_SPARE:
            _spare.pop(0)


def _take_spare(size: int) -> Array:
    """Spare memory that is large enough, but not many times as large; new memory if there is none."""
    for k in range(len(_spare) - 1, -1, -1):
        try:
            found = _spare.pop(k)
        except IndexError:  # another thread was faster
            continue
        if size <= found.nbytes <= 2 * size:
            return found
        _spare.insert(k, found)
    return np.empty(size, np.uint8)


def take_scratch(size: int, dtype: torch.dtype) -> Scratch:
    """Working memory, kept from call to call: reals, and integers and costs of the rows of a group.

    What this thread had before, if it is there, because it may still be in the caches of its core. Not kept in the
    thread itself: Python forgets a thread of OpenMP after every call.
    """
    free = _scratch[dtype]
    found = free.pop(threading.get_ident(), None)
    if found is None:
        with contextlib.suppress(KeyError):  # all are in use
            _, found = free.popitem()
    if found is None or found[0].size < size:
        integers, costs = np.zeros(3 * GROUP_ROWS, np.int64), np.zeros(GROUP_ROWS, np.float64)
        return empty((size + size // 4,), dtype).numpy(), integers, costs
    if POISON:
        found[0].fill(np.nan)
    return found


def give_scratch(scratch: Scratch, dtype: torch.dtype) -> None:
    _scratch[dtype][threading.get_ident()] = scratch
