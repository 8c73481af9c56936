"""The interface: from the controller's raw numbers to what a head asks for, and back."""

import math
from typing import NamedTuple

from tapehead.equations import NORM_EPSILON
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.maths import exp, sigmoid, softplus, softplus_slope
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import copy, sigmoid_all

# What one head asks for, `ask`: the key [M], then these, from M on; behind them the mask [M], which is there and of no
# meaning in a machine without masks, and for the write head erase [M] and add [M].
STRENGTH, INVERSE_NORM, FREE_GATE, MODES, SHARPNESS = 0, 1, 2, 3, 6
ALLOCATION_GATE, WRITE_GATE = 2, 3
READ_ASKS, WRITE_ASKS = 8, 4


class Reading(NamedTuple):
    """Where the parts of a read head begin in its part of the interface; the key is first."""

    strength: int
    free_gate: int
    modes: int
    mask: int
    sharpness: int
    least: int  # of a strength, 0 or 1
    masked: int
    sharp: int


class Writing(NamedTuple):
    """The same of the write head."""

    strength: int
    erase: int
    add: int
    allocation_gate: int
    write_gate: int
    mask: int
    least: int
    masked: int


@compiled
def _ask_key(raw: Array, mask_at: int, masked: int, ask: Array, mask: Array, width: int) -> None:
    """Key, mask and the inverse norm of the masked key."""
    one, total = ask.dtype.type(1), ask.dtype.type(NORM_EPSILON)
    copy(raw, view(ask, 0, width))
    if masked == 1:
        sigmoid_all(view(raw, mask_at, width), mask)
    scale = one
    for m in range(width):
        k = ask[m] * mask[m] if masked == 1 else ask[m]
        scale = max(scale, abs(k))
    for m in range(width):
        k = (ask[m] * mask[m] if masked == 1 else ask[m]) / scale
        total += k * k
    ask[width + INVERSE_NORM] = one / (scale * math.sqrt(total))


@compiled
def activate_read(raw: Array, at: Reading, ask: Array, width: int) -> None:
    leaf()
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    _ask_key(raw, at.mask, at.masked, ask, view(ask, width + READ_ASKS, width), width)
    ask[width + STRENGTH] = ask.dtype.type(at.least) + softplus(raw[at.strength])
    ask[width + FREE_GATE] = sigmoid(raw[at.free_gate], one)
    modes, x = view(ask, width + MODES, 3), view(raw, at.modes, 3)
    top, total = max(x[0], max(x[1], x[2])), zero
    for k in range(3):
        modes[k] = exp(x[k] - top)
        total += modes[k]
    for k in range(3):
        modes[k] /= total
    for k in range(2):
        ask[width + SHARPNESS + k] = one + softplus(raw[at.sharpness + k]) if at.sharp == 1 else one


@compiled
def activate_write(raw: Array, at: Writing, ask: Array, width: int) -> None:
    leaf()
    one = ask.dtype.type(1)
    _ask_key(raw, at.mask, at.masked, ask, view(ask, width + WRITE_ASKS, width), width)
    ask[width + STRENGTH] = ask.dtype.type(at.least) + softplus(raw[at.strength])
    ask[width + ALLOCATION_GATE] = sigmoid(raw[at.allocation_gate], one)
    ask[width + WRITE_GATE] = sigmoid(raw[at.write_gate], one)
    sigmoid_all(view(raw, at.erase, width), view(ask, 2 * width + WRITE_ASKS, width))
    copy(view(raw, at.add, width), view(ask, 3 * width + WRITE_ASKS, width))


@compiled
def _key_back(ask: Array, mask: Array, mask_at: int, masked: int, d_ask: Array, d_mask: Array, d_raw: Array) -> None:
    width, one = mask.size, ask.dtype.type(1)
    copy(d_ask, view(d_raw, 0, width))
    if masked == 1:
        for m in range(width):
            d_raw[mask_at + m] = d_mask[m] * mask[m] * (one - mask[m])


@compiled
def activate_read_back(raw: Array, at: Reading, ask: Array, d_ask: Array, d_raw: Array, width: int) -> None:
    leaf()
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    mask_at = width + READ_ASKS
    _key_back(ask, view(ask, mask_at, width), at.mask, at.masked, d_ask, view(d_ask, mask_at, width), d_raw)
    d_raw[at.strength] = d_ask[width + STRENGTH] * softplus_slope(raw[at.strength], one)
    gate = ask[width + FREE_GATE]
    d_raw[at.free_gate] = d_ask[width + FREE_GATE] * gate * (one - gate)
    modes, d_modes, mean = view(ask, width + MODES, 3), view(d_ask, width + MODES, 3), zero
    for k in range(3):
        mean += modes[k] * d_modes[k]
    for k in range(3):
        d_raw[at.modes + k] = modes[k] * (d_modes[k] - mean)
    if at.sharp == 1:
        for k in range(2):
            d_raw[at.sharpness + k] = d_ask[width + SHARPNESS + k] * softplus_slope(raw[at.sharpness + k], one)


@compiled
def activate_write_back(raw: Array, at: Writing, ask: Array, d_ask: Array, d_raw: Array, width: int) -> None:
    """All but the gradients of erase and add, which `write_back` left in d_raw: erase's is of its activation."""
    leaf()
    one = ask.dtype.type(1)
    mask_at = width + WRITE_ASKS
    _key_back(ask, view(ask, mask_at, width), at.mask, at.masked, d_ask, view(d_ask, mask_at, width), d_raw)
    d_raw[at.strength] = d_ask[width + STRENGTH] * softplus_slope(raw[at.strength], one)
    g_a, g_w = ask[width + ALLOCATION_GATE], ask[width + WRITE_GATE]
    d_raw[at.allocation_gate] = d_ask[width + ALLOCATION_GATE] * g_a * (one - g_a)
    d_raw[at.write_gate] = d_ask[width + WRITE_GATE] * g_w * (one - g_w)
    erase = view(ask, 2 * width + WRITE_ASKS, width)
    for m in range(width):
        d_raw[at.erase + m] *= erase[m] * (one - erase[m])


@compiled
def retention(asks: Array, ask_size: int, width: int, weightings: Array, stride: int, heads: int, psi: Array) -> None:
    """psi(i) = prod_h (1 - f_h w_h(i)). asks: of a read head every `ask_size` numbers."""
    leaf()
    one = psi.dtype.type(1)
    for i in range(psi.size):
        psi[i] = one
    for h in range(heads):
        f, w = asks[h * ask_size + width + FREE_GATE], view(weightings, h * stride, psi.size)
        for i in range(psi.size):
            psi[i] *= one - f * w[i]


@compiled
def retention_back(
    asks: Array, ask_size: int, width: int, weightings: Array, d_weightings: Array, stride: int, heads: int,
    d_psi: Array, before: Array, after: Array, d_free_gates: Array,
) -> None:  # fmt: skip
    """Adds to d_weightings; sets d_free_gates [R]. before [R, N], after [N]: the products of the other factors, since
    a factor may be zero."""
    leaf()
    n = d_psi.size
    zero, one = d_psi.dtype.type(0), d_psi.dtype.type(1)
    for i in range(n):
        before[i], after[i] = one, one
    for h in range(heads - 1):
        f, w = asks[h * ask_size + width + FREE_GATE], view(weightings, h * stride, n)
        b, c = view(before, h * stride, n), view(before, (h + 1) * stride, n)
        for i in range(n):
            c[i] = b[i] * (one - f * w[i])
    for h in range(heads - 1, -1, -1):
        f, w = asks[h * ask_size + width + FREE_GATE], view(weightings, h * stride, n)
        d_w, b, total = view(d_weightings, h * stride, n), view(before, h * stride, n), zero
        for i in range(n):
            g = d_psi[i] * b[i] * after[i]
            total -= g * w[i]
            d_w[i] -= g * f
            after[i] *= one - f * w[i]
        d_free_gates[h] = total
