"""Memory that starts without values."""

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tapehead.kernels.ntm_scan.cpu.compiled.rows import GROUP_ROWS

Array = npt.NDArray[Any]

POISON = False  # tests set it: memory that nothing has written to then holds NaN

_own = threading.local()


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """All memory of the backend that starts without values comes from here."""
    return torch.full(shape, math.nan, dtype=dtype) if POISON else torch.empty(shape, dtype=dtype)


def scratch(size: int, dtype: torch.dtype) -> tuple[Array, Array, Array]:
    """This thread's working memory, kept from call to call: reals, and integers and costs of the rows of a group."""
    buffers: dict[torch.dtype, tuple[Array, Array, Array]] = _own.__dict__.setdefault("buffers", {})
    found = buffers.get(dtype)
    if found is None or found[0].size < size:
        integers, costs = np.zeros(3 * GROUP_ROWS, np.int64), np.zeros(GROUP_ROWS, np.float64)
        found = buffers[dtype] = (empty((size + size // 4,), dtype).numpy(), integers, costs)
    elif POISON:
        found[0].fill(np.nan)
    return found
