"""Addressing, Eqs. 5 to 9.

`ask` holds what one head asks for, after the activations, as interface.py lays it out; in `d_ask` the inverse norm has
no gradient. `ring` is a weighting with r more slots on either side, so that the circular shift is a plain sum.
"""

import math
from typing import Any, NamedTuple

from tapehead.equations import NORM_EPSILON, SHARPEN_EPSILON
from tapehead.kernels.ntm_scan.cpu.compiled.interface import GATE, INVERSE_NORM, SHARPENING, SHIFTS, STRENGTH
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.maths import log, norm_limit
from tapehead.kernels.ntm_scan.cpu.compiled.memory import Tape, memory_gradient, slopes_of_width_one, weigh_rows
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled, inlined
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import fill_zero, softmax


class Head(NamedTuple):
    """One head at one step, in a row's record."""

    ask: Array
    inverse_norms: Array  # [n], of the slots that it sees
    previous: Array  # [n], its weighting before
    similarity: Array  # [n]: Eq. 6
    content: Array  # [n]: Eq. 5
    weighting: Array  # [n]: Eq. 9


class Spare(NamedTuple):
    """Working memory of `address` and `address_back`."""

    key: Array  # [M], of norm one
    ring: Array  # [n + 2r]
    d_ring: Array
    shifted: Array  # [n]
    logs: Array
    lanes: Array


@compiled
def _close_ring(ring: Array, n: int, r: int) -> None:
    leaf()
    for i in range(r):
        ring[i] = ring[r + (i - r) % n]
        ring[r + n + i] = ring[r + i % n]


@compiled
def _shift(ring: Array, shifts: Array, backwards: bool, target: Array) -> None:
    """Eq. 8: target(i) = sum_j s_j w(i - (j - r)); backwards, its transpose, target(i) = sum_j s_j w(i + (j - r))."""
    leaf()
    taps, n = shifts.size, target.size
    if taps == 3:
        a, b = (shifts[0], shifts[2]) if backwards else (shifts[2], shifts[0])
        c = shifts[1]
        w0, w1, w2 = ring, view(ring, 1, n), view(ring, 2, n)
        for i in range(n):
            target[i] = a * w0[i] + c * w1[i] + b * w2[i]
    else:
        fill_zero(target)
        for j in range(taps):
            w0, s = view(ring, j if backwards else taps - 1 - j, n), shifts[j]
            for i in range(n):
                target[i] += s * w0[i]


@compiled
def _interpolate(gate: Any, content: Array, previous: Array, middle: Array) -> None:
    """Eq. 7, into the middle of a ring."""
    leaf()
    rest = content.dtype.type(1) - gate
    for i in range(content.size):
        middle[i] = gate * content[i] + rest * previous[i]


@compiled
def _log_all(x: Array, target: Array) -> None:
    leaf()
    epsilon = x.dtype.type(SHARPEN_EPSILON)
    for i in range(target.size):
        target[i] = log(x[i] + epsilon)


@inlined
def _refocus(head: Head, spare: Spare, tape: Tape, r: int) -> None:
    """Eqs. 7 and 8 and the logarithms of Eq. 9, from content and previous weighting: into ring, shifted and logs."""
    n, width = tape.n, tape.width
    _interpolate(head.ask[width + GATE], head.content, head.previous, view(spare.ring, r, n))
    _close_ring(spare.ring, n, r)
    _shift(spare.ring, view(head.ask, width + SHIFTS, 2 * r + 1), False, spare.shifted)
    _log_all(spare.shifted, spare.logs)


@compiled
def address(head: Head, spare: Spare, tape: Tape, r: int) -> None:
    """Figure 2 of the paper: a head's new weighting."""
    leaf()
    ask, similarity, norms = head.ask, head.similarity, head.inverse_norms
    n, width = tape.n, tape.width
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    for m in range(width):
        spare.key[m] = ask[m] * ask[width + INVERSE_NORM]
    fill_zero(similarity)
    weigh_rows(spare.key, tape, similarity)
    tiny, huge = one / math.sqrt(norm_limit(ask)), zero
    for i in range(n):
        huge += one if norms[i] < tiny else zero
        similarity[i] *= norms[i]
    if huge > 0:  # products of huge entries may overflow: multiply by the inverse norm first
        for i in range(n):
            if norms[i] < tiny:
                similarity[i] = zero
                for m in range(width):
                    similarity[i] += spare.key[m] * (tape.entries[m * n + i] * norms[i])
    softmax(similarity, ask[width + STRENGTH], head.content, spare.lanes)  # Eq. 5
    _refocus(head, spare, tape, r)
    softmax(spare.logs, ask[width + SHARPENING], head.weighting, spare.lanes)  # Eq. 9


@compiled
def address_back(
    head: Head, spare: Spare, tape: Tape, r: int, d_tape: Tape, d_weighting: Array, d_read: Array, d_ask: Array
) -> None:
    """Backward of `address` and of Eq. 2; d_weighting becomes the gradient of the previous weighting."""
    leaf()
    ask, previous, similarity, content, weighting = (
        head.ask,
        head.previous,
        head.similarity,
        head.content,
        head.weighting,
    )
    n, width = tape.n, tape.width
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    beta, gate, gamma = ask[width + STRENGTH], ask[width + GATE], ask[width + SHARPENING]
    inverse = ask[width + INVERSE_NORM]
    _refocus(head, spare, tape, r)
    shifted, logs = spare.shifted, spare.logs

    # Eq. 9: with u = log(w~ + epsilon), w = softmax(gamma u)
    mean, mean_log, d_gamma = zero, zero, zero
    for i in range(n):
        mean += weighting[i] * d_weighting[i]
        mean_log += weighting[i] * logs[i]
    d_shifted = view(spare.d_ring, r, n)
    epsilon = ask.dtype.type(SHARPEN_EPSILON)
    for i in range(n):
        d_z = weighting[i] * (d_weighting[i] - mean)
        d_gamma += d_z * (
            logs[i] - mean_log
        )  # the d_z sum to zero: subtracting a constant costs no truth, saves digits
        d_shifted[i] = gamma * d_z / (shifted[i] + epsilon)

    # Eq. 8
    taps = 2 * r + 1
    shifts = view(ask, width + SHIFTS, taps)
    for j in range(taps):
        w, total = view(spare.ring, taps - 1 - j, n), zero
        for i in range(n):
            total += d_shifted[i] * w[i]
        d_ask[width + SHIFTS + j] = total
    _close_ring(spare.d_ring, n, r)
    d_interpolated = spare.shifted
    _shift(spare.d_ring, shifts, True, d_interpolated)

    # Eq. 7
    rest = one - gate
    d_gate, mean, mean_similarity = zero, zero, zero
    for i in range(n):
        d_gate += d_interpolated[i] * (content[i] - previous[i])
        d_weighting[i] = rest * d_interpolated[i]
        mean += d_interpolated[i] * content[i]
        mean_similarity += content[i] * similarity[i]

    # Eqs. 5 and 6: K(i) = k^ . M(i) / |M(i)| with k^ = k / |k|
    d_beta, along = zero, zero
    norms, alpha, delta = head.inverse_norms, spare.logs, spare.shifted
    for i in range(n):
        d_z = gate * content[i] * (d_interpolated[i] - mean)
        d_beta += d_z * (similarity[i] - mean_similarity)
        d_k = beta * d_z
        along += d_k * similarity[i]
        d_k *= norms[i]
        alpha[i] = d_k
        delta[i] = -d_k * similarity[i] * norms[i]
    if width == 1:
        slopes_of_width_one(alpha, norms, delta)
    for m in range(width):
        spare.key[m] = ask[m] * inverse
    sums = view(d_ask, 0, width)
    memory_gradient(tape, d_tape, alpha, delta, spare.key, weighting, d_read, sums)
    if width == 1:  # as of a slot
        d_ask[0] = sums[0] * inverse * (ask.dtype.type(NORM_EPSILON) * inverse * inverse)
    else:
        for m in range(width):
            d_ask[m] = (sums[m] - along * spare.key[m]) * inverse
    d_ask[width + STRENGTH], d_ask[width + GATE], d_ask[width + SHARPENING] = d_beta, d_gate, d_gamma
