"""The update on an NVIDIA GPU: one pass over everything. Compiled by nvrtc.py.

Where the norm of the gradient and whether it is finite are not known yet, a launch of its own finds out; a seed that is
not finite is left as it was. Nothing waits for the device, and the learning rates are read from it, so that a captured
CUDA graph can change them.
"""

import ctypes
import functools
import operator
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tapehead.kernels import nvrtc
from tapehead.kernels.update.contract import UpdateRule, UpdateState

THREADS = 256
SHARED = THREADS // 32 * 4
PART = 8 * THREADS  # values of a seed that one block takes
ALIGNED = 16  # bytes
CLIPS = {"none": 0, "elementwise": 1, "norm": 2}


_POINTERS = (
    *("parameters", "first", "second", "third", "average", "gradient"),
    *("costs", "rates", "squares", "counts", "applied", "skipped"),
)
_OF_A_CALL = ("gradient", "costs", "rates", "squares", "skipped")
_INTEGERS = ("size", "batch", "parts", "adam", "clip")
_REALS = ("clip_at", "decay_of_average")
_PLACES = {name: place for place, name in enumerate((*_POINTERS, *_INTEGERS, *_REALS))}
_LAYOUT = struct.Struct(f"@{len(_POINTERS)}Pq{len(_INTEGERS) - 1}i{len(_REALS)}f3f0P")
"""`Arguments` of update.cu, field by field; the last are the optimiser's numbers."""
Arguments = ctypes.c_longlong * (_LAYOUT.size // 8)


def source() -> str:
    return f"constexpr int THREADS = {THREADS}, PART = {PART};\n" + Path(__file__).with_name("update.cu").read_text(
        encoding="utf-8"
    )


@functools.cache
def _kernels(device: torch.device) -> nvrtc.Kernels:
    return nvrtc.Kernels(source(), "update.cu", device)


def identity(dtype: torch.dtype, device: torch.device) -> str:
    """A word for the compiled code, known before it is compiled."""
    return f"gpu-{nvrtc.key(source(), nvrtc.architecture(device))[:16]}"


def update(
    rule: UpdateRule,
    state: UpdateState,
    gradient: Tensor,
    costs: Tensor,
    rates: Tensor,
    squares: Tensor | None = None,
) -> Tensor:
    """Apply one update in place; returns which seeds [S] were skipped. gradient [S, P], costs [S, B], rates [S]."""
    parameters = state.parameters
    seeds, size = parameters.shape
    gradient, costs, rates = gradient.contiguous(), costs.contiguous(), rates.contiguous()
    if gradient.data_ptr() % ALIGNED:
        gradient = gradient.clone()
    look = squares is None
    squares = parameters.new_empty(seeds, -(-size // PART)) if squares is None else squares.contiguous()
    adam = rule.optimiser.kernel == "adam"
    counts = state.applied.clone() if adam else None  # for all blocks of a seed, while one of them writes `applied`
    skipped = state.applied.new_empty(seeds, dtype=torch.bool)
    values = _known_values(rule, state).copy()
    for name, tensor in zip(_OF_A_CALL, (gradient, costs, rates, squares, skipped), strict=True):
        values[_PLACES[name]] = tensor.data_ptr()
    if counts is not None:
        values[_PLACES["counts"]] = counts.data_ptr()
    values[_PLACES["batch"]], values[_PLACES["parts"]] = costs.shape[1], squares.shape[1]
    arguments = Arguments.from_buffer_copy(_LAYOUT.pack(*values))
    kernels = _kernels(parameters.device)
    if look:
        kernels.launch("update_look", (squares.shape[1], seeds), THREADS, SHARED, arguments)
    # a seed that does not begin at 16 bytes: up to three values before its first part
    kernels.launch("update_apply", (-(-(size + 3) // PART), seeds), THREADS, 0, arguments)
    return skipped


def _known_values(rule: UpdateRule, state: UpdateState) -> list[Any]:
    """The values that rule and state decide, made once for the same ones; the others are zero."""
    tensors = (state.parameters, state.applied, state.average, *state.moments)
    seen = state.seen
    if seen is None or seen[0] is not rule or any(map(operator.is_not, seen[1], tensors)):
        _check(state)
        values: list[Any] = [0] * len(_PLACES)
        addresses = dict(zip(("first", "second", "third"), map(Tensor.data_ptr, state.moments), strict=False))
        addresses |= dict(parameters=state.parameters.data_ptr(), applied=state.applied.data_ptr())
        if state.average is not None:
            addresses["average"] = state.average.data_ptr()
        choices = dict(adam=int(rule.optimiser.kernel == "adam"), clip=CLIPS[rule.clip], clip_at=rule.clip_at)
        sizes = dict(size=state.parameters.shape[1], decay_of_average=rule.average)
        for name, value in (addresses | choices | sizes).items():
            values[_PLACES[name]] = value
        numbers = (*rule.optimiser.numbers, 0.0, 0.0, 0.0)[:3]
        state.seen = seen = rule, tensors, [*values, *numbers]
    known: list[Any] = seen[2]
    return known


def _check(state: UpdateState) -> None:
    if state.parameters.dtype != torch.float32:
        raise ValueError(f"the GPU update computes in float32 only, and the parameters are {state.parameters.dtype}.")
    tensors = [state.parameters, *state.moments, *([] if state.average is None else [state.average])]
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("the GPU update changes its state in place, and needs it contiguous.")
    if any(tensor.data_ptr() % ALIGNED for tensor in tensors):
        raise ValueError(
            f"the GPU update takes four values at a time, and needs its state to begin at {ALIGNED} bytes."
        )
