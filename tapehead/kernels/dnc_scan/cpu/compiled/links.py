"""The link matrix, [n, n] with row i at i * n, and the precedence.

As a `Tape` of width n, whose entry m of slot i is L(m, i), `weigh_slots` gives forward weightings, L w. Backward
weightings, L' w, are those of all heads at a time, `add_backward`.
"""

from typing import Any

from tapehead.equations_dnc import LINK_EPSILON
from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.lanes import add_product, load, spread, store
from tapehead.kernels.ntm_scan.cpu.compiled.maths import log
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled, inlined
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import softmax


@inlined
def _link_step(old: Array, link: Array, weighting: Array, precedence: Array) -> None:
    n, zero, one = weighting.size, weighting.dtype.type(0), weighting.dtype.type(1)
    for i in range(n):
        before, row, to = view(old, i * n, n), view(link, i * n, n), weighting[i]
        rest = one - to
        for j in range(n):
            row[j] = (rest - weighting[j]) * before[j] + to * precedence[j]
        row[i] = zero


@compiled
def link_step(link: Array, weighting: Array, precedence: Array) -> None:
    """L(i, j) <- (1 - w(i) - w(j)) L(i, j) + w(i) p(j), and zero where i = j."""
    leaf()
    _link_step(link, link, weighting, precedence)


@compiled
def link_step_from(old: Array, link: Array, weighting: Array, precedence: Array) -> None:
    """The same from an old link to a new one elsewhere. (For `link_step` LLVM must see that they are one link.)"""
    leaf()
    _link_step(old, link, weighting, precedence)


@compiled
def add_backward(link: Array, n: int, weightings: Array, apart: int, targets: Array, stride: int, heads: int) -> None:
    """targets_h(j) += sum_i w_h(i) L(i, j) of all heads: a weighting every `apart` numbers, a target every `stride`.

    Two heads at a time; the last of an odd number twice, to the same numbers.
    """
    leaf()
    whole = n // 32 * 32
    for h in range(0, heads, 2):
        other = min(h + 1, heads - 1)
        w, v = view(weightings, h * apart, n), view(weightings, other * apart, n)
        x, y = view(targets, h * stride, n), view(targets, other * stride, n)
        for j in range(0, whole, 32):
            a0, a1, b0, b1 = load(x, j), load(x, j + 16), load(y, j), load(y, j + 16)
            for i in range(n):
                r0, r1, p, q = load(link, i * n + j), load(link, i * n + j + 16), spread(w[i]), spread(v[i])
                a0, a1 = add_product(a0, p, r0), add_product(a1, p, r1)
                b0, b1 = add_product(b0, q, r0), add_product(b1, q, r1)
            store(a0, x, j)
            store(a1, x, j + 16)
            store(b0, y, j)
            store(b1, y, j + 16)
    for h in range(heads):
        w, x = view(weightings, h * apart, n), view(targets, h * stride + whole, n - whole)
        for i in range(n):
            row, to = view(link, i * n + whole, n - whole), w[i]
            for j in range(x.size):
                x[j] += to * row[j]


@inlined
def _add_outer(left: Array, right: Array, pairs: int, stride: int, i: int, a: Array, b: Array) -> None:
    """Outer products added to rows i and i + 1 of a gradient."""
    n = a.size
    whole = n // 32 * 32
    for pair in range(0, pairs, 8):
        x, y = view(left, pair * stride + i, 7 * stride + 2), view(right, pair * stride, 7 * stride + n)
        for j in range(0, whole, 32):
            a0, a1, b0, b1 = load(a, j), load(a, j + 16), load(b, j), load(b, j + 16)
            for k in range(8):
                r0, r1 = load(y, k * stride + j), load(y, k * stride + j + 16)
                p, q = spread(x[k * stride]), spread(x[k * stride + 1])
                a0, a1 = add_product(a0, p, r0), add_product(a1, p, r1)
                b0, b1 = add_product(b0, q, r0), add_product(b1, q, r1)
            store(a0, a, j)
            store(a1, a, j + 16)
            store(b0, b, j)
            store(b1, b, j + 16)


@compiled
def link_back(
    link: Array, weighting: Array, precedence: Array, left: Array, right: Array, pairs: int, stride: int,
    d_link: Array, d_weighting: Array, d_precedence: Array,
) -> None:  # fmt: skip
    """Backward of `link_step` for the link before it. Adds to d_weighting and d_precedence.

    To d_link of the new link are first added the outer products of left and right, `pairs` of them, a multiple of
    eight, one every `stride` numbers; then it becomes that of the old link.
    """
    leaf()
    n, zero, one = weighting.size, weighting.dtype.type(0), weighting.dtype.type(1)
    whole = n // 32 * 32 if n % 2 == 0 else 0  # columns that are done for two rows at a time
    for i in range(n):
        x, d, to = view(link, i * n, n), view(d_link, i * n, n), weighting[i]
        if whole > 0 and i % 2 == 0:
            _add_outer(left, right, pairs, stride, i, d, view(d_link, (i + 1) * n, n))
        for pair in range(0, pairs, 8):
            a, b = view(left, pair * stride + i, 7 * stride + 1), view(right, pair * stride, 8 * stride)
            a0, a1, a2, a3 = a[0], a[stride], a[2 * stride], a[3 * stride]
            a4, a5, a6, a7 = a[4 * stride], a[5 * stride], a[6 * stride], a[7 * stride]
            b0, b1, b2, b3 = b, view(b, stride, n), view(b, 2 * stride, n), view(b, 3 * stride, n)
            b4, b5 = view(b, 4 * stride, n), view(b, 5 * stride, n)
            b6, b7 = view(b, 6 * stride, n), view(b, 7 * stride, n)
            for j in range(whole, n):
                total = a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j]
                d[j] += total + (a4 * b4[j] + a5 * b5[j] + a6 * b6[j] + a7 * b7[j])
        d[i] = zero
        rest, total = one - to, zero
        for j in range(n):
            g = d[j]
            z = g * x[j]
            total += g * precedence[j] - z
            d_precedence[j] += to * g
            d_weighting[j] -= z
            d[j] = g * (rest - weighting[j])
        d_weighting[i] += total


@compiled
def precedence_step(precedence: Array, weighting: Array, new: Array) -> None:
    """p' = (1 - sum_i w(i)) p + w."""
    leaf()
    total = weighting.dtype.type(0)
    for i in range(weighting.size):
        total += weighting[i]
    rest = weighting.dtype.type(1) - total
    for i in range(new.size):
        new[i] = rest * precedence[i] + weighting[i]


@compiled
def precedence_back(precedence: Array, weighting: Array, d_precedence: Array, d_weighting: Array) -> None:
    """d_precedence of the new precedence becomes that of the old one; adds to d_weighting."""
    leaf()
    total, along = weighting.dtype.type(0), weighting.dtype.type(0)
    for i in range(weighting.size):
        total += weighting[i]
        along += precedence[i] * d_precedence[i]
    rest = weighting.dtype.type(1) - total
    for i in range(weighting.size):
        g = d_precedence[i]
        d_weighting[i] += g - along
        d_precedence[i] = rest * g


@compiled
def sharpen(weighting: Array, sharpness: Any, logs: Array, sharp: Array, lanes: Array) -> None:
    """softmax(s log(d + epsilon))."""
    leaf()
    epsilon = weighting.dtype.type(LINK_EPSILON)
    for i in range(sharp.size):
        logs[i] = log(weighting[i] + epsilon)
    softmax(logs, sharpness, sharp, lanes)


@compiled
def sharpen_back(weighting: Array, sharpness: Any, sharp: Array, logs: Array, d: Array) -> Any:
    """d of the sharpened weighting becomes that of the weighting; returns that of the sharpness."""
    leaf()
    epsilon, mean, mean_log = weighting.dtype.type(LINK_EPSILON), d.dtype.type(0), d.dtype.type(0)
    d_sharpness = d.dtype.type(0)
    for i in range(d.size):
        logs[i] = log(weighting[i] + epsilon)
        mean += sharp[i] * d[i]
        mean_log += sharp[i] * logs[i]
    for i in range(d.size):
        d_z = sharp[i] * (d[i] - mean)
        d_sharpness += d_z * (logs[i] - mean_log)
        d[i] = sharpness * d_z / (weighting[i] + epsilon)
    return d_sharpness
