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
import numba.np.arrayobj
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


# Division by zero gives infinity or NaN; numba's other model tests every divisor, and loops with such tests do not
# vectorise. Python calls only the two entries, so no other function needs wrappers for it: they double the compile time.
OPTIONS: dict[str, Any] = dict(fastmath=set(RELAXED), error_model="numpy", nogil=True, _nrt=False)
INNER: dict[str, Any] = dict(**OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def compiled(function: Function) -> Function:
    """Part of the kernel; compiled when `_run_forward` or `_run_backward` is."""
    result: Function = numba.njit(**INNER)(function)
    return result


def inlined(function: Function) -> Function:
    result: Function = numba.njit(**INNER, inline="always")(function)
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
def _array_at(context: Any, address: Any, like: Any, size: Any) -> Any:
    """The `size` numbers that stand at an address, as an array of the type of `like`. Nobody counts references to it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = builder.inttoptr(arguments[0], context.get_data_type(like.dtype).as_pointer())
        item = context.get_constant(numba.types.intp, context.get_abi_sizeof(context.get_data_type(like.dtype)))
        array = context.make_array(like)(context, builder)
        numba.np.arrayobj.populate_array(
            array, data=data, shape=[arguments[2]], strides=[item], itemsize=item, meminfo=None
        )
        return array._getvalue()

    return like(address, like, numba.types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def _part(context: Any, array: Any, start: Any, size: Any) -> Any:
    """array[start : start + size], unchecked: six instructions, where a slice of Python's rules takes forty."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = context.make_array(array)(context, builder, arguments[0])
        part = context.make_array(array)(context, builder)
        data = builder.gep(whole.data, [arguments[1]])
        item = whole.itemsize
        numba.np.arrayobj.populate_array(
            part, data=data, shape=[arguments[2]], strides=[item], itemsize=item, meminfo=None
        )
        return part._getvalue()

    return array(array, numba.types.intp, numba.types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def _apart(context: Any) -> Any:
    """Keeps LLVM from copying the function that calls this into its callers, each time to be optimised anew."""

    def generate(context: Any, builder: Any, __: Any, ___: Any) -> Any:
        builder.function.attributes.add("noinline")
        # LLVM prefers half the width that some processors have. llvmlite knows only attributes without a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return numba.types.none(), generate


# No reordering here: exp adds and subtracts 1.5 * 2^23 to round to an integer.
EXACT = {**INNER, "fastmath": {"contract"}, "forceinline": True}
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
    _apart()
    for i in range(target.size):
        target[i] = source[i]


@compiled
def _fill_zero(x: Array) -> None:
    _apart()
    zero = x.dtype.type(0)
    for i in range(x.size):
        x[i] = zero


@compiled
def _add(source: Array, target: Array) -> None:
    _apart()
    for i in range(target.size):
        target[i] += source[i]


@compiled
def _tanh_all(source: Array, target: Array) -> None:
    _apart()
    for i in range(target.size):
        target[i] = tanh(source[i])


@compiled
def _sigmoid_all(source: Array, target: Array) -> None:
    _apart()
    one = target.dtype.type(1)
    for i in range(target.size):
        target[i] = _sigmoid(source[i], one)


@compiled
def _largest(x: Array, lanes: Array) -> Any:
    """The maximum. Sixteen maxima side by side vectorise without assuming, as LLVM would, that there is no NaN."""
    _apart()
    top = x[0]
    whole = x.size // LANES * LANES
    if whole > 0:
        for j in range(LANES):
            lanes[j] = x[j]
        for i in range(LANES, whole, LANES):
            part = _part(x, i, LANES)
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
    _apart()
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
# Matrix products. A weight is packed as [outs, stride]: a row holds the bias beside the weights and zeros up to a multiple
# of sixteen numbers, the input a one in that place; there are zero rows up to a multiple of eight. So loops have no ends
# to tidy up, rows begin at cache lines, and the bias needs no code of its own.


@compiled
def _pack(weight: Array, bias: Array, width: int, outs: int, split: int, skip: int, stride: int, packed: Array) -> None:
    """Rows [w_0 .. w_split, bias, zeros up to `skip`, the other weights, zeros]."""
    _apart()
    _fill_zero(packed)
    for o in range(outs):
        row = _part(packed, o * stride, (o + 1) * stride - o * stride)
        own = _part(weight, o * width, (o + 1) * width - o * width)
        _copy(own, _part(row, 0, split))
        row[split] = bias[o]
        _copy(_part(own, split, own.size - split), _part(row, skip, skip + width - split - skip))


@compiled
def _unpack(
    packed: Array, width: int, outs: int, split: int, skip: int, stride: int, weight: Array, bias: Array
) -> None:
    _apart()
    for o in range(outs):
        row = _part(packed, o * stride, (o + 1) * stride - o * stride)
        own = _part(weight, o * width, (o + 1) * width - o * width)
        _copy(row, _part(own, 0, split))
        bias[o] = row[split]
        _copy(_part(row, skip, row.size - skip), _part(own, split, own.size - split))


@compiled
def _linear(weight: Array, stride: int, outs: int, x: Array, x_at: int, y_at: int, row_size: int, rows: int) -> None:
    """y = W x for every row; both stand in x. Eight outputs at a time: their weights stay in the first cache for all rows."""
    _apart()
    zero = x.dtype.type(0)
    for o in range(0, outs, 8):
        w = _part(weight, o * stride, (o + 8) * stride - o * stride)
        w0, w1, w2, w3 = (
            _part(w, 0, stride),
            _part(w, stride, 2 * stride - stride),
            _part(w, 2 * stride, 3 * stride - 2 * stride),
            _part(w, 3 * stride, 4 * stride - 3 * stride),
        )
        w4, w5 = _part(w, 4 * stride, 5 * stride - 4 * stride), _part(w, 5 * stride, 6 * stride - 5 * stride)
        w6, w7 = _part(w, 6 * stride, 7 * stride - 6 * stride), _part(w, 7 * stride, 8 * stride - 7 * stride)
        for row in range(rows):
            v = _part(x, row * row_size + x_at, stride)
            a0, a1, a2, a3, a4, a5, a6, a7 = zero, zero, zero, zero, zero, zero, zero, zero
            for j in range(stride):
                z = v[j]
                a0 += w0[j] * z
                a1 += w1[j] * z
                a2 += w2[j] * z
                a3 += w3[j] * z
                a4 += w4[j] * z
                a5 += w5[j] * z
                a6 += w6[j] * z
                a7 += w7[j] * z
            out = _part(x, row * row_size + y_at + o, 8)
            out[0], out[1], out[2], out[3] = a0, a1, a2, a3
            out[4], out[5], out[6], out[7] = a4, a5, a6, a7


@compiled
def _linear_back(
    weight: Array, stride: int, outs: int, d: Array, d_y_at: int, d_x_at: int, row_size: int, rows: int
) -> None:
    """d_x = W' d_y for every row; both stand in d. Eight outputs at a time."""
    _apart()
    for row in range(rows):
        _fill_zero(_part(d, row * row_size + d_x_at, stride))
    for o in range(0, outs, 8):
        w = _part(weight, o * stride, (o + 8) * stride - o * stride)
        w0, w1, w2, w3 = (
            _part(w, 0, stride),
            _part(w, stride, 2 * stride - stride),
            _part(w, 2 * stride, 3 * stride - 2 * stride),
            _part(w, 3 * stride, 4 * stride - 3 * stride),
        )
        w4, w5 = _part(w, 4 * stride, 5 * stride - 4 * stride), _part(w, 5 * stride, 6 * stride - 5 * stride)
        w6, w7 = _part(w, 6 * stride, 7 * stride - 6 * stride), _part(w, 7 * stride, 8 * stride - 7 * stride)
        for row in range(rows):
            g = _part(d, row * row_size + d_y_at + o, 8)
            d0, d1, d2, d3, d4, d5, d6, d7 = g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]
            out = _part(d, row * row_size + d_x_at, stride)
            for j in range(stride):
                a = d0 * w0[j] + d1 * w1[j] + d2 * w2[j] + d3 * w3[j]
                out[j] += a + (d4 * w4[j] + d5 * w5[j] + d6 * w6[j] + d7 * w7[j])


@compiled
def _outer_add(d_y: Array, x: Array, pairs: int, stride: int, outs: int, d_weight: Array) -> None:
    """d_W += sum of d_y x' over pairs (a multiple of eight, zeros at the end), two rows and eight pairs at a time."""
    _apart()
    for o0 in range(0, outs, OUTER_BLOCK):
        o1 = min(o0 + OUTER_BLOCK, outs)
        for p in range(0, pairs, 8):
            v = _part(x, p * stride, (p + 8) * stride - p * stride)
            x0, x1, x2, x3 = (
                _part(v, 0, stride),
                _part(v, stride, 2 * stride - stride),
                _part(v, 2 * stride, 3 * stride - 2 * stride),
                _part(v, 3 * stride, 4 * stride - 3 * stride),
            )
            x4, x5 = _part(v, 4 * stride, 5 * stride - 4 * stride), _part(v, 5 * stride, 6 * stride - 5 * stride)
            x6, x7 = _part(v, 6 * stride, 7 * stride - 6 * stride), _part(v, 7 * stride, 8 * stride - 7 * stride)
            d = _part(d_y, p * outs, (p + 8) * outs - p * outs)
            for o in range(o0, o1, 2):
                a0, a1, a2, a3 = d[o], d[outs + o], d[2 * outs + o], d[3 * outs + o]
                a4, a5, a6, a7 = d[4 * outs + o], d[5 * outs + o], d[6 * outs + o], d[7 * outs + o]
                q = o + 1
                b0, b1, b2, b3 = d[q], d[outs + q], d[2 * outs + q], d[3 * outs + q]
                b4, b5, b6, b7 = d[4 * outs + q], d[5 * outs + q], d[6 * outs + q], d[7 * outs + q]
                out_a = _part(d_weight, o * stride, (o + 1) * stride - o * stride)
                out_b = _part(d_weight, q * stride, (q + 1) * stride - q * stride)
                for j in range(stride):
                    a = a0 * x0[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j]
                    out_a[j] += a + (a4 * x4[j] + a5 * x5[j] + a6 * x6[j] + a7 * x7[j])
                    b = b0 * x0[j] + b1 * x1[j] + b2 * x2[j] + b3 * x3[j]
                    out_b[j] += b + (b4 * x4[j] + b5 * x5[j] + b6 * x6[j] + b7 * x7[j])


@compiled
def _lstm_cell(gates: Array, cell: Array, new_cell: Array, tanh_cell: Array, hidden: Array) -> None:
    """Gates input, forget, candidate, output: pre-activations in, activations out."""
    _apart()
    size = cell.size
    one = cell.dtype.type(1)
    i, f, g, o = (
        _part(gates, 0, size),
        _part(gates, size, 2 * size - size),
        _part(gates, 2 * size, 3 * size - 2 * size),
        _part(gates, 3 * size, 4 * size - 3 * size),
    )
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
    _apart()
    size = cell.size
    one = cell.dtype.type(1)
    i, f, g, o = (
        _part(gates, 0, size),
        _part(gates, size, 2 * size - size),
        _part(gates, 2 * size, 3 * size - 2 * size),
        _part(gates, 3 * size, 4 * size - 3 * size),
    )
    d_i, d_f = _part(d_gates, 0, size), _part(d_gates, size, 2 * size - size)
    d_g, d_o = _part(d_gates, 2 * size, 3 * size - 2 * size), _part(d_gates, 3 * size, 4 * size - 3 * size)
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
    _apart()
    width = coefficients.size
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        out = _part(target, n0, n1 - n0)
        m = 0
        while m + 4 <= width:
            x0 = _part(memory, (m + 0) * n + n0, (m + 0) * n + n1 - ((m + 0) * n + n0))
            x1 = _part(memory, (m + 1) * n + n0, (m + 1) * n + n1 - ((m + 1) * n + n0))
            x2 = _part(memory, (m + 2) * n + n0, (m + 2) * n + n1 - ((m + 2) * n + n0))
            x3 = _part(memory, (m + 3) * n + n0, (m + 3) * n + n1 - ((m + 3) * n + n0))
            c0, c1, c2, c3 = coefficients[m], coefficients[m + 1], coefficients[m + 2], coefficients[m + 3]
            for i in range(out.size):
                out[i] += c0 * x0[i] + c1 * x1[i] + c2 * x2[i] + c3 * x3[i]
            m += 4
        while m < width:
            x0 = _part(memory, m * n + n0, m * n + n1 - (m * n + n0))
            c0 = coefficients[m]
            for i in range(out.size):
                out[i] += c0 * x0[i]
            m += 1


@compiled
def _weigh_slots(weighting: Array, memory: Array, n: int, target: Array) -> None:
    """Eq. 2: target_m = sum_i w(i) M_m(i)."""
    _apart()
    width = target.size
    zero = target.dtype.type(0)
    _fill_zero(target)
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        w = _part(weighting, n0, n1 - n0)
        m = 0
        while m + 4 <= width:
            x0 = _part(memory, (m + 0) * n + n0, (m + 0) * n + n1 - ((m + 0) * n + n0))
            x1 = _part(memory, (m + 1) * n + n0, (m + 1) * n + n1 - ((m + 1) * n + n0))
            x2 = _part(memory, (m + 2) * n + n0, (m + 2) * n + n1 - ((m + 2) * n + n0))
            x3 = _part(memory, (m + 3) * n + n0, (m + 3) * n + n1 - ((m + 3) * n + n0))
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
            x0 = _part(memory, m * n + n0, m * n + n1 - (m * n + n0))
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
    _apart()
    one = squares.dtype.type(1)
    zero = squares.dtype.type(0)
    huge = zero
    for i in range(squares.size):
        huge += one if squares[i] > limit else zero
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
    _apart()
    _fill_zero(inverse_norms)
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        squares = _part(inverse_norms, n0, n1 - n0)
        for m in range(width):
            x = _part(memory, m * n + n0, m * n + n1 - (m * n + n0))
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
    _apart()
    one = memory.dtype.type(1)
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        squares = _part(inverse_norms, n0, n1 - n0)
        _fill_zero(squares)
        for m in range(width):
            x = _part(memory, m * n + n0, m * n + n1 - (m * n + n0))
            if heads == 1:
                w = _part(weightings, n0, n1 - n0)
                e, a = asks[erase_at + m], asks[erase_at + width + m]
                for i in range(w.size):
                    y = x[i] * (one - w[i] * e) + w[i] * a
                    x[i] = y
                    squares[i] += y * y
            else:
                for h in range(heads):
                    w = _part(weightings, h * stride + n0, h * stride + n1 - (h * stride + n0))
                    e = asks[h * ask_size + erase_at + m]
                    for i in range(w.size):
                        x[i] *= one - w[i] * e
                for h in range(heads):
                    w = _part(weightings, h * stride + n0, h * stride + n1 - (h * stride + n0))
                    a = asks[h * ask_size + erase_at + width + m]
                    for i in range(w.size):
                        x[i] += w[i] * a
                for i in range(x.size):
                    squares[i] += x[i] * x[i]
        _invert_norms(squares, memory, n, n0, width, limit, epsilon)


@compiled
def _write_back_one(
    memory: Array,
    d_memory: Array,
    n: int,
    weighting: Array,
    d_weighting: Array,
    erase: Array,
    add: Array,
    d_erase: Array,
    d_add: Array,
) -> None:
    """`_write_back` for one head, which is the usual number."""
    _apart()
    zero, one = memory.dtype.type(0), memory.dtype.type(1)
    _fill_zero(d_erase)
    _fill_zero(d_add)
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        w, d_w = _part(weighting, n0, n1 - n0), _part(d_weighting, n0, n1 - n0)
        for m in range(erase.size):
            x = _part(memory, m * n + n0, m * n + n1 - (m * n + n0))
            d = _part(d_memory, m * n + n0, m * n + n1 - (m * n + n0))
            e, a = erase[m], add[m]
            d_e, d_a = zero, zero
            for i in range(w.size):
                g = d[i]
                z = g * x[i]
                d_w[i] += g * a - z * e
                d_a += g * w[i]
                d_e += z * w[i]
                d[i] = g - g * w[i] * e
            d_erase[m] -= d_e
            d_add[m] += d_a


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
    _apart()
    zero, one = memory.dtype.type(0), memory.dtype.type(1)
    for h in range(heads):
        _fill_zero(_part(d_asks, h * d_ask_size + d_erase_at, 2 * width))
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        for m in range(width):
            x = _part(memory, m * n + n0, m * n + n1 - (m * n + n0))
            d = _part(d_memory, m * n + n0, m * n + n1 - (m * n + n0))
            # before_h = M prod_{k<h} (1 - w_k e_k), after = prod_{k>h} (1 - w_k e_k): no division, 1 - w e may be zero
            factor = _part(after, 0, n1 - n0)
            for i in range(x.size):
                before[i] = x[i]
                factor[i] = one
            for h in range(heads - 1):
                w = _part(weightings, h * stride + n0, h * stride + n1 - (h * stride + n0))
                e = asks[h * ask_size + erase_at + m]
                source = _part(before, h * SLOT_BLOCK, x.size)
                target = _part(before, (h + 1) * SLOT_BLOCK, x.size)
                for i in range(x.size):
                    target[i] = source[i] * (one - w[i] * e)
            for h in range(heads - 1, -1, -1):
                w = _part(weightings, h * stride + n0, h * stride + n1 - (h * stride + n0))
                d_w = _part(d_weightings, h * stride + n0, h * stride + n1 - (h * stride + n0))
                e, a = asks[h * ask_size + erase_at + m], asks[h * ask_size + erase_at + width + m]
                source = _part(before, h * SLOT_BLOCK, x.size)
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
    _apart()
    width = key.size
    zero = memory.dtype.type(0)
    _fill_zero(sums)
    for n0 in range(0, n, SLOT_BLOCK):
        n1 = min(n0 + SLOT_BLOCK, n)
        p, q, w = _part(alpha, n0, n1 - n0), _part(delta, n0, n1 - n0), _part(weighting, n0, n1 - n0)
        m = 0
        while m + 2 <= width:
            x0, d0 = (
                _part(memory, m * n + n0, m * n + n1 - (m * n + n0)),
                _part(d_memory, m * n + n0, m * n + n1 - (m * n + n0)),
            )
            k0, g0, k1, g1 = key[m], d_read[m], key[m + 1], d_read[m + 1]
            m += 1
            x1, d1 = (
                _part(memory, m * n + n0, m * n + n1 - (m * n + n0)),
                _part(d_memory, m * n + n0, m * n + n1 - (m * n + n0)),
            )
            m += 1
            a0, a1 = zero, zero
            for i in range(p.size):
                a0 += p[i] * x0[i]
                a1 += p[i] * x1[i]
                d0[i] += p[i] * k0 + q[i] * x0[i] + w[i] * g0
                d1[i] += p[i] * k1 + q[i] * x1[i] + w[i] * g1
            sums[m - 2] += a0
            sums[m - 1] += a1
        if m < width:
            x0, d0 = (
                _part(memory, m * n + n0, m * n + n1 - (m * n + n0)),
                _part(d_memory, m * n + n0, m * n + n1 - (m * n + n0)),
            )
            k0, g0 = key[m], d_read[m]
            a0 = zero
            for i in range(p.size):
                a0 += p[i] * x0[i]
                d0[i] += p[i] * k0 + q[i] * x0[i] + w[i] * g0
            sums[m] += a0


# ---------------------------------------------------------------------------------------------------------------------
# Addressing, Eqs. 5 to 9. `ask` holds what one head asks for, after the activations:
#   key [M], strength, gate, sharpening, 1 / |key|, shift weights [2r+1]; a write head's goes on with
#   erase [M], add [M], write gate.
# `ring` is a weighting with r more slots on either side, so that the circular shift is a plain sum.


@compiled
def _close_ring(ring: Array, n: int, r: int) -> None:
    _apart()
    for i in range(r):
        ring[i] = ring[r + (i - r) % n]
        ring[r + n + i] = ring[r + i % n]


@compiled
def _shift(ring: Array, shifts: Array, backwards: bool, target: Array) -> None:
    """Eq. 8: target(i) = sum_j s_j w(i - (j - r)); backwards, its transpose, target(i) = sum_j s_j w(i + (j - r))."""
    _apart()
    taps = shifts.size
    n = target.size
    if taps == 3:
        a, b = (shifts[0], shifts[2]) if backwards else (shifts[2], shifts[0])
        c = shifts[1]
        w0, w1, w2 = _part(ring, 0, n), _part(ring, 1, n), _part(ring, 2, n)
        for i in range(n):
            target[i] = a * w0[i] + c * w1[i] + b * w2[i]
        return
    _fill_zero(target)
    for j in range(taps):
        at = j if backwards else taps - 1 - j
        s = shifts[j]
        w0 = _part(ring, at, n)
        for i in range(n):
            target[i] += s * w0[i]


@compiled
def _interpolate(gate: Any, content: Array, previous: Array, ring: Array) -> None:
    """Eq. 7, into the middle of the ring."""
    _apart()
    rest = content.dtype.type(1) - gate
    for i in range(content.size):
        ring[i] = gate * content[i] + rest * previous[i]


@compiled
def _log_all(x: Array, epsilon: Any, target: Array) -> None:
    _apart()
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
    _apart()
    beta, gate, gamma, inverse = ask[width], ask[width + 1], ask[width + 2], ask[width + 3]
    for m in range(width):
        key[m] = ask[m] * inverse
    _fill_zero(similarity)
    _weigh_rows(key, memory, n, similarity)
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    huge = zero
    for i in range(n):
        huge += one if inverse_norms[i] < tiny else zero
        similarity[i] *= inverse_norms[i]
    if huge > 0:  # products of huge entries overflow: multiply by the inverse norm first
        for i in range(n):
            if inverse_norms[i] < tiny:
                similarity[i] = ask.dtype.type(0)
                for m in range(width):
                    similarity[i] += key[m] * (memory[m * n + i] * inverse_norms[i])
    _softmax(similarity, beta, content, lanes)  # Eq. 5
    _interpolate(gate, content, previous, _part(ring, r, n))
    _close_ring(ring, n, r)
    _shift(ring, _part(ask, width + 4, width + 5 + 2 * r - (width + 4)), False, spare)
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
    _apart()
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    beta, gate, gamma, inverse = ask[width], ask[width + 1], ask[width + 2], ask[width + 3]
    shifts, d_shifts = (
        _part(ask, width + 4, width + 5 + 2 * r - (width + 4)),
        _part(d_ask, width + 4, width + 5 + 2 * r - (width + 4)),
    )
    taps = shifts.size
    _interpolate(gate, content, previous, _part(ring, r, n))
    _close_ring(ring, n, r)
    _shift(ring, shifts, False, spare)
    _log_all(spare, floor, logs)

    # Eq. 9: with u = log(w~ + floor), w = softmax(gamma u)
    mean, mean_log = zero, zero
    for i in range(n):
        mean += weighting[i] * d_weighting[i]
        mean_log += weighting[i] * logs[i]
    d_gamma = zero
    d_shifted = _part(d_ring, r, n)
    for i in range(n):
        d_z = weighting[i] * (d_weighting[i] - mean)
        d_gamma += d_z * (
            logs[i] - mean_log
        )  # the d_z sum to zero: subtracting a constant costs no truth, saves digits
        d_shifted[i] = gamma * d_z / (spare[i] + floor)

    # Eq. 8
    for j in range(taps):
        w = _part(ring, taps - 1 - j, n)
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
    sums = _part(d_ask, 0, width)
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
    first_stride: int  # the same packed
    next_stride: int
    gates: int  # rows of a controller weight
    gates_stride: int
    hidden_stride: int  # [hidden; 1]
    summary: int  # [hidden; 1; reads], packed
    output_width: int  # without the one; what the output layer sees
    output_stride: int
    logits_stride: int
    F: int  # interface
    F_stride: int
    raw_read: int  # interface entries of a read head
    raw_write: int
    ask_read: int  # the same after activations, see "Addressing"
    ask_write: int
    asks: int
    # parameters
    interface_p: int
    output_p: int
    # record of a row: what the backward pass needs
    v_at: int  # [T, stride] for each layer: controller inputs
    gates_at: int  # [L, T, gates_stride], activations
    tanh_at: int  # [L, T, C], tanh of the cells
    cells_at: int  # [L, T + 1, C]
    summary_at: int  # [T, summary]
    raw_at: int  # [T, F_stride], interface before the clip
    ask_at: int  # [T, asks]
    logits_at: int  # [T, logits_stride]; when training, their gradients
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
    packed_g: int  # weights of layers, interface, output
    d_packed_g: int  # their gradients
    pending_g: int  # for each of them inputs [PENDING, stride], then gradients [PENDING, outs]
    shared: int  # size


PLAN_SIZE = len(Plan._fields)


# The tensors cross into the kernel as a table of addresses: unpacking some forty arrays would take longer than a step.
(PARAMETERS, INPUTS, LENGTHS, SLOTS, OUTPUTS, D_OUTPUTS, D_PARAMETERS, D_INPUTS, TARGETS, MASK, COSTS, KEPT) = range(12)
STATE, FINAL, D_FINAL, D_STATE = 12, 18, 24, 30  # six addresses each, in the order of ScanState
TABLE_SIZE = 36


class Matrix(NamedTuple):
    """Where a weight matrix and its pending outer products stand."""

    width: int
    outs: int
    split: int  # the bias stands after this many columns
    skip: int  # and the rest of the columns from here on
    stride: int
    outs_stride: int
    at: int  # among the parameters
    packed: int
    pending: int


@inlined
def _matrix(p: Plan, k: int) -> Matrix:
    """Matrix k: the controller's layers, the interface, the output."""
    if k == 0:
        stride = p.first_stride
        return Matrix(p.first_width, p.gates, p.first_width, stride, stride, p.gates_stride, 0, 0, 0)
    at, before = p.gates * (p.first_width + 1), p.first_stride
    stride = p.next_stride
    layers = min(k, p.L) - 1
    at += layers * p.gates * (p.next_width + 1)
    packed = (before + layers * stride) * p.gates_stride
    pending = PENDING * (before + layers * stride + (layers + 1) * p.gates_stride)
    if k < p.L:
        return Matrix(p.next_width, p.gates, p.next_width, stride, stride, p.gates_stride, at, packed, pending)
    if k == p.L:
        stride = p.hidden_stride
        return Matrix(p.C, p.F, p.C, stride, stride, p.F_stride, p.interface_p, packed, pending)
    packed += p.hidden_stride * p.F_stride
    pending += PENDING * (p.hidden_stride + p.F_stride)
    stride = p.output_stride
    return Matrix(p.output_width, p.O, p.C, p.hidden_stride, stride, p.logits_stride, p.output_p, packed, pending)


@compiled
def _pack_all(p: Plan, parameters: Array, shared: Array) -> None:
    for k in range(p.L + 2):
        w = _matrix(p, k)
        bias = w.at + w.outs * w.width
        to = p.packed_g + w.packed
        _pack(
            _part(parameters, w.at, bias - w.at),
            _part(parameters, bias, w.outs),
            w.width,
            w.outs,
            w.split,
            w.skip,
            w.stride,
            _part(shared, to, w.outs_stride * w.stride),
        )


@compiled
def _unpack_all(p: Plan, shared: Array, d_parameters: Array) -> None:
    for k in range(p.L + 2):
        w = _matrix(p, k)
        bias = w.at + w.outs * w.width
        at = p.d_packed_g + w.packed
        _unpack(
            _part(shared, at, w.outs * w.stride),
            w.width,
            w.outs,
            w.split,
            w.skip,
            w.stride,
            _part(d_parameters, w.at, bias - w.at),
            _part(d_parameters, bias, w.outs),
        )


@inlined
def _apply(p: Plan, k: int, shared: Array, records: Array, x_at: int, y_at: int, rows: int) -> None:
    w = _matrix(p, k)
    at = p.packed_g + w.packed
    weight = _part(shared, at, w.outs_stride * w.stride)
    _linear(weight, w.stride, w.outs_stride, records, x_at, y_at, p.record, rows)


@inlined
def _apply_back(p: Plan, k: int, shared: Array, works: Array, d_y_at: int, d_x_at: int, rows: int) -> None:
    w = _matrix(p, k)
    at = p.packed_g + w.packed
    weight = _part(shared, at, w.outs_stride * w.stride)
    _linear_back(weight, w.stride, w.outs_stride, works, d_y_at, d_x_at, p.work, rows)


@inlined
def _input_at(p: Plan, layer: int, t: int) -> int:
    """Where a layer's input of step t stands in a record."""
    if layer == 0:
        return p.v_at + t * p.first_stride
    return p.v_at + (p.first_stride + (layer - 1) * p.next_stride) * p.steps + t * p.next_stride


@compiled
def _set_one(x: Array, at: int) -> None:
    """The input's one for the bias, and zeros behind it."""
    _fill_zero(_part(x, at, x.size - at))
    x[at] = x.dtype.type(1)


# ---------------------------------------------------------------------------------------------------------------------
# States in and out


@compiled
def _load_tape(source: Array, n: int, width: int, target: Array) -> None:
    """[N, M] -> [M, n]"""
    _apart()
    for m in range(width):
        row = _part(target, m * n, (m + 1) * n - m * n)
        for i in range(n):
            row[i] = source[i * width + m]


@compiled
def _store_tape(source: Array, n: int, width: int, target: Array) -> None:
    """[M, n] -> [N, M]"""
    _apart()
    for i in range(n):
        row = _part(target, i * width, (i + 1) * width - i * width)
        for m in range(width):
            row[m] = source[m * n + i]


@compiled
def _load_state(
    p: Plan,
    table: Array,
    first: int,
    at: int,
    n: int,
    like: Array,
    memory: Array,
    weightings: Array,
    reads: Array,
    hidden: Array,
) -> None:
    """One row's part `at` = s * B + b of a state (or of its gradient), all but the cell."""
    memories = _array_at(table[first], like, p.S * p.B * p.N * p.M)
    _load_tape(_part(memories, at * p.N * p.M, (at + 1) * p.N * p.M - at * p.N * p.M), n, p.M, memory)
    reading = _array_at(table[first + 1], like, p.S * p.B * p.R * p.N)
    for h in range(p.R):
        _copy(
            _part(reading, (at * p.R + h) * p.N, reading.size - ((at * p.R + h) * p.N)), _part(weightings, h * p.N, n)
        )
    writing = _array_at(table[first + 2], like, p.S * p.B * p.W * p.N)
    for h in range(p.W):
        _copy(
            _part(writing, (at * p.W + h) * p.N, writing.size - ((at * p.W + h) * p.N)),
            _part(weightings, (p.R + h) * p.N, n),
        )
    all_reads = _array_at(table[first + 3], like, p.S * p.B * p.R * p.M)
    _copy(_part(all_reads, at * p.R * p.M, all_reads.size - (at * p.R * p.M)), reads)
    if p.lstm == 1:
        hiddens = _array_at(table[first + 4], like, p.S * p.B * p.L * p.C)
        _copy(_part(hiddens, at * p.L * p.C, hiddens.size - (at * p.L * p.C)), hidden)


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
    memories = _array_at(table[new], like, size)
    _store_tape(memory, n, p.M, _part(memories, begin, used - begin))
    if n < p.N:
        _copy(_part(_array_at(table[old], like, size), used, end - used), _part(memories, used, end - used))
    for kind in range(2):
        heads, skip = (p.R, 0) if kind == 0 else (p.W, p.R)
        size = p.S * p.B * heads * p.N
        target = _array_at(table[new + 1 + kind], like, size)
        source = _array_at(table[old + 1 + kind], like, size)
        for h in range(heads):
            begin = (at * heads + h) * p.N
            _copy(_part(weightings, (skip + h) * p.N, weightings.size - ((skip + h) * p.N)), _part(target, begin, n))
            if n < p.N:
                _copy(
                    _part(source, begin + n, begin + p.N - (begin + n)),
                    _part(target, begin + n, begin + p.N - (begin + n)),
                )
    _copy(
        reads,
        _part(
            _array_at(table[new + 3], like, p.S * p.B * p.R * p.M),
            at * p.R * p.M,
            (at + 1) * p.R * p.M - at * p.R * p.M,
        ),
    )
    if p.lstm == 1:
        hiddens = _array_at(table[new + 4], like, p.S * p.B * p.L * p.C)
        _copy(hidden, _part(hiddens, at * p.L * p.C, (at + 1) * p.L * p.C - at * p.L * p.C))


# ---------------------------------------------------------------------------------------------------------------------
# The interface


@inlined
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
    _apart()
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    width = p.M
    if p.key_tanh == 1:
        _tanh_all(raw, _part(ask, 0, width))
    else:
        _copy(raw, _part(ask, 0, width))
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
    shifts = _part(ask, width + 4, width + 5 + 2 * p.r - (width + 4))
    if p.soft_shift == 1:
        x = _part(raw, width + 2, width + 3 + 2 * p.r - (width + 2))
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
    _apart()
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    width = p.M
    for m in range(width):
        d_raw[m] = d_ask[m] * (one - ask[m] * ask[m]) if p.key_tanh == 1 else d_ask[m]
    d_raw[width] = d_ask[width] * _softplus_slope(raw[width], one)
    d_raw[width + 1] = d_ask[width + 1] * ask[width + 1] * (one - ask[width + 1])
    d_raw[p.raw_read - 1] = d_ask[width + 2] * _softplus_slope(raw[p.raw_read - 1], one)
    shifts, d_shifts = (
        _part(ask, width + 4, width + 5 + 2 * p.r - (width + 4)),
        _part(d_ask, width + 4, width + 5 + 2 * p.r - (width + 4)),
    )
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


@inlined
def _effective(p: Plan, record: Array, now: int, following: int, n: int, shared: Array) -> Array:
    """Write weightings [W, N] times the write gates."""
    H = p.R + p.W
    at = p.weighting_at + (following * H + p.R) * p.N
    weightings = _part(record, at, p.W * p.N)
    if p.write_gate == 0:
        return weightings
    effective = _part(shared, p.effective_g, p.W * p.N)
    gate_at = p.ask_at + now * p.asks + p.R * p.ask_read + p.ask_read + 2 * p.M
    for h in range(p.W):
        g = record[gate_at + h * p.ask_write]
        target = _part(effective, h * p.N, n)
        source = _part(weightings, h * p.N, n)
        for i in range(n):
            target[i] = g * source[i]
    return effective


@compiled
def _write_step(
    p: Plan, record: Array, now: int, following: int, n: int, memory: Array, inverse_norms: Array, shared: Array
) -> None:
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
        _part(record, asks_at, p.W * p.ask_write),
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
def _find(
    p: Plan, record: Array, head: int, now: int, following: int, n: int, memory: Array, norms_step: int, shared: Array
) -> None:
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
        _part(record, p.norms_at + norms_step * p.N, n),
        _part(record, ask_at, p.ask_read),
        _part(record, previous_at, n),
        real(1 / math.sqrt(_norm_limit(memory))),
        real(equations.SHARPEN_EPSILON),
        _part(record, p.similarity_at + at, n),
        _part(record, p.content_at + at, n),
        _part(record, next_at, n),
        _part(shared, p.key_g, p.M),
        _part(shared, p.ring_g, n + 2 * p.r),
        _part(shared, p.spare_g, n),
        _part(shared, p.lanes_g, LANES),
    )


@compiled
def _memory_step(
    p: Plan, clip: Any, record: Array, work: Array, shared: Array, now: int, following: int, n: int
) -> None:
    """All heads on the tape of one row, in the order of the specification."""
    one = record.dtype.type(1)
    raw = _part(record, p.raw_at + now * p.F_stride, p.F)
    raw = _clip(p, clip, raw, _part(shared, p.raw_g, p.F))
    asks = _part(record, p.ask_at + now * p.asks, p.ask_at + (now + 1) * p.asks - (p.ask_at + now * p.asks))
    memory = _part(work, p.memory_w, p.M * n)
    for h in range(p.R + p.W):
        if h < p.R:
            _activate(
                p,
                _part(raw, h * p.raw_read, (h + 1) * p.raw_read - h * p.raw_read),
                _part(asks, h * p.ask_read, (h + 1) * p.ask_read - h * p.ask_read),
            )
        else:
            ask = _part(
                asks,
                p.R * p.ask_read + (h - p.R) * p.ask_write,
                asks.size - (p.R * p.ask_read + (h - p.R) * p.ask_write),
            )
            own = _part(
                raw, p.R * p.raw_read + (h - p.R) * p.raw_write, raw.size - (p.R * p.raw_read + (h - p.R) * p.raw_write)
            )
            _activate(p, own, ask)
            _sigmoid_all(_part(own, p.raw_read, own.size - (p.raw_read)), _part(ask, p.ask_read, p.M))
            add = _part(ask, p.ask_read + p.M, p.ask_read + 2 * p.M - (p.ask_read + p.M))
            if p.add_kind == 0:
                _copy(_part(own, p.raw_read + p.M, own.size - (p.raw_read + p.M)), add)
            elif p.add_kind == 1:
                _tanh_all(_part(own, p.raw_read + p.M, own.size - (p.raw_read + p.M)), add)
            else:
                _sigmoid_all(_part(own, p.raw_read + p.M, own.size - (p.raw_read + p.M)), add)
            ask[p.ask_read + 2 * p.M] = _sigmoid(own[p.raw_write - 1], one) if p.write_gate == 1 else one
    first, last = (p.R, p.R + p.W) if p.read_after_write == 1 else (0, p.R + p.W)
    for h in range(first, last):  # these see the memory before the write
        _find(p, record, h, now, following, n, memory, now, shared)
    H = p.R + p.W
    reads = _part(work, p.reads_w, p.R * p.M)
    if p.read_after_write == 0:
        for h in range(p.R):
            w_at = p.weighting_at + (following * H + h) * p.N
            _weigh_slots(_part(record, w_at, n), memory, n, _part(reads, h * p.M, (h + 1) * p.M - h * p.M))
    norms_at = p.norms_at + following * p.N
    _write_step(p, record, now, following, n, memory, _part(record, norms_at, n), shared)
    if p.read_after_write == 1:
        for h in range(p.R):
            _find(p, record, h, now, following, n, memory, following, shared)
            w_at = p.weighting_at + (following * H + h) * p.N
            _weigh_slots(_part(record, w_at, n), memory, n, _part(reads, h * p.M, (h + 1) * p.M - h * p.M))


@compiled
def _find_back(
    p: Plan,
    raw: Array,
    record: Array,
    work: Array,
    shared: Array,
    head: int,
    t: int,
    n: int,
    memory: Array,
    norms_step: int,
) -> None:
    """Backward of one head's addressing and, for a read head, of its reading."""
    H = p.R + p.W
    ask_at, raw_at = p.ask_at + t * p.asks, 0
    d_read = _part(shared, p.zeros_g, p.M)
    if head < p.R:
        ask_at += head * p.ask_read
        raw_at = head * p.raw_read
        d_read = _part(work, p.d_reads_w + head * p.M, p.d_reads_w + (head + 1) * p.M - (p.d_reads_w + head * p.M))
    else:
        ask_at += p.R * p.ask_read + (head - p.R) * p.ask_write
        raw_at = p.R * p.raw_read + (head - p.R) * p.raw_write
    d_weighting = _part(work, p.d_weighting_w + head * p.N, n)
    if head < p.R:
        _weigh_rows(d_read, memory, n, d_weighting)
    at = (t * H + head) * p.N
    next_at = p.weighting_at + ((t + 1) * H + head) * p.N
    ask = _part(record, ask_at, p.ask_read)
    d_ask = _part(shared, p.d_ask_g, p.ask_read)
    _address_back(
        memory,
        _part(work, p.d_memory_w, p.M * n),
        n,
        p.M,
        p.r,
        _part(record, p.norms_at + norms_step * p.N, n),
        ask,
        _part(record, p.weighting_at + at, n),
        memory.dtype.type(equations.SHARPEN_EPSILON),
        _part(record, p.similarity_at + at, n),
        _part(record, p.content_at + at, n),
        _part(record, next_at, n),
        d_weighting,
        d_read,
        d_ask,
        _part(shared, p.key_g, p.M),
        _part(shared, p.ring_g, n + 2 * p.r),
        _part(shared, p.d_ring_g, n + 2 * p.r),
        _part(shared, p.spare_g, n),
        _part(shared, p.logs_g, n),
    )
    _activate_back(p, _part(raw, raw_at, raw.size - raw_at), ask, d_ask, _part(work, p.d_raw_w + raw_at, p.raw_read))


@compiled
def _write_step_back(p: Plan, record: Array, work: Array, shared: Array, t: int, n: int, memory: Array) -> None:
    """Backward of Eqs. 3 and 4, of the write gates and of the activations of erase and add."""
    one, zero = record.dtype.type(1), record.dtype.type(0)
    H = p.R + p.W
    asks_at = p.ask_at + t * p.asks + p.R * p.ask_read
    asks = _part(record, asks_at, p.W * p.ask_write)
    d_raw_at = p.d_raw_w + p.R * p.raw_read
    d_raws = _part(work, d_raw_at, p.W * p.raw_write)
    d_w_at = p.d_weighting_w + p.R * p.N
    d_weightings = _part(work, d_w_at, p.W * p.N)
    d_effective = d_weightings
    if p.write_gate == 1:
        d_effective = _part(shared, p.d_effective_g, p.W * p.N)
        _fill_zero(d_effective)
    effective = _effective(p, record, t, t + 1, n, shared)
    d_memory = _part(work, p.d_memory_w, p.M * n)
    if p.W == 1:
        erase, d_erase = (
            _part(asks, p.ask_read, asks.size - (p.ask_read)),
            _part(d_raws, p.raw_read, d_raws.size - (p.raw_read)),
        )
        _write_back_one(
            memory,
            d_memory,
            n,
            effective,
            d_effective,
            _part(erase, 0, p.M),
            _part(erase, p.M, 2 * p.M - p.M),
            _part(d_erase, 0, p.M),
            _part(d_erase, p.M, 2 * p.M - p.M),
        )
    else:
        _write_back(
            memory,
            d_memory,
            n,
            p.M,
            effective,
            d_effective,
            p.N,
            p.W,
            asks,
            p.ask_write,
            d_raws,
            p.raw_write,
            p.ask_read,
            p.raw_read,
            _part(shared, p.before_g, p.W * SLOT_BLOCK),
            _part(shared, p.after_g, SLOT_BLOCK),
        )
    for h in range(p.W):
        ask = _part(
            asks, h * p.ask_write + p.ask_read, (h + 1) * p.ask_write - (h * p.ask_write + p.ask_read)
        )  # erase, add, gate
        d_raw = _part(d_raws, h * p.raw_write + p.raw_read, (h + 1) * p.raw_write - (h * p.raw_write + p.raw_read))
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
            w, d_e = _part(record, w_at, n), _part(d_effective, h * p.N, n)
            d_w = _part(d_weightings, h * p.N, n)
            d_g = zero
            for i in range(n):
                d_g += d_e[i] * w[i]
                d_w[i] += g * d_e[i]
            d_raw[2 * p.M] = d_g * g * (one - g)


@compiled
def _memory_step_back(p: Plan, clip: Any, record: Array, work: Array, shared: Array, t: int, n: int) -> None:
    """Backward of `_memory_step`: gradients of the interface, of the memory and of the weightings before the step."""
    raw = _part(record, p.raw_at + t * p.F_stride, p.F)
    seen = _clip(p, clip, raw, _part(shared, p.raw_g, p.F))
    size = p.M * n
    at = p.replay_w + (t % p.segment) * p.M * p.N
    before = _part(work, at, size)
    after = _part(work, at + p.M * p.N, size)
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
        d_raw = _part(work, p.d_raw_w, p.F)
        for i in range(p.F):
            if raw[i] > clip or raw[i] < -clip:
                d_raw[i] = record.dtype.type(0)


@compiled
def _replay(p: Plan, record: Array, work: Array, shared: Array, t: int, n: int) -> None:
    """The memories before step t's segment's steps up to t, and after t: the same writes as in the forward pass."""
    size = p.M * n
    begin = t - t % p.segment
    at = p.memory_at + (t // p.segment) * p.M * p.N
    _copy(_part(record, at, size), _part(work, p.replay_w, size))
    for k in range(t - begin + p.read_after_write):
        at = p.replay_w + k * p.M * p.N
        memory = _part(work, at + p.M * p.N, size)
        _copy(_part(work, at, size), memory)
        if p.W > 0:
            _write_step(p, record, begin + k, begin + k + 1, n, memory, _part(shared, p.spare_g, n), shared)


# ---------------------------------------------------------------------------------------------------------------------
# A group


class Group(NamedTuple):
    """The rows of a group, the longest first, and the memory that they work in."""

    rows: int
    order: Array  # their places in the batch
    lengths: Array
    slots: Array
    records: Array  # [rows * record]
    works: Array  # [rows * work]
    shared: Array


@inlined
def _group(p: Plan, table: Array, scratch: Array, integers: Array, seed: int, group: int) -> Group:
    first = group * p.rows
    rows = min(p.rows, p.B - first)
    order, lengths, slots = (
        _part(integers, 0, rows),
        _part(_part(integers, GROUP_ROWS, integers.size - GROUP_ROWS), 0, rows),
        _part(_part(integers, 2 * GROUP_ROWS, integers.size - (2 * GROUP_ROWS)), 0, rows),
    )
    all_lengths = _part(_array_at(table[LENGTHS], order, p.S * p.B), seed * p.B, (seed + 1) * p.B - seed * p.B)
    all_slots = _part(_array_at(table[SLOTS], order, p.S * p.B), seed * p.B, (seed + 1) * p.B - seed * p.B)
    for i in range(rows):  # insertion sort
        j = i
        length = all_lengths[first + i]
        while j > 0 and lengths[j - 1] < length:
            order[j], lengths[j] = order[j - 1], lengths[j - 1]
            j -= 1
        order[j], lengths[j] = first + i, length
    for i in range(rows):
        slots[i] = all_slots[order[i]]
    at = p.rows * p.work
    works = _part(scratch, 0, at)
    shared = _part(scratch, at, p.shared)
    own = _part(scratch, at + p.shared, scratch.size - (at + p.shared))
    if p.keep == 1:
        own = _part(
            _array_at(table[KEPT], scratch, p.S * p.B * p.record),
            (seed * p.B + first) * p.record,
            _array_at(table[KEPT], scratch, p.S * p.B * p.record).size - ((seed * p.B + first) * p.record),
        )
    records = _part(own, 0, rows * p.record)
    return Group(rows, order, lengths, slots, records, works, shared)


@compiled
def _start_row(p: Plan, table: Array, at: int, n: int, record: Array, work: Array, shared: Array) -> None:
    """The initial state of a row, from where it starts."""
    real = record.dtype.type
    H = p.R + p.W
    memory = _part(work, p.memory_w, p.M * n)
    _load_state(
        p,
        table,
        STATE,
        at,
        n,
        shared,
        memory,
        _part(record, p.weighting_at, H * p.N),
        _part(work, p.reads_w, p.R * p.M),
        _part(work, p.hidden_w, p.L * p.C),
    )
    if p.lstm == 1:
        cells = _array_at(table[STATE + 5], shared, p.S * p.B * p.L * p.C)
        for layer in range(p.L):
            to = p.cells_at + layer * (p.steps + 1) * p.C
            _copy(
                _part(cells, (at * p.L + layer) * p.C, cells.size - ((at * p.L + layer) * p.C)), _part(record, to, p.C)
            )
    limit, epsilon = real(_norm_limit(shared)), real(equations.NORM_EPSILON)
    _slot_norms(memory, n, p.M, limit, epsilon, _part(record, p.norms_at, n))


@compiled
def _first_input(p: Plan, x: Array, record: Array, work: Array, now: int) -> None:
    """[x; reads; hidden; 1]"""
    v = _part(
        record, p.v_at + now * p.first_stride, p.v_at + (now + 1) * p.first_stride - (p.v_at + now * p.first_stride)
    )
    _set_one(v, p.first_width)
    _copy(x, _part(v, 0, p.I))
    _copy(_part(work, p.reads_w, p.R * p.M), _part(v, p.I, p.R * p.M))
    if p.lstm == 1:
        _copy(_part(work, p.hidden_w, p.C), _part(v, p.I + p.R * p.M, p.first_width - (p.I + p.R * p.M)))


@compiled
def _layer_output(p: Plan, layer: int, record: Array, work: Array, now: int, following: int) -> None:
    """The controller's nonlinearity, and its result handed on to the next layer or to the summary."""
    at = p.gates_at + (layer * p.steps + now) * p.gates_stride
    gates = _part(record, at, p.gates)
    hidden = _part(work, p.hidden_w + layer * p.C, p.hidden_w + (layer + 1) * p.C - (p.hidden_w + layer * p.C))
    if p.lstm == 1:
        cell_at = p.cells_at + layer * (p.steps + 1) * p.C
        tanh_at = p.tanh_at + (layer * p.steps + now) * p.C
        _lstm_cell(
            gates,
            _part(record, cell_at + now * p.C, cell_at + (now + 1) * p.C - (cell_at + now * p.C)),
            _part(record, cell_at + following * p.C, cell_at + (following + 1) * p.C - (cell_at + following * p.C)),
            _part(record, tanh_at, p.C),
            hidden,
        )
    else:
        _tanh_all(gates, gates)
        _copy(gates, hidden)
    if layer + 1 < p.L:
        at = _input_at(p, layer + 1, now)
        v = _part(record, at, p.next_stride)
        _set_one(v, p.next_width)
        _copy(hidden, _part(v, 0, p.C))
        if p.lstm == 1:
            _copy(
                _part(work, p.hidden_w + (layer + 1) * p.C, work.size - (p.hidden_w + (layer + 1) * p.C)),
                _part(v, p.C, 2 * p.C - p.C),
            )
    else:
        to = p.summary_at + now * p.summary
        _set_one(_part(record, to, p.hidden_stride), p.C)
        _copy(hidden, _part(record, to, p.C))


def _run_forward_python(
    sizes: Array, table: Array, clip: float, scratch: Array, integers: Array, costs: Array, seed: int, group: int
) -> None:
    """Forward pass of group `group` of seed `seed`. `scratch` sets the type of all numbers."""
    p = Plan(*to_fixed_tuple(sizes, PLAN_SIZE))
    rows, order, lengths, slots, records, works, shared = _group(p, table, scratch, integers, seed, group)
    limit = scratch.dtype.type(clip)
    _pack_all(
        p, _part(_array_at(table[PARAMETERS], shared, p.S * p.P), seed * p.P, (seed + 1) * p.P - seed * p.P), shared
    )
    inputs = _array_at(table[INPUTS], shared, p.S * p.T * p.B * p.I)
    costs[:] = 0
    for row in range(rows):
        _start_row(
            p,
            table,
            seed * p.B + order[row],
            slots[row],
            _part(records, row * p.record, p.record),
            _part(works, row * p.work, p.work),
            shared,
        )
    active = rows
    for t in range(lengths[0]):
        now, following = t & p.time_mask, (t + 1) & p.time_mask
        while lengths[active - 1] <= t:
            active -= 1
        for row in range(active):
            step = (seed * p.T + t) * p.B + order[row]
            _first_input(
                p,
                _part(inputs, step * p.I, (step + 1) * p.I - step * p.I),
                _part(records, row * p.record, p.record),
                _part(works, row * p.work, p.work),
                now,
            )
            if p.time_mask != 1 and t % p.segment == 0:
                size = p.M * slots[row]
                to = p.memory_at + (t // p.segment) * p.M * p.N
                _copy(_part(works, row * p.work + p.memory_w, size), _part(records, row * p.record + to, size))
        for layer in range(p.L):
            gates_at = p.gates_at + (layer * p.steps + now) * p.gates_stride
            _apply(p, layer, shared, records, _input_at(p, layer, now), gates_at, active)
            for row in range(active):
                _layer_output(
                    p,
                    layer,
                    _part(records, row * p.record, p.record),
                    _part(works, row * p.work, p.work),
                    now,
                    following,
                )
        summary_at = p.summary_at + now * p.summary
        _apply(p, p.L, shared, records, summary_at, p.raw_at + now * p.F_stride, active)
        for row in range(active):
            _memory_step(
                p,
                limit,
                _part(records, row * p.record, p.record),
                _part(works, row * p.work, p.work),
                shared,
                now,
                following,
                slots[row],
            )
            reads = _part(
                records,
                row * p.record + summary_at + p.hidden_stride,
                row * p.record + summary_at + p.summary - (row * p.record + summary_at + p.hidden_stride),
            )
            _fill_zero(reads)
            _copy(_part(works, row * p.work + p.reads_w, p.R * p.M), _part(reads, 0, p.R * p.M))
        logits_at = p.logits_at + now * p.logits_stride
        _apply(p, p.L + 1, shared, records, summary_at, logits_at, active)
        for row in range(active):
            logits = _part(records, row * p.record + logits_at, p.O)
            step = (seed * p.T + t) * p.B + order[row]
            if p.loss == 1:
                costs[row] += _cost(p, table, step, logits)
            else:
                _copy(
                    logits,
                    _part(
                        _array_at(table[OUTPUTS], shared, p.S * p.T * p.B * p.O),
                        step * p.O,
                        (step + 1) * p.O - step * p.O,
                    ),
                )
    for row in range(rows):
        _finish_row(
            p,
            table,
            seed,
            order[row],
            lengths[row],
            slots[row],
            costs[row],
            _part(records, row * p.record, p.record),
            _part(works, row * p.work, p.work),
            shared,
        )


@compiled
def _cost(p: Plan, table: Array, step: int, logits: Array) -> float:
    """Binary cross-entropy of one step; the logits become the gradients of the mean cost over the batch."""
    one = logits.dtype.type(1)
    batch = logits.dtype.type(p.B)
    weight = _array_at(table[MASK], logits, p.S * p.T * p.B)[step]
    if weight == 0:
        _fill_zero(logits)
        return 0.0
    targets = _part(_array_at(table[TARGETS], logits, p.S * p.T * p.B * p.O), step * p.O, (step + 1) * p.O - step * p.O)
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
        mask = _array_at(table[MASK], shared, p.S * p.T * p.B)
        for t in range(length, p.T):  # logits there are zeros
            cost += mask[(seed * p.T + t) * p.B + place] * p.O * math.log(2.0)
        _array_at(table[COSTS], shared, p.S * p.B)[at] = cost
        return
    outputs = _array_at(table[OUTPUTS], shared, p.S * p.T * p.B * p.O)
    for t in range(length, p.T):
        step = (seed * p.T + t) * p.B + place
        _fill_zero(_part(outputs, step * p.O, (step + 1) * p.O - step * p.O))
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
        _part(work, p.memory_w, p.M * n),
        _part(record, w_at, H * p.N),
        _part(work, p.reads_w, p.R * p.M),
        _part(work, p.hidden_w, p.L * p.C),
    )
    if p.lstm == 1:
        cells = _array_at(table[FINAL + 5], shared, p.S * p.B * p.L * p.C)
        for layer in range(p.L):
            cell_at = p.cells_at + (layer * (p.steps + 1) + last) * p.C
            _copy(
                _part(record, cell_at, p.C),
                _part(cells, (at * p.L + layer) * p.C, (at * p.L + layer + 1) * p.C - ((at * p.L + layer) * p.C)),
            )


@compiled
def _start_back(p: Plan, table: Array, at: int, n: int, work: Array, shared: Array) -> None:
    """Gradients of a row's final state, from where the backward pass starts."""
    H = p.R + p.W
    d_memory = _part(work, p.d_memory_w, p.M * n)
    d_weightings = _part(work, p.d_weighting_w, H * p.N)
    d_reads = _part(work, p.d_reads_w, p.R * p.M)
    d_hidden = _part(work, p.d_hidden_w, p.L * p.C)
    d_cell = _part(work, p.d_cell_w, p.L * p.C)
    _fill_zero(d_hidden)
    for start in (p.d_logits_w, p.d_raw_w, p.d_gates_w):  # they are padded: what is never written must be zero
        _fill_zero(_part(work, start, max(p.logits_stride, p.F_stride, p.gates_stride)))
    if p.loss == 1:
        _fill_zero(d_memory)
        _fill_zero(d_weightings)
        _fill_zero(d_reads)
        _fill_zero(d_cell)
        return
    _load_state(p, table, D_FINAL, at, n, shared, d_memory, d_weightings, d_reads, d_hidden)
    if p.lstm == 1:
        _copy(
            _part(
                _array_at(table[D_FINAL + 5], shared, p.S * p.B * p.L * p.C),
                at * p.L * p.C,
                _array_at(table[D_FINAL + 5], shared, p.S * p.B * p.L * p.C).size - (at * p.L * p.C),
            ),
            d_cell,
        )


@compiled
def _finish_back(p: Plan, table: Array, at: int, n: int, work: Array, shared: Array) -> None:
    """Gradients of a row's initial state. Beyond its slots those of the final state, or zeros, pass through."""
    H = p.R + p.W
    d_cell = _part(work, p.d_cell_w, p.L * p.C)
    _store_state(
        p,
        table,
        D_STATE if p.loss == 1 else D_FINAL,
        D_STATE,
        at,
        n,
        shared,
        _part(work, p.d_memory_w, p.M * n),
        _part(work, p.d_weighting_w, H * p.N),
        _part(work, p.d_reads_w, p.R * p.M),
        _part(work, p.d_hidden_w, p.L * p.C),
    )
    if p.lstm == 1:
        _copy(
            d_cell,
            _part(
                _array_at(table[D_STATE + 5], shared, p.S * p.B * p.L * p.C),
                at * p.L * p.C,
                (at + 1) * p.L * p.C - at * p.L * p.C,
            ),
        )


@compiled
def _pend(p: Plan, k: int, pair: int, shared: Array, x: Array, d_y: Array) -> None:
    """Notes that matrix k took x and has the gradient d_y at its output: an outer product to be added later."""
    w = _matrix(p, k)
    at = p.pending_g + w.pending + pair * w.stride
    _copy(x, _part(shared, at, w.stride))
    at = p.pending_g + w.pending + PENDING * w.stride + pair * w.outs_stride
    _copy(d_y, _part(shared, at, w.outs_stride))


@compiled
def _flush(p: Plan, pairs: int, shared: Array) -> None:
    """Adds all pending outer products to the gradients of the weights."""
    whole = (pairs + 7) // 8 * 8
    for k in range(p.L + 2):
        w = _matrix(p, k)
        at = p.pending_g + w.pending
        x = _part(shared, at, whole * w.stride)
        at += PENDING * w.stride
        d_y = _part(shared, at, whole * w.outs_stride)
        _fill_zero(_part(x, pairs * w.stride, x.size - (pairs * w.stride)))
        _fill_zero(_part(d_y, pairs * w.outs_stride, d_y.size - (pairs * w.outs_stride)))
        to = p.d_packed_g + w.packed
        _outer_add(d_y, x, whole, w.stride, w.outs_stride, _part(shared, to, w.outs_stride * w.stride))


@compiled
def _layer_output_back(p: Plan, layer: int, record: Array, work: Array, t: int) -> None:
    """Gradients of a layer's pre-activations."""
    one = record.dtype.type(1)
    at = p.gates_at + (layer * p.steps + t) * p.gates_stride
    gates = _part(record, at, p.gates)
    d_gates = _part(work, p.d_gates_w, p.gates)
    d_hidden = _part(work, p.d_hidden_w + layer * p.C, p.d_hidden_w + (layer + 1) * p.C - (p.d_hidden_w + layer * p.C))
    if p.lstm == 1:
        cell_at = p.cells_at + (layer * (p.steps + 1) + t) * p.C
        tanh_at = p.tanh_at + (layer * p.steps + t) * p.C
        _lstm_cell_back(
            gates,
            _part(record, cell_at, p.C),
            _part(record, tanh_at, p.C),
            d_hidden,
            _part(work, p.d_cell_w + layer * p.C, p.d_cell_w + (layer + 1) * p.C - (p.d_cell_w + layer * p.C)),
            d_gates,
        )
    else:
        for j in range(p.C):
            d_gates[j] = d_hidden[j] * (one - gates[j] * gates[j])


@compiled
def _input_back(p: Plan, layer: int, work: Array) -> None:
    """A layer's input gradient, handed to the previous step and to the layer below."""
    width = p.first_width if layer == 0 else p.next_width
    d_v = _part(work, p.d_v_w, width)
    d_hidden = _part(work, p.d_hidden_w + layer * p.C, p.d_hidden_w + (layer + 1) * p.C - (p.d_hidden_w + layer * p.C))
    if p.lstm == 1:
        _copy(_part(d_v, width - p.C, d_v.size - (width - p.C)), d_hidden)
    else:
        _fill_zero(d_hidden)
    if layer > 0:
        _add(
            d_v,
            _part(
                work, p.d_hidden_w + (layer - 1) * p.C, p.d_hidden_w + layer * p.C - (p.d_hidden_w + (layer - 1) * p.C)
            ),
        )
    else:
        _copy(_part(d_v, p.I, d_v.size - (p.I)), _part(work, p.d_reads_w, p.R * p.M))


def _run_backward_python(
    sizes: Array, table: Array, clip: float, scratch: Array, integers: Array, costs: Array, seed: int, group: int
) -> None:
    """Backward pass of group `group` of seed `seed`; when training, right after its forward pass in the same scratch."""
    p = Plan(*to_fixed_tuple(sizes, PLAN_SIZE))
    rows, order, lengths, slots, records, works, shared = _group(p, table, scratch, integers, seed, group)
    limit = scratch.dtype.type(clip)
    if p.loss == 0:
        _pack_all(
            p, _part(_array_at(table[PARAMETERS], shared, p.S * p.P), seed * p.P, (seed + 1) * p.P - seed * p.P), shared
        )
    _fill_zero(_part(shared, p.d_packed_g, p.pending_g - p.d_packed_g))
    _fill_zero(_part(shared, p.zeros_g, p.M))
    for row in range(rows):
        _start_back(p, table, seed * p.B + order[row], slots[row], _part(works, row * p.work, p.work), shared)
    pairs = 0
    active = 0
    for t in range(lengths[0] - 1, -1, -1):
        while active < rows and lengths[active] > t:
            active += 1
        if pairs + active > PENDING:
            _flush(p, pairs, shared)
            pairs = 0
        summary_at = p.summary_at + t * p.summary
        for row in range(active):
            d_logits = _part(works, row * p.work + p.d_logits_w, p.O)
            if p.loss == 1:
                _copy(
                    _part(
                        records,
                        row * p.record + p.logits_at + t * p.logits_stride,
                        records.size - (row * p.record + p.logits_at + t * p.logits_stride),
                    ),
                    d_logits,
                )
            else:
                step = (seed * p.T + t) * p.B + order[row]
                _copy(
                    _part(
                        _array_at(table[D_OUTPUTS], shared, p.S * p.T * p.B * p.O),
                        step * p.O,
                        _array_at(table[D_OUTPUTS], shared, p.S * p.T * p.B * p.O).size - (step * p.O),
                    ),
                    d_logits,
                )
            _pend(
                p,
                p.L + 1,
                pairs + row,
                shared,
                _part(records, row * p.record + summary_at, records.size - (row * p.record + summary_at)),
                _part(works, row * p.work + p.d_logits_w, works.size - (row * p.work + p.d_logits_w)),
            )
        _apply_back(p, p.L + 1, shared, works, p.d_logits_w, p.d_summary_w, active)
        for row in range(active):
            record, work = _part(records, row * p.record, p.record), _part(works, row * p.work, p.work)
            _add(
                _part(work, p.d_summary_w, work.size - (p.d_summary_w)),
                _part(
                    work, p.d_hidden_w + (p.L - 1) * p.C, p.d_hidden_w + p.L * p.C - (p.d_hidden_w + (p.L - 1) * p.C)
                ),
            )
            if p.output_width > p.C:
                d_reads = _part(work, p.d_summary_w + p.hidden_stride, work.size - (p.d_summary_w + p.hidden_stride))
                _add(d_reads, _part(work, p.d_reads_w, p.R * p.M))
            if t == lengths[row] - 1 or t % p.segment == p.segment - 1:
                _replay(p, record, work, shared, t, slots[row])
            _memory_step_back(p, limit, record, work, shared, t, slots[row])
            _pend(
                p,
                p.L,
                pairs + row,
                shared,
                _part(record, summary_at, record.size - summary_at),
                _part(work, p.d_raw_w, work.size - (p.d_raw_w)),
            )
        _apply_back(p, p.L, shared, works, p.d_raw_w, p.d_summary_w, active)
        for row in range(active):
            work = _part(works, row * p.work, p.work)
            _add(
                _part(work, p.d_summary_w, work.size - (p.d_summary_w)),
                _part(
                    work, p.d_hidden_w + (p.L - 1) * p.C, p.d_hidden_w + p.L * p.C - (p.d_hidden_w + (p.L - 1) * p.C)
                ),
            )
        for layer in range(p.L - 1, -1, -1):
            v_at = _input_at(p, layer, t)
            for row in range(active):
                _layer_output_back(
                    p, layer, _part(records, row * p.record, p.record), _part(works, row * p.work, p.work), t
                )
                _pend(
                    p,
                    layer,
                    pairs + row,
                    shared,
                    _part(records, row * p.record + v_at, records.size - (row * p.record + v_at)),
                    _part(works, row * p.work + p.d_gates_w, works.size - (row * p.work + p.d_gates_w)),
                )
            _apply_back(p, layer, shared, works, p.d_gates_w, p.d_v_w, active)
            for row in range(active):
                _input_back(p, layer, _part(works, row * p.work, p.work))
        if p.loss == 0:
            for row in range(active):
                step = (seed * p.T + t) * p.B + order[row]
                d_inputs = _array_at(table[D_INPUTS], shared, p.S * p.T * p.B * p.I)
                _copy(
                    _part(works, row * p.work + p.d_v_w, works.size - (row * p.work + p.d_v_w)),
                    _part(d_inputs, step * p.I, (step + 1) * p.I - step * p.I),
                )
        pairs += active
    if pairs > 0:
        _flush(p, pairs, shared)
    to = (seed * p.groups + group) * p.P
    _unpack_all(p, shared, _part(_array_at(table[D_PARAMETERS], shared, p.S * p.groups * p.P), to, p.P))
    for row in range(rows):
        if p.loss == 0:
            d_inputs = _array_at(table[D_INPUTS], shared, p.S * p.T * p.B * p.I)
            for t in range(lengths[row], p.T):
                step = (seed * p.T + t) * p.B + order[row]
                _fill_zero(_part(d_inputs, step * p.I, (step + 1) * p.I - step * p.I))
        if table[D_STATE] != 0:
            _finish_back(p, table, seed * p.B + order[row], slots[row], _part(works, row * p.work, p.work), shared)


# ---------------------------------------------------------------------------------------------------------------------
# Compilation


def _entry(function: Any) -> Any:
    """A function that Python calls, cached on disk where numba finds a folder that it may write to."""
    try:
        return numba.njit(**OPTIONS, cache=True)(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        return numba.njit(**OPTIONS)(function)


_run_forward = _entry(_run_forward_python)
_run_backward = _entry(_run_backward_python)
_ready: set[torch.dtype] = set()
_compile_lock = threading.Lock()


class _Announcer(event.Listener):  # type: ignore[misc]
    """Says once that the kernel is being compiled; numba raises this event only if the cache did not have it."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] is _run_forward:
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
        signature = (integers, integers, numba.float64, real, integers, numba.float64[::1], numba.int64, numba.int64)
        with event.install_listener("numba:compile", _Announcer()):
            for function in (_run_forward, _run_backward):
                try:
                    function.compile(signature)
                except OSError:  # the folder of the cache cannot be written to after all; it is compiled, in memory
                    function.compile(signature)
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
os.register_at_fork(
    after_in_child=lambda: globals().update(_pool_lock=threading.Lock(), _compile_lock=threading.Lock())
)


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


def _scratch(size: int, dtype: torch.dtype) -> tuple[Array, Array, Array]:
    """This thread's working memory, kept from call to call: reals, and integers and costs of the rows of a group."""
    buffers: dict[torch.dtype, tuple[Array, Array, Array]] = _own.__dict__.setdefault("buffers", {})
    found = buffers.get(dtype)
    if found is None or found[0].size < size:
        integers, costs = np.zeros(3 * GROUP_ROWS, np.int64), np.zeros(GROUP_ROWS, np.float64)
        found = buffers[dtype] = (empty((size + size // 4,), dtype).numpy(), integers, costs)
    elif POISON:
        found[0].fill(np.nan)
    return found


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
    hidden_stride = _up(c + 1, 16)
    summary = hidden_stride + _up(r * m, 16)
    all_seen = spec.output_from == "hidden_and_reads"
    ask_read = m + 5 + 2 * spec.shift_range
    ask_write = ask_read + 2 * m + 1
    asks = r * ask_read + w * ask_write
    face, outs = spec.interface_size, spec.output_size
    first_p = gates * (first_width + 1)
    interface_p = first_p + (layers - 1) * gates * (next_width + 1)
    strides = [(_up(first_width + 1, 16), _up(gates, 8))]
    strides += [(_up(next_width + 1, 16), _up(gates, 8))] * (layers - 1)
    strides += [(hidden_stride, _up(face, 8)), (summary if all_seen else hidden_stride, _up(outs, 8))]
    record = _record(spec, kept_steps, slots, 0 if mode == "forward" else segment)
    widest = max(rows for _, rows in strides)
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
        d_summary_w=summary * back,
        d_v_w=max(stride for stride, _ in strides) * back,
        d_logits_w=widest * back,
        d_gates_w=widest * back,
        d_raw_w=widest * back,
    )
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
        packed_g=sum(stride * rows for stride, rows in strides),
        d_packed_g=sum(stride * rows for stride, rows in strides) * back,
        pending_g=PENDING * sum(stride + rows for stride, rows in strides) * back,
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
        first_stride=strides[0][0],
        next_stride=_up(next_width + 1, 16),
        gates=gates,
        gates_stride=_up(gates, 8),
        hidden_stride=hidden_stride,
        summary=summary,
        output_width=c + r * m if all_seen else c,
        output_stride=strides[-1][0],
        logits_stride=_up(outs, 8),
        F=face,
        F_stride=_up(face, 8),
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
            self.size += _up(size, 16)


def _up(size: int, step: int) -> int:
    """The next multiple of `step`."""
    return (size + step - 1) // step * step


def _record(spec: ScanSpec, steps: int, slots: int, segment: int) -> _Offsets:
    """The parts of a row's record; segment 0 keeps no memories."""
    c, m, lstm, layers = spec.controller_size, spec.memory_width, spec.controller == "lstm", spec.controller_layers
    heads, reads = spec.read_heads + spec.write_heads, spec.read_heads * m
    asks = heads * (m + 5 + 2 * spec.shift_range) + spec.write_heads * (2 * m + 1)
    first, following = spec.input_size + reads + c * lstm + 1, c + c * lstm + 1
    return _Offsets(
        v_at=(_up(first, 16) + (layers - 1) * _up(following, 16)) * steps,
        gates_at=layers * steps * _up(4 * c if lstm else c, 8),
        tanh_at=layers * steps * c * lstm,
        cells_at=layers * (steps + 1) * c * lstm,
        summary_at=steps * (_up(c + 1, 16) + _up(reads, 16)),
        raw_at=steps * _up(spec.interface_size, 8),
        ask_at=steps * asks,
        logits_at=steps * _up(spec.output_size, 8),
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
        scratch, integers, costs = _scratch(size, dtype)
        if plan.forward:
            _run_forward(sizes, addresses, limit, scratch, integers, costs, item[0], item[1])
        if plan.backward:
            _run_backward(sizes, addresses, limit, scratch, integers, costs, item[0], item[1])

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
    reads = summary[:, p.hidden_stride : p.hidden_stride + p.R * p.M]
    return Trace(
        read=head_trace(asks[:, :split].reshape(steps, p.R, p.ask_read), 0, p.R),
        write=head_trace(writing, p.R, heads),
        erase=whole(writing[..., p.ask_read : p.ask_read + p.M]),
        add=whole(writing[..., p.ask_read + p.M : p.ask_read + 2 * p.M]),
        write_gates=whole(writing[..., p.ask_read + 2 * p.M]),
        memory=whole(memories, 1),
        reads=whole(reads.reshape(steps, p.R, p.M)),
        hidden=whole(summary[:, : p.C]),
    )


def _stack(traces: list[Trace], axis: int) -> Trace:
    heads = [
        HeadTrace(*(torch.stack(parts, axis) for parts in zip(*(t[k] for t in traces), strict=True))) for k in (0, 1)
    ]
    rest = (torch.stack(parts, axis) for parts in zip(*(t[2:] for t in traces), strict=True))
    return Trace(heads[0], heads[1], *rest)
