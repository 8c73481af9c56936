"""The update in one pass over the parameters, compiled: every number is read and written once."""

import functools
import operator
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from tapehead.kernels import jit
from tapehead.kernels.update import compiled
from tapehead.kernels.update.contract import UpdateRule, UpdateState
from tapehead.kernels.update.optimisers import Optimiser

CLIPS = {"none": 0, "elementwise": 1, "norm": 2}


def _types(real: Any) -> tuple[Any, ...]:
    rows, row = real[:, ::1], real[::1]
    rule = (numba.boolean, numba.int64, numba.float64, numba.float64, numba.float64[::1])
    return (*rule, row, rows, rows, rows, rows, rows, rows, rows, numba.int64[::1], numba.boolean[::1])


UPDATE = jit.Kernel(f"{__name__}:UPDATE", compiled.update_population, compiled.OPTIONS, _types, [compiled])
_entries: dict[torch.dtype, jit.Entry] = {}


def update(
    rule: UpdateRule,
    state: UpdateState,
    gradient: Tensor,
    costs: Tensor,
    rates: Tensor,
    squares: Tensor | None = None,
) -> Tensor:
    """As reference.update."""
    parameters = state.parameters
    run = _entries.get(parameters.dtype) or make_ready(parameters.dtype)
    _check(state, gradient, costs, rates)
    w, applied, average, *moments = _arrays(state)
    skipped = torch.empty(parameters.shape[0], dtype=torch.bool)
    run(
        rule.optimiser.kernel == "adam",
        CLIPS[rule.clip],
        float(rule.clip_at),
        float(rule.average),
        _numbers(rule.optimiser),
        rates.contiguous().numpy(),
        w,
        gradient.contiguous().numpy(),
        costs.contiguous().numpy(),
        moments[0],
        moments[1],
        moments[-1],  # Adam has two
        w if average is None else average,
        applied,
        skipped.numpy(),
    )
    return skipped


def _arrays(state: UpdateState) -> tuple[Any, ...]:
    """Parameters, applied updates, average and moments as numpy has them, made once for the same tensors."""
    tensors = (state.parameters, state.applied, state.average, *state.moments)
    if state.seen is None or any(map(operator.is_not, state.seen[0], tensors)):
        if not all(tensor is None or tensor.is_contiguous() for tensor in tensors):
            raise ValueError("the CPU update changes its state in place, and needs it contiguous.")
        state.seen = tensors, tuple(None if tensor is None else tensor.numpy() for tensor in tensors)
    arrays: tuple[Any, ...] = state.seen[1]
    return arrays


@functools.lru_cache(maxsize=32)
def _numbers(optimiser: Optimiser) -> Any:
    return np.array(optimiser.numbers, dtype=np.float64)


def identity(dtype: torch.dtype, device: torch.device) -> str:
    """A word for the compiled code, known before it is compiled."""
    return f"cpu-{jit.identity([UPDATE], jit.DTYPES[dtype])}"


def make_ready(dtype: torch.dtype) -> jit.Entry:
    """Load the kernel for a type of numbers, compiled if it is not there."""
    if dtype not in jit.DTYPES:
        raise ValueError(f"the CPU update computes in float32 and float64, and the parameters are {dtype}.")
    (_entries[dtype],) = jit.load([UPDATE], jit.DTYPES[dtype])
    return _entries[dtype]


def _check(state: UpdateState, gradient: Tensor, costs: Tensor, rates: Tensor) -> None:
    """The kernel takes memory as it was told, so what does not fit is refused here."""
    shape, dtype = state.parameters.shape, state.parameters.dtype
    if not gradient.dtype == costs.dtype == rates.dtype == dtype:
        kinds = f"gradient, costs and rates are {gradient.dtype}, {costs.dtype} and {rates.dtype}"
        raise ValueError(f"{kinds}, but the parameters are {dtype}: convert them.")
    if gradient.shape != shape or costs.shape[0] != shape[0] or rates.shape != shape[:1]:
        shapes = f"gradient {list(gradient.shape)}, costs {list(costs.shape)} and rates {list(rates.shape)}"
        raise ValueError(f"{shapes} do not fit parameters {list(shape)}: they must be [S, P], [S, B], [S] and [S, P].")
