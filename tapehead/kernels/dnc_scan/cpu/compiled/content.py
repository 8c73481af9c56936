"""Weightings by content: softmax of strength times the cosine of key and slots, masked or not."""

import math
from typing import NamedTuple

from tapehead.equations import NORM_EPSILON
from tapehead.kernels.dnc_scan.cpu.compiled.interface import INVERSE_NORM, STRENGTH
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.maths import norm_limit
from tapehead.kernels.ntm_scan.cpu.compiled.memory import (
    Tape,
    memory_gradient,
    slopes_of_width_one,
    tape_row,
    weigh_rows,
)
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import fill_zero, softmax


class Head(NamedTuple):
    """One head at one step."""

    ask: Array
    mask: Array  # [M]
    masked: int
    norms: Array  # [n], inverse norms of the slots that it sees, masked where it has a mask
    similarity: Array  # [n]
    content: Array  # [n]
    key: Array  # [M], working memory: the masked key, of norm one,
    focus: Array  # and the same times the mask


@compiled
def masked_norms(tape: Tape, mask: Array, inverse_norms: Array) -> None:
    """1 / sqrt(sum_m (mask_m M_m(i))^2 + epsilon); where squares come near overflow, entries are scaled first."""
    leaf()
    one, limit = mask.dtype.type(1), norm_limit(mask)
    epsilon = mask.dtype.type(NORM_EPSILON)
    fill_zero(inverse_norms)
    for m in range(tape.width):
        x, c = tape_row(tape, m, 0, tape.n), mask[m]
        for i in range(tape.n):
            y = c * x[i]
            inverse_norms[i] += y * y
    for i in range(tape.n):
        scale, total = one, inverse_norms[i] + epsilon
        if total > limit:
            total = epsilon
            for m in range(tape.width):
                scale = max(scale, abs(mask[m] * tape.entries[m * tape.n + i]))
            for m in range(tape.width):
                y = mask[m] * tape.entries[m * tape.n + i] / scale
                total += y * y
        inverse_norms[i] = one / (scale * math.sqrt(total))


@compiled
def _focus(head: Head, width: int) -> None:
    inverse = head.ask[width + INVERSE_NORM]
    for m in range(width):
        k = head.ask[m] * inverse
        head.key[m] = k * head.mask[m] if head.masked == 1 else k
        head.focus[m] = head.key[m] * head.mask[m] if head.masked == 1 else k


@compiled
def address(head: Head, tape: Tape, lanes: Array) -> None:
    leaf()
    similarity, norms, width, n = head.similarity, head.norms, tape.width, tape.n
    zero, one = similarity.dtype.type(0), similarity.dtype.type(1)
    _focus(head, width)
    fill_zero(similarity)
    weigh_rows(head.focus, tape, similarity)
    tiny, huge = one / math.sqrt(norm_limit(similarity)), zero
    for i in range(n):
        huge += one if norms[i] < tiny else zero
        similarity[i] *= norms[i]
    if huge > 0:  # products of huge entries may overflow: multiply by the inverse norm first
        for i in range(n):
            if norms[i] < tiny:
                similarity[i] = zero
                for m in range(width):
                    similarity[i] += head.focus[m] * (tape.entries[m * n + i] * norms[i])
    softmax(similarity, head.ask[width + STRENGTH], head.content, lanes)


@compiled
def _masked_gradient(
    tape: Tape, d_tape: Tape, alpha: Array, delta: Array, head: Head, weighting: Array, d_read: Array, sums: Array,
    squares: Array,
) -> None:  # fmt: skip
    """d_M_m(i) += alpha(i) k_m mask_m + delta(i) mask_m^2 M_m(i) + w(i) d_r_m; sums_m = sum_i alpha(i) M_m(i), and
    squares_m = sum_i delta(i) M_m(i)^2.

    With slots of one entry d_M(i) += delta(i) k mask + w(i) d_r and squares = sum_i delta(i) M(i), see
    `slopes_of_width_one`.
    """
    leaf()
    n, zero = tape.n, sums.dtype.type(0)
    if tape.width == 1:
        sums[0], squares[0] = zero, zero
        for i in range(n):
            sums[0] += alpha[i] * tape.entries[i]
            squares[0] += delta[i] * tape.entries[i]
            d_tape.entries[i] += delta[i] * head.focus[0] + weighting[i] * d_read[0]
        return
    for m in range(tape.width):
        x, d = tape_row(tape, m, 0, n), tape_row(d_tape, m, 0, n)
        k, g, c = head.focus[m], d_read[m], head.mask[m] * head.mask[m]
        along, square = zero, zero
        for i in range(n):
            along += alpha[i] * x[i]
            z = delta[i] * x[i]
            square += z * x[i]
            d[i] += alpha[i] * k + c * z + weighting[i] * g
        sums[m], squares[m] = along, square


@compiled
def address_back(
    head: Head, tape: Tape, d_tape: Tape, d_content: Array, weighting: Array, d_read: Array, alpha: Array,
    delta: Array, squares: Array, d_ask: Array, d_mask: Array,
) -> None:  # fmt: skip
    """Backward of `address` and of a read with the weighting; sets d_ask of key and strength, and d_mask."""
    leaf()
    similarity, content, norms, width = head.similarity, head.content, head.norms, tape.width
    zero = similarity.dtype.type(0)
    beta, inverse = head.ask[width + STRENGTH], head.ask[width + INVERSE_NORM]
    mean, mean_similarity, d_beta, along = zero, zero, zero, zero
    for i in range(tape.n):
        mean += d_content[i] * content[i]
        mean_similarity += content[i] * similarity[i]
    for i in range(tape.n):
        d_z = content[i] * (d_content[i] - mean)
        d_beta += d_z * (similarity[i] - mean_similarity)
        d_k = beta * d_z
        along += d_k * similarity[i]
        d_k *= norms[i]
        alpha[i] = d_k
        delta[i] = -d_k * similarity[i] * norms[i]
    if width == 1:
        slopes_of_width_one(alpha, norms, delta)
    _focus(head, width)
    d_ask[width + STRENGTH] = d_beta
    left = similarity.dtype.type(NORM_EPSILON) * inverse * inverse  # of the slope by a key of width one, as of a slot's
    if head.masked == 0:
        memory_gradient(tape, d_tape, alpha, delta, head.key, weighting, d_read, view(d_ask, 0, width))
        if width == 1:
            d_ask[0] *= inverse * left
        else:
            for m in range(width):
                d_ask[m] = (d_ask[m] - along * head.key[m]) * inverse
        return
    _masked_gradient(tape, d_tape, alpha, delta, head, weighting, d_read, d_ask, squares)
    if width == 1:
        d_key = head.mask[0] * d_ask[0] * inverse * left  # of the masked key
        d_mask[0] = head.ask[0] * d_key + head.key[0] * squares[0]
        d_ask[0] = head.mask[0] * d_key
        return
    for m in range(width):
        mask, total = head.mask[m], d_ask[m]
        d_key = (mask * total - along * head.key[m]) * inverse  # of the masked key
        d_mask[m] = head.ask[m] * d_key + head.key[m] * total + mask * squares[m]
        d_ask[m] = mask * d_key
