"""The update on an NVIDIA GPU: one pass over everything. Compiled by nvrtc.py.

Where the norm of the gradient and whether it is finite are not known yet, a launch of its own finds out; a seed that is
not finite is left as it was. Nothing waits for the device, and the learning rates are read from it, so that a captured
CUDA graph can change them.
"""

import ctypes
import functools
from pathlib import Path

import torch
from torch import Tensor

from tapehead.kernels import nvrtc
from tapehead.kernels.update.contract import UpdateRule, UpdateState

THREADS = 256
SHARED = THREADS // 32 * 4
PART = 8 * THREADS  # values of a seed that one block takes
CLIPS = {"none": 0, "elementwise": 1, "norm": 2}


class Arguments(ctypes.Structure):
    """`Arguments` of update.cu, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("parameters", "first", "second", "third", "average", "gradient")),
        *((name, ctypes.c_void_p) for name in ("costs", "rates", "squares", "counts", "applied", "skipped")),
        ("size", ctypes.c_longlong),
        *((name, ctypes.c_int) for name in ("batch", "parts", "adam", "clip")),
        *((name, ctypes.c_float) for name in ("clip_at", "decay_of_average")),
        ("numbers", ctypes.c_float * 3),
    ]


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
    if parameters.dtype != torch.float32:
        raise ValueError(f"the GPU update computes in float32 only, and the parameters are {parameters.dtype}.")
    tensors = [parameters, *state.moments, *([] if state.average is None else [state.average])]
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("the GPU update changes its state in place, and needs it contiguous.")
    if any(tensor.data_ptr() % 16 for tensor in tensors):
        raise ValueError("the GPU update takes four values at a time, and needs its state to begin at 16 bytes.")
    seeds, size = parameters.shape
    gradient, costs, rates = gradient.contiguous(), costs.contiguous(), rates.contiguous()
    if gradient.data_ptr() % 16:
        gradient = gradient.clone()
    look = squares is None
    squares = parameters.new_empty(seeds, -(-size // PART)) if squares is None else squares.contiguous()
    adam = rule.optimiser.kernel == "adam"
    counts = state.applied.clone() if adam else None  # for all blocks of a seed, while one of them writes `applied`
    skipped = torch.empty(seeds, dtype=torch.bool, device=parameters.device)
    moments = [moment.data_ptr() for moment in state.moments] + [None]
    arguments = Arguments(
        parameters=parameters.data_ptr(), first=moments[0], second=moments[1], third=moments[2],
        average=None if state.average is None else state.average.data_ptr(),
        gradient=gradient.data_ptr(), costs=costs.data_ptr(),
        rates=rates.data_ptr(),
        squares=squares.data_ptr(), counts=None if counts is None else counts.data_ptr(),
        applied=state.applied.data_ptr(), skipped=skipped.data_ptr(),
        size=size, batch=costs.shape[1], parts=squares.shape[1],
        adam=int(adam), clip=CLIPS[rule.clip], clip_at=rule.clip_at,
        decay_of_average=rule.average, numbers=(ctypes.c_float * 3)(*rule.optimiser.numbers),
    )  # fmt: skip
    kernels = _kernels(parameters.device)
    if look:
        kernels.launch("update_look", (squares.shape[1], seeds), THREADS, SHARED, arguments)
    # a seed that does not begin at 16 bytes: up to three values before its first part
    kernels.launch("update_apply", (-(-(size + 3) // PART), seeds), THREADS, 0, arguments)
    return skipped
