"""Passes over a memory, in blocks of slots."""

import math
from typing import NamedTuple

from tapehead.equations import NORM_EPSILON
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.maths import norm_limit
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled, inlined
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import fill_zero

SLOT_BLOCK = 1024  # slots that a pass over the memory takes at a time, so that its vectors stay in the first cache


class Tape(NamedTuple):
    """A memory: entry m of slot i stands at m * n + i."""

    entries: Array
    n: int
    width: int


@inlined
def tape_row(tape: Tape, m: int, first: int, size: int) -> Array:
    """Entry m of `size` slots from `first` on."""
    row: Array = view(tape.entries, m * tape.n + first, size)
    return row


@compiled
def weigh_rows(coefficients: Array, tape: Tape, target: Array) -> None:
    """target(i) += sum_m c_m M_m(i)."""
    leaf()
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        out = view(target, first, size)
        whole = tape.width // 4 * 4
        for m in range(0, whole, 4):
            x0, x1 = tape_row(tape, m, first, size), tape_row(tape, m + 1, first, size)
            x2, x3 = tape_row(tape, m + 2, first, size), tape_row(tape, m + 3, first, size)
            c0, c1, c2, c3 = coefficients[m], coefficients[m + 1], coefficients[m + 2], coefficients[m + 3]
            for i in range(size):
                out[i] += c0 * x0[i] + c1 * x1[i] + c2 * x2[i] + c3 * x3[i]
        for m in range(whole, tape.width):
            x0, c0 = tape_row(tape, m, first, size), coefficients[m]
            for i in range(size):
                out[i] += c0 * x0[i]


@compiled
def weigh_slots(weighting: Array, tape: Tape, target: Array) -> None:
    """Eq. 2: target_m = sum_i w(i) M_m(i)."""
    leaf()
    zero = target.dtype.type(0)
    fill_zero(target)
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        w = view(weighting, first, size)
        whole = tape.width // 4 * 4
        for m in range(0, whole, 4):
            x0, x1 = tape_row(tape, m, first, size), tape_row(tape, m + 1, first, size)
            x2, x3 = tape_row(tape, m + 2, first, size), tape_row(tape, m + 3, first, size)
            a0, a1, a2, a3 = zero, zero, zero, zero
            for i in range(size):
                a0 += w[i] * x0[i]
                a1 += w[i] * x1[i]
                a2 += w[i] * x2[i]
                a3 += w[i] * x3[i]
            target[m] += a0
            target[m + 1] += a1
            target[m + 2] += a2
            target[m + 3] += a3
        for m in range(whole, tape.width):
            x0, a0 = tape_row(tape, m, first, size), zero
            for i in range(size):
                a0 += w[i] * x0[i]
            target[m] += a0


@compiled
def _invert_norms(squares: Array, tape: Tape, first: int) -> None:
    """Squared norms of the slots from `first` on become 1 / sqrt(. + epsilon), the norms' part of Eq. 6.

    Where squares come near overflow, entries are divided by the largest one first, as in `equations`.
    """
    leaf()
    zero, one = squares.dtype.type(0), squares.dtype.type(1)
    epsilon, limit = squares.dtype.type(NORM_EPSILON), norm_limit(squares)
    huge = zero
    for i in range(squares.size):
        huge += one if squares[i] > limit else zero
    if huge > 0:
        for i in range(squares.size):
            if squares[i] > limit:
                scale, total = one, epsilon
                for m in range(tape.width):
                    scale = max(scale, abs(tape.entries[m * tape.n + first + i]))
                for m in range(tape.width):
                    x = tape.entries[m * tape.n + first + i] / scale
                    total += x * x
                squares[i] = one / (scale * math.sqrt(total))
            else:
                squares[i] = one / math.sqrt(squares[i] + epsilon)
    else:
        for i in range(squares.size):
            squares[i] = one / math.sqrt(squares[i] + epsilon)


@compiled
def slot_norms(tape: Tape, inverse_norms: Array) -> None:
    leaf()
    fill_zero(inverse_norms)
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        squares = view(inverse_norms, first, size)
        for m in range(tape.width):
            x = tape_row(tape, m, first, size)
            for i in range(size):
                squares[i] += x[i] * x[i]
        _invert_norms(squares, tape, first)


@inlined
def _write(
    old: Tape,
    tape: Tape,
    weightings: Array,
    stride: int,
    heads: int,
    erases: Array,
    ask_size: int,
    inverse_norms: Array,
) -> None:
    one = weightings.dtype.type(1)
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        squares = view(inverse_norms, first, size)
        fill_zero(squares)
        for m in range(tape.width):
            x, y = tape_row(old, m, first, size), tape_row(tape, m, first, size)
            if heads == 1:
                w, e, a = view(weightings, first, size), erases[m], erases[tape.width + m]
                for i in range(size):
                    z = x[i] * (one - w[i] * e) + w[i] * a
                    y[i] = z
                    squares[i] += z * z
            else:
                w, e = view(weightings, first, size), erases[m]
                for i in range(size):
                    y[i] = x[i] * (one - w[i] * e)
                for h in range(1, heads):
                    w, e = view(weightings, h * stride + first, size), erases[h * ask_size + m]
                    for i in range(size):
                        y[i] *= one - w[i] * e
                for h in range(heads):
                    w, a = view(weightings, h * stride + first, size), erases[h * ask_size + tape.width + m]
                    for i in range(size):
                        y[i] += w[i] * a
                for i in range(size):
                    squares[i] += y[i] * y[i]
        _invert_norms(squares, tape, first)


@compiled
def write(
    tape: Tape, weightings: Array, stride: int, heads: int, erases: Array, ask_size: int, inverse_norms: Array
) -> None:
    """Eqs. 3 and 4: M_m(i) <- M_m(i) prod_h (1 - w_h(i) e_hm) + sum_h w_h(i) a_hm, and the new norms of the slots.

    weightings: one every `stride` numbers. erases: e, then a of a head every `ask_size` numbers.
    """
    leaf()
    _write(tape, tape, weightings, stride, heads, erases, ask_size, inverse_norms)


@compiled
def write_from(
    old: Tape,
    tape: Tape,
    weightings: Array,
    stride: int,
    heads: int,
    erases: Array,
    ask_size: int,
    inverse_norms: Array,
) -> None:
    """The same from an old memory to a new one elsewhere. (For `write` LLVM must see that they are one memory.)"""
    leaf()
    _write(old, tape, weightings, stride, heads, erases, ask_size, inverse_norms)


@compiled
def write_back(
    tape: Tape,
    d_tape: Tape,
    weighting: Array,
    d_weighting: Array,
    erase: Array,
    add: Array,
    d_erase: Array,
    d_add: Array,
) -> None:
    """Backward of Eqs. 3 and 4 for one write head: d_tape of the new memory becomes that of the old one, `tape`.

    Adds to d_weighting; sets d_erase and d_add.
    """
    leaf()
    zero = weighting.dtype.type(0)
    fill_zero(d_erase)
    fill_zero(d_add)
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        w, d_w = view(weighting, first, size), view(d_weighting, first, size)
        for m in range(tape.width):
            x, d = tape_row(tape, m, first, size), tape_row(d_tape, m, first, size)
            e, a = erase[m], add[m]
            d_e, d_a = zero, zero
            for i in range(size):
                g = d[i]
                z = g * x[i]
                d_w[i] += g * a - z * e
                d_a += g * w[i]
                d_e += z * w[i]
                d[i] = g - g * w[i] * e
            d_erase[m] -= d_e
            d_add[m] += d_a


@compiled
def write_back_many(
    tape: Tape,
    d_tape: Tape,
    weightings: Array,
    d_weightings: Array,
    stride: int,
    heads: int,
    erases: Array,
    ask_size: int,
    d_erases: Array,
    d_ask_size: int,
    before: Array,
    after: Array,
) -> None:
    """The same for several write heads, whose arrays stand as in `write`."""
    leaf()
    zero, one = weightings.dtype.type(0), weightings.dtype.type(1)
    for h in range(heads):
        fill_zero(view(d_erases, h * d_ask_size, 2 * tape.width))
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        for m in range(tape.width):
            x, d = tape_row(tape, m, first, size), tape_row(d_tape, m, first, size)
            # before_h = M prod_{k<h} (1 - w_k e_k), after = prod_{k>h} (1 - w_k e_k): no division, 1 - w e may be zero
            for i in range(size):
                before[i] = x[i]
                after[i] = one
            for h in range(heads - 1):
                w, e = view(weightings, h * stride + first, size), erases[h * ask_size + m]
                b, c = view(before, h * SLOT_BLOCK, size), view(before, (h + 1) * SLOT_BLOCK, size)
                for i in range(size):
                    c[i] = b[i] * (one - w[i] * e)
            for h in range(heads - 1, -1, -1):
                w, d_w = view(weightings, h * stride + first, size), view(d_weightings, h * stride + first, size)
                e, a = erases[h * ask_size + m], erases[h * ask_size + tape.width + m]
                b = view(before, h * SLOT_BLOCK, size)
                d_e, d_a = zero, zero
                for i in range(size):
                    g = d[i] * b[i] * after[i]
                    d_w[i] += d[i] * a - g * e
                    d_a += d[i] * w[i]
                    d_e += g * w[i]
                    after[i] *= one - w[i] * e
                d_erases[h * d_ask_size + m] -= d_e
                d_erases[h * d_ask_size + tape.width + m] += d_a
            for i in range(size):
                d[i] *= after[i]


@compiled
def slopes_of_width_one(alpha: Array, inverse_norms: Array, delta: Array) -> None:
    """delta(i) = alpha(i) epsilon / (M(i)^2 + epsilon): for slots of one entry the slope of their cosines by M(i) / k.

    Such a cosine is +-1, and the two terms of its slope cancel except for what epsilon has of the squared norm. Their
    difference in floating point is the rounding of either, divided by |M(i)|.
    """
    leaf()
    epsilon = alpha.dtype.type(NORM_EPSILON)
    for i in range(delta.size):
        delta[i] = alpha[i] * (epsilon * inverse_norms[i] * inverse_norms[i])


@compiled
def memory_gradient(
    tape: Tape, d_tape: Tape, alpha: Array, delta: Array, key: Array, weighting: Array, d_read: Array, sums: Array
) -> None:
    """d_M_m(i) += alpha(i) k_m + delta(i) M_m(i) + w(i) d_r_m, and sums_m = sum_i alpha(i) M_m(i).

    With slots of one entry d_M(i) += delta(i) k + w(i) d_r: see `slopes_of_width_one`.
    """
    leaf()
    fill_zero(sums)
    if tape.width == 1:
        for i in range(tape.n):
            sums[0] += alpha[i] * tape.entries[i]
            d_tape.entries[i] += delta[i] * key[0] + weighting[i] * d_read[0]
        return
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        p, q, w = view(alpha, first, size), view(delta, first, size), view(weighting, first, size)
        for m in range(tape.width):
            x, d = tape_row(tape, m, first, size), tape_row(d_tape, m, first, size)
            k, g = key[m], d_read[m]
            total = sums.dtype.type(0)
            for i in range(size):
                total += p[i] * x[i]
                d[i] += p[i] * k + q[i] * x[i] + w[i] * g
            sums[m] += total
