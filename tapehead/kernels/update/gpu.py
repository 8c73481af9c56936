"""The update on an NVIDIA GPU: two passes over the gradient, one over everything else. Compiled by nvrtc.py.

The first launch looks (finite? how long?), the second applies; a seed that is not finite is left as it was. Nothing
waits for the device, and the learning rate may be a tensor on it, so that a captured CUDA graph can change it.
"""

import ctypes
import functools
from pathlib import Path

import torch
from torch import Tensor

from tapehead.kernels import nvrtc
from tapehead.kernels.update import contract
from tapehead.kernels.update.contract import UpdateRule, UpdateState

THREADS = 256
SHARED = THREADS // 32 * 4
PARTS = 32  # blocks that share a seed
CLIPS = {"none": 0, "elementwise": 1, "norm": 2}


class Rule(ctypes.Structure):
    """`Rule` of rule.cu, field by field."""

    _fields_ = [
        ("rate_tensor", ctypes.c_void_p),
        *((name, ctypes.c_float) for name in ("rate", "clip_at", "decay_of_average")),
        *((name, ctypes.c_int) for name in ("adam", "clip")),
    ]


class Learned(ctypes.Structure):
    """`Learned` of rule.cu, field by field."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("parameters", "first", "second", "third", "average")]


class Arguments(ctypes.Structure):
    """`Arguments` of update.cu, field by field."""

    _fields_ = [
        ("learned", Learned),
        ("rule", Rule),
        *((name, ctypes.c_void_p) for name in ("gradient", "costs", "done", "seen", "applied", "skipped")),
        ("size", ctypes.c_longlong),
        *((name, ctypes.c_int) for name in ("seeds", "batch")),
    ]


def rule_source() -> str:
    """The step of one parameter, for any CUDA source that applies one."""
    numbers = {
        "GRAVES_DECAY": contract.GRAVES_DECAY,
        "GRAVES_MOMENTUM": contract.GRAVES_MOMENTUM,
        "GRAVES_EPSILON": contract.GRAVES_EPSILON,
        "ADAM_BETA_1": contract.ADAM_BETAS[0],
        "ADAM_BETA_2": contract.ADAM_BETAS[1],
        "ADAM_EPSILON": contract.ADAM_EPSILON,
    }
    lines = [f"constexpr float {name} = {value!r}f;" for name, value in numbers.items()]
    return "\n".join(lines) + "\n" + Path(__file__).with_name("rule.cu").read_text(encoding="utf-8")


def source() -> str:
    sizes = f"constexpr int THREADS = {THREADS}, PARTS = {PARTS};\n"
    return rule_source() + sizes + Path(__file__).with_name("update.cu").read_text(encoding="utf-8")


def rule_of(rule: UpdateRule, rate: float | Tensor) -> Rule:
    on_device = isinstance(rate, Tensor)
    return Rule(
        rate_tensor=rate.data_ptr() if isinstance(rate, Tensor) else None,
        rate=0.0 if on_device else rate,
        clip_at=rule.clip_at,
        decay_of_average=rule.average,
        adam=int(rule.optimiser == "adam"),
        clip=CLIPS[rule.clip],
    )


def learned_of(state: UpdateState) -> Learned:
    """The state's tensors, which are changed in place."""
    tensors = [state.parameters, *state.moments, *([] if state.average is None else [state.average])]
    if state.parameters.dtype != torch.float32:
        raise ValueError(f"the GPU update computes in float32 only, and the parameters are {state.parameters.dtype}.")
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("the GPU update changes its state in place, and needs it contiguous.")
    moments = [moment.data_ptr() for moment in state.moments] + [None]
    average = None if state.average is None else state.average.data_ptr()
    return Learned(state.parameters.data_ptr(), moments[0], moments[1], moments[2], average)


@functools.cache
def _kernels(device: torch.device) -> nvrtc.Kernels:
    return nvrtc.Kernels(source(), "update.cu", device)


def update(
    rule: UpdateRule,
    state: UpdateState,
    gradient: Tensor,
    costs: Tensor,
    rate: float | Tensor,
    done: Tensor | None = None,
) -> Tensor:
    """Apply one update in place; returns which seeds [S] were skipped. gradient [S, P], costs [S, B].

    done [S]: seeds whose update has been applied where the gradient was made; the others' gradients are looked at here.
    """
    seeds, size = state.parameters.shape
    gradient, costs = gradient.contiguous(), costs.contiguous()
    seen = state.parameters.new_empty(seeds, PARTS)
    skipped = torch.empty(seeds, dtype=torch.bool, device=state.parameters.device)
    arguments = Arguments(
        learned=learned_of(state), rule=rule_of(rule, rate), gradient=gradient.data_ptr(), costs=costs.data_ptr(),
        done=None if done is None else done.data_ptr(), seen=seen.data_ptr(), applied=state.applied.data_ptr(),
        skipped=skipped.data_ptr(), size=size, seeds=seeds, batch=costs.shape[1],
    )  # fmt: skip
    kernels = _kernels(state.parameters.device)
    if done is not None:
        kernels.launch("update_rest", (seeds,), THREADS, SHARED, arguments)
        return skipped
    kernels.launch("update_look", (PARTS, seeds), THREADS, SHARED, arguments)
    kernels.launch("update_apply", (PARTS, seeds), THREADS, 0, arguments)
    kernels.launch("update_count", (-(-seeds // 256),), 256, 0, arguments)
    return skipped
