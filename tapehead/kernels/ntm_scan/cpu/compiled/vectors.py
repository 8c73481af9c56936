"""Passes over vectors."""

from typing import Any

from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.maths import exp, sigmoid, tanh
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled

LANES = 16


@compiled
def copy(source: Array, target: Array) -> None:
    """As many numbers as the target has."""
    leaf()
    for i in range(target.size):
        target[i] = source[i]


@compiled
def fill_zero(x: Array) -> None:
    leaf()
    zero = x.dtype.type(0)
    for i in range(x.size):
        x[i] = zero


@compiled
def add_to(source: Array, target: Array) -> None:
    leaf()
    for i in range(target.size):
        target[i] += source[i]


@compiled
def tanh_all(source: Array, target: Array) -> None:
    leaf()
    for i in range(target.size):
        target[i] = tanh(source[i])


@compiled
def sigmoid_all(source: Array, target: Array) -> None:
    leaf()
    one = target.dtype.type(1)
    for i in range(target.size):
        target[i] = sigmoid(source[i], one)


@compiled
def largest(x: Array, lanes: Array) -> Any:
    """The maximum. Sixteen maxima side by side vectorise; one would only if LLVM might assume that there is no NaN."""
    leaf()
    top = x[0]
    whole = x.size // LANES * LANES
    if whole > 0:
        for j in range(LANES):
            lanes[j] = x[j]
        for i in range(LANES, whole, LANES):
            part = view(x, i, LANES)
            for j in range(LANES):
                lanes[j] = lanes[j] if lanes[j] > part[j] else part[j]
        for j in range(LANES):
            top = top if top > lanes[j] else lanes[j]
    for i in range(whole, x.size):
        top = top if top > x[i] else x[i]
    return top


@compiled
def softmax(x: Array, scale: Any, target: Array, lanes: Array) -> None:
    """softmax(scale * x) for scale >= 0."""
    leaf()
    top = largest(x, lanes)
    total = x.dtype.type(0)
    for i in range(target.size):
        e = exp(scale * (x[i] - top))
        target[i] = e
        total += e
    inverse = x.dtype.type(1) / total
    for i in range(target.size):
        target[i] *= inverse
