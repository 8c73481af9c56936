"""The scan on the CPU: forward, backward and training step of whole sequences, compiled.

The derivation of the backward pass, the layout of memory and the figures are in README.md beside this file.

Legend: S seeds, B sequences of each, T time, I inputs, O outputs, C controller size, L layers, R read heads, W write
heads, H = R + W heads (reads first), N slots of the tape, n slots that one sequence uses, M memory width, r shift
range. `d_x` is the gradient of x. A memory is stored width-major, [M, n]: the inner loops run along the slots.

How it works. The B sequences of a seed are cut into groups (`rows_per_group`), and a group is the unit of work of a
thread. Its sequences, called rows, run in lockstep, the longest first: those still running are always a prefix, padding
costs nothing, and the controller's weights are read once a step for the whole group. What the backward pass needs is
kept in one record a row. The same compiled code serves every machine: all sizes and options are run-time integers.

Everything that is compiled stands in this file, because numba's cache on disk watches one file only.
"""

import collections
import functools
import math
import os
import platform
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numba
import numba.extending
import numba.np.arrayobj
import numpy as np
import numpy.typing as npt
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core.caching import NullCache
from numba.np.unsafe import ndarray as unsafe
from torch import Tensor

from tapehead import equations
from tapehead.kernels.ntm_scan.contract import HeadTrace, Learned, ScanSpec, ScanState, Trace

Array = npt.NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

GROUP_ROWS = 8  # rows of a group at most
SEGMENT = 8  # the memory itself is kept before every 8th step; the backward pass replays the writes in between
SLOT_BLOCK = 1024  # slots that a pass over the memory takes at a time, so that its vectors stay in the first cache
PENDING = 64  # (row, step) pairs whose outer products are added to the weights' gradients in one go
OUTER_BLOCK = 16  # rows of a weight gradient that stay in the first cache while the pairs stream by
LANES = 16
# Those of equations.py, written again because numba's cache would not notice a change there.
NORM_EPSILON = 1e-18
SHARPEN_EPSILON = 1e-20
assert (NORM_EPSILON, SHARPEN_EPSILON) == (equations.NORM_EPSILON, equations.SHARPEN_EPSILON)
X86 = platform.machine().lower() in ("x86_64", "amd64")
# Numbers between parts of a buffer. Before a vectorised loop LLVM tests whether its arrays are at least four vectors
# apart; otherwise it takes a scalar loop, which rounds otherwise. With the gap the bits never depend on addresses.
GAP = 64

# Sums may be reordered and products fused; NaN and infinity are honoured ("nnan" and "ninf" are not given). Division by
# zero gives infinity or NaN: numba's other model tests every divisor, and loops with such tests do not vectorise.
# Nothing is allocated in the kernel, so it needs no reference counts ("nrt").
RELAXED = {"reassoc", "contract", "arcp", "nsz", "afn"}
OPTIONS: dict[str, Any] = dict(fastmath=RELAXED, error_model="numpy", nogil=True, _nrt=False)
# Python calls only two entries; the other functions need no wrappers for it, which take as long to compile.
INNER: dict[str, Any] = dict(**OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def compiled(function: Function) -> Function:
    """Part of the kernel, compiled when its entries are."""
    result: Function = numba.njit(**INNER)(function)
    return result


def inlined(function: Function) -> Function:
    """Part of the kernel that numba pastes into its caller. For all that is called from one or two places: compiled by
    themselves, such functions would be optimised and translated again with every level of callers above them."""
    result: Function = numba.njit(**INNER, inline="always")(function)
    return result


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function of the kernel that writes its own LLVM code."""
    return numba.extending.intrinsic(function)


def overload(function: Callable[..., Any]) -> Callable[[Function], Function]:
    """A function of the kernel that is another one for each type. Its sums are not reordered: exp adds and subtracts
    1.5 * 2^23 to round to an integer."""
    exact: Any = {**INNER, "fastmath": {"contract"}, "forceinline": True}

    def register(implementation: Function) -> Function:
        result: Function = numba.extending.overload(function, jit_options=exact)(implementation)
        return result

    return register


# ---------------------------------------------------------------------------------------------------------------------
# What LLVM is told directly


@intrinsic
def _array_at(context: Any, address: Any, like: Any, size: Any) -> Any:
    """The `size` numbers that stand at an address, as an array of the type of `like`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = builder.inttoptr(arguments[0], context.get_data_type(like.dtype).as_pointer())
        item = context.get_constant(numba.types.intp, context.get_abi_sizeof(context.get_data_type(like.dtype)))
        return _make_array(context, builder, like, data, arguments[2], item)

    return like(address, like, numba.types.intp), generate


@intrinsic
def _part(context: Any, array: Any, start: Any, size: Any) -> Any:
    """array[start : start + size], unchecked: six instructions, where a slice by Python's rules takes forty."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = context.make_array(array)(context, builder, arguments[0])
        data = builder.gep(whole.data, [arguments[1]])
        return _make_array(context, builder, array, data, arguments[2], whole.itemsize)

    return array(array, numba.types.intp, numba.types.intp), generate


def _make_array(context: Any, builder: Any, kind: Any, data: Any, size: Any, item: Any) -> Any:
    array = context.make_array(kind)(context, builder)
    populate: Any = numba.np.arrayobj.populate_array
    populate(array, data=data, shape=[size], strides=[item], itemsize=item, meminfo=None)
    return array._getvalue()


@intrinsic
def _leaf(context: Any) -> Any:
    """Keeps LLVM from copying the function that calls this into its callers, each time to be optimised anew, and lets
    it use vectors as wide as the processor has; of itself it prefers half of that on some."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # llvmlite knows no attributes with a value
        return context.get_dummy_value()

    return numba.types.none(), generate


FLUSH_BITS = 0x8040  # of x86's control register MXCSR: results and operands below the normal range count as zero


def _control_register(builder: Any, operation: str, place: Any) -> None:
    """Stores x86's MXCSR at `place`, or loads it from there."""
    pointer = ir.IntType(8).as_pointer()
    function = builder.module.declare_intrinsic(
        f"llvm.x86.sse.{operation}", fnty=ir.FunctionType(ir.VoidType(), [pointer])
    )
    builder.call(function, [builder.bitcast(place, pointer)])


@intrinsic
def _flush_denormals(context: Any) -> Any:
    """Makes this thread take numbers below the normal range for zero; returns what to give to `_restore_denormals`.

    Sharp weightings are full of such numbers, and x86 processors take a hundred cycles for each: three times slower.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        if not X86:
            return integer(0)
        place = builder.alloca(integer)
        _control_register(builder, "stmxcsr", place)
        before = builder.load(place)
        builder.store(builder.or_(before, integer(FLUSH_BITS)), place)
        _control_register(builder, "ldmxcsr", place)
        return before

    return numba.types.int32(), generate


@intrinsic
def _restore_denormals(context: Any, before: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if X86:
            place = builder.alloca(ir.IntType(32))
            builder.store(arguments[0], place)
            _control_register(builder, "ldmxcsr", place)
        return context.get_dummy_value()

    return numba.types.none(numba.types.int32), generate


@intrinsic
def _power_of_two(context: Any, shifted: Any) -> Any:
    """2^k for a float32 k + 1.5 * 2^23, whose lowest bits hold the integer k."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.bitcast(arguments[0], integer)
        return builder.bitcast(builder.add(builder.shl(bits, integer(23)), integer(0x3F800000)), ir.FloatType())

    return shifted(shifted), generate


@intrinsic
def _exponent(context: Any, x: Any) -> Any:
    """The float32 k for which x / 2^k lies in [sqrt(1/2), sqrt(2))."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.sub(builder.bitcast(arguments[0], integer), integer(0x3F3504F3))
        return builder.sitofp(builder.ashr(bits, integer(23)), ir.FloatType())

    return x(x), generate


@intrinsic
def _mantissa(context: Any, x: Any) -> Any:
    """The float32 x / 2^k in [sqrt(1/2), sqrt(2))."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.bitcast(arguments[0], integer)
        whole = builder.and_(builder.sub(bits, integer(0x3F3504F3)), integer(0xFF800000))
        return builder.bitcast(builder.sub(bits, whole), ir.FloatType())

    return x(x), generate


# ---------------------------------------------------------------------------------------------------------------------
# Elementary functions. In float32 they are polynomials, written so that loops over them vectorise; in float64, which is
# for checking gradients, they are those of the C library.


def exp(x: Any) -> Any:
    """e^x, at most 1.4 ulp off; zero below -87 in float32."""


def log(x: Any) -> Any:
    """Natural logarithm of a normal number, at most 1 ulp off; NaN for anything else."""


def tanh(x: Any) -> Any:
    """Hyperbolic tangent, at most 3 ulp off, also near zero."""


def norm_limit(x: Any) -> Any:
    """A squared norm above this is computed with scaling: well below overflow. x: any array of the type in question."""


f32 = np.float32


@overload(exp)
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


@overload(log)
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


@overload(tanh)
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


@overload(norm_limit)
def _norm_limit(x: Any) -> Any:
    limit = np.float32(1e36) if x.dtype is numba.types.float32 else np.float64(1e300)

    def constant(x: Any) -> Any:
        return limit

    return constant


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
    """As many numbers as the target has."""
    _leaf()
    for i in range(target.size):
        target[i] = source[i]


@compiled
def _fill_zero(x: Array) -> None:
    _leaf()
    zero = x.dtype.type(0)
    for i in range(x.size):
        x[i] = zero


@compiled
def _add(source: Array, target: Array) -> None:
    _leaf()
    for i in range(target.size):
        target[i] += source[i]


@compiled
def _tanh_all(source: Array, target: Array) -> None:
    _leaf()
    for i in range(target.size):
        target[i] = tanh(source[i])


@compiled
def _sigmoid_all(source: Array, target: Array) -> None:
    _leaf()
    one = target.dtype.type(1)
    for i in range(target.size):
        target[i] = _sigmoid(source[i], one)


@compiled
def _largest(x: Array, lanes: Array) -> Any:
    """The maximum. Sixteen maxima side by side vectorise; one would only if LLVM might assume that there is no NaN."""
    _leaf()
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
    _leaf()
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
# Matrix products. A weight is packed as [outs, stride]: a row holds the bias beside the weights and zeros up to a
# multiple of sixteen numbers, the input a one in that place; there are zero rows up to a multiple of eight. So loops
# have no ends to tidy up, rows begin at cache lines, and the bias needs no code of its own.


class Matrix(NamedTuple):
    """Where a weight matrix, its gradient and its pending outer products stand."""

    width: int
    outs: int
    split: int  # the bias stands after this many columns
    skip: int  # and the other columns from here on
    stride: int
    outs_stride: int
    at: int  # among the parameters
    packed: int  # among the packed weights
    pending: int


@compiled
def _pack(w: Matrix, parameters: Array, packed: Array) -> None:
    """Rows [first `split` weights, bias, zeros up to `skip`, the other weights, zeros]."""
    _leaf()
    _fill_zero(packed)
    for o in range(w.outs):
        row, own = _part(packed, o * w.stride, w.stride), _part(parameters, w.at + o * w.width, w.width)
        _copy(own, _part(row, 0, w.split))
        row[w.split] = parameters[w.at + w.outs * w.width + o]
        _copy(_part(own, w.split, w.width - w.split), _part(row, w.skip, w.width - w.split))


@compiled
def _unpack(w: Matrix, packed: Array, parameters: Array) -> None:
    _leaf()
    for o in range(w.outs):
        row, own = _part(packed, o * w.stride, w.stride), _part(parameters, w.at + o * w.width, w.width)
        _copy(row, _part(own, 0, w.split))
        parameters[w.at + w.outs * w.width + o] = row[w.split]
        _copy(_part(row, w.skip, w.width - w.split), _part(own, w.split, w.width - w.split))


@compiled
def _linear(weight: Array, stride: int, outs: int, x: Array, x_at: int, y_at: int, row_size: int, rows: int) -> None:
    """y = W x for every row; both stand in x. Eight outputs at a time: their weights stay in the first cache."""
    _leaf()
    zero = x.dtype.type(0)
    for o in range(0, outs, 8):
        w = _part(weight, o * stride, 8 * stride)
        w0, w1, w2, w3 = w, _part(w, stride, stride), _part(w, 2 * stride, stride), _part(w, 3 * stride, stride)
        w4, w5 = _part(w, 4 * stride, stride), _part(w, 5 * stride, stride)
        w6, w7 = _part(w, 6 * stride, stride), _part(w, 7 * stride, stride)
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
            y = _part(x, row * row_size + y_at + o, 8)
            y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7] = a0, a1, a2, a3, a4, a5, a6, a7


@compiled
def _linear_back(
    weight: Array, stride: int, outs: int, d: Array, d_y_at: int, d_x_at: int, row_size: int, rows: int
) -> None:
    """d_x = W' d_y for every row; both stand in d. Eight outputs at a time."""
    _leaf()
    for row in range(rows):
        _fill_zero(_part(d, row * row_size + d_x_at, stride))
    for o in range(0, outs, 8):
        w = _part(weight, o * stride, 8 * stride)
        w0, w1, w2, w3 = w, _part(w, stride, stride), _part(w, 2 * stride, stride), _part(w, 3 * stride, stride)
        w4, w5 = _part(w, 4 * stride, stride), _part(w, 5 * stride, stride)
        w6, w7 = _part(w, 6 * stride, stride), _part(w, 7 * stride, stride)
        for row in range(rows):
            g = _part(d, row * row_size + d_y_at + o, 8)
            d0, d1, d2, d3, d4, d5, d6, d7 = g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]
            d_x = _part(d, row * row_size + d_x_at, stride)
            for j in range(stride):
                a = d0 * w0[j] + d1 * w1[j] + d2 * w2[j] + d3 * w3[j]
                d_x[j] += a + (d4 * w4[j] + d5 * w5[j] + d6 * w6[j] + d7 * w7[j])


@compiled
def _outer_add(d_y: Array, x: Array, pairs: int, stride: int, outs: int, d_weight: Array) -> None:
    """d_W += sum of d_y x' over pairs (a multiple of eight, zeros at the end), two rows and eight pairs at a time."""
    _leaf()
    for o0 in range(0, outs, OUTER_BLOCK):
        for pair in range(0, pairs, 8):
            v = _part(x, pair * stride, 8 * stride)
            x0, x1, x2, x3 = v, _part(v, stride, stride), _part(v, 2 * stride, stride), _part(v, 3 * stride, stride)
            x4, x5 = _part(v, 4 * stride, stride), _part(v, 5 * stride, stride)
            x6, x7 = _part(v, 6 * stride, stride), _part(v, 7 * stride, stride)
            d = _part(d_y, pair * outs, 8 * outs)
            for o in range(o0, min(o0 + OUTER_BLOCK, outs), 2):
                a0, a1, a2, a3 = d[o], d[outs + o], d[2 * outs + o], d[3 * outs + o]
                a4, a5, a6, a7 = d[4 * outs + o], d[5 * outs + o], d[6 * outs + o], d[7 * outs + o]
                q = o + 1
                b0, b1, b2, b3 = d[q], d[outs + q], d[2 * outs + q], d[3 * outs + q]
                b4, b5, b6, b7 = d[4 * outs + q], d[5 * outs + q], d[6 * outs + q], d[7 * outs + q]
                d_a, d_b = _part(d_weight, o * stride, stride), _part(d_weight, q * stride, stride)
                for j in range(stride):
                    a = a0 * x0[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j]
                    d_a[j] += a + (a4 * x4[j] + a5 * x5[j] + a6 * x6[j] + a7 * x7[j])
                    b = b0 * x0[j] + b1 * x1[j] + b2 * x2[j] + b3 * x3[j]
                    d_b[j] += b + (b4 * x4[j] + b5 * x5[j] + b6 * x6[j] + b7 * x7[j])


@compiled
def _lstm_cell(gates: Array, cell: Array, new_cell: Array, tanh_cell: Array, hidden: Array) -> None:
    """Gates input, forget, candidate, output: pre-activations in, activations out."""
    _leaf()
    c = cell.size
    one = cell.dtype.type(1)
    i, f, g, o = _part(gates, 0, c), _part(gates, c, c), _part(gates, 2 * c, c), _part(gates, 3 * c, c)
    for j in range(c):
        i_j, f_j, g_j, o_j = _sigmoid(i[j], one), _sigmoid(f[j], one), tanh(g[j]), _sigmoid(o[j], one)
        i[j], f[j], g[j], o[j] = i_j, f_j, g_j, o_j
        c_j = f_j * cell[j] + i_j * g_j
        new_cell[j] = c_j
        tanh_j = tanh(c_j)
        tanh_cell[j] = tanh_j
        hidden[j] = o_j * tanh_j


@compiled
def _lstm_cell_back(
    gates: Array, cell: Array, tanh_cell: Array, d_hidden: Array, d_cell: Array, d_gates: Array
) -> None:
    """Gradients of the pre-activations; d_cell of the new cell becomes that of the old one."""
    _leaf()
    c = cell.size
    one = cell.dtype.type(1)
    i, f, g, o = _part(gates, 0, c), _part(gates, c, c), _part(gates, 2 * c, c), _part(gates, 3 * c, c)
    d_i, d_f, d_g, d_o = _part(d_gates, 0, c), _part(d_gates, c, c), _part(d_gates, 2 * c, c), _part(d_gates, 3 * c, c)
    for j in range(c):
        d_c = d_cell[j] + d_hidden[j] * o[j] * (one - tanh_cell[j] * tanh_cell[j])
        d_o[j] = d_hidden[j] * tanh_cell[j] * o[j] * (one - o[j])
        d_i[j] = d_c * g[j] * i[j] * (one - i[j])
        d_f[j] = d_c * cell[j] * f[j] * (one - f[j])
        d_g[j] = d_c * i[j] * (one - g[j] * g[j])
        d_cell[j] = d_c * f[j]


@compiled
def _tanh_layer_back(hidden: Array, d_hidden: Array, d_gates: Array) -> None:
    _leaf()
    one = hidden.dtype.type(1)
    for j in range(d_hidden.size):
        d_gates[j] = d_hidden[j] * (one - hidden[j] * hidden[j])


# ---------------------------------------------------------------------------------------------------------------------
# Passes over a memory, in blocks of slots


class Tape(NamedTuple):
    """A memory: entry m of slot i stands at m * n + i."""

    entries: Array
    n: int
    width: int


@inlined
def _row(tape: Tape, m: int, first: int, size: int) -> Array:
    """Entry m of `size` slots from `first` on."""
    row: Array = _part(tape.entries, m * tape.n + first, size)
    return row


@compiled
def _weigh_rows(coefficients: Array, tape: Tape, target: Array) -> None:
    """target(i) += sum_m c_m M_m(i)."""
    _leaf()
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        out = _part(target, first, size)
        whole = tape.width // 4 * 4
        for m in range(0, whole, 4):
            x0, x1 = _row(tape, m, first, size), _row(tape, m + 1, first, size)
            x2, x3 = _row(tape, m + 2, first, size), _row(tape, m + 3, first, size)
            c0, c1, c2, c3 = coefficients[m], coefficients[m + 1], coefficients[m + 2], coefficients[m + 3]
            for i in range(size):
                out[i] += c0 * x0[i] + c1 * x1[i] + c2 * x2[i] + c3 * x3[i]
        for m in range(whole, tape.width):
            x0, c0 = _row(tape, m, first, size), coefficients[m]
            for i in range(size):
                out[i] += c0 * x0[i]


@compiled
def _weigh_slots(weighting: Array, tape: Tape, target: Array) -> None:
    """Eq. 2: target_m = sum_i w(i) M_m(i)."""
    _leaf()
    zero = target.dtype.type(0)
    _fill_zero(target)
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        w = _part(weighting, first, size)
        whole = tape.width // 4 * 4
        for m in range(0, whole, 4):
            x0, x1 = _row(tape, m, first, size), _row(tape, m + 1, first, size)
            x2, x3 = _row(tape, m + 2, first, size), _row(tape, m + 3, first, size)
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
            x0, a0 = _row(tape, m, first, size), zero
            for i in range(size):
                a0 += w[i] * x0[i]
            target[m] += a0


@compiled
def _invert_norms(squares: Array, tape: Tape, first: int) -> None:
    """Squared norms of the slots from `first` on become 1 / sqrt(. + epsilon), the norms' part of Eq. 6.

    Where squares come near overflow, entries are divided by the largest one first, as in `equations`.
    """
    _leaf()
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
def _slot_norms(tape: Tape, inverse_norms: Array) -> None:
    _leaf()
    _fill_zero(inverse_norms)
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        squares = _part(inverse_norms, first, size)
        for m in range(tape.width):
            x = _row(tape, m, first, size)
            for i in range(size):
                squares[i] += x[i] * x[i]
        _invert_norms(squares, tape, first)


@compiled
def _write(
    tape: Tape, weightings: Array, stride: int, heads: int, erases: Array, ask_size: int, inverse_norms: Array
) -> None:
    """Eqs. 3 and 4: M_m(i) <- M_m(i) prod_h (1 - w_h(i) e_hm) + sum_h w_h(i) a_hm, and the new norms of the slots.

    weightings: one every `stride` numbers. erases: e, then a of a head every `ask_size` numbers.
    """
    _leaf()
    one = weightings.dtype.type(1)
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        squares = _part(inverse_norms, first, size)
        _fill_zero(squares)
        for m in range(tape.width):
            x = _row(tape, m, first, size)
            if heads == 1:
                w, e, a = _part(weightings, first, size), erases[m], erases[tape.width + m]
                for i in range(size):
                    y = x[i] * (one - w[i] * e) + w[i] * a
                    x[i] = y
                    squares[i] += y * y
            else:
                for h in range(heads):
                    w, e = _part(weightings, h * stride + first, size), erases[h * ask_size + m]
                    for i in range(size):
                        x[i] *= one - w[i] * e
                for h in range(heads):
                    w, a = _part(weightings, h * stride + first, size), erases[h * ask_size + tape.width + m]
                    for i in range(size):
                        x[i] += w[i] * a
                for i in range(size):
                    squares[i] += x[i] * x[i]
        _invert_norms(squares, tape, first)


@compiled
def _write_back(
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
    _leaf()
    zero = weighting.dtype.type(0)
    _fill_zero(d_erase)
    _fill_zero(d_add)
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        w, d_w = _part(weighting, first, size), _part(d_weighting, first, size)
        for m in range(tape.width):
            x, d = _row(tape, m, first, size), _row(d_tape, m, first, size)
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
def _write_back_many(
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
    """The same for several write heads, whose arrays stand as in `_write`."""
    _leaf()
    zero, one = weightings.dtype.type(0), weightings.dtype.type(1)
    for h in range(heads):
        _fill_zero(_part(d_erases, h * d_ask_size, 2 * tape.width))
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        for m in range(tape.width):
            x, d = _row(tape, m, first, size), _row(d_tape, m, first, size)
            # before_h = M prod_{k<h} (1 - w_k e_k), after = prod_{k>h} (1 - w_k e_k): no division, 1 - w e may be zero
            for i in range(size):
                before[i] = x[i]
                after[i] = one
            for h in range(heads - 1):
                w, e = _part(weightings, h * stride + first, size), erases[h * ask_size + m]
                b, c = _part(before, h * SLOT_BLOCK, size), _part(before, (h + 1) * SLOT_BLOCK, size)
                for i in range(size):
                    c[i] = b[i] * (one - w[i] * e)
            for h in range(heads - 1, -1, -1):
                w, d_w = _part(weightings, h * stride + first, size), _part(d_weightings, h * stride + first, size)
                e, a = erases[h * ask_size + m], erases[h * ask_size + tape.width + m]
                b = _part(before, h * SLOT_BLOCK, size)
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
def _memory_gradient(
    tape: Tape, d_tape: Tape, alpha: Array, delta: Array, key: Array, weighting: Array, d_read: Array, sums: Array
) -> None:
    """d_M_m(i) += alpha(i) k_m + delta(i) M_m(i) + w(i) d_r_m, and sums_m = sum_i alpha(i) M_m(i)."""
    _leaf()
    _fill_zero(sums)
    for first in range(0, tape.n, SLOT_BLOCK):
        size = min(SLOT_BLOCK, tape.n - first)
        p, q, w = _part(alpha, first, size), _part(delta, first, size), _part(weighting, first, size)
        for m in range(tape.width):
            x, d = _row(tape, m, first, size), _row(d_tape, m, first, size)
            k, g = key[m], d_read[m]
            total = sums.dtype.type(0)
            for i in range(size):
                total += p[i] * x[i]
                d[i] += p[i] * k + q[i] * x[i] + w[i] * g
            sums[m] += total


# ---------------------------------------------------------------------------------------------------------------------
# Addressing, Eqs. 5 to 9. `ask` holds what one head asks for, after the activations:
#   key [M], strength, gate, sharpening, 1 / |key|, shift weights [2r+1]; a write head's goes on with
#   erase [M], add [M], write gate.
# `ring` is a weighting with r more slots on either side, so that the circular shift is a plain sum.


class Head(NamedTuple):
    """One head at one step, in a row's record."""

    ask: Array
    inverse_norms: Array  # [n], of the slots that it sees
    previous: Array  # [n], its weighting before
    similarity: Array  # [n]: Eq. 6
    content: Array  # [n]: Eq. 5
    weighting: Array  # [n]: Eq. 9


class Spare(NamedTuple):
    """Working memory of `_address` and `_address_back`."""

    key: Array  # [M], of norm one
    ring: Array  # [n + 2r]
    d_ring: Array
    shifted: Array  # [n]
    logs: Array
    lanes: Array


@compiled
def _close_ring(ring: Array, n: int, r: int) -> None:
    _leaf()
    for i in range(r):
        ring[i] = ring[r + (i - r) % n]
        ring[r + n + i] = ring[r + i % n]


@compiled
def _shift(ring: Array, shifts: Array, backwards: bool, target: Array) -> None:
    """Eq. 8: target(i) = sum_j s_j w(i - (j - r)); backwards, its transpose, target(i) = sum_j s_j w(i + (j - r))."""
    _leaf()
    taps, n = shifts.size, target.size
    if taps == 3:
        a, b = (shifts[0], shifts[2]) if backwards else (shifts[2], shifts[0])
        c = shifts[1]
        w0, w1, w2 = ring, _part(ring, 1, n), _part(ring, 2, n)
        for i in range(n):
            target[i] = a * w0[i] + c * w1[i] + b * w2[i]
    else:
        _fill_zero(target)
        for j in range(taps):
            w0, s = _part(ring, j if backwards else taps - 1 - j, n), shifts[j]
            for i in range(n):
                target[i] += s * w0[i]


@compiled
def _interpolate(gate: Any, content: Array, previous: Array, middle: Array) -> None:
    """Eq. 7, into the middle of a ring."""
    _leaf()
    rest = content.dtype.type(1) - gate
    for i in range(content.size):
        middle[i] = gate * content[i] + rest * previous[i]


@compiled
def _log_all(x: Array, target: Array) -> None:
    _leaf()
    epsilon = x.dtype.type(SHARPEN_EPSILON)
    for i in range(target.size):
        target[i] = log(x[i] + epsilon)


@inlined
def _refocus(head: Head, spare: Spare, tape: Tape, r: int) -> None:
    """Eqs. 7 and 8 and the logarithms of Eq. 9, from content and previous weighting: into ring, shifted and logs."""
    n, width = tape.n, tape.width
    _interpolate(head.ask[width + 1], head.content, head.previous, _part(spare.ring, r, n))
    _close_ring(spare.ring, n, r)
    _shift(spare.ring, _part(head.ask, width + 4, 2 * r + 1), False, spare.shifted)
    _log_all(spare.shifted, spare.logs)


@compiled
def _address(head: Head, spare: Spare, tape: Tape, r: int) -> None:
    """Figure 2 of the paper: a head's new weighting."""
    _leaf()
    ask, similarity, norms = head.ask, head.similarity, head.inverse_norms
    n, width = tape.n, tape.width
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    for m in range(width):
        spare.key[m] = ask[m] * ask[width + 3]
    _fill_zero(similarity)
    _weigh_rows(spare.key, tape, similarity)
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
    _softmax(similarity, ask[width], head.content, spare.lanes)  # Eq. 5
    _refocus(head, spare, tape, r)
    _softmax(spare.logs, ask[width + 2], head.weighting, spare.lanes)  # Eq. 9


@compiled
def _address_back(
    head: Head, spare: Spare, tape: Tape, r: int, d_tape: Tape, d_weighting: Array, d_read: Array, d_ask: Array
) -> None:
    """Backward of `_address` and of Eq. 2; d_weighting becomes the gradient of the previous weighting.

    d_ask: as ask, gradients of key, strength, gate, sharpening, (unused), shift weights.
    """
    _leaf()
    ask, previous, similarity, content, weighting = (
        head.ask,
        head.previous,
        head.similarity,
        head.content,
        head.weighting,
    )
    n, width = tape.n, tape.width
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    beta, gate, gamma, inverse = ask[width], ask[width + 1], ask[width + 2], ask[width + 3]
    _refocus(head, spare, tape, r)
    shifted, logs = spare.shifted, spare.logs

    # Eq. 9: with u = log(w~ + epsilon), w = softmax(gamma u)
    mean, mean_log, d_gamma = zero, zero, zero
    for i in range(n):
        mean += weighting[i] * d_weighting[i]
        mean_log += weighting[i] * logs[i]
    d_shifted = _part(spare.d_ring, r, n)
    epsilon = ask.dtype.type(SHARPEN_EPSILON)
    for i in range(n):
        d_z = weighting[i] * (d_weighting[i] - mean)
        d_gamma += d_z * (
            logs[i] - mean_log
        )  # the d_z sum to zero: subtracting a constant costs no truth, saves digits
        d_shifted[i] = gamma * d_z / (shifted[i] + epsilon)

    # Eq. 8
    taps = 2 * r + 1
    shifts = _part(ask, width + 4, taps)
    for j in range(taps):
        w, total = _part(spare.ring, taps - 1 - j, n), zero
        for i in range(n):
            total += d_shifted[i] * w[i]
        d_ask[width + 4 + j] = total
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
    for m in range(width):
        spare.key[m] = ask[m] * inverse
    sums = _part(d_ask, 0, width)
    _memory_gradient(tape, d_tape, alpha, delta, spare.key, weighting, d_read, sums)
    for m in range(width):
        d_ask[m] = (sums[m] - along * spare.key[m]) * inverse
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
fixed_tuple: Any = unsafe.to_fixed_tuple


# The tensors cross into the kernel as a table of addresses: unpacking some forty arrays would take longer than a step.
(PARAMETERS, INPUTS, LENGTHS, SLOTS, OUTPUTS, D_OUTPUTS, D_PARAMETERS, D_INPUTS, TARGETS, MASK, COSTS, KEPT) = range(12)
STATE, FINAL, D_FINAL, D_STATE = 12, 18, 24, 30  # six addresses each, in the order of ScanState
TABLE_SIZE = 36


@inlined
def _matrix(p: Plan, k: int) -> Matrix:
    """Matrix k: the controller's layers, the interface, the output."""
    if k == 0:
        stride = p.first_stride
        return Matrix(p.first_width, p.gates, p.first_width, stride, stride, p.gates_stride, 0, 0, 0)
    above = min(k, p.L) - 1  # layers between the first one and this matrix
    stride, at = p.next_stride, p.gates * (p.first_width + 1) + above * p.gates * (p.next_width + 1)
    packed = (p.first_stride + above * stride) * p.gates_stride
    pending = PENDING * (p.first_stride + above * stride + (above + 1) * p.gates_stride)
    if k < p.L:
        return Matrix(p.next_width, p.gates, p.next_width, stride, stride, p.gates_stride, at, packed, pending)
    stride = p.hidden_stride
    if k == p.L:
        return Matrix(p.C, p.F, p.C, stride, stride, p.F_stride, p.interface_p, packed, pending)
    packed += stride * p.F_stride
    pending += PENDING * (stride + p.F_stride)
    return Matrix(p.output_width, p.O, p.C, stride, p.output_stride, p.logits_stride, p.output_p, packed, pending)


@inlined
def _pack_all(p: Plan, table: Array, seed: int, shared: Array) -> None:
    parameters = _part(_array_at(table[PARAMETERS], shared, p.S * p.P), seed * p.P, p.P)
    for k in range(p.L + 2):
        w = _matrix(p, k)
        _pack(w, parameters, _part(shared, p.packed_g + w.packed, w.outs_stride * w.stride))


@inlined
def _unpack_all(p: Plan, shared: Array, d_parameters: Array) -> None:
    for k in range(p.L + 2):
        w = _matrix(p, k)
        _unpack(w, _part(shared, p.d_packed_g + w.packed, w.outs_stride * w.stride), d_parameters)


@compiled
def _apply(p: Plan, k: int, shared: Array, records: Array, x_at: int, y_at: int, rows: int) -> None:
    w = _matrix(p, k)
    weight = _part(shared, p.packed_g + w.packed, w.outs_stride * w.stride)
    _linear(weight, w.stride, w.outs_stride, records, x_at, y_at, p.record, rows)


@compiled
def _apply_back(p: Plan, k: int, shared: Array, works: Array, d_y_at: int, d_x_at: int, rows: int) -> None:
    w = _matrix(p, k)
    weight = _part(shared, p.packed_g + w.packed, w.outs_stride * w.stride)
    _linear_back(weight, w.stride, w.outs_stride, works, d_y_at, d_x_at, p.work, rows)


@compiled
def _pend(p: Plan, k: int, pair: int, shared: Array, x: Array, x_at: int, d_y: Array, d_y_at: int) -> None:
    """Notes that matrix k took an input and has a gradient at its output: an outer product to be added later."""
    w = _matrix(p, k)
    at = p.pending_g + w.pending
    _copy(_part(x, x_at, w.stride), _part(shared, at + pair * w.stride, w.stride))
    at += PENDING * w.stride
    _copy(_part(d_y, d_y_at, w.outs_stride), _part(shared, at + pair * w.outs_stride, w.outs_stride))


@compiled
def _flush(p: Plan, pairs: int, shared: Array) -> None:
    """Adds all pending outer products to the gradients of the weights."""
    whole = (pairs + 7) // 8 * 8
    for k in range(p.L + 2):
        w = _matrix(p, k)
        x = _part(shared, p.pending_g + w.pending, whole * w.stride)
        d_y = _part(shared, p.pending_g + w.pending + PENDING * w.stride, whole * w.outs_stride)
        _fill_zero(_part(x, pairs * w.stride, (whole - pairs) * w.stride))
        _fill_zero(_part(d_y, pairs * w.outs_stride, (whole - pairs) * w.outs_stride))
        d_weight = _part(shared, p.d_packed_g + w.packed, w.outs_stride * w.stride)
        _outer_add(d_y, x, whole, w.stride, w.outs_stride, d_weight)


@inlined
def _input_at(p: Plan, layer: int, t: int) -> int:
    """Where a layer's input of step t stands in a record."""
    if layer == 0:
        return p.v_at + t * p.first_stride
    return p.v_at + (p.first_stride + (layer - 1) * p.next_stride) * p.steps + t * p.next_stride


# ---------------------------------------------------------------------------------------------------------------------
# States in and out. `at` is s * B + b, the place of a row in them.


@compiled
def _load_tape(source: Array, tape: Tape) -> None:
    """[N, M] -> [M, n]"""
    _leaf()
    for m in range(tape.width):
        row = _row(tape, m, 0, tape.n)
        for i in range(tape.n):
            row[i] = source[i * tape.width + m]


@compiled
def _store_tape(tape: Tape, target: Array) -> None:
    """[M, n] -> [N, M]"""
    _leaf()
    for i in range(tape.n):
        row = _part(target, i * tape.width, tape.width)
        for m in range(tape.width):
            row[m] = tape.entries[m * tape.n + i]


@inlined
def _state_part(p: Plan, table: Array, index: int, at: int, size: int, like: Array) -> Array:
    """A row's numbers, `size` of them, in one tensor of a state."""
    part: Array = _part(_array_at(table[index], like, p.S * p.B * size), at * size, size)
    return part


@inlined
def _load_state(
    p: Plan, table: Array, first: int, at: int, tape: Tape, weightings: Array, reads: Array, hidden: Array
) -> None:
    """A row's part of a state (or of its gradient), all but the cell."""
    n = tape.n
    _load_tape(_state_part(p, table, first, at, p.N * p.M, reads), tape)
    reading = _state_part(p, table, first + 1, at, p.R * p.N, reads)
    for h in range(p.R):
        _copy(_part(reading, h * p.N, n), _part(weightings, h * p.N, n))
    writing = _state_part(p, table, first + 2, at, p.W * p.N, reads)
    for h in range(p.W):
        _copy(_part(writing, h * p.N, n), _part(weightings, (p.R + h) * p.N, n))
    _copy(_state_part(p, table, first + 3, at, p.R * p.M, reads), reads)
    if p.lstm == 1:
        _copy(_state_part(p, table, first + 4, at, p.L * p.C, reads), hidden)


@inlined
def _store_state(
    p: Plan, table: Array, old: int, new: int, at: int, tape: Tape, weightings: Array, reads: Array, hidden: Array
) -> None:
    """The inverse of `_load_state`; what lies beyond the row's slots is copied from the state at `old`."""
    n = tape.n
    memory = _state_part(p, table, new, at, p.N * p.M, reads)
    _store_tape(tape, memory)
    unused = (p.N - n) * p.M
    _copy(
        _part(_state_part(p, table, old, at, p.N * p.M, reads), n * p.M, unused),
        _part(memory, n * p.M, unused),
    )
    for h in range(p.R + p.W):
        heads, index, place = (p.R, 1, h) if h < p.R else (p.W, 2, h - p.R)
        target = _state_part(p, table, new + index, at * heads + place, p.N, reads)
        _copy(_part(weightings, h * p.N, n), _part(target, 0, n))
        source = _state_part(p, table, old + index, at * heads + place, p.N, reads)
        _copy(_part(source, n, p.N - n), _part(target, n, p.N - n))
    _copy(reads, _state_part(p, table, new + 3, at, p.R * p.M, reads))
    if p.lstm == 1:
        _copy(hidden, _state_part(p, table, new + 4, at, p.L * p.C, reads))


# ---------------------------------------------------------------------------------------------------------------------
# The interface


@compiled
def _clip(limit: Any, raw: Array, target: Array) -> None:
    """The interface as the heads see it. NaN passes."""
    _leaf()
    for i in range(raw.size):
        x = raw[i]
        x = limit if x > limit else x
        target[i] = -limit if x < -limit else x


@compiled
def _activate(raw: Array, ask: Array, width: int, r: int, raw_size: int, key_tanh: int, soft_shift: int) -> None:
    """What one head asks for: the addressing part of the interface after its activations."""
    _leaf()
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    if key_tanh == 1:
        _tanh_all(raw, _part(ask, 0, width))
    else:
        _copy(raw, _part(ask, 0, width))
    scale, total = one, ask.dtype.type(NORM_EPSILON)
    for m in range(width):
        scale = max(scale, abs(ask[m]))
    for m in range(width):
        k = ask[m] / scale
        total += k * k
    ask[width] = _softplus(raw[width])
    ask[width + 1] = _sigmoid(raw[width + 1], one)
    ask[width + 2] = one + _softplus(raw[raw_size - 1])
    ask[width + 3] = one / (scale * math.sqrt(total))
    shifts = _part(ask, width + 4, 2 * r + 1)
    if soft_shift == 1:
        x = _part(raw, width + 2, 2 * r + 1)
        top, total = x[0], zero
        for j in range(x.size):
            top = max(top, x[j])
        for j in range(x.size):
            shifts[j] = exp(x[j] - top)
            total += shifts[j]
        for j in range(x.size):
            shifts[j] /= total
    else:
        amount = r * tanh(raw[width + 2])
        whole = np.floor(amount)
        for j in range(shifts.size):
            shifts[j] = zero
            if j - r == whole:
                shifts[j] = ask.dtype.type(one - (amount - whole))
            if j - r == whole + 1 or amount != amount:  # NaN equals nothing, but must come out
                shifts[j] = ask.dtype.type(amount - whole)


@compiled
def _activate_back(
    raw: Array,
    ask: Array,
    d_ask: Array,
    d_raw: Array,
    width: int,
    r: int,
    raw_size: int,
    key_tanh: int,
    soft_shift: int,
) -> None:
    _leaf()
    zero, one = ask.dtype.type(0), ask.dtype.type(1)
    for m in range(width):
        d_raw[m] = d_ask[m] * (one - ask[m] * ask[m]) if key_tanh == 1 else d_ask[m]
    d_raw[width] = d_ask[width] * _softplus_slope(raw[width], one)
    d_raw[width + 1] = d_ask[width + 1] * ask[width + 1] * (one - ask[width + 1])
    d_raw[raw_size - 1] = d_ask[width + 2] * _softplus_slope(raw[raw_size - 1], one)
    shifts, d_shifts = _part(ask, width + 4, 2 * r + 1), _part(d_ask, width + 4, 2 * r + 1)
    if soft_shift == 1:
        mean = zero
        for j in range(shifts.size):
            mean += shifts[j] * d_shifts[j]
        for j in range(shifts.size):
            d_raw[width + 2 + j] = shifts[j] * (d_shifts[j] - mean)
    else:
        part = tanh(raw[width + 2])
        whole = np.floor(r * part)
        d_amount = zero
        for j in range(shifts.size):
            if j - r == whole:
                d_amount -= d_shifts[j]
            if j - r == whole + 1:
                d_amount += d_shifts[j]
        d_raw[width + 2] = ask.dtype.type(d_amount * r * (one - part * part))


# ---------------------------------------------------------------------------------------------------------------------
# One step of one row's memory. `now` and `following` are where a record holds what was before and after the step.


@inlined
def _tape_at(p: Plan, buffer: Array, at: int, n: int) -> Tape:
    return Tape(_part(buffer, at, p.M * n), n, p.M)


@inlined
def _ask_at(p: Plan, head: int, now: int) -> int:
    at = p.ask_at + now * p.asks
    return at + (head * p.ask_read if head < p.R else p.R * p.ask_read + (head - p.R) * p.ask_write)


@inlined
def _raw_start(p: Plan, head: int) -> int:
    """Where a head's part of the interface begins."""
    return head * p.raw_read if head < p.R else p.R * p.raw_read + (head - p.R) * p.raw_write


@inlined
def _head(p: Plan, record: Array, head: int, now: int, following: int, seen: int, n: int) -> Head:
    """A head in the record; `seen` is the step whose memory it addresses."""
    at = (now * (p.R + p.W) + head) * p.N
    return Head(
        _part(record, _ask_at(p, head, now), p.ask_read),
        _part(record, p.norms_at + seen * p.N, n),
        _part(record, p.weighting_at + at, n),
        _part(record, p.similarity_at + at, n),
        _part(record, p.content_at + at, n),
        _part(record, p.weighting_at + (following * (p.R + p.W) + head) * p.N, n),
    )


@inlined
def _spare(p: Plan, shared: Array, n: int) -> Spare:
    return Spare(
        _part(shared, p.key_g, p.M),
        _part(shared, p.ring_g, n + 2 * p.r),
        _part(shared, p.d_ring_g, n + 2 * p.r),
        _part(shared, p.spare_g, n),
        _part(shared, p.logs_g, n),
        _part(shared, p.lanes_g, LANES),
    )


@compiled
def _effective(p: Plan, record: Array, now: int, following: int, n: int, target: Array) -> None:
    """Write weightings [W, N] times the write gates."""
    for h in range(p.W):
        g = record[_ask_at(p, p.R + h, now) + p.ask_read + 2 * p.M]
        source = _part(record, p.weighting_at + (following * (p.R + p.W) + p.R + h) * p.N, n)
        for i in range(n):
            target[h * p.N + i] = g * source[i]


@compiled
def _write_step(p: Plan, record: Array, now: int, following: int, tape: Tape, norms: Array, shared: Array) -> None:
    """The writes of one step, from the record: in the forward pass and, replayed, in the backward pass."""
    if p.W == 0:
        _slot_norms(tape, norms)
        return
    weightings = _part(record, p.weighting_at + (following * (p.R + p.W) + p.R) * p.N, p.W * p.N)
    if p.write_gate == 1:
        weightings = _part(shared, p.effective_g, p.W * p.N)
        _effective(p, record, now, following, tape.n, weightings)
    erases_at = _ask_at(p, p.R, now) + p.ask_read
    erases = _part(record, erases_at, p.W * p.ask_write - p.ask_read)
    _write(tape, weightings, p.N, p.W, erases, p.ask_write, norms)


@inlined
def _ask_all(p: Plan, clip: Any, record: Array, now: int, shared: Array) -> None:
    """The activations of the whole interface."""
    one = record.dtype.type(1)
    raw = _part(record, p.raw_at + now * p.F_stride, p.F)
    if p.clipped == 1:
        _clip(clip, raw, _part(shared, p.raw_g, p.F))
        raw = _part(shared, p.raw_g, p.F)
    for h in range(p.R + p.W):
        own = _part(raw, _raw_start(p, h), p.raw_read)
        ask = _part(record, _ask_at(p, h, now), p.ask_read)
        _activate(own, ask, p.M, p.r, p.raw_read, p.key_tanh, p.soft_shift)
        if h >= p.R:
            own = _part(raw, _raw_start(p, h) + p.raw_read, p.raw_write - p.raw_read)  # erase, add, gate
            ask = _part(record, _ask_at(p, h, now) + p.ask_read, 2 * p.M + 1)
            _sigmoid_all(own, _part(ask, 0, p.M))
            if p.add_kind == 0:
                _copy(_part(own, p.M, p.M), _part(ask, p.M, p.M))
            elif p.add_kind == 1:
                _tanh_all(_part(own, p.M, p.M), _part(ask, p.M, p.M))
            else:
                _sigmoid_all(_part(own, p.M, p.M), _part(ask, p.M, p.M))
            ask[2 * p.M] = _sigmoid(own[2 * p.M], one) if p.write_gate == 1 else one


@inlined
def _memory_step(
    p: Plan, clip: Any, record: Array, work: Array, shared: Array, now: int, following: int, n: int
) -> None:
    """All heads on the tape of one row, in the order of the specification."""
    _ask_all(p, clip, record, now, shared)
    tape, spare = _tape_at(p, work, p.memory_w, n), _spare(p, shared, n)
    for turn in range(2):
        writing = turn == 0 if p.read_after_write == 1 else turn == 1
        seen = now if writing or p.read_after_write == 0 else following
        first, last = (p.R, p.R + p.W) if writing else (0, p.R)
        for h in range(first, last):
            head = _head(p, record, h, now, following, seen, n)
            _address(head, spare, tape, p.r)
            if not writing:
                _weigh_slots(head.weighting, tape, _part(work, p.reads_w + h * p.M, p.M))
        if writing:
            _write_step(p, record, now, following, tape, _part(record, p.norms_at + following * p.N, n), shared)


@inlined
def _write_step_back(p: Plan, record: Array, work: Array, shared: Array, t: int, tape: Tape, d_tape: Tape) -> None:
    """Backward of Eqs. 3 and 4, of the write gates and of the activations of erase and add."""
    zero, one = record.dtype.type(0), record.dtype.type(1)
    weightings_at = p.weighting_at + ((t + 1) * (p.R + p.W) + p.R) * p.N
    weightings, d_weightings = (
        _part(record, weightings_at, p.W * p.N),
        _part(work, p.d_weighting_w + p.R * p.N, p.W * p.N),
    )
    effective, d_effective = weightings, d_weightings
    if p.write_gate == 1:
        effective, d_effective = _part(shared, p.effective_g, p.W * p.N), _part(shared, p.d_effective_g, p.W * p.N)
        _effective(p, record, t, t + 1, tape.n, effective)
        _fill_zero(d_effective)
    asks = _part(record, _ask_at(p, p.R, t) + p.ask_read, p.W * p.ask_write - p.ask_read)
    d_raws = _part(work, p.d_raw_w + _raw_start(p, p.R) + p.raw_read, p.W * p.raw_write - p.raw_read)
    if p.W == 1:
        erase, add, d_erase, d_add = asks, _part(asks, p.M, p.M), _part(d_raws, 0, p.M), _part(d_raws, p.M, p.M)
        _write_back(tape, d_tape, effective, d_effective, erase, add, d_erase, d_add)
    else:
        before, after = _part(shared, p.before_g, p.W * SLOT_BLOCK), _part(shared, p.after_g, SLOT_BLOCK)
        _write_back_many(
            tape, d_tape, effective, d_effective, p.N, p.W, asks, p.ask_write, d_raws, p.raw_write, before, after
        )
    for h in range(p.W):
        ask, d_raw = _part(asks, h * p.ask_write, 2 * p.M + 1), _part(d_raws, h * p.raw_write, 2 * p.M + p.write_gate)
        for m in range(p.M):
            d_raw[m] *= ask[m] * (one - ask[m])
        for m in range(p.M, 2 * p.M):
            if p.add_kind == 1:
                d_raw[m] *= one - ask[m] * ask[m]
            elif p.add_kind == 2:
                d_raw[m] *= ask[m] * (one - ask[m])
        if p.write_gate == 1:
            g, d_g = ask[2 * p.M], zero
            for i in range(h * p.N, h * p.N + tape.n):
                d_g += d_effective[i] * weightings[i]
                d_weightings[i] += g * d_effective[i]
            d_raw[2 * p.M] = d_g * g * (one - g)


@inlined
def _memory_step_back(p: Plan, clip: Any, record: Array, work: Array, shared: Array, t: int, n: int) -> None:
    """Backward of `_memory_step`: gradients of the interface, of the memory and of the weightings before the step."""
    raw, seen_raw = _part(record, p.raw_at + t * p.F_stride, p.F), _part(record, p.raw_at + t * p.F_stride, p.F)
    if p.clipped == 1:
        seen_raw = _part(shared, p.raw_g, p.F)
        _clip(clip, raw, seen_raw)
    at = p.replay_w + (t % p.segment) * p.M * p.N
    before, after = _tape_at(p, work, at, n), _tape_at(p, work, at + p.M * p.N, n)
    d_tape, spare = _tape_at(p, work, p.d_memory_w, n), _spare(p, shared, n)
    d_ask, d_read = _part(shared, p.d_ask_g, p.ask_read), _part(shared, p.zeros_g, p.M)
    for turn in range(2):
        writing = turn == 1 if p.read_after_write == 1 else turn == 0
        if writing and p.W > 0:
            _write_step_back(p, record, work, shared, t, before, d_tape)
        late = not writing and p.read_after_write == 1
        first, last = (p.R, p.R + p.W) if writing else (0, p.R)
        for h in range(first, last):
            tape = after if late else before
            d_weighting = _part(work, p.d_weighting_w + h * p.N, n)
            d_read = _part(shared, p.zeros_g, p.M)
            if not writing:
                d_read = _part(work, p.d_reads_w + h * p.M, p.M)
                _weigh_rows(d_read, tape, d_weighting)
            head = _head(p, record, h, t, t + 1, t + 1 if late else t, n)
            _address_back(head, spare, tape, p.r, d_tape, d_weighting, d_read, d_ask)
            own, d_own = (
                _part(seen_raw, _raw_start(p, h), p.raw_read),
                _part(work, p.d_raw_w + _raw_start(p, h), p.raw_read),
            )
            _activate_back(own, head.ask, d_ask, d_own, p.M, p.r, p.raw_read, p.key_tanh, p.soft_shift)
    if p.clipped == 1:
        for i in range(p.F):
            if raw[i] > clip or raw[i] < -clip:
                work[p.d_raw_w + i] = record.dtype.type(0)


@compiled
def _replay(p: Plan, record: Array, work: Array, shared: Array, t: int, n: int) -> None:
    """The memories before the steps of t's segment up to t, and after t: the same writes as in the forward pass."""
    size = p.M * n
    begin = t - t % p.segment
    _copy(_part(record, p.memory_at + (t // p.segment) * p.M * p.N, size), _part(work, p.replay_w, size))
    for k in range(t - begin + p.read_after_write):
        at = p.replay_w + k * p.M * p.N
        tape = _tape_at(p, work, at + p.M * p.N, n)
        _copy(_part(work, at, size), tape.entries)
        if p.W > 0:
            _write_step(p, record, begin + k, begin + k + 1, tape, _part(shared, p.spare_g, n), shared)


# ---------------------------------------------------------------------------------------------------------------------
# The rows of a group


@inlined
def _sort_rows(p: Plan, table: Array, integers: Array, seed: int, group: int) -> int:
    """How many rows there are; into `integers` their places in the batch, lengths and slots, the longest row first."""
    first = group * p.rows
    rows = min(p.rows, p.B - first)
    lengths = _part(_array_at(table[LENGTHS], integers, p.S * p.B), seed * p.B, p.B)
    slots = _part(_array_at(table[SLOTS], integers, p.S * p.B), seed * p.B, p.B)
    for i in range(rows):  # insertion sort, stable
        j = i
        while j > 0 and integers[GROUP_ROWS + j - 1] < lengths[first + i]:
            integers[j], integers[GROUP_ROWS + j] = integers[j - 1], integers[GROUP_ROWS + j - 1]
            j -= 1
        integers[j], integers[GROUP_ROWS + j] = first + i, lengths[first + i]
    for i in range(rows):
        integers[2 * GROUP_ROWS + i] = slots[integers[i]]
    return rows


@inlined
def _records(p: Plan, table: Array, scratch: Array, seed: int, group: int) -> Array:
    """The records of the group's rows: in `kept`, or in scratch memory behind the working memory."""
    at = GAP + p.rows * p.work + p.shared
    found: Array = _part(scratch, at, scratch.size - at)
    if p.keep == 1:
        at = (seed * p.B + group * p.rows) * p.record
        found = _part(_array_at(table[KEPT], scratch, p.S * p.B * p.record), at, p.S * p.B * p.record - at)
    return found


@inlined
def _start_row(p: Plan, table: Array, at: int, n: int, record: Array, work: Array) -> None:
    """The initial state of a row, from where it starts."""
    tape = _tape_at(p, work, p.memory_w, n)
    weightings = _part(record, p.weighting_at, (p.R + p.W) * p.N)
    reads, hidden = _part(work, p.reads_w, p.R * p.M), _part(work, p.hidden_w, p.L * p.C)
    _load_state(p, table, STATE, at, tape, weightings, reads, hidden)
    if p.lstm == 1:
        cells = _state_part(p, table, STATE + 5, at, p.L * p.C, work)
        for layer in range(p.L):
            _copy(_part(cells, layer * p.C, p.C), _part(record, p.cells_at + layer * (p.steps + 1) * p.C, p.C))
    _slot_norms(tape, _part(record, p.norms_at, n))


@inlined
def _set_one(x: Array, at: int) -> None:
    """The input's one for the bias, and zeros behind it."""
    _fill_zero(_part(x, at, x.size - at))
    x[at] = x.dtype.type(1)


@inlined
def _first_input(p: Plan, table: Array, step: int, record: Array, work: Array, now: int) -> None:
    """[x; reads; hidden; 1]"""
    reads = p.R * p.M
    x = _part(_array_at(table[INPUTS], record, p.S * p.T * p.B * p.I), step * p.I, p.I)
    v = _part(record, _input_at(p, 0, now), p.first_stride)
    _copy(x, _part(v, 0, p.I))
    _copy(_part(work, p.reads_w, reads), _part(v, p.I, reads))
    if p.lstm == 1:
        _copy(_part(work, p.hidden_w, p.C), _part(v, p.I + reads, p.C))
    _set_one(v, p.first_width)


@inlined
def _layer_output(p: Plan, layer: int, record: Array, work: Array, now: int, following: int) -> None:
    """The controller's nonlinearity, and its result handed on to the next layer or to the summary."""
    gates = _part(record, p.gates_at + (layer * p.steps + now) * p.gates_stride, p.gates)
    hidden = _part(work, p.hidden_w + layer * p.C, p.C)
    if p.lstm == 1:
        cells_at = p.cells_at + layer * (p.steps + 1) * p.C
        cell, new_cell = _part(record, cells_at + now * p.C, p.C), _part(record, cells_at + following * p.C, p.C)
        _lstm_cell(gates, cell, new_cell, _part(record, p.tanh_at + (layer * p.steps + now) * p.C, p.C), hidden)
    else:
        _tanh_all(gates, hidden)
        _copy(hidden, gates)
    if layer + 1 < p.L:
        v = _part(record, _input_at(p, layer + 1, now), p.next_stride)
        _copy(hidden, _part(v, 0, p.C))
        if p.lstm == 1:
            _copy(_part(work, p.hidden_w + (layer + 1) * p.C, p.C), _part(v, p.C, p.C))
        _set_one(v, p.next_width)
    else:
        v = _part(record, p.summary_at + now * p.summary, p.hidden_stride)
        _copy(hidden, _part(v, 0, p.C))
        _set_one(v, p.C)


@inlined
def _keep_memory(p: Plan, t: int, record: Array, work: Array, n: int) -> None:
    """The memory as it stands before every `segment`-th step."""
    if p.time_mask != 1 and t % p.segment == 0:
        size = p.M * n
        _copy(_part(work, p.memory_w, size), _part(record, p.memory_at + (t // p.segment) * p.M * p.N, size))


@inlined
def _note_reads(p: Plan, record: Array, work: Array, now: int) -> None:
    """The reads into the summary, which the output layer sees."""
    reads = _part(record, p.summary_at + now * p.summary + p.hidden_stride, p.summary - p.hidden_stride)
    _fill_zero(reads)
    _copy(_part(work, p.reads_w, p.R * p.M), _part(reads, 0, p.R * p.M))


@inlined
def _cost(p: Plan, table: Array, step: int, logits: Array) -> float:
    """Binary cross-entropy of one step; the logits become the gradients of the mean cost over the batch."""
    zero, one, batch = logits.dtype.type(0), logits.dtype.type(1), logits.dtype.type(p.B)
    weight = _array_at(table[MASK], logits, p.S * p.T * p.B)[step]
    cost = 0.0
    if weight == 0:
        _fill_zero(logits)
        return cost
    targets = _part(_array_at(table[TARGETS], logits, p.S * p.T * p.B * p.O), step * p.O, p.O)
    for o in range(p.O):
        x = logits[o]
        positive = zero if x < 0 else x  # NaN passes
        cost += (positive - x * targets[o]) + math.log1p(math.exp(-abs(x)))
        logits[o] = weight * (_sigmoid(x, one) - targets[o]) / batch
    weighted: float = cost * weight
    return weighted


@inlined
def _give_outputs(p: Plan, table: Array, step: int, record: Array, now: int) -> None:
    outputs = _array_at(table[OUTPUTS], record, p.S * p.T * p.B * p.O)
    _copy(_part(record, p.logits_at + now * p.logits_stride, p.O), _part(outputs, step * p.O, p.O))


@inlined
def _finish_row(
    p: Plan, table: Array, seed: int, b: int, length: int, n: int, cost: float, record: Array, work: Array
) -> None:
    """What a row leaves behind: its cost, or its final state and zeros for outputs beyond its length."""
    at = seed * p.B + b
    if p.loss == 1:
        mask = _array_at(table[MASK], work, p.S * p.T * p.B)
        for t in range(length, p.T):  # logits there are zeros
            cost += mask[(seed * p.T + t) * p.B + b] * p.O * math.log(2.0)
        _array_at(table[COSTS], work, p.S * p.B)[at] = cost
        return
    outputs = _array_at(table[OUTPUTS], work, p.S * p.T * p.B * p.O)
    for t in range(length, p.T):
        _fill_zero(_part(outputs, ((seed * p.T + t) * p.B + b) * p.O, p.O))
    last = length & p.time_mask
    weightings = _part(record, p.weighting_at + last * (p.R + p.W) * p.N, (p.R + p.W) * p.N)
    reads, hidden = _part(work, p.reads_w, p.R * p.M), _part(work, p.hidden_w, p.L * p.C)
    _store_state(p, table, STATE, FINAL, at, _tape_at(p, work, p.memory_w, n), weightings, reads, hidden)
    if p.lstm == 1:
        cells = _state_part(p, table, FINAL + 5, at, p.L * p.C, work)
        for layer in range(p.L):
            cell_at = p.cells_at + (layer * (p.steps + 1) + last) * p.C
            _copy(_part(record, cell_at, p.C), _part(cells, layer * p.C, p.C))


@inlined
def _start_back(p: Plan, table: Array, at: int, n: int, work: Array) -> None:
    """Gradients of a row's final state, from where the backward pass starts."""
    d_tape = _tape_at(p, work, p.d_memory_w, n)
    d_weightings = _part(work, p.d_weighting_w, (p.R + p.W) * p.N)
    d_reads, d_hidden = _part(work, p.d_reads_w, p.R * p.M), _part(work, p.d_hidden_w, p.L * p.C)
    d_cell = _part(work, p.d_cell_w, p.L * p.C)
    _fill_zero(d_hidden)
    # Gradients of outputs are padded to eights: what is never written must be zero.
    _fill_zero(_part(work, p.d_logits_w, p.logits_stride))
    _fill_zero(_part(work, p.d_raw_w, p.F_stride))
    _fill_zero(_part(work, p.d_gates_w, p.gates_stride))
    if p.loss == 1:
        _fill_zero(d_tape.entries)
        _fill_zero(d_weightings)
        _fill_zero(d_reads)
        _fill_zero(d_cell)
        return
    _load_state(p, table, D_FINAL, at, d_tape, d_weightings, d_reads, d_hidden)
    if p.lstm == 1:
        _copy(_state_part(p, table, D_FINAL + 5, at, p.L * p.C, work), d_cell)


@inlined
def _take_d_logits(p: Plan, table: Array, step: int, record: Array, work: Array, t: int) -> None:
    d_logits = _part(work, p.d_logits_w, p.O)
    if p.loss == 1:
        _copy(_part(record, p.logits_at + t * p.logits_stride, p.O), d_logits)
    else:
        _copy(_part(_array_at(table[D_OUTPUTS], work, p.S * p.T * p.B * p.O), step * p.O, p.O), d_logits)


@inlined
def _take_d_summary(p: Plan, work: Array, with_reads: bool) -> None:
    """Adds the gradients of hidden state and reads that came through the output layer or the interface."""
    _add(_part(work, p.d_summary_w, p.C), _part(work, p.d_hidden_w + (p.L - 1) * p.C, p.C))
    if with_reads:
        reads = p.R * p.M
        _add(_part(work, p.d_summary_w + p.hidden_stride, reads), _part(work, p.d_reads_w, reads))


@inlined
def _layer_output_back(p: Plan, layer: int, record: Array, work: Array, t: int) -> None:
    """Gradients of a layer's pre-activations."""
    gates = _part(record, p.gates_at + (layer * p.steps + t) * p.gates_stride, p.gates)
    d_hidden, d_gates = _part(work, p.d_hidden_w + layer * p.C, p.C), _part(work, p.d_gates_w, p.gates)
    if p.lstm == 1:
        cell = _part(record, p.cells_at + (layer * (p.steps + 1) + t) * p.C, p.C)
        tanh_cell = _part(record, p.tanh_at + (layer * p.steps + t) * p.C, p.C)
        _lstm_cell_back(gates, cell, tanh_cell, d_hidden, _part(work, p.d_cell_w + layer * p.C, p.C), d_gates)
    else:
        _tanh_layer_back(gates, d_hidden, d_gates)


@inlined
def _input_back(p: Plan, layer: int, work: Array) -> None:
    """A layer's input gradient, handed to the previous step and to the layer below."""
    width = p.first_width if layer == 0 else p.next_width
    d_hidden = _part(work, p.d_hidden_w + layer * p.C, p.C)
    if p.lstm == 1:
        _copy(_part(work, p.d_v_w + width - p.C, p.C), d_hidden)
    else:
        _fill_zero(d_hidden)
    if layer > 0:
        _add(_part(work, p.d_v_w, p.C), _part(work, p.d_hidden_w + (layer - 1) * p.C, p.C))
    else:
        _copy(_part(work, p.d_v_w + p.I, p.R * p.M), _part(work, p.d_reads_w, p.R * p.M))


@inlined
def _give_d_inputs(p: Plan, table: Array, step: int, work: Array) -> None:
    d_inputs = _array_at(table[D_INPUTS], work, p.S * p.T * p.B * p.I)
    _copy(_part(work, p.d_v_w, p.I), _part(d_inputs, step * p.I, p.I))


@inlined
def _finish_back(p: Plan, table: Array, seed: int, b: int, length: int, n: int, work: Array) -> None:
    """Gradients of a row's initial state and zeros for those of inputs beyond its length.

    Beyond the row's slots the gradients of the final state (when training, zeros) pass through.
    """
    at = seed * p.B + b
    if p.loss == 0:
        d_inputs = _array_at(table[D_INPUTS], work, p.S * p.T * p.B * p.I)
        for t in range(length, p.T):
            _fill_zero(_part(d_inputs, ((seed * p.T + t) * p.B + b) * p.I, p.I))
    if table[D_STATE] == 0:  # nobody wants them
        return
    old = D_STATE if p.loss == 1 else D_FINAL
    d_tape, d_weightings = _tape_at(p, work, p.d_memory_w, n), _part(work, p.d_weighting_w, (p.R + p.W) * p.N)
    d_reads, d_hidden = _part(work, p.d_reads_w, p.R * p.M), _part(work, p.d_hidden_w, p.L * p.C)
    _store_state(p, table, old, D_STATE, at, d_tape, d_weightings, d_reads, d_hidden)
    if p.lstm == 1:
        _copy(_part(work, p.d_cell_w, p.L * p.C), _state_part(p, table, D_STATE + 5, at, p.L * p.C, work))


# ---------------------------------------------------------------------------------------------------------------------
# The two functions that Python calls: forward and backward pass of group `group` of seed `seed`.
#   sizes: a Plan. table: addresses. scratch: working memory, of the type of all numbers. integers, costs: of rows.


def _run_forward_python(
    sizes: Array, table: Array, clip: float, scratch: Array, integers: Array, costs: Array, seed: int, group: int
) -> None:
    mode = _flush_denormals()
    p = Plan(*fixed_tuple(sizes, PLAN_SIZE))
    rows = _sort_rows(p, table, integers, seed, group)
    order, lengths, slots = integers, _part(integers, GROUP_ROWS, rows), _part(integers, 2 * GROUP_ROWS, rows)
    works, shared = _part(scratch, GAP, p.rows * p.work), _part(scratch, GAP + p.rows * p.work, p.shared)
    records = _records(p, table, scratch, seed, group)
    limit = scratch.dtype.type(clip)
    _pack_all(p, table, seed, shared)
    for row in range(rows):
        costs[row] = 0.0
        record, work = _part(records, row * p.record, p.record), _part(works, row * p.work, p.work)
        _start_row(p, table, seed * p.B + order[row], slots[row], record, work)
    active = rows
    for t in range(lengths[0]):
        now, following = t & p.time_mask, (t + 1) & p.time_mask
        step = (seed * p.T + t) * p.B
        while lengths[active - 1] <= t:
            active -= 1
        for row in range(active):
            record, work = _part(records, row * p.record, p.record), _part(works, row * p.work, p.work)
            _first_input(p, table, step + order[row], record, work, now)
            _keep_memory(p, t, record, work, slots[row])
        for layer in range(p.L):
            gates_at = p.gates_at + (layer * p.steps + now) * p.gates_stride
            _apply(p, layer, shared, records, _input_at(p, layer, now), gates_at, active)
            for row in range(active):
                record, work = _part(records, row * p.record, p.record), _part(works, row * p.work, p.work)
                _layer_output(p, layer, record, work, now, following)
        summary_at, logits_at = p.summary_at + now * p.summary, p.logits_at + now * p.logits_stride
        _apply(p, p.L, shared, records, summary_at, p.raw_at + now * p.F_stride, active)
        for row in range(active):
            record, work = _part(records, row * p.record, p.record), _part(works, row * p.work, p.work)
            _memory_step(p, limit, record, work, shared, now, following, slots[row])
            _note_reads(p, record, work, now)
        _apply(p, p.L + 1, shared, records, summary_at, logits_at, active)
        for row in range(active):
            record = _part(records, row * p.record, p.record)
            if p.loss == 1:
                costs[row] += _cost(p, table, step + order[row], _part(record, logits_at, p.O))
            else:
                _give_outputs(p, table, step + order[row], record, now)
    for row in range(rows):
        record, work = _part(records, row * p.record, p.record), _part(works, row * p.work, p.work)
        _finish_row(p, table, seed, order[row], lengths[row], slots[row], costs[row], record, work)
    _restore_denormals(mode)


def _run_backward_python(
    sizes: Array, table: Array, clip: float, scratch: Array, integers: Array, costs: Array, seed: int, group: int
) -> None:
    """When training it follows the forward pass in the same scratch, and finds the packed weights there."""
    mode = _flush_denormals()
    p = Plan(*fixed_tuple(sizes, PLAN_SIZE))
    rows = _sort_rows(p, table, integers, seed, group)
    order, lengths, slots = integers, _part(integers, GROUP_ROWS, rows), _part(integers, 2 * GROUP_ROWS, rows)
    works, shared = _part(scratch, GAP, p.rows * p.work), _part(scratch, GAP + p.rows * p.work, p.shared)
    records = _records(p, table, scratch, seed, group)
    limit = scratch.dtype.type(clip)
    if p.loss == 0:
        _pack_all(p, table, seed, shared)
    _fill_zero(_part(shared, p.d_packed_g, p.pending_g - p.d_packed_g))
    _fill_zero(_part(shared, p.zeros_g, p.M))
    for row in range(rows):
        _start_back(p, table, seed * p.B + order[row], slots[row], _part(works, row * p.work, p.work))
    pairs = 0
    active = 0
    for t in range(lengths[0] - 1, -1, -1):
        step = (seed * p.T + t) * p.B
        summary_at = p.summary_at + t * p.summary
        while active < rows and lengths[active] > t:
            active += 1
        if pairs + active > PENDING:
            _flush(p, pairs, shared)
            pairs = 0
        for row in range(active):
            record, work = _part(records, row * p.record, p.record), _part(works, row * p.work, p.work)
            _take_d_logits(p, table, step + order[row], record, work, t)
            _pend(p, p.L + 1, pairs + row, shared, record, summary_at, work, p.d_logits_w)
        _apply_back(p, p.L + 1, shared, works, p.d_logits_w, p.d_summary_w, active)
        for row in range(active):
            record, work = _part(records, row * p.record, p.record), _part(works, row * p.work, p.work)
            _take_d_summary(p, work, p.output_width > p.C)
            if t == lengths[row] - 1 or t % p.segment == p.segment - 1:
                _replay(p, record, work, shared, t, slots[row])
            _memory_step_back(p, limit, record, work, shared, t, slots[row])
            _pend(p, p.L, pairs + row, shared, record, summary_at, work, p.d_raw_w)
        _apply_back(p, p.L, shared, works, p.d_raw_w, p.d_summary_w, active)
        for row in range(active):
            _take_d_summary(p, _part(works, row * p.work, p.work), False)
        for layer in range(p.L - 1, -1, -1):
            for row in range(active):
                record, work = _part(records, row * p.record, p.record), _part(works, row * p.work, p.work)
                _layer_output_back(p, layer, record, work, t)
                _pend(p, layer, pairs + row, shared, record, _input_at(p, layer, t), work, p.d_gates_w)
            _apply_back(p, layer, shared, works, p.d_gates_w, p.d_v_w, active)
            for row in range(active):
                _input_back(p, layer, _part(works, row * p.work, p.work))
        if p.loss == 0:
            for row in range(active):
                _give_d_inputs(p, table, step + order[row], _part(works, row * p.work, p.work))
        pairs += active
    if pairs > 0:
        _flush(p, pairs, shared)
    to = (seed * p.groups + group) * p.P
    _unpack_all(p, shared, _part(_array_at(table[D_PARAMETERS], shared, p.S * p.groups * p.P), to, p.P))
    for row in range(rows):
        _finish_back(p, table, seed, order[row], lengths[row], slots[row], _part(works, row * p.work, p.work))
    _restore_denormals(mode)


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
ENTRIES = (_run_forward, _run_backward)
_ready: set[torch.dtype] = set()
_compile_lock = threading.Lock()


COMPILE_SECONDS = 25


def _signature(dtype: torch.dtype) -> tuple[Any, ...]:
    real = numba.from_dtype(NUMPY_TYPES[dtype])[::1]
    integers = numba.int64[::1]
    return integers, integers, numba.float64, real, integers, numba.float64[::1], numba.int64, numba.int64


def _make_ready(dtype: torch.dtype) -> None:
    """Loads the kernel for a type of numbers from the cache, or compiles it."""
    with _compile_lock:
        if dtype in _ready:
            return
        signature = _signature(dtype)
        missing = [f for f in ENTRIES if f._cache.load_overload(signature, f.targetctx) is None]
        if missing:
            print(f"tapehead: compiling the CPU kernel, once; about {COMPILE_SECONDS} s", file=sys.stderr, flush=True)
            _compile_elsewhere(missing, dtype)
        for function in ENTRIES:
            try:
                function.compile(signature)
            except OSError:  # the folder of the cache cannot be written to after all; it is compiled, in memory
                function.compile(signature)
        _ready.add(dtype)


def _compile_elsewhere(functions: list[Any], dtype: torch.dtype) -> None:
    """Fills the cache from other processes, side by side, so that this one runs what the cache holds, as later ones do.

    A process that compiles links a function with its parts as they were compiled one by one; a process that loads it
    links the copies inside it, which were optimised together with it. They round differently, and a run that is
    resumed must not. Where there is no cache to fill, every process compiles for itself, and they agree again.
    """
    if any(isinstance(function._cache, NullCache) for function in functions):
        return
    paths = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    processes = []
    for function in functions:
        code = f"from tapehead.kernels.ntm_scan import cpu; cpu.compile_here({ENTRIES.index(function)}, '{dtype}')"
        command = [sys.executable, "-c", code]
        processes.append(subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}, stdin=subprocess.DEVNULL))
    if any(process.wait() for process in processes):
        print("tapehead: that failed in a process of its own; compiling in this one.", file=sys.stderr, flush=True)


def compile_here(entry: int, dtype: str) -> None:
    """Compiles one of the entries into the cache; the whole work of a process that `_make_ready` started."""
    ENTRIES[entry].compile(_signature(getattr(torch, dtype.removeprefix("torch."))))


NUMPY_TYPES: dict[torch.dtype, Any] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}


# ---------------------------------------------------------------------------------------------------------------------
# Threads


class _Job:
    """Work items that any number of threads take in turn. Items are independent, so who takes which changes nothing.

    No locks: taking from a deque and appending to a list are atomic, and a lock that two threads want at the same time
    puts one to sleep, which on a busy machine costs more than an item.
    """

    def __init__(self, work: Callable[[tuple[int, int]], None], items: list[tuple[int, int]]) -> None:
        self._work = work
        self._items = collections.deque(items)
        self._results: list[BaseException | None] = []
        self._count = len(items)
        self._done = threading.Event()

    def take_part(self) -> None:
        """Takes items until there are none left."""
        while self._items:
            try:
                item = self._items.popleft()
            except IndexError:  # another thread was faster
                return
            error: BaseException | None = None
            try:
                self._work(item)
            except BaseException as raised:
                error = raised
            self._results.append(error)
            if len(self._results) == self._count:
                self._done.set()

    def finish(self) -> None:
        """Waits for the items that other threads took."""
        self._done.wait()
        for error in self._results:
            if error is not None:
                raise error


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


def _after_fork() -> None:
    """A child has none of its parent's threads, and a lock that one of them held would never be free again."""
    global _pool_lock, _compile_lock
    _pool_lock, _compile_lock = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


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
            self.size += _up(size, 16) + GAP


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
    size = 2 * GAP + plan.rows * plan.work + plan.shared + (0 if plan.keep else plan.rows * plan.record)
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
    """[S, groups, P] -> [S, P], always in the same order.

    In numpy: torch would spread the sum over its own threads, which then spin and keep a core from the kernel's.
    """
    groups = d_parameters.shape[1]
    if groups == 0:
        return d_parameters.new_zeros(d_parameters.shape[0], d_parameters.shape[2])
    total = d_parameters[:, 0]
    for g in range(1, groups):
        np.add(total.numpy(), d_parameters[:, g].numpy(), out=total.numpy())
    return total.contiguous()


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
) -> Learned:
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
    return Learned(costs, _add_groups(d_parameters), d_state, squares=None)


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
