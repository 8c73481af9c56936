"""The losses of tapehead/losses.py. Each takes the logits of one step and leaves the gradients of the mean cost over
the batch in their place."""

import math
from typing import Any

from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf
from tapehead.kernels.ntm_scan.cpu.compiled.maths import exp, sigmoid
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled, inlined
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import largest


@inlined
def binary(logits: Array, targets: Array, weight: Any, batch: Any) -> float:
    """Binary cross-entropy, summed over the outputs. `weight` is the mask's one."""
    zero, one = logits.dtype.type(0), logits.dtype.type(1)
    cost = 0.0
    for o in range(logits.size):
        x = logits[o]
        positive = zero if x < 0 else x  # NaN passes
        cost += (positive - x * targets[o]) + math.log1p(math.exp(-abs(x)))
        logits[o] = weight * (sigmoid(x, one) - targets[o]) / batch
    weighted: float = cost * weight
    return weighted


@compiled
def categorical(logits: Array, targets: Array, batch: Any, lanes: Array) -> float:
    """Cross-entropy of the softmax.

    Logits count from the largest one, whose exponential of one is left out of the sum: log1p of the rest has all its
    digits where the machine is sure of its answer.
    """
    leaf()
    zero, one = logits.dtype.type(0), logits.dtype.type(1)
    top = largest(logits, lanes)
    first = 0
    while first < logits.size - 1 and logits[first] != top:
        first += 1
    rest, weight, below = zero, zero, zero
    for o in range(logits.size):
        x = logits[o] - top
        e = exp(x)
        logits[o] = e
        rest += zero if o == first else e
        weight += targets[o]
        below -= targets[o] * x
    scale = weight / (one + rest)
    for o in range(logits.size):
        logits[o] = (logits[o] * scale - targets[o]) / batch
    cost: float = weight * math.log1p(rest) + below
    return cost
