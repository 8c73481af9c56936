"""The scan on the CPU: forward, backward and training step of whole sequences in one compiled function.

The derivation of the backward pass, the layout of memory and the figures are in README.md beside this file.

Legend: S seeds, B sequences of each, T time, I inputs, O outputs, C controller size, L layers, R read heads, W write
heads, H = R + W heads (reads first), N slots of the tape, n slots that one sequence uses, M memory width, r shift range.
`d_x` is the gradient of x. A memory is stored width-major, [M, n], so that the inner loops run along the slots.

How it works. The B sequences of a seed are cut into groups (`rows_per_group`), and a group is the unit of work of a
thread. Its sequences, called rows, run in lockstep, the longest first: those still running are always a prefix, padding
costs nothing, and the controller's weights are read once a step for the whole group. What the backward pass needs is
kept in one record a row. The same compiled code serves every machine: all sizes and options are run-time integers.

Everything that is compiled stands in this file, because numba's cache on disk watches one file only.
"""

import functools
import math
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt
import torch
from llvmlite import ir
from numba.core import event
from numba.extending import intrinsic, overload
from numba.np.unsafe.ndarray import to_fixed_tuple
from torch import Tensor

from tapehead import equations
from tapehead.kernels.ntm_scan.contract import HeadTrace, ScanSpec, ScanState, Trace

Array = npt.NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

GROUP_ROWS = 8  # rows of a group at most
SEGMENT = 8  # the memory itself is kept before every 8th step; the backward pass replays the writes in between
SLOT_BLOCK = 1024  # slots that a pass over the memory takes at a time, so that its vectors stay in the first cache
PENDING = 64  # (row, step) pairs whose outer products are added to the weights' gradients in one go
OUTER_BLOCK = 16  # rows of a weight gradient that stay in the first cache while the pairs stream by
LANES = 16

# Sums may be reordered and products fused; NaN and infinity are honoured ("nnan" and "ninf" are not given).
RELAXED = frozenset({"reassoc", "contract", "arcp", "nsz", "afn"})


def compiled(function: Function) -> Function:
    """Part of the kernel; compiled together with `_run`, which is the only function that Python calls."""
    result: Function = numba.njit(fastmath=set(RELAXED), nogil=True, error_model="numpy")(function)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Elementary functions. In float32 they are polynomials, written so that loops over them vectorise; in float64, which is
# for checking gradients, they are those of the C library.


def exp(x: Any) -> Any:
    """e^x, at most 1.4 ulp off; zero below -87 in float32."""


def log(x: Any) -> Any:
    """Natural logarithm of a normal number, at most 1 ulp off; NaN for anything else."""


def tanh(x: Any) -> Any:
    """Hyperbolic tangent, at most 3 ulp off, also near zero."""


@intrinsic  # type: ignore[untyped-decorator]
def _power_of_two(context: Any, shifted: Any) -> Any:
    """2^k for a float32 k + 1.5 * 2^23, whose lowest bits hold the integer k."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.bitcast(arguments[0], integer)
        return builder.bitcast(builder.add(builder.shl(bits, integer(23)), integer(0x3F800000)), ir.FloatType())

    return shifted(shifted), generate


@intrinsic  # type: ignore[untyped-decorator]
def _exponent(context: Any, x: Any) -> Any:
    """The float32 k for which x / 2^k lies in [sqrt(1/2), sqrt(2))."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.sub(builder.bitcast(arguments[0], integer), integer(0x3F3504F3))
        return builder.sitofp(builder.ashr(bits, integer(23)), ir.FloatType())

    return x(x), generate


@intrinsic  # type: ignore[untyped-decorator]
def _mantissa(context: Any, x: Any) -> Any:
    """The float32 x / 2^k in [sqrt(1/2), sqrt(2))."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.bitcast(arguments[0], integer)
        whole = builder.and_(builder.sub(bits, integer(0x3F3504F3)), integer(0xFF800000))
        return builder.bitcast(builder.sub(bits, whole), ir.FloatType())

    return x(x), generate


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(context: Any, address: Any, like: Any) -> Any:
    """The pointer to numbers of the type of the array `like` that stand at an integer address."""
    pointer = numba.types.CPointer(like.dtype)

    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(address, like), generate


# No reordering here: exp adds and subtracts 1.5 * 2^23 to round to an integer.
EXACT = {"fastmath": {"contract"}, "forceinline": True}
f32 = np.float32


@overload(exp, jit_options=EXACT)  # type: ignore[untyped-decorator]
def _exp(x: Any) -> Any:
    def double(x: Any) -> Any:
        return math.exp(x)

    def single(x: Any) -> Any:  # exp(x) = 2^k exp(y) with |y| <= log(2) / 2; coefficients of Cephes' expf
        z = f32(-87.5) if x < f32(-87.5) else x  # comparisons are false for NaN, which therefore passes
        z = f32(88.5) if z > f32(88.5) else z
        shifted = z * f32(1.4426950408889634) + f32(12582912.0)
        k = shifted - f32(12582912.0)
        y = z - k * f32(0.693359375)
        y = y - k * f32(-2.12194440e-4)
        p = f32(1.9875691500e-4)
        p = p * y + f32(1.3981999507e-3)
        p = p * y + f32(8.3334519073e-3)
        p = p * y + f32(4.1665795894e-2)
        p = p * y + f32(1.6666665459e-1)
        p = p * y + f32(5.0000001201e-1)
        e = ((p * y) * y + y + f32(1)) * _power_of_two(shifted)
        return f32(0) if x < f32(-87.3) else e

    return single if x is numba.types.float32 else double


@overload(log, jit_options=EXACT)  # type: ignore[untyped-decorator]
def _log(x: Any) -> Any:
    def double(x: Any) -> Any:
        return math.log(x)

    def single(x: Any) -> Any:  # x = 2^k (1 + f); log(1 + f) by s = f / (2 + f), coefficients of FreeBSD's logf
        k = _exponent(x)
        f = _mantissa(x) - f32(1)
        s = f / (f32(2) + f)
        z = s * s
        p = f32(0.24279078841)
        p = p * z + f32(0.28498786688)
        p = p * z + f32(0.40000972152)
        p = p * z + f32(0.66666662693)
        half_square = f32(0.5) * f * f
        small = s * (half_square + p * z) + k * f32(9.0580006145e-06)
        y = small - half_square + f + k * f32(6.9313812256e-01)
        return y if x >= f32(1.2e-38) else f32(math.nan)

    return single if x is numba.types.float32 else double


@overload(tanh, jit_options=EXACT)  # type: ignore[untyped-decorator]
def _tanh(x: Any) -> Any:
    def double(x: Any) -> Any:
        return math.tanh(x)

    def single(x: Any) -> Any:  # near zero a polynomial (Cephes' tanhf), elsewhere 1 - 2 / (exp(2|x|) + 1)
        z = x * x
        p = f32(-5.70498872745e-3)
        p = p * z + f32(2.06390887954e-2)
        p = p * z + f32(-5.37397155531e-2)
        p = p * z + f32(1.33314422036e-1)
        p = p * z + f32(-3.33332819422e-1)
        near = (p * z) * x + x
        size = abs(x)
        far = f32(1) - f32(2) / (exp(f32(2) * size) + f32(1))
        far = -far if x < f32(0) else far
        return near if size < f32(0.625) else far

    return single if x is numba.types.float32 else double


@compiled
def _sigmoid(x: Any, one: Any) -> Any:
    e = exp(-abs(x))
    y = one / (one + e)
    return e * y if x < 0 else y


@compiled
def _softplus(x: Any) -> Any:
    """log(1 + e^x), and x itself above 20, as torch has it."""
    if x > 20:
        return x
    return math.log1p(math.exp(x))


@compiled
def _softplus_slope(x: Any, one: Any) -> Any:
    return one if x > 20 else _sigmoid(x, one)


# ---------------------------------------------------------------------------------------------------------------------
# Vectors


@compiled
def _copy(source: Array, target: Array) -> None:
    for i in range(target.size):
        target[i] = source[i]


@compiled
def _fill_zero(x: Array) -> None:
    zero = x.dtype.type(0)
    for i in range(x.size):
        x[i] = zero


@compiled
def _add(source: Array, target: Array) -> None:
    for i in range(target.size):
        target[i] += source[i]


@compiled
def _tanh_all(source: Array, target: Array) -> None:
    for i in range(target.size):
        target[i] = tanh(source[i])


@compiled
def _sigmoid_all(source: Array, target: Array) -> None:
    one = target.dtype.type(1)
    for i in range(target.size):
        target[i] = _sigmoid(source[i], one)


@compiled
def _largest(x: Array, lanes: Array) -> Any:
    """The maximum. Sixteen maxima side by side vectorise without assuming, as LLVM would, that there is no NaN."""
    top = x[0]
    whole = x.size // LANES * LANES
    if whole > 0:
        for j in range(LANES):
            lanes[j] = x[j]
        for i in range(LANES, whole, LANES):
            part = x[i : i + LANES]
            for j in range(LANES):
                lanes[j] = lanes[j] if lanes[j] > part[j] else part[j]
        for j in range(LANES):
            top = top if top > lanes[j] else lanes[j]
    for i in range(whole, x.size):
        top = top if top > x[i] else x[i]
    return top


@compiled
def _softmax(x: Array, scale: Any, target: Array, lanes: Array) -> None:
    """softmax(scale * x) for scale >= 0."""
    top = _largest(x, lanes)
    total = x.dtype.type(0)
    for i in range(target.size):
        e = exp(scale * (x[i] - top))
        target[i] = e
        total += e
    inverse = x.dtype.type(1) / total
    for i in range(target.size):
        target[i] *= inverse


# ---------------------------------------------------------------------------------------------------------------------
# Matrix products of the controller: a weight is flat, [outs, width]; the rows of a group stand in the rows of x and y.


@compiled
def _linear(
    weight: Array, bias: Array, width: int, outs: int, x: Array, x_at: int, y: Array, y_at: int, rows: int
) -> None:
    """y = W x + b for every row. Eight outputs at a time: their weights stay in the first cache for all rows."""
    o = 0
    while o + 8 <= outs:
        w0 = weight[(o + 0) * width : (o + 1) * width]
        w1 = weight[(o + 1) * width : (o + 2) * width]
        w2 = weight[(o + 2) * width : (o + 3) * width]
        w3 = weight[(o + 3) * width : (o + 4) * width]
        w4 = weight[(o + 4) * width : (o + 5) * width]
        w5 = weight[(o + 5) * width : (o + 6) * width]
        w6 = weight[(o + 6) * width : (o + 7) * width]
        w7 = weight[(o + 7) * width : (o + 8) * width]
        for row in range(rows):
            v = x[row, x_at : x_at + width]
            a0, a1, a2, a3 = bias[o], bias[o + 1], bias[o + 2], bias[o + 3]
            a4, a5, a6, a7 = bias[o + 4], bias[o + 5], bias[o + 6], bias[o + 7]
            for j in range(width):
                z = v[j]
                a0 += w0[j] * z
                a1 += w1[j] * z
                a2 += w2[j] * z
                a3 += w3[j] * z
                a4 += w4[j] * z
                a5 += w5[j] * z
                a6 += w6[j] * z
                a7 += w7[j] * z
            out = y[row, y_at + o : y_at + o + 8]
            out[0], out[1], out[2], out[3] = a0, a1, a2, a3
            out[4], out[5], out[6], out[7] = a4, a5, a6, a7
        o += 8
    while o < outs:
        w0 = weight[o * width : (o + 1) * width]
        for row in range(rows):
            v = x[row, x_at : x_at + width]
            a0 = bias[o]
            for j in range(width):
                a0 += w0[j] * v[j]
            y[row, y_at + o] = a0
        o += 1


@compiled
def _linear_back(
    weight: Array, width: int, outs: int, d_y: Array, d_y_at: int, d_x: Array, d_x_at: int, rows: int
) -> None:
    """d_x = W' d_y for every row, eight outputs at a time."""
    for row in range(rows):
        _fill_zero(d_x[row, d_x_at : d_x_at + width])
    o = 0
    while o + 8 <= outs:
        w0 = weight[(o + 0) * width : (o + 1) * width]
        w1 = weight[(o + 1) * width : (o + 2) * width]
        w2 = weight[(o + 2) * width : (o + 3) * width]
        w3 = weight[(o + 3) * width : (o + 4) * width]
        w4 = weight[(o + 4) * width : (o + 5) * width]
        w5 = weight[(o + 5) * width : (o + 6) * width]
        w6 = weight[(o + 6) * width : (o + 7) * width]
        w7 = weight[(o + 7) * width : (o + 8) * width]
        for row in range(rows):
            d = d_y[row, d_y_at + o : d_y_at + o + 8]
            d0, d1, d2, d3, d4, d5, d6, d7 = d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]
            out = d_x[row, d_x_at : d_x_at + width]
            for j in range(width):
                out[j] += (
                    d0 * w0[j] + d1 * w1[j] + d2 * w2[j] + d3 * w3[j] + d4 * w4[j] + d5 * w5[j] + d6 * w6[j] + d7 * w7[j]
                )
        o += 8
    while o < outs:
        w0 = weight[o * width : (o + 1) * width]
        for row in range(rows):
            d0 = d_y[row, d_y_at + o]
            out = d_x[row, d_x_at : d_x_at + width]
            for j in range(width):
                out[j] += d0 * w0[j]
        o += 1


@compiled
def _outer_add(d_y: Array, x: Array, pairs: int, width: int, outs: int, d_weight: Array, d_bias: Array) -> None:
    """d_W += sum of d_y x' over pairs (a multiple of eight, zeros at the end), eight pairs at a time."""
    for o0 in range(0, outs, OUTER_BLOCK):
        o1 = min(o0 + OUTER_BLOCK, outs)
        for p in range(0, pairs, 8):
            x0 = x[(p + 0) * width : (p + 1) * width]
            x1 = x[(p + 1) * width : (p + 2) * width]
            x2 = x[(p + 2) * width : (p + 3) * width]
            x3 = x[(p + 3) * width : (p + 4) * width]
            x4 = x[(p + 4) * width : (p + 5) * width]
            x5 = x[(p + 5) * width : (p + 6) * width]
            x6 = x[(p + 6) * width : (p + 7) * width]
            x7 = x[(p + 7) * width : (p + 8) * width]
            d = d_y[p * outs : (p + 8) * outs]
            for o in range(o0, o1):
                d0, d1, d2, d3 = d[o], d[outs + o], d[2 * outs + o], d[3 * outs + o]
                d4, d5, d6, d7 = d[4 * outs + o], d[5 * outs + o], d[6 * outs + o], d[7 * outs + o]
                out = d_weight[o * width : (o + 1) * width]
                for j in range(width):
                    out[j] += (
                        d0 * x0[j]
                        + d1 * x1[j]
                        + d2 * x2[j]
                        + d3 * x3[j]
                        + d4 * x4[j]
                        + d5 * x5[j]
                        + d6 * x6[j]
                        + d7 * x7[j]
                    )
                d_bias[o] += ((d0 + d1) + (d2 + d3)) + ((d4 + d5) + (d6 + d7))


@compiled
def _lstm_cell(gates: Array, cell: Array, new_cell: Array, tanh_cell: Array, hidden: Array) -> None:
    """Gates input, forget, candidate, output: pre-activations in, activations out."""
    size = cell.size
    one = cell.dtype.type(1)
    i, f, g, o = gates[:size], gates[size : 2 * size], gates[2 * size : 3 * size], gates[3 * size : 4 * size]
    for j in range(size):
        i_j, f_j, g_j, o_j = _sigmoid(i[j], one), _sigmoid(f[j], one), tanh(g[j]), _sigmoid(o[j], one)
        i[j], f[j], g[j], o[j] = i_j, f_j, g_j, o_j
        c = f_j * cell[j] + i_j * g_j
        new_cell[j] = c
        c = tanh(c)
        tanh_cell[j] = c
        hidden[j] = o_j * c


@compiled
def _lstm_cell_back(
    gates: Array, cell: Array, tanh_cell: Array, d_hidden: Array, d_cell: Array, d_gates: Array
) -> None:
    """Gradients of the pre-activations; d_cell of the new cell becomes that of the old one."""
    size = cell.size
    one = cell.dtype.type(1)
    i, f, g, o = gates[:size], gates[size : 2 * size], gates[2 * size : 3 * size], gates[3 * size : 4 * size]
    d_i, d_f = d_gates[:size], d_gates[size : 2 * size]
    d_g, d_o = d_gates[2 * size : 3 * size], d_gates[3 * size : 4 * size]
    for j in range(size):
        d_c = d_cell[j] + d_hidden[j] * o[j] * (one - tanh_cell[j] * tanh_cell[j])
        d_o[j] = d_hidden[j] * tanh_cell[j] * o[j] * (one - o[j])
        d_i[j] = d_c * g[j] * i[j] * (one - i[j])
        d_f[j] = d_c * cell[j] * f[j] * (one - f[j])
        d_g[j] = d_c * i[j] * (one - g[j] * g[j])
        d_cell[j] = d_c * f[j]


# ---------------------------------------------------------------------------------------------------------------------
# Passes over the memory [M, n]


@compiled
def _weigh_rows(coefficients: Array, memory: Array, n: int, target: Array) -> None:
    """target(i) += sum_m c_m M_m(i)."""
    width = coefficients.size
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        out = target[n0:n1]
        m = 0
        while m + 4 <= width:
            x0 = memory[(m + 0) * n + n0 : (m + 0) * n + n1]
            x1 = memory[(m + 1) * n + n0 : (m + 1) * n + n1]
            x2 = memory[(m + 2) * n + n0 : (m + 2) * n + n1]
            x3 = memory[(m + 3) * n + n0 : (m + 3) * n + n1]
            c0, c1, c2, c3 = coefficients[m], coefficients[m + 1], coefficients[m + 2], coefficients[m + 3]
            for i in range(out.size):
                out[i] += c0 * x0[i] + c1 * x1[i] + c2 * x2[i] + c3 * x3[i]
            m += 4
        while m < width:
            x0 = memory[m * n + n0 : m * n + n1]
            c0 = coefficients[m]
            for i in range(out.size):
                out[i] += c0 * x0[i]
            m += 1


@compiled
def _weigh_slots(weighting: Array, memory: Array, n: int, target: Array) -> None:
    """Eq. 2: target_m = sum_i w(i) M_m(i)."""
    width = target.size
    zero = target.dtype.type(0)
    _fill_zero(target)
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        w = weighting[n0:n1]
        m = 0
        while m + 4 <= width:
            x0 = memory[(m + 0) * n + n0 : (m + 0) * n + n1]
            x1 = memory[(m + 1) * n + n0 : (m + 1) * n + n1]
            x2 = memory[(m + 2) * n + n0 : (m + 2) * n + n1]
            x3 = memory[(m + 3) * n + n0 : (m + 3) * n + n1]
            a0, a1, a2, a3 = zero, zero, zero, zero
            for i in range(w.size):
                a0 += w[i] * x0[i]
                a1 += w[i] * x1[i]
                a2 += w[i] * x2[i]
                a3 += w[i] * x3[i]
            target[m] += a0
            target[m + 1] += a1
            target[m + 2] += a2
            target[m + 3] += a3
            m += 4
        while m < width:
            x0 = memory[m * n + n0 : m * n + n1]
            a0 = zero
            for i in range(w.size):
                a0 += w[i] * x0[i]
            target[m] += a0
            m += 1


@compiled
def _invert_norms(squares: Array, memory: Array, n: int, n0: int, width: int, limit: Any, epsilon: Any) -> None:
    """Squared norms of the slots from n0 on become 1 / sqrt(. + epsilon), the norms' part of Eq. 6.

    Where squares come near overflow, entries are scaled by the largest one first, as `equations.cosine_similarity` does.
    """
    one = squares.dtype.type(1)
    huge = 0
    for i in range(squares.size):
        huge += 1 if squares[i] > limit else 0
    if huge > 0:
        for i in range(squares.size):
            if squares[i] > limit:
                scale = one
                for m in range(width):
                    scale = max(scale, abs(memory[m * n + n0 + i]))
                total = epsilon
                for m in range(width):
                    x = memory[m * n + n0 + i] / scale
                    total += x * x
                squares[i] = one / (scale * math.sqrt(total))
            else:
                squares[i] = one / math.sqrt(squares[i] + epsilon)
    else:
        for i in range(squares.size):
            squares[i] = one / math.sqrt(squares[i] + epsilon)


@compiled
def _slot_norms(memory: Array, n: int, width: int, limit: Any, epsilon: Any, inverse_norms: Array) -> None:
    _fill_zero(inverse_norms)
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        squares = inverse_norms[n0:n1]
        for m in range(width):
            x = memory[m * n + n0 : m * n + n1]
            for i in range(squares.size):
                squares[i] += x[i] * x[i]
        _invert_norms(squares, memory, n, n0, width, limit, epsilon)


@compiled
def _write(
    memory: Array,
    n: int,
    width: int,
    weightings: Array,
    stride: int,
    heads: int,
    asks: Array,
    ask_size: int,
    erase_at: int,
    limit: Any,
    epsilon: Any,
    inverse_norms: Array,
) -> None:
    """Eqs. 3 and 4, M_m(i) = M_m(i) prod_h (1 - w_h(i) e_hm) + sum_h w_h(i) a_hm, and the new norms of the slots."""
    one = memory.dtype.type(1)
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        squares = inverse_norms[n0:n1]
        _fill_zero(squares)
        for m in range(width):
            x = memory[m * n + n0 : m * n + n1]
            if heads == 1:
                w = weightings[n0:n1]
                e, a = asks[erase_at + m], asks[erase_at + width + m]
                for i in range(w.size):
                    y = x[i] * (one - w[i] * e) + w[i] * a
                    x[i] = y
                    squares[i] += y * y
            else:
                for h in range(heads):
                    w = weightings[h * stride + n0 : h * stride + n1]
                    e = asks[h * ask_size + erase_at + m]
                    for i in range(w.size):
                        x[i] *= one - w[i] * e
                for h in range(heads):
                    w = weightings[h * stride + n0 : h * stride + n1]
                    a = asks[h * ask_size + erase_at + width + m]
                    for i in range(w.size):
                        x[i] += w[i] * a
                for i in range(x.size):
                    squares[i] += x[i] * x[i]
        _invert_norms(squares, memory, n, n0, width, limit, epsilon)


@compiled
def _write_back(
    memory: Array,
    d_memory: Array,
    n: int,
    width: int,
    weightings: Array,
    d_weightings: Array,
    stride: int,
    heads: int,
    asks: Array,
    ask_size: int,
    d_asks: Array,
    d_ask_size: int,
    erase_at: int,
    d_erase_at: int,
    before: Array,
    after: Array,
) -> None:
    """Backward of Eqs. 3 and 4: d_memory of the new memory becomes that of the old one.

    Adds to d_weightings; sets the gradients of erase and add (of their activations, not yet of the raw interface).
    """
    zero, one = memory.dtype.type(0), memory.dtype.type(1)
    for h in range(heads):
        _fill_zero(d_asks[h * d_ask_size + d_erase_at : h * d_ask_size + d_erase_at + 2 * width])
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        for m in range(width):
            x = memory[m * n + n0 : m * n + n1]
            d = d_memory[m * n + n0 : m * n + n1]
            if heads == 1:
                w, d_w = weightings[n0:n1], d_weightings[n0:n1]
                e, a = asks[erase_at + m], asks[erase_at + width + m]
                d_e, d_a = zero, zero
                for i in range(w.size):
                    g = d[i]
                    d_w[i] += g * (a - x[i] * e)
                    d_a += g * w[i]
                    d_e -= g * x[i] * w[i]
                    d[i] = g * (one - w[i] * e)
                d_asks[d_erase_at + m] += d_e
                d_asks[d_erase_at + width + m] += d_a
                continue
            # before_h = M prod_{k<h} (1 - w_k e_k), after = prod_{k>h} (1 - w_k e_k): no division, 1 - w e may be zero
            factor = after[: n1 - n0]
            for i in range(x.size):
                before[i] = x[i]
                factor[i] = one
            for h in range(heads - 1):
                w = weightings[h * stride + n0 : h * stride + n1]
                e = asks[h * ask_size + erase_at + m]
                source = before[h * SLOT_BLOCK : h * SLOT_BLOCK + x.size]
                target = before[(h + 1) * SLOT_BLOCK : (h + 1) * SLOT_BLOCK + x.size]
                for i in range(x.size):
                    target[i] = source[i] * (one - w[i] * e)
            for h in range(heads - 1, -1, -1):
                w = weightings[h * stride + n0 : h * stride + n1]
                d_w = d_weightings[h * stride + n0 : h * stride + n1]
                e, a = asks[h * ask_size + erase_at + m], asks[h * ask_size + erase_at + width + m]
                source = before[h * SLOT_BLOCK : h * SLOT_BLOCK + x.size]
                d_e, d_a = zero, zero
                for i in range(x.size):
                    g = d[i] * source[i] * factor[i]
                    d_w[i] += d[i] * a - g * e
                    d_a += d[i] * w[i]
                    d_e -= g * w[i]
                    factor[i] *= one - w[i] * e
                d_asks[h * d_ask_size + d_erase_at + m] += d_e
                d_asks[h * d_ask_size + d_erase_at + width + m] += d_a
            for i in range(x.size):
                d[i] *= factor[i]


@compiled
def _memory_gradient(
    memory: Array,
    d_memory: Array,
    n: int,
    alpha: Array,
    delta: Array,
    key: Array,
    weighting: Array,
    d_read: Array,
    sums: Array,
) -> None:
    """d_M_m(i) += alpha(i) k_m + delta(i) M_m(i) + w(i) d_r_m, and sums_m = sum_i alpha(i) M_m(i)."""
    width = key.size
    zero = memory.dtype.type(0)
    _fill_zero(sums)
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        p, q, w = alpha[n0:n1], delta[n0:n1], weighting[n0:n1]
        for m in range(width):
            x = memory[m * n + n0 : m * n + n1]
            d = d_memory[m * n + n0 : m * n + n1]
            k, g = key[m], d_read[m]
            a = zero
            for i in range(p.size):
                a += p[i] * x[i]
                d[i] += p[i] * k + q[i] * x[i] + w[i] * g
            sums[m] += a


# ---------------------------------------------------------------------------------------------------------------------
# Addressing, Eqs. 5 to 9. `ask` holds what one head asks for, after the activations:
#   key [M], strength, gate, sharpening, 1 / |key|, shift weights [2r+1]; a write head's goes on with
#   erase [M], add [M], write gate.
# `ring` is a weighting with r more slots on either side, so that the circular shift is a plain sum.


@compiled
def _close_ring(ring: Array, n: int, r: int) -> None:
    for i in range(r):
        ring[i] = ring[r + (i - r) % n]
        ring[r + n + i] = ring[r + i % n]


@compiled
def _shift(ring: Array, shifts: Array, backwards: bool, target: Array) -> None:
    """Eq. 8: target(i) = sum_j s_j w(i - (j - r)); backwards, its transpose, target(i) = sum_j s_j w(i + (j - r))."""
    taps = shifts.size
    n = target.size
    if taps == 3:
        a, b = (shifts[0], shifts[2]) if backwards else (shifts[2], shifts[0])
        c = shifts[1]
        w0, w1, w2 = ring[:n], ring[1 : n + 1], ring[2 : n + 2]
        for i in range(n):
            target[i] = a * w0[i] + c * w1[i] + b * w2[i]
        return
    _fill_zero(target)
    for j in range(taps):
        at = j if backwards else taps - 1 - j
        s = shifts[j]
        w0 = ring[at : at + n]
        for i in range(n):
            target[i] += s * w0[i]


@compiled
def _interpolate(gate: Any, content: Array, previous: Array, ring: Array) -> None:
    """Eq. 7, into the middle of the ring."""
    rest = content.dtype.type(1) - gate
    for i in range(content.size):
        ring[i] = gate * content[i] + rest * previous[i]


@compiled
def _log_all(x: Array, epsilon: Any, target: Array) -> None:
    for i in range(target.size):
        target[i] = log(x[i] + epsilon)


@compiled
def _address(
    memory: Array,
    n: int,
    width: int,
    r: int,
    inverse_norms: Array,
    ask: Array,
    previous: Array,
    tiny: Any,
    floor: Any,
    similarity: Array,
    content: Array,
    weighting: Array,
    key: Array,
    ring: Array,
    spare: Array,
    lanes: Array,
) -> None:
    """Figure 2 of the paper: a head's new weighting."""
    beta, gate, gamma, inverse = ask[width], ask[width + 1], ask[width + 2], ask[width + 3]
    for m in range(width):
        key[m] = ask[m] * inverse
    _fill_zero(similarity)
    _weigh_rows(key, memory, n, similarity)
    huge = 0
    for i in range(n):
        huge += 1 if inverse_norms[i] < tiny else 0
        similarity[i] *= inverse_norms[i]
    if huge > 0:  # products of huge entries overflow: multiply by the inverse norm first
        for i in range(n):
            if inverse_norms[i] < tiny:
                similarity[i] = ask.dtype.type(0)
                for m in range(width):
                    similarity[i] += key[m] * (memory[m * n + i] * inverse_norms[i])
    _softmax(similarity, beta, content, lanes)  # Eq. 5
    _interpolate(gate, content, previous, ring[r : r + n])
    _close_ring(ring, n, r)
    _shift(ring, ask[width + 4 : width + 5 + 2 * r], False, spare)
    _log_all(spare, floor, spare)
    _softmax(spare, gamma, weighting, lanes)  # Eq. 9


@compiled
def _address_back(
    memory: Array,
    d_memory: Array,
    n: int,
    width: int,
    r: int,
    inverse_norms: Array,
    ask: Array,
    previous: Array,
    floor: Any,
    similarity: Array,
    content: Array,
    weighting: Array,
    d_weighting: Array,
    d_read: Array,
    d_ask: Array,
    key: Array,
    ring: Array,
    d_ring: Array,
    spare: Array,
    logs: Array,
) -> None:
    """Backward of `_address` and of Eq. 2; d_weighting becomes the gradient of the previous weighting.

    d_ask: as ask, gradients of key, strength, gate, sharpening, (unused), shift weights.
    """
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    beta, gate, gamma, inverse = ask[width], ask[width + 1], ask[width + 2], ask[width + 3]
    shifts, d_shifts = ask[width + 4 : width + 5 + 2 * r], d_ask[width + 4 : width + 5 + 2 * r]
    taps = shifts.size
    _interpolate(gate, content, previous, ring[r : r + n])
    _close_ring(ring, n, r)
    _shift(ring, shifts, False, spare)
    _log_all(spare, floor, logs)

    # Eq. 9: with u = log(w~ + floor), w = softmax(gamma u)
    mean, mean_log = zero, zero
    for i in range(n):
        mean += weighting[i] * d_weighting[i]
        mean_log += weighting[i] * logs[i]
    d_gamma = zero
    d_shifted = d_ring[r : r + n]
    for i in range(n):
        d_z = weighting[i] * (d_weighting[i] - mean)
        d_gamma += d_z * (logs[i] - mean_log)  # the d_z sum to zero: subtracting a constant costs no truth, saves digits
        d_shifted[i] = gamma * d_z / (spare[i] + floor)

    # Eq. 8
    for j in range(taps):
        w = ring[taps - 1 - j : taps - 1 - j + n]
        a = zero
        for i in range(n):
            a += d_shifted[i] * w[i]
        d_shifts[j] = a
    _close_ring(d_ring, n, r)
    _shift(d_ring, shifts, True, spare)

    # Eq. 7
    rest = one - gate
    d_gate, mean, mean_similarity = zero, zero, zero
    for i in range(n):
        d_gate += spare[i] * (content[i] - previous[i])
        d_weighting[i] = rest * spare[i]
        mean += spare[i] * content[i]
        mean_similarity += content[i] * similarity[i]

    # Eqs. 5 and 6: K(i) = k^ . M(i) / |M(i)| with k^ = k / |k|
    d_beta, along = zero, zero
    alpha, delta = logs, spare
    for i in range(n):
        d_z = gate * content[i] * (spare[i] - mean)
        d_beta += d_z * (similarity[i] - mean_similarity)
        d_k = beta * d_z
        along += d_k * similarity[i]
        d_k *= inverse_norms[i]
        alpha[i] = d_k
        delta[i] = -d_k * similarity[i] * inverse_norms[i]
    for m in range(width):
        key[m] = ask[m] * inverse
    sums = d_ask[:width]
    _memory_gradient(memory, d_memory, n, alpha, delta, key, weighting, d_read, sums)
    for m in range(width):
        d_ask[m] = (sums[m] - along * key[m]) * inverse
    d_ask[width], d_ask[width + 1], d_ask[width + 2] = d_beta, d_gate, d_gamma


# ---------------------------------------------------------------------------------------------------------------------
# The plan: every size, option and offset, computed once for a machine and a shape


class Plan(NamedTuple):
    """Integers that steer the kernel. `*_at` are offsets, into a row's record unless said otherwise."""

    # shapes
    S: int
    T: int
    B: int
    N: int
    I: int
    O: int
    C: int
    L: int
    R: int
    W: int
    M: int
    r: int
    P: int  # parameters of a machine
    # options
    lstm: int
    key_tanh: int
    add_kind: int  # 0 linear, 1 tanh, 2 sigmoid
    soft_shift: int
    read_after_write: int
    write_gate: int
    clipped: int
    # what to do
    forward: int
    backward: int
    loss: int  # train: costs from targets, gradients from costs
    keep: int  # records stand in `kept`, not in scratch memory
    segment: int
    time_mask: int  # step t is recorded at t & time_mask: all ones, or 1 where nothing is kept
    rows: int  # of a group
    groups: int
    # derived sizes
    first_width: int  # of the first layer's input: [x; reads; hidden]
    next_width: int  # of the other layers'
    gates: int  # rows of a controller weight
    summary: int  # [hidden; reads]
    output_width: int  # the part of it that the output layer sees
    F: int  # interface
    raw_read: int  # interface entries of a read head
    raw_write: int
    ask_read: int  # the same after activations, see "Addressing"
    ask_write: int
    asks: int
    # parameters
    interface_p: int
    output_p: int
    # record of a row: what the backward pass needs
    v_at: int  # [T, width] for each layer: controller inputs
    gates_at: int  # [L, T, gates], activations
    tanh_at: int  # [L, T, C], tanh of the cells
    cells_at: int  # [L, T + 1, C]
    summary_at: int  # [T, summary]
    raw_at: int  # [T, F], interface before the clip
    ask_at: int  # [T, asks]
    logits_at: int  # [T, O]; when training, their gradients
    similarity_at: int  # [T, H, N]
    content_at: int  # [T, H, N]
    weighting_at: int  # [T + 1, H, N]
    norms_at: int  # [T + 1, N], inverse norms of the slots before each step
    memory_at: int  # [T / segment, M * N], before the first step of each segment
    steps: int  # T of the above
    record: int  # size
    # a row's working memory
    hidden_w: int  # [L, C]
    reads_w: int  # [R * M]
    memory_w: int  # [M * N]
    d_memory_w: int
    d_weighting_w: int  # [H, N]
    d_hidden_w: int
    d_cell_w: int
    d_reads_w: int
    replay_w: int  # [segment + 1, M * N]
    d_logits_w: int
    d_summary_w: int
    d_gates_w: int
    d_v_w: int
    d_raw_w: int
    work: int  # size
    # working memory of the group
    raw_g: int  # [F], clipped interface
    d_ask_g: int  # [ask_write], of one head
    key_g: int  # [M]
    zeros_g: int  # [M]
    ring_g: int  # [N + 2r]
    d_ring_g: int
    spare_g: int  # [N]
    logs_g: int  # [N]
    effective_g: int  # [W, N], weightings times write gates
    d_effective_g: int
    before_g: int  # [W, SLOT_BLOCK]
    after_g: int  # [SLOT_BLOCK]
    lanes_g: int
    pending_g: int  # controller layers, interface, output: inputs [PENDING, width], then gradients [PENDING, outs]
    shared: int  # size


PLAN_SIZE = len(Plan._fields)


# The tensors cross into the kernel as a table of addresses: unpacking some forty arrays would take longer than a step.
(PARAMETERS, INPUTS, LENGTHS, SLOTS, OUTPUTS, D_OUTPUTS, D_PARAMETERS, D_INPUTS, TARGETS, MASK, COSTS, KEPT) = range(12)
STATE, FINAL, D_FINAL, D_STATE = 12, 18, 24, 30  # six addresses each, in the order of ScanState
TABLE_SIZE = 36


@compiled
def _view(table: Array, index: int, like: Array, size: int) -> Array:
    result: Array = numba.carray(_pointer(table[index], like), size)
    return result


@compiled
def _layer(p: Plan, layer: int) -> tuple[int, int, int]:
    """Width of a layer's input, offsets of its weight in the parameters and of its inputs among the `v`s of one step."""
    if layer == 0:
        return p.first_width, 0, 0
    at = p.gates * (p.first_width + 1) + (layer - 1) * p.gates * (p.next_width + 1)
    return p.next_width, at, p.first_width + (layer - 1) * p.next_width


# ---------------------------------------------------------------------------------------------------------------------
# States in and out


@compiled
def _load_tape(source: Array, n: int, width: int, target: Array) -> None:
    """[N, M] -> [M, n]"""
    for m in range(width):
        row = target[m * n : (m + 1) * n]
        for i in range(n):
            row[i] = source[i * width + m]


@compiled
def _store_tape(source: Array, n: int, width: int, target: Array) -> None:
    """[M, n] -> [N, M]"""
    for i in range(n):
        row = target[i * width : (i + 1) * width]
        for m in range(width):
            row[m] = source[m * n + i]


@compiled
def _load_state(
    p: Plan, table: Array, first: int, at: int, n: int, like: Array, memory: Array, weightings: Array, reads: Array, hidden: Array
) -> None:
    """One row's part `at` = s * B + b of a state (or of its gradient), all but the cell."""
    memories = _view(table, first, like, p.S * p.B * p.N * p.M)
    _load_tape(memories[at * p.N * p.M : (at + 1) * p.N * p.M], n, p.M, memory)
    reading = _view(table, first + 1, like, p.S * p.B * p.R * p.N)
    for h in range(p.R):
        _copy(reading[(at * p.R + h) * p.N :], weightings[h * p.N : h * p.N + n])
    writing = _view(table, first + 2, like, p.S * p.B * p.W * p.N)
    for h in range(p.W):
        _copy(writing[(at * p.W + h) * p.N :], weightings[(p.R + h) * p.N : (p.R + h) * p.N + n])
    all_reads = _view(table, first + 3, like, p.S * p.B * p.R * p.M)
    _copy(all_reads[at * p.R * p.M :], reads)
    if p.lstm == 1:
        hiddens = _view(table, first + 4, like, p.S * p.B * p.L * p.C)
        _copy(hiddens[at * p.L * p.C :], hidden)


@compiled
def _store_state(
    p: Plan,
    table: Array,
    old: int,
    new: int,
    at: int,
    n: int,
    like: Array,
    memory: Array,
    weightings: Array,
    reads: Array,
    hidden: Array,
) -> None:
    """The inverse of `_load_state`; what lies beyond the row's slots is copied from the state at `old`."""
    size = p.S * p.B * p.N * p.M
    begin, used, end = at * p.N * p.M, at * p.N * p.M + n * p.M, (at + 1) * p.N * p.M
    memories = _view(table, new, like, size)
    _store_tape(memory, n, p.M, memories[begin:used])
    if n < p.N:
        _copy(_view(table, old, like, size)[used:end], memories[used:end])
    for kind in range(2):
        heads, skip = (p.R, 0) if kind == 0 else (p.W, p.R)
        size = p.S * p.B * heads * p.N
        target = _view(table, new + 1 + kind, like, size)
        source = _view(table, old + 1 + kind, like, size)
        for h in range(heads):
            begin = (at * heads + h) * p.N
            _copy(weightings[(skip + h) * p.N :], target[begin : begin + n])
            if n < p.N:
                _copy(source[begin + n : begin + p.N], target[begin + n : begin + p.N])
    _copy(reads, _view(table, new + 3, like, p.S * p.B * p.R * p.M)[at * p.R * p.M : (at + 1) * p.R * p.M])
    if p.lstm == 1:
        hiddens = _view(table, new + 4, like, p.S * p.B * p.L * p.C)
        _copy(hidden, hiddens[at * p.L * p.C : (at + 1) * p.L * p.C])


# ---------------------------------------------------------------------------------------------------------------------
# The interface


@compiled
def _clip(p: Plan, limit: Any, raw: Array, spare: Array) -> Array:
    """The interface as the heads see it: raw itself unless there is a clip. NaN passes."""
    if p.clipped == 0:
        return raw
    for i in range(raw.size):
        x = raw[i]
        x = limit if x > limit else x
        spare[i] = -limit if x < -limit else x
    return spare


@compiled
def _activate(p: Plan, raw: Array, ask: Array) -> None:
    """What one head asks for: the addressing part of the interface after its activations."""
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    width = p.M
    if p.key_tanh == 1:
        _tanh_all(raw, ask[:width])
    else:
        _copy(raw, ask[:width])
    scale = one
    for m in range(width):
        scale = max(scale, abs(ask[m]))
    total = ask.dtype.type(equations.NORM_EPSILON)
    for m in range(width):
        k = ask[m] / scale
        total += k * k
    ask[width] = _softplus(raw[width])
    ask[width + 1] = _sigmoid(raw[width + 1], one)
    ask[width + 2] = one + _softplus(raw[p.raw_read - 1])
    ask[width + 3] = one / (scale * math.sqrt(total))
    shifts = ask[width + 4 : width + 5 + 2 * p.r]
    if p.soft_shift == 1:
        x = raw[width + 2 : width + 3 + 2 * p.r]
        top = x[0]
        for j in range(x.size):
            top = max(top, x[j])
        total = zero
        for j in range(x.size):
            shifts[j] = exp(x[j] - top)
            total += shifts[j]
        for j in range(x.size):
            shifts[j] /= total
    else:
        amount = p.r * tanh(raw[width + 2])
        whole = np.floor(amount)
        for j in range(shifts.size):
            shifts[j] = zero
            if j - p.r == whole:
                shifts[j] = ask.dtype.type(one - (amount - whole))
            if j - p.r == whole + 1 or amount != amount:
                shifts[j] = ask.dtype.type(amount - whole)


@compiled
def _activate_back(p: Plan, raw: Array, ask: Array, d_ask: Array, d_raw: Array) -> None:
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    width = p.M
    for m in range(width):
        d_raw[m] = d_ask[m] * (one - ask[m] * ask[m]) if p.key_tanh == 1 else d_ask[m]
    d_raw[width] = d_ask[width] * _softplus_slope(raw[width], one)
    d_raw[width + 1] = d_ask[width + 1] * ask[width + 1] * (one - ask[width + 1])
    d_raw[p.raw_read - 1] = d_ask[width + 2] * _softplus_slope(raw[p.raw_read - 1], one)
    shifts, d_shifts = ask[width + 4 : width + 5 + 2 * p.r], d_ask[width + 4 : width + 5 + 2 * p.r]
    if p.soft_shift == 1:
        mean = zero
        for j in range(shifts.size):
            mean += shifts[j] * d_shifts[j]
        for j in range(shifts.size):
            d_raw[width + 2 + j] = shifts[j] * (d_shifts[j] - mean)
    else:
        part = tanh(raw[width + 2])
        whole = np.floor(p.r * part)
        d_amount = zero
        for j in range(shifts.size):
            if j - p.r == whole:
                d_amount -= d_shifts[j]
            if j - p.r == whole + 1:
                d_amount += d_shifts[j]
        d_raw[width + 2] = ask.dtype.type(d_amount * p.r * (one - part * part))


# ---------------------------------------------------------------------------------------------------------------------
# One step of one row's memory


@compiled
def _effective(p: Plan, record: Array, now: int, following: int, n: int, shared: Array) -> Array:
    """Write weightings [W, N] times the write gates."""
    H = p.R + p.W
    at = p.weighting_at + (following * H + p.R) * p.N
    weightings = record[at : at + p.W * p.N]
    if p.write_gate == 0:
        return weightings
    effective = shared[p.effective_g : p.effective_g + p.W * p.N]
    gate_at = p.ask_at + now * p.asks + p.R * p.ask_read + p.ask_read + 2 * p.M
    for h in range(p.W):
        g = record[gate_at + h * p.ask_write]
        target = effective[h * p.N : h * p.N + n]
        source = weightings[h * p.N : h * p.N + n]
        for i in range(n):
            target[i] = g * source[i]
    return effective


@compiled
def _write_step(p: Plan, record: Array, now: int, following: int, n: int, memory: Array, inverse_norms: Array, shared: Array) -> None:
    """The writes of one step, from the record: in the forward pass and, replayed, in the backward pass."""
    real = memory.dtype.type
    if p.W == 0:
        _slot_norms(memory, n, p.M, real(_norm_limit(memory)), real(equations.NORM_EPSILON), inverse_norms)
        return
    asks_at = p.ask_at + now * p.asks + p.R * p.ask_read
    _write(
        memory,
        n,
        p.M,
        _effective(p, record, now, following, n, shared),
        p.N,
        p.W,
        record[asks_at : asks_at + p.W * p.ask_write],
        p.ask_write,
        p.ask_read,
        real(_norm_limit(memory)),
        real(equations.NORM_EPSILON),
        inverse_norms,
    )


def _norm_limit(like: Any) -> Any:
    """A squared norm above this is computed with scaling: well below overflow."""


@overload(_norm_limit)  # type: ignore[untyped-decorator]
def _norm_limit_overload(like: Any) -> Any:
    limit = 1e36 if like.dtype is numba.types.float32 else 1e300

    def constant(like: Any) -> Any:
        return limit

    return constant


@compiled
def _find(p: Plan, record: Array, head: int, now: int, following: int, n: int, memory: Array, norms_step: int, shared: Array) -> None:
    """Addresses one head: similarity, content and weighting into the record."""
    H = p.R + p.W
    ask_at = p.ask_at + now * p.asks
    ask_at += head * p.ask_read if head < p.R else p.R * p.ask_read + (head - p.R) * p.ask_write
    at = (now * H + head) * p.N
    previous_at = p.weighting_at + (now * H + head) * p.N
    next_at = p.weighting_at + (following * H + head) * p.N
    real = memory.dtype.type
    _address(
        memory,
        n,
        p.M,
        p.r,
        record[p.norms_at + norms_step * p.N : p.norms_at + norms_step * p.N + n],
        record[ask_at : ask_at + p.ask_read],
        record[previous_at : previous_at + n],
        real(1 / math.sqrt(_norm_limit(memory))),
        real(equations.SHARPEN_EPSILON),
        record[p.similarity_at + at : p.similarity_at + at + n],
        record[p.content_at + at : p.content_at + at + n],
        record[next_at : next_at + n],
        shared[p.key_g : p.key_g + p.M],
        shared[p.ring_g : p.ring_g + n + 2 * p.r],
        shared[p.spare_g : p.spare_g + n],
        shared[p.lanes_g : p.lanes_g + LANES],
    )


@compiled
def _memory_step(p: Plan, clip: Any, record: Array, work: Array, shared: Array, now: int, following: int, n: int) -> None:
    """All heads on the tape of one row, in the order of the specification."""
    one = record.dtype.type(1)
    raw = record[p.raw_at + now * p.F : p.raw_at + (now + 1) * p.F]
    raw = _clip(p, clip, raw, shared[p.raw_g : p.raw_g + p.F])
    asks = record[p.ask_at + now * p.asks : p.ask_at + (now + 1) * p.asks]
    memory = work[p.memory_w : p.memory_w + p.M * n]
    for h in range(p.R + p.W):
        if h < p.R:
            _activate(p, raw[h * p.raw_read : (h + 1) * p.raw_read], asks[h * p.ask_read : (h + 1) * p.ask_read])
        else:
            ask = asks[p.R * p.ask_read + (h - p.R) * p.ask_write :]
            own = raw[p.R * p.raw_read + (h - p.R) * p.raw_write :]
            _activate(p, own, ask)
            _sigmoid_all(own[p.raw_read :], ask[p.ask_read : p.ask_read + p.M])
            add = ask[p.ask_read + p.M : p.ask_read + 2 * p.M]
            if p.add_kind == 0:
                _copy(own[p.raw_read + p.M :], add)
            elif p.add_kind == 1:
                _tanh_all(own[p.raw_read + p.M :], add)
            else:
                _sigmoid_all(own[p.raw_read + p.M :], add)
            ask[p.ask_read + 2 * p.M] = _sigmoid(own[p.raw_write - 1], one) if p.write_gate == 1 else one
    first, last = (p.R, p.R + p.W) if p.read_after_write == 1 else (0, p.R + p.W)
    for h in range(first, last):  # these see the memory before the write
        _find(p, record, h, now, following, n, memory, now, shared)
    H = p.R + p.W
    reads = work[p.reads_w : p.reads_w + p.R * p.M]
    if p.read_after_write == 0:
        for h in range(p.R):
            w_at = p.weighting_at + (following * H + h) * p.N
            _weigh_slots(record[w_at : w_at + n], memory, n, reads[h * p.M : (h + 1) * p.M])
    norms_at = p.norms_at + following * p.N
    _write_step(p, record, now, following, n, memory, record[norms_at : norms_at + n], shared)
    if p.read_after_write == 1:
        for h in range(p.R):
            _find(p, record, h, now, following, n, memory, following, shared)
            w_at = p.weighting_at + (following * H + h) * p.N
            _weigh_slots(record[w_at : w_at + n], memory, n, reads[h * p.M : (h + 1) * p.M])


@compiled
def _find_back(
    p: Plan, raw: Array, record: Array, work: Array, shared: Array, head: int, t: int, n: int, memory: Array, norms_step: int
) -> None:
    """Backward of one head's addressing and, for a read head, of its reading."""
    H = p.R + p.W
    ask_at, raw_at = p.ask_at + t * p.asks, 0
    d_read = shared[p.zeros_g : p.zeros_g + p.M]
    if head < p.R:
        ask_at += head * p.ask_read
        raw_at = head * p.raw_read
        d_read = work[p.d_reads_w + head * p.M : p.d_reads_w + (head + 1) * p.M]
    else:
        ask_at += p.R * p.ask_read + (head - p.R) * p.ask_write
        raw_at = p.R * p.raw_read + (head - p.R) * p.raw_write
    d_weighting = work[p.d_weighting_w + head * p.N : p.d_weighting_w + head * p.N + n]
    if head < p.R:
        _weigh_rows(d_read, memory, n, d_weighting)
    at = (t * H + head) * p.N
    next_at = p.weighting_at + ((t + 1) * H + head) * p.N
    ask = record[ask_at : ask_at + p.ask_read]
    d_ask = shared[p.d_ask_g : p.d_ask_g + p.ask_read]
    _address_back(
        memory,
        work[p.d_memory_w : p.d_memory_w + p.M * n],
        n,
        p.M,
        p.r,
        record[p.norms_at + norms_step * p.N : p.norms_at + norms_step * p.N + n],
        ask,
        record[p.weighting_at + at : p.weighting_at + at + n],
        memory.dtype.type(equations.SHARPEN_EPSILON),
        record[p.similarity_at + at : p.similarity_at + at + n],
        record[p.content_at + at : p.content_at + at + n],
        record[next_at : next_at + n],
        d_weighting,
        d_read,
        d_ask,
        shared[p.key_g : p.key_g + p.M],
        shared[p.ring_g : p.ring_g + n + 2 * p.r],
        shared[p.d_ring_g : p.d_ring_g + n + 2 * p.r],
        shared[p.spare_g : p.spare_g + n],
        shared[p.logs_g : p.logs_g + n],
    )
    _activate_back(p, raw[raw_at:], ask, d_ask, work[p.d_raw_w + raw_at : p.d_raw_w + raw_at + p.raw_read])


@compiled
def _write_step_back(p: Plan, record: Array, work: Array, shared: Array, t: int, n: int, memory: Array) -> None:
    """Backward of Eqs. 3 and 4, of the write gates and of the activations of erase and add."""
    one, zero = record.dtype.type(1), record.dtype.type(0)
    H = p.R + p.W
    asks_at = p.ask_at + t * p.asks + p.R * p.ask_read
    asks = record[asks_at : asks_at + p.W * p.ask_write]
    d_raw_at = p.d_raw_w + p.R * p.raw_read
    d_raws = work[d_raw_at : d_raw_at + p.W * p.raw_write]
    d_w_at = p.d_weighting_w + p.R * p.N
    d_weightings = work[d_w_at : d_w_at + p.W * p.N]
    d_effective = d_weightings
    if p.write_gate == 1:
        d_effective = shared[p.d_effective_g : p.d_effective_g + p.W * p.N]
        _fill_zero(d_effective)
    _write_back(
        memory,
        work[p.d_memory_w : p.d_memory_w + p.M * n],
        n,
        p.M,
        _effective(p, record, t, t + 1, n, shared),
        d_effective,
        p.N,
        p.W,
        asks,
        p.ask_write,
        d_raws,
        p.raw_write,
        p.ask_read,
        p.raw_read,
        shared[p.before_g : p.before_g + p.W * SLOT_BLOCK],
        shared[p.after_g : p.after_g + SLOT_BLOCK],
    )
    for h in range(p.W):
        ask = asks[h * p.ask_write + p.ask_read : (h + 1) * p.ask_write]  # erase, add, gate
        d_raw = d_raws[h * p.raw_write + p.raw_read : (h + 1) * p.raw_write]
        for m in range(p.M):
            d_raw[m] *= ask[m] * (one - ask[m])
        for m in range(p.M, 2 * p.M):
            if p.add_kind == 1:
                d_raw[m] *= one - ask[m] * ask[m]
            elif p.add_kind == 2:
                d_raw[m] *= ask[m] * (one - ask[m])
        if p.write_gate == 1:
            g = ask[2 * p.M]
            w_at = p.weighting_at + ((t + 1) * H + p.R + h) * p.N
            w, d_e = record[w_at : w_at + n], d_effective[h * p.N : h * p.N + n]
            d_w = d_weightings[h * p.N : h * p.N + n]
            d_g = zero
            for i in range(n):
                d_g += d_e[i] * w[i]
                d_w[i] += g * d_e[i]
            d_raw[2 * p.M] = d_g * g * (one - g)


@compiled
def _memory_step_back(p: Plan, clip: Any, record: Array, work: Array, shared: Array, t: int, n: int) -> None:
    """Backward of `_memory_step`: gradients of the interface, of the memory and of the weightings before the step."""
    raw = record[p.raw_at + t * p.F : p.raw_at + (t + 1) * p.F]
    seen = _clip(p, clip, raw, shared[p.raw_g : p.raw_g + p.F])
    size = p.M * n
    at = p.replay_w + (t % p.segment) * p.M * p.N
    before = work[at : at + size]
    after = work[at + p.M * p.N : at + p.M * p.N + size]
    if p.read_after_write == 1:
        for h in range(p.R):
            _find_back(p, seen, record, work, shared, h, t, n, after, t + 1)
    if p.W > 0:
        _write_step_back(p, record, work, shared, t, n, before)
        for h in range(p.R, p.R + p.W):
            _find_back(p, seen, record, work, shared, h, t, n, before, t)
    if p.read_after_write == 0:
        for h in range(p.R):
            _find_back(p, seen, record, work, shared, h, t, n, before, t)
    if p.clipped == 1:
        d_raw = work[p.d_raw_w : p.d_raw_w + p.F]
        for i in range(p.F):
            if raw[i] > clip or raw[i] < -clip:
                d_raw[i] = record.dtype.type(0)


@compiled
def _replay(p: Plan, record: Array, work: Array, shared: Array, t: int, n: int) -> None:
    """The memories before step t's segment's steps up to t, and after t: the same writes as in the forward pass."""
    size = p.M * n
    begin = t - t % p.segment
    at = p.memory_at + (t // p.segment) * p.M * p.N
    _copy(record[at : at + size], work[p.replay_w : p.replay_w + size])
    for k in range(t - begin + p.read_after_write):
        at = p.replay_w + k * p.M * p.N
        memory = work[at + p.M * p.N : at + p.M * p.N + size]
        _copy(work[at : at + size], memory)
        if p.W > 0:
            _write_step(p, record, begin + k, begin + k + 1, n, memory, shared[p.spare_g : p.spare_g + n], shared)


# ---------------------------------------------------------------------------------------------------------------------
# A group


@compiled
def _forward_group(
    p: Plan,
    clip: Any,
    table: Array,
    seed: int,
    order: Array,
    lengths: Array,
    slots: Array,
    rows: int,
    records: Array,
    works: Array,
    shared: Array,
) -> None:
    """Runs the rows of a group. `order` holds their places in the batch, the longest first."""
    real = records.dtype.type
    parameters = _view(table, PARAMETERS, shared, p.S * p.P)[seed * p.P : (seed + 1) * p.P]
    inputs = _view(table, INPUTS, shared, p.S * p.T * p.B * p.I)
    limit, epsilon = real(_norm_limit(shared)), real(equations.NORM_EPSILON)
    H = p.R + p.W
    costs = np.zeros(rows, np.float64)
    for row in range(rows):
        n = slots[row]
        record, work = records[row], works[row]
        at = seed * p.B + order[row]
        _load_state(
            p,
            table,
            STATE,
            at,
            n,
            shared,
            work[p.memory_w : p.memory_w + p.M * n],
            record[p.weighting_at : p.weighting_at + H * p.N],
            work[p.reads_w : p.reads_w + p.R * p.M],
            work[p.hidden_w : p.hidden_w + p.L * p.C],
        )
        if p.lstm == 1:
            cells = _view(table, STATE + 5, shared, p.S * p.B * p.L * p.C)
            for layer in range(p.L):
                to = p.cells_at + layer * (p.steps + 1) * p.C
                _copy(cells[(at * p.L + layer) * p.C :], record[to : to + p.C])
        _slot_norms(work[p.memory_w : p.memory_w + p.M * n], n, p.M, limit, epsilon, record[p.norms_at : p.norms_at + n])
    active = rows
    for t in range(lengths[0]):
        now, following = t & p.time_mask, (t + 1) & p.time_mask
        while lengths[active - 1] <= t:
            active -= 1
        for row in range(active):
            record, work = records[row], works[row]
            v = record[p.v_at + now * p.first_width : p.v_at + (now + 1) * p.first_width]
            x_at = ((seed * p.T + t) * p.B + order[row]) * p.I
            _copy(inputs[x_at : x_at + p.I], v[: p.I])
            _copy(work[p.reads_w : p.reads_w + p.R * p.M], v[p.I : p.I + p.R * p.M])
            if p.lstm == 1:
                _copy(work[p.hidden_w : p.hidden_w + p.C], v[p.I + p.R * p.M :])
            if p.keep == 1 or p.backward == 1:
                if t % p.segment == 0:
                    size = p.M * slots[row]
                    to = p.memory_at + (t // p.segment) * p.M * p.N
                    _copy(work[p.memory_w : p.memory_w + size], record[to : to + size])
        for layer in range(p.L):
            width, weight_at, v_before = _layer(p, layer)
            bias_at = weight_at + p.gates * width
            x_at = p.v_at + v_before * p.steps + now * width
            gates_at = p.gates_at + (layer * p.steps + now) * p.gates
            _linear(
                parameters[weight_at:bias_at],
                parameters[bias_at : bias_at + p.gates],
                width,
                p.gates,
                records,
                x_at,
                records,
                gates_at,
                active,
            )
            for row in range(active):
                record, work = records[row], works[row]
                gates = record[gates_at : gates_at + p.gates]
                hidden = work[p.hidden_w + layer * p.C : p.hidden_w + (layer + 1) * p.C]
                if p.lstm == 1:
                    cell_at = p.cells_at + layer * (p.steps + 1) * p.C
                    tanh_at = p.tanh_at + (layer * p.steps + now) * p.C
                    _lstm_cell(
                        gates,
                        record[cell_at + now * p.C : cell_at + (now + 1) * p.C],
                        record[cell_at + following * p.C : cell_at + (following + 1) * p.C],
                        record[tanh_at : tanh_at + p.C],
                        hidden,
                    )
                else:
                    _tanh_all(gates, gates)
                    _copy(gates, hidden)
                if layer + 1 < p.L:
                    above = p.v_at + (p.first_width + layer * p.next_width) * p.steps + now * p.next_width
                    v = record[above : above + p.next_width]
                    _copy(hidden, v[: p.C])
                    if p.lstm == 1:
                        _copy(work[p.hidden_w + (layer + 1) * p.C :], v[p.C : 2 * p.C])
                else:
                    to = p.summary_at + now * p.summary
                    _copy(hidden, record[to : to + p.C])
        bias_at = p.interface_p + p.F * p.C
        _linear(
            parameters[p.interface_p : bias_at],
            parameters[bias_at : bias_at + p.F],
            p.C,
            p.F,
            records,
            p.summary_at + now * p.summary,
            records,
            p.raw_at + now * p.F,
            active,
        )
        for row in range(active):
            record, work = records[row], works[row]
            _memory_step(p, clip, record, work, shared, now, following, slots[row])
            to = p.summary_at + now * p.summary + p.C
            _copy(work[p.reads_w : p.reads_w + p.R * p.M], record[to : to + p.R * p.M])
        bias_at = p.output_p + p.O * p.output_width
        _linear(
            parameters[p.output_p : bias_at],
            parameters[bias_at : bias_at + p.O],
            p.output_width,
            p.O,
            records,
            p.summary_at + now * p.summary,
            records,
            p.logits_at + now * p.O,
            active,
        )
        for row in range(active):
            logits = records[row, p.logits_at + now * p.O : p.logits_at + (now + 1) * p.O]
            step = (seed * p.T + t) * p.B + order[row]
            if p.loss == 1:
                costs[row] += _cost(p, table, step, logits)
            else:
                _copy(logits, _view(table, OUTPUTS, shared, p.S * p.T * p.B * p.O)[step * p.O : (step + 1) * p.O])
    for row in range(rows):
        _finish_row(p, table, seed, order[row], lengths[row], slots[row], costs[row], records[row], works[row], shared)


@compiled
def _cost(p: Plan, table: Array, step: int, logits: Array) -> float:
    """Binary cross-entropy of one step; the logits become the gradients of the mean cost over the batch."""
    one = logits.dtype.type(1)
    batch = logits.dtype.type(p.B)
    weight = _view(table, MASK, logits, p.S * p.T * p.B)[step]
    if weight == 0:
        _fill_zero(logits)
        return 0.0
    targets = _view(table, TARGETS, logits, p.S * p.T * p.B * p.O)[step * p.O : (step + 1) * p.O]
    cost = 0.0
    for o in range(p.O):
        x = logits[o]
        # max(x, 0) written so that NaN passes
        cost += ((logits.dtype.type(0) if x < 0 else x) - x * targets[o]) + math.log1p(math.exp(-abs(x)))
        logits[o] = weight * (_sigmoid(x, one) - targets[o]) / batch
    return cost * weight


@compiled
def _finish_row(
    p: Plan,
    table: Array,
    seed: int,
    place: int,
    length: int,
    n: int,
    cost: float,
    record: Array,
    work: Array,
    shared: Array,
) -> None:
    """What a row leaves behind: its cost, or its final state and zeros for outputs beyond its length."""
    at = seed * p.B + place
    if p.loss == 1:
        mask = _view(table, MASK, shared, p.S * p.T * p.B)
        for t in range(length, p.T):  # logits there are zeros
            cost += mask[(seed * p.T + t) * p.B + place] * p.O * math.log(2.0)
        _view(table, COSTS, shared, p.S * p.B)[at] = cost
        return
    outputs = _view(table, OUTPUTS, shared, p.S * p.T * p.B * p.O)
    for t in range(length, p.T):
        step = (seed * p.T + t) * p.B + place
        _fill_zero(outputs[step * p.O : (step + 1) * p.O])
    last = length & p.time_mask
    H = p.R + p.W
    w_at = p.weighting_at + last * H * p.N
    _store_state(
        p,
        table,
        STATE,
        FINAL,
        at,
        n,
        shared,
        work[p.memory_w : p.memory_w + p.M * n],
        record[w_at : w_at + H * p.N],
        work[p.reads_w : p.reads_w + p.R * p.M],
        work[p.hidden_w : p.hidden_w + p.L * p.C],
    )
    if p.lstm == 1:
        cells = _view(table, FINAL + 5, shared, p.S * p.B * p.L * p.C)
        for layer in range(p.L):
            cell_at = p.cells_at + (layer * (p.steps + 1) + last) * p.C
            _copy(record[cell_at : cell_at + p.C], cells[(at * p.L + layer) * p.C : (at * p.L + layer + 1) * p.C])


@compiled
def _start_back(p: Plan, table: Array, at: int, n: int, work: Array, shared: Array) -> None:
    """Gradients of a row's final state, from where the backward pass starts."""
    H = p.R + p.W
    d_memory = work[p.d_memory_w : p.d_memory_w + p.M * n]
    d_weightings = work[p.d_weighting_w : p.d_weighting_w + H * p.N]
    d_reads = work[p.d_reads_w : p.d_reads_w + p.R * p.M]
    d_hidden = work[p.d_hidden_w : p.d_hidden_w + p.L * p.C]
    d_cell = work[p.d_cell_w : p.d_cell_w + p.L * p.C]
    _fill_zero(d_hidden)
    if p.loss == 1:
        _fill_zero(d_memory)
        _fill_zero(d_weightings)
        _fill_zero(d_reads)
        _fill_zero(d_cell)
        return
    _load_state(p, table, D_FINAL, at, n, shared, d_memory, d_weightings, d_reads, d_hidden)
    if p.lstm == 1:
        _copy(_view(table, D_FINAL + 5, shared, p.S * p.B * p.L * p.C)[at * p.L * p.C :], d_cell)


@compiled
def _finish_back(p: Plan, table: Array, at: int, n: int, work: Array, shared: Array) -> None:
    """Gradients of a row's initial state. Beyond its slots those of the final state, or zeros, pass through."""
    H = p.R + p.W
    d_cell = work[p.d_cell_w : p.d_cell_w + p.L * p.C]
    _store_state(
        p,
        table,
        D_STATE if p.loss == 1 else D_FINAL,
        D_STATE,
        at,
        n,
        shared,
        work[p.d_memory_w : p.d_memory_w + p.M * n],
        work[p.d_weighting_w : p.d_weighting_w + H * p.N],
        work[p.d_reads_w : p.d_reads_w + p.R * p.M],
        work[p.d_hidden_w : p.d_hidden_w + p.L * p.C],
    )
    if p.lstm == 1:
        _copy(d_cell, _view(table, D_STATE + 5, shared, p.S * p.B * p.L * p.C)[at * p.L * p.C : (at + 1) * p.L * p.C])


@compiled
def _matrix(p: Plan, k: int) -> tuple[int, int, int, int]:
    """Width, outputs, place among the parameters and in the pending pairs of matrix k: layers, interface, output."""
    if k == 0:
        return p.first_width, p.gates, 0, p.pending_g
    after_first = p.pending_g + PENDING * (p.first_width + p.gates)
    if k < p.L:
        at = p.gates * (p.first_width + 1) + (k - 1) * p.gates * (p.next_width + 1)
        return p.next_width, p.gates, at, after_first + (k - 1) * PENDING * (p.next_width + p.gates)
    after_layers = after_first + (p.L - 1) * PENDING * (p.next_width + p.gates)
    if k == p.L:
        return p.C, p.F, p.interface_p, after_layers
    return p.output_width, p.O, p.output_p, after_layers + PENDING * (p.C + p.F)


@compiled
def _pend(p: Plan, k: int, pair: int, shared: Array, x: Array, d_y: Array) -> None:
    """Notes that matrix k took x and has the gradient d_y at its output: an outer product to be added later."""
    width, outs, _, at = _matrix(p, k)
    _copy(x, shared[at + pair * width : at + (pair + 1) * width])
    at += PENDING * width
    _copy(d_y, shared[at + pair * outs : at + (pair + 1) * outs])


@compiled
def _flush(p: Plan, pairs: int, shared: Array, d_parameters: Array) -> None:
    """Adds all pending outer products to the gradients of the weights."""
    whole = (pairs + 7) // 8 * 8
    for k in range(p.L + 2):
        width, outs, weight_at, at = _matrix(p, k)
        x = shared[at : at + whole * width]
        at += PENDING * width
        d_y = shared[at : at + whole * outs]
        _fill_zero(x[pairs * width :])
        _fill_zero(d_y[pairs * outs :])
        bias_at = weight_at + outs * width
        _outer_add(d_y, x, whole, width, outs, d_parameters[weight_at:bias_at], d_parameters[bias_at : bias_at + outs])


@compiled
def _backward_group(
    p: Plan,
    clip: Any,
    table: Array,
    seed: int,
    group: int,
    order: Array,
    lengths: Array,
    slots: Array,
    rows: int,
    records: Array,
    works: Array,
    shared: Array,
) -> None:
    parameters = _view(table, PARAMETERS, shared, p.S * p.P)[seed * p.P : (seed + 1) * p.P]
    to = (seed * p.groups + group) * p.P
    d_parameters = _view(table, D_PARAMETERS, shared, p.S * p.groups * p.P)[to : to + p.P]
    _fill_zero(d_parameters)
    _fill_zero(shared[p.zeros_g : p.zeros_g + p.M])
    for row in range(rows):
        _start_back(p, table, seed * p.B + order[row], slots[row], works[row], shared)
    pairs = 0
    active = 0
    for t in range(lengths[0] - 1, -1, -1):
        while active < rows and lengths[active] > t:
            active += 1
        if pairs + active > PENDING:
            _flush(p, pairs, shared, d_parameters)
            pairs = 0
        for row in range(active):
            record, work = records[row], works[row]
            d_logits = work[p.d_logits_w : p.d_logits_w + p.O]
            if p.loss == 1:
                _copy(record[p.logits_at + t * p.O :], d_logits)
            else:
                step = (seed * p.T + t) * p.B + order[row]
                _copy(_view(table, D_OUTPUTS, shared, p.S * p.T * p.B * p.O)[step * p.O :], d_logits)
            _pend(p, p.L + 1, pairs + row, shared, record[p.summary_at + t * p.summary :], d_logits)
        bias_at = p.output_p + p.O * p.output_width
        _linear_back(
            parameters[p.output_p : bias_at], p.output_width, p.O, works, p.d_logits_w, works, p.d_summary_w, active
        )
        for row in range(active):
            record, work = records[row], works[row]
            top = work[p.d_hidden_w + (p.L - 1) * p.C : p.d_hidden_w + p.L * p.C]
            _add(work[p.d_summary_w :], top)
            if p.output_width > p.C:
                _add(work[p.d_summary_w + p.C :], work[p.d_reads_w : p.d_reads_w + p.R * p.M])
            if t == lengths[row] - 1 or t % p.segment == p.segment - 1:
                _replay(p, record, work, shared, t, slots[row])
            _memory_step_back(p, clip, record, work, shared, t, slots[row])
            summary = record[p.summary_at + t * p.summary :]
            _pend(p, p.L, pairs + row, shared, summary, work[p.d_raw_w :])
        bias_at = p.interface_p + p.F * p.C
        _linear_back(parameters[p.interface_p : bias_at], p.C, p.F, works, p.d_raw_w, works, p.d_summary_w, active)
        for row in range(active):
            work = works[row]
            _add(work[p.d_summary_w :], work[p.d_hidden_w + (p.L - 1) * p.C : p.d_hidden_w + p.L * p.C])
        for layer in range(p.L - 1, -1, -1):
            width, weight_at, v_before = _layer(p, layer)
            gates_at = p.gates_at + (layer * p.steps + t) * p.gates
            for row in range(active):
                record, work = records[row], works[row]
                gates = record[gates_at : gates_at + p.gates]
                d_gates = work[p.d_gates_w : p.d_gates_w + p.gates]
                d_hidden = work[p.d_hidden_w + layer * p.C : p.d_hidden_w + (layer + 1) * p.C]
                if p.lstm == 1:
                    cell_at = p.cells_at + (layer * (p.steps + 1) + t) * p.C
                    tanh_at = p.tanh_at + (layer * p.steps + t) * p.C
                    _lstm_cell_back(
                        gates,
                        record[cell_at : cell_at + p.C],
                        record[tanh_at : tanh_at + p.C],
                        d_hidden,
                        work[p.d_cell_w + layer * p.C : p.d_cell_w + (layer + 1) * p.C],
                        d_gates,
                    )
                else:
                    for j in range(p.C):
                        d_gates[j] = d_hidden[j] * (record.dtype.type(1) - gates[j] * gates[j])
                v_at = p.v_at + v_before * p.steps + t * width
                _pend(p, layer, pairs + row, shared, record[v_at:], d_gates)
            weight = parameters[weight_at : weight_at + p.gates * width]
            _linear_back(weight, width, p.gates, works, p.d_gates_w, works, p.d_v_w, active)
            for row in range(active):
                work = works[row]
                d_v = work[p.d_v_w : p.d_v_w + width]
                d_hidden = work[p.d_hidden_w + layer * p.C : p.d_hidden_w + (layer + 1) * p.C]
                if p.lstm == 1:
                    _copy(d_v[width - p.C :], d_hidden)
                else:
                    _fill_zero(d_hidden)
                if layer > 0:
                    _add(d_v, work[p.d_hidden_w + (layer - 1) * p.C : p.d_hidden_w + layer * p.C])
                    continue
                _copy(d_v[p.I :], work[p.d_reads_w : p.d_reads_w + p.R * p.M])
                if p.loss == 0:
                    step = (seed * p.T + t) * p.B + order[row]
                    d_inputs = _view(table, D_INPUTS, shared, p.S * p.T * p.B * p.I)
                    _copy(d_v, d_inputs[step * p.I : (step + 1) * p.I])
        pairs += active
    if pairs > 0:
        _flush(p, pairs, shared, d_parameters)
    for row in range(rows):
        if p.loss == 0:
            d_inputs = _view(table, D_INPUTS, shared, p.S * p.T * p.B * p.I)
            for t in range(lengths[row], p.T):
                step = (seed * p.T + t) * p.B + order[row]
                _fill_zero(d_inputs[step * p.I : (step + 1) * p.I])
        if table[D_STATE] != 0:
            _finish_back(p, table, seed * p.B + order[row], slots[row], works[row], shared)


def _run_python(sizes: Array, table: Array, clip: float, scratch: Array, seed: int, group: int) -> None:
    """Group `group` of seed `seed`: the one function that Python calls. `scratch` sets the type of all numbers."""
    p = Plan(*to_fixed_tuple(sizes, PLAN_SIZE))
    first = group * p.rows
    rows = min(p.rows, p.B - first)
    counts = np.empty(1, np.int64)
    all_lengths = _view(table, LENGTHS, counts, p.S * p.B)[seed * p.B : (seed + 1) * p.B]
    all_slots = _view(table, SLOTS, counts, p.S * p.B)[seed * p.B : (seed + 1) * p.B]
    order, lengths, slots = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    for i in range(rows):  # insertion sort, the longest first
        j = i
        length = all_lengths[first + i]
        while j > 0 and lengths[j - 1] < length:
            order[j], lengths[j] = order[j - 1], lengths[j - 1]
            j -= 1
        order[j], lengths[j] = first + i, length
    for i in range(rows):
        slots[i] = all_slots[order[i]]
    works = scratch[: p.rows * p.work].reshape(p.rows, p.work)
    shared = scratch[p.rows * p.work : p.rows * p.work + p.shared]
    at = p.rows * p.work + p.shared
    own = scratch[at:]
    if p.keep == 1:
        own = _view(table, KEPT, scratch, p.S * p.B * p.record)[(seed * p.B + first) * p.record :]
    records = own[: rows * p.record].reshape(rows, p.record)
    limit = scratch.dtype.type(clip)
    if p.forward == 1:
        _forward_group(p, limit, table, seed, order, lengths, slots, rows, records, works, shared)
    if p.backward == 1:
        _backward_group(p, limit, table, seed, group, order, lengths, slots, rows, records, works, shared)


# ---------------------------------------------------------------------------------------------------------------------
# Compilation


def _jit_run() -> Any:
    """`_run`, cached on disk where numba finds a folder that it may write to."""
    try:
        return numba.njit(fastmath=set(RELAXED), nogil=True, error_model="numpy", cache=True)(_run_python)
    except RuntimeError:  # "cannot cache function: no locator available"
        return numba.njit(fastmath=set(RELAXED), nogil=True, error_model="numpy")(_run_python)


_run = _jit_run()
_ready: set[torch.dtype] = set()
_compile_lock = threading.Lock()


class _Announcer(event.Listener):  # type: ignore[misc]
    """Says once that the kernel is being compiled; numba raises this event only if the cache did not have it."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] is _run:
            print(f"tapehead: compiling the CPU kernel, once; about {COMPILE_SECONDS} s", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        pass


COMPILE_SECONDS = 20


def _make_ready(dtype: torch.dtype) -> None:
    """Compiles the kernel for a type of numbers, or loads it from the cache."""
    with _compile_lock:
        if dtype in _ready:
            return
        real = numba.from_dtype(NUMPY_TYPES[dtype])[::1]
        integers = numba.int64[::1]
        signature = (integers, integers, numba.float64, real, numba.int64, numba.int64)
        with event.install_listener("numba:compile", _Announcer()):
            try:
                _run.compile(signature)
            except OSError:  # the folder of the cache cannot be written to after all; what was compiled is in memory
                _run.compile(signature)
        _ready.add(dtype)


NUMPY_TYPES = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}


# ---------------------------------------------------------------------------------------------------------------------
# Threads


class _Job:
    """Work items that any number of threads take in turn. Items are independent, so who takes which changes nothing."""

    def __init__(self, work: Callable[[tuple[int, int]], None], items: list[tuple[int, int]]) -> None:
        self._work = work
        self._items: Iterator[tuple[int, int]] = iter(items)
        self._lock = threading.Lock()
        self._left = len(items)
        self._done = threading.Event()
        self._error: BaseException | None = None

    def take_part(self) -> None:
        """Takes items until there are none left."""
        while True:
            with self._lock:
                item = next(self._items, None)
            if item is None:
                return
            try:
                self._work(item)
            except BaseException as error:
                self._error = error
            with self._lock:
                self._left -= 1
                if self._left == 0:
                    self._done.set()

    def finish(self) -> None:
        self._done.wait()
        if self._error is not None:
            raise self._error


class _Pool:
    """Threads that wait for jobs. They do not survive a fork; `_pool` makes new ones."""

    def __init__(self, threads: int) -> None:
        self.process, self.threads = os.getpid(), threads
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        for _ in range(threads - 1):  # the thread that brings a job takes part in it
            threading.Thread(target=self._serve, name="tapehead-scan", daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.take_part()

    def run(self, job: _Job) -> None:
        for _ in range(self.threads - 1):
            self._jobs.put(job)
        job.take_part()
        job.finish()

    def close(self) -> None:
        for _ in range(self.threads - 1):
            self._jobs.put(None)


_current_pool: _Pool | None = None
_pool_lock = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_pool_lock=threading.Lock(), _compile_lock=threading.Lock()))


def _pool(threads: int) -> _Pool:
    global _current_pool
    with _pool_lock:
        pool = _current_pool
        if pool is None or pool.process != os.getpid() or pool.threads != threads:
            if pool is not None and pool.process == os.getpid():
                pool.close()
            pool = _current_pool = _Pool(threads)
        return pool


_own = threading.local()


def _scratch(size: int, dtype: torch.dtype) -> Array:
    """This thread's working memory, kept from call to call."""
    buffers: dict[torch.dtype, Array] = _own.__dict__.setdefault("buffers", {})
    buffer = buffers.get(dtype)
    if buffer is None or buffer.size < size:
        buffer = buffers[dtype] = empty((size + size // 4,), dtype).numpy()
    elif POISON:
        buffer.fill(np.nan)
    return buffer


POISON = False  # tests set it: memory that nothing has written to then holds NaN


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """All memory of this module that starts without values comes from here."""
    return torch.full(shape, math.nan, dtype=dtype) if POISON else torch.empty(shape, dtype=dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Plans


def rows_per_group(batch: int) -> int:
    """How many sequences of a seed run in lockstep. It depends on nothing else, and so do the bits of the gradients."""
    return min(GROUP_ROWS, -(-batch // 4))


@functools.lru_cache(maxsize=512)
def _plan(spec: ScanSpec, seeds: int, steps: int, batch: int, slots: int, mode: str) -> tuple[Plan, Array]:
    """mode: forward (nothing kept), keep, trace (keep every memory), backward or train."""
    c, m, n, r, w = spec.controller_size, spec.memory_width, slots, spec.read_heads, spec.write_heads
    layers, heads, lstm = spec.controller_layers, r + w, spec.controller == "lstm"
    kept_steps = 2 if mode == "forward" else steps
    segment = 1 if mode == "trace" else SEGMENT
    back = mode in ("backward", "train")
    first_width, next_width = spec.input_size + r * m + c * lstm, c + c * lstm
    gates = 4 * c if lstm else c
    summary = c + r * m
    output_width = summary if spec.output_from == "hidden_and_reads" else c
    ask_read = m + 5 + 2 * spec.shift_range
    ask_write = ask_read + 2 * m + 1
    asks = r * ask_read + w * ask_write
    face, outs = spec.interface_size, spec.output_size
    first_p = gates * (first_width + 1)
    interface_p = first_p + (layers - 1) * gates * (next_width + 1)
    record = _record(spec, kept_steps, slots, 0 if mode == "forward" else segment)
    work = _Offsets(
        hidden_w=layers * c,
        reads_w=r * m,
        memory_w=m * n,
        d_memory_w=m * n * back,
        d_weighting_w=heads * n * back,
        d_hidden_w=layers * c * back,
        d_cell_w=layers * c * back,
        d_reads_w=r * m * back,
        replay_w=(segment + 1) * m * n * back,
        d_logits_w=outs * back,
        d_summary_w=summary * back,
        d_gates_w=gates * back,
        d_v_w=max(first_width, next_width) * back,
        d_raw_w=face * back,
    )
    pending = first_width + gates + (layers - 1) * (next_width + gates) + c + face + output_width + outs
    shared = _Offsets(
        raw_g=face,
        d_ask_g=ask_write,
        key_g=m,
        zeros_g=m,
        ring_g=n + 2 * spec.shift_range,
        d_ring_g=n + 2 * spec.shift_range,
        spare_g=n,
        logs_g=n,
        effective_g=w * n,
        d_effective_g=w * n,
        before_g=w * SLOT_BLOCK * back,
        after_g=SLOT_BLOCK * back,
        lanes_g=LANES,
        pending_g=PENDING * pending * back,
    )
    rows = rows_per_group(batch)
    plan = Plan(
        S=seeds,
        T=steps,
        B=batch,
        N=n,
        I=spec.input_size,
        O=outs,
        C=c,
        L=layers,
        R=r,
        W=w,
        M=m,
        r=spec.shift_range,
        P=spec.parameter_count,
        lstm=int(lstm),
        key_tanh=int(spec.key_activation == "tanh"),
        add_kind=("linear", "tanh", "sigmoid").index(spec.add_activation),
        soft_shift=int(spec.shift == "softmax"),
        read_after_write=int(spec.order == "write_then_read"),
        write_gate=int(spec.write_gate),
        clipped=int(spec.interface_clip is not None),
        forward=int(mode != "backward"),
        backward=int(back),
        loss=int(mode == "train"),
        keep=int(mode in ("keep", "trace", "backward")),
        segment=segment,
        time_mask=1 if mode == "forward" else -1,
        rows=rows,
        groups=-(-batch // rows) if rows else 0,
        first_width=first_width,
        next_width=next_width,
        gates=gates,
        summary=summary,
        output_width=output_width,
        F=face,
        raw_read=spec.addressing_size,
        raw_write=spec.write_size,
        ask_read=ask_read,
        ask_write=ask_write,
        asks=asks,
        interface_p=interface_p,
        output_p=interface_p + face * (c + 1),
        steps=kept_steps,
        record=record.size,
        work=work.size,
        shared=shared.size,
        **record.offsets,
        **work.offsets,
        **shared.offsets,
    )
    return plan, np.array(plan, dtype=np.int64)


class _Offsets:
    """Parts one after the other; each begins at a multiple of 64 bytes (of float32)."""

    def __init__(self, **sizes: int) -> None:
        self.offsets: dict[str, int] = {}
        self.size = 0
        for name, size in sizes.items():
            self.offsets[name] = self.size
            self.size += (size + 15) // 16 * 16


def _record(spec: ScanSpec, steps: int, slots: int, segment: int) -> _Offsets:
    """The parts of a row's record; segment 0 keeps no memories."""
    c, m, lstm, layers = spec.controller_size, spec.memory_width, spec.controller == "lstm", spec.controller_layers
    heads, reads = spec.read_heads + spec.write_heads, spec.read_heads * m
    asks = heads * (m + 5 + 2 * spec.shift_range) + spec.write_heads * (2 * m + 1)
    return _Offsets(
        v_at=(spec.input_size + reads + c * lstm + (layers - 1) * (c + c * lstm)) * steps,
        gates_at=layers * steps * (4 * c if lstm else c),
        tanh_at=layers * steps * c * lstm,
        cells_at=layers * (steps + 1) * c * lstm,
        summary_at=steps * (c + reads),
        raw_at=steps * spec.interface_size,
        ask_at=steps * asks,
        logits_at=steps * spec.output_size,
        similarity_at=steps * heads * slots,
        content_at=steps * heads * slots,
        weighting_at=(steps + 1) * heads * slots,
        norms_at=(steps + 1) * slots,
        memory_at=(steps + segment - 1) // segment * m * slots if segment else 0,
    )


def record_size(spec: ScanSpec, steps: int, slots: int) -> int:
    """Numbers that one sequence's record holds: the last dimension of `kept`."""
    return _record(spec, steps, slots, SEGMENT).size


# ---------------------------------------------------------------------------------------------------------------------
# The backend


def refusal(spec: ScanSpec, dtype: torch.dtype, device: torch.device) -> str | None:
    """None if this backend can run such a machine here, otherwise one sentence that says why not."""
    if device.type != "cpu":
        return f"The cpu backend runs on the CPU, but the tensors are on {device}."
    if dtype not in NUMPY_TYPES:
        return f"The cpu backend computes in float32 and float64, but the parameters are {dtype}."
    return None


def _dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _whole(tensor: Tensor) -> Tensor:
    return tensor.to(torch.int64).contiguous()


def _check_counts(lengths: Tensor, slots: Tensor, steps: int, tape: int) -> None:
    """The kernel does not check bounds, so what would break them is refused here."""
    if lengths.numel() == 0:
        return
    for name, counts, least, most in (("lengths", lengths, 0, steps), ("slots", slots, 1, tape)):
        low, high = (int(bound) for bound in torch.aminmax(counts))
        if low < least or high > most:
            wrong = low if low < least else high
            raise ValueError(f"{name} holds {wrong}, but must lie between {least} and {most}.")


def _execute(plan: Plan, sizes: Array, table: dict[int, Tensor], clip: float | None, dtype: torch.dtype) -> None:
    """Runs the kernel on every group of every seed. The tensors of `table` must be contiguous and stay alive."""
    if dtype not in _ready:
        _make_ready(dtype)
    addresses = np.zeros(TABLE_SIZE, np.int64)
    for index, tensor in table.items():
        addresses[index] = tensor.data_ptr()
    size = plan.rows * plan.work + plan.shared + (0 if plan.keep else plan.rows * plan.record)
    limit = math.inf if clip is None else clip

    def work(item: tuple[int, int]) -> None:
        _run(sizes, addresses, limit, _scratch(size, dtype), item[0], item[1])

    items = [(s, g) for s in range(plan.S) for g in range(plan.groups)]
    threads = min(torch.get_num_threads(), len(items))
    if threads <= 1:
        for item in items:
            work(item)
    else:
        _pool(torch.get_num_threads()).run(_Job(work, items))


def _with_state(table: dict[int, Tensor], first: int, state: ScanState) -> dict[int, Tensor]:
    for k, part in enumerate(state):
        table[first + k] = part
    return table


def _forward(
    spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, state: ScanState, mode: str
) -> tuple[Tensor, ScanState, Tensor, Plan]:
    seeds, steps, batch = inputs.shape[:3]
    tape, dtype = state.memory.shape[-2], parameters.dtype
    plan, sizes = _plan(spec, seeds, steps, batch, tape, mode)
    lengths, slots = _whole(lengths), _whole(slots)
    _check_counts(lengths, slots, steps, tape)
    outputs = empty((seeds, steps, batch, spec.output_size), dtype)
    final = ScanState(*(empty(tuple(part.shape), dtype) for part in state))
    kept = empty((seeds, batch, plan.record) if plan.keep else (0,), dtype)
    if not POISON:
        kept.zero_()  # some of it is never written; an operator's results must be the same every time
    table = {PARAMETERS: _dense(parameters), INPUTS: _dense(inputs), LENGTHS: lengths, SLOTS: slots}
    table.update({OUTPUTS: outputs, KEPT: kept})
    _with_state(table, STATE, ScanState(*map(_dense, state)))
    _execute(plan, sizes, _with_state(table, FINAL, final), spec.interface_clip, dtype)
    return outputs, final, kept, plan


def forward(
    spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, state: ScanState, keep: bool
) -> tuple[Tensor, ScanState, Tensor]:
    """Outputs, final state, and one opaque tensor for `backward` (empty unless `keep`)."""
    mode = "keep" if keep else "forward"
    return _forward(spec, parameters, inputs, lengths, slots, state, mode)[:3]


def backward(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    kept: Tensor,
    d_outputs: Tensor,
    d_final: ScanState,
) -> tuple[Tensor, Tensor, ScanState]:
    """Gradients of parameters, inputs and initial state. May be called again with the same `kept`."""
    seeds, steps, batch = inputs.shape[:3]
    dtype = parameters.dtype
    plan, sizes = _plan(spec, seeds, steps, batch, state.memory.shape[-2], "backward")
    d_parameters = empty((seeds, plan.groups, plan.P), dtype)
    d_inputs = empty(tuple(inputs.shape), dtype)
    d_state = ScanState(*(empty(tuple(part.shape), dtype) for part in state))
    table = {PARAMETERS: _dense(parameters), LENGTHS: _whole(lengths), SLOTS: _whole(slots), KEPT: _dense(kept)}
    table.update({D_OUTPUTS: _dense(d_outputs), D_PARAMETERS: d_parameters, D_INPUTS: d_inputs})
    _with_state(table, D_FINAL, ScanState(*map(_dense, d_final)))
    _execute(plan, sizes, _with_state(table, D_STATE, d_state), spec.interface_clip, dtype)
    return _add_groups(d_parameters), d_inputs, d_state


def _add_groups(d_parameters: Tensor) -> Tensor:
    """[S, groups, P] -> [S, P], always in the same order."""
    groups = d_parameters.shape[1]
    if groups == 0:
        return d_parameters.new_zeros(d_parameters.shape[0], d_parameters.shape[2])
    total = d_parameters[:, 0]
    for g in range(1, groups):
        total = total + d_parameters[:, g]
    return total


def loss_and_gradient(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    targets: Tensor,
    mask: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    state_gradient: bool,
) -> tuple[Tensor, Tensor, ScanState | None]:
    """One training step without autograd: costs [S, B], gradients [S, P] of the mean costs and of the initial state."""
    seeds, steps, batch = inputs.shape[:3]
    tape, dtype = state.memory.shape[-2], parameters.dtype
    plan, sizes = _plan(spec, seeds, steps, batch, tape, "train")
    lengths, slots = _whole(lengths), _whole(slots)
    _check_counts(lengths, slots, steps, tape)
    costs = empty((seeds, batch), dtype)
    d_parameters = empty((seeds, plan.groups, plan.P), dtype)
    table = {PARAMETERS: _dense(parameters), INPUTS: _dense(inputs), LENGTHS: lengths, SLOTS: slots}
    table.update({TARGETS: _dense(targets.to(dtype)), MASK: _dense(mask.to(dtype))})
    table.update({COSTS: costs, D_PARAMETERS: d_parameters})
    _with_state(table, STATE, ScanState(*map(_dense, state)))
    d_state = None
    if state_gradient:
        d_state = ScanState(*map(torch.zeros_like, state))
        _with_state(table, D_STATE, d_state)
    _execute(plan, sizes, table, spec.interface_clip, dtype)
    return costs, _add_groups(d_parameters), d_state


def trace(
    spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, state: ScanState
) -> tuple[Tensor, ScanState, Trace]:
    """Outputs, final state and trace, without gradients: the record of a forward pass that keeps every memory."""
    outputs, final, kept, plan = _forward(spec, parameters, inputs, lengths, slots, state, "trace")
    columns = []
    for s in range(plan.S):
        rows: list[Trace] = []
        for first in range(0, plan.B, plan.rows):
            order = sorted(range(first, min(first + plan.rows, plan.B)), key=lambda b: -int(lengths[s, b]))
            place = {b: first + k for k, b in enumerate(order)}  # the kernel keeps the longest sequence's record first
            for b in sorted(order):
                record = kept[s, place[b]]
                rows.append(_trace_row(plan, record, int(lengths[s, b]), int(slots[s, b]), final.memory[s, b]))
        columns.append(_stack(rows, 1))
    return outputs, final, _stack(columns, 0)


def _trace_row(plan: Plan, record: Tensor, length: int, n: int, final: Tensor) -> Trace:
    """One sequence's trace, [T, ...]; what lies beyond its length and its slots is zero."""
    p, steps, heads = plan, plan.T, plan.R + plan.W

    def part(at: int, *shape: int) -> Tensor:
        return record[at : at + math.prod(shape)].reshape(shape)

    def whole(values: Tensor, slot_axis: int | None = None) -> Tensor:
        """`length` steps and `n` slots of values, in tensors of zeros for all steps and the whole tape."""
        shape = [steps, *values.shape[1:]]
        if slot_axis is not None:
            shape[slot_axis] = p.N
            values = values.narrow(slot_axis, 0, n)
        padded = values.new_zeros(shape)
        target = padded if slot_axis is None else padded.narrow(slot_axis, 0, n)
        target[:length] = values[:length]
        return padded

    asks = part(p.ask_at, steps, p.asks)
    content = part(p.content_at, steps, heads, p.N)[..., :n]
    weightings = part(p.weighting_at, steps + 1, heads, p.N)[..., :n]
    split = p.R * p.ask_read

    def head_trace(ask: Tensor, first: int, last: int) -> HeadTrace:
        """ask [T, H, ...]; the stages between content and weighting are not recorded but follow from the two."""
        m = p.M
        key, strength, gate, gamma = ask[..., :m], ask[..., m], ask[..., m + 1], ask[..., m + 2]
        shifts = ask[..., m + 4 : m + 5 + 2 * p.r]
        chosen = content[:, first:last]
        interpolated = equations.interpolate(gate, chosen, weightings[:-1, first:last])
        shifted = equations.shift(interpolated, shifts)
        stages = (chosen, interpolated, shifted, weightings[1:, first:last])
        return HeadTrace(*map(whole, (key, strength, gate, shifts, gamma)), *(whole(x, 2) for x in stages))

    writing = asks[:, split:].reshape(steps, p.W, p.ask_write)
    memories = torch.empty(steps, n, p.M, dtype=record.dtype)
    memories[:-1] = part(p.memory_at, steps, p.M * p.N)[1:, : p.M * n].reshape(steps - 1, p.M, n).transpose(1, 2)
    if length > 0:
        memories[length - 1] = final[:n]
    summary = part(p.summary_at, steps, p.summary)
    return Trace(
        read=head_trace(asks[:, :split].reshape(steps, p.R, p.ask_read), 0, p.R),
        write=head_trace(writing, p.R, heads),
        erase=whole(writing[..., p.ask_read : p.ask_read + p.M]),
        add=whole(writing[..., p.ask_read + p.M : p.ask_read + 2 * p.M]),
        write_gates=whole(writing[..., p.ask_read + 2 * p.M]),
        memory=whole(memories, 1),
        reads=whole(summary[:, p.C :].reshape(steps, p.R, p.M)),
        hidden=whole(summary[:, : p.C]),
    )


def _stack(traces: list[Trace], axis: int) -> Trace:
    heads = [HeadTrace(*(torch.stack(parts, axis) for parts in zip(*(t[k] for t in traces), strict=True))) for k in (0, 1)]
    rest = (torch.stack(parts, axis) for parts in zip(*(t[2:] for t in traces), strict=True))
    return Trace(heads[0], heads[1], *rest)
