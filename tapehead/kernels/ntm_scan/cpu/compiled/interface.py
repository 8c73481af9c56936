"""The interface: from the controller's raw numbers to what a head asks for, and back."""

import math
from typing import Any, NamedTuple

import numpy as np

from tapehead.equations import NORM_EPSILON
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.maths import exp, sigmoid, softplus, softplus_slope, tanh
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import copy, tanh_all

# What one head asks for, `ask`: the key [M], then these, from M on; the last is the first of 2r+1 shift weights. Behind
# them a write head's has erase [M], add [M] and write gate.
STRENGTH, GATE, SHARPENING, INVERSE_NORM, SHIFTS = range(5)


class Raw(NamedTuple):
    """Where the parts of one head's addressing begin in its part of the interface."""

    key: int
    strength: int
    gate: int
    shift: int
    sharpening: int


@compiled
def clip_all(limit: Any, raw: Array, target: Array) -> None:
    """The interface as the heads see it. NaN passes."""
    leaf()
    for i in range(raw.size):
        x = raw[i]
        x = limit if x > limit else x
        target[i] = -limit if x < -limit else x


@compiled
def activate(raw: Array, at: Raw, ask: Array, width: int, r: int, key_tanh: int, soft_shift: int) -> None:
    """What one head asks for: the addressing part of the interface after its activations."""
    leaf()
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    if key_tanh == 1:
        tanh_all(view(raw, at.key, width), view(ask, 0, width))
    else:
        copy(view(raw, at.key, width), view(ask, 0, width))
    scale, total = one, ask.dtype.type(NORM_EPSILON)
    for m in range(width):
        scale = max(scale, abs(ask[m]))
    for m in range(width):
        k = ask[m] / scale
        total += k * k
    ask[width + STRENGTH] = softplus(raw[at.strength])
    ask[width + GATE] = sigmoid(raw[at.gate], one)
    ask[width + SHARPENING] = one + softplus(raw[at.sharpening])
    ask[width + INVERSE_NORM] = one / (scale * math.sqrt(total))
    shifts = view(ask, width + SHIFTS, 2 * r + 1)
    if soft_shift == 1:
        x = view(raw, at.shift, 2 * r + 1)
        top, total = x[0], zero
        for j in range(x.size):
            top = max(top, x[j])
        for j in range(x.size):
            shifts[j] = exp(x[j] - top)
            total += shifts[j]
        for j in range(x.size):
            shifts[j] /= total
    else:
        amount = r * tanh(raw[at.shift])
        whole = np.floor(amount)
        for j in range(shifts.size):
            shifts[j] = zero
            if j - r == whole:
                shifts[j] = ask.dtype.type(one - (amount - whole))
            if j - r == whole + 1 or amount != amount:  # NaN equals nothing, but must come out
                shifts[j] = ask.dtype.type(amount - whole)


@compiled
def activate_back(
    raw: Array,
    at: Raw,
    ask: Array,
    d_ask: Array,
    d_raw: Array,
    width: int,
    r: int,
    key_tanh: int,
    soft_shift: int,
) -> None:
    leaf()
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    d_key = view(d_raw, at.key, width)
    for m in range(width):
        d_key[m] = d_ask[m] * (one - ask[m] * ask[m]) if key_tanh == 1 else d_ask[m]
    d_raw[at.strength] = d_ask[width + STRENGTH] * softplus_slope(raw[at.strength], one)
    d_raw[at.gate] = d_ask[width + GATE] * ask[width + GATE] * (one - ask[width + GATE])
    d_raw[at.sharpening] = d_ask[width + SHARPENING] * softplus_slope(raw[at.sharpening], one)
    shifts, d_shifts = view(ask, width + SHIFTS, 2 * r + 1), view(d_ask, width + SHIFTS, 2 * r + 1)
    if soft_shift == 1:
        mean = zero
        for j in range(shifts.size):
            mean += shifts[j] * d_shifts[j]
        for j in range(shifts.size):
            d_raw[at.shift + j] = shifts[j] * (d_shifts[j] - mean)
    else:
        part = tanh(raw[at.shift])
        whole = np.floor(r * part)
        d_amount = zero
        for j in range(shifts.size):
            if j - r == whole:
                d_amount -= d_shifts[j]
            if j - r == whole + 1:
                d_amount += d_shifts[j]
        d_raw[at.shift] = ask.dtype.type(d_amount * r * (one - part * part))
