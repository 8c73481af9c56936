"""Matrix products and the controller's cells.

A weight is packed as [outs, stride]: a row holds the bias beside the weights and zeros up to a multiple of sixteen
numbers, the input a one in that place; there are zero rows up to a multiple of eight. So loops have no ends to tidy up,
rows begin at cache lines, and the bias needs no code of its own.
"""

from typing import NamedTuple

from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.maths import sigmoid, tanh
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import copy, fill_zero

OUTER_BLOCK = 16  # rows of a weight gradient that stay in the first cache while the pairs stream by


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
def pack(w: Matrix, parameters: Array, packed: Array) -> None:
    """Rows [first `split` weights, bias, zeros up to `skip`, the other weights, zeros]."""
    leaf()
    fill_zero(packed)
    for o in range(w.outs):
        row, own = view(packed, o * w.stride, w.stride), view(parameters, w.at + o * w.width, w.width)
        copy(own, view(row, 0, w.split))
        row[w.split] = parameters[w.at + w.outs * w.width + o]
        copy(view(own, w.split, w.width - w.split), view(row, w.skip, w.width - w.split))


@compiled
def unpack(w: Matrix, packed: Array, parameters: Array) -> None:
    leaf()
    for o in range(w.outs):
        row, own = view(packed, o * w.stride, w.stride), view(parameters, w.at + o * w.width, w.width)
        copy(row, view(own, 0, w.split))
        parameters[w.at + w.outs * w.width + o] = row[w.split]
        copy(view(row, w.skip, w.width - w.split), view(own, w.split, w.width - w.split))


@compiled
def linear(weight: Array, stride: int, outs: int, x: Array, x_at: int, y_at: int, row_size: int, rows: int) -> None:
    """y = W x for every row; both stand in x. Eight outputs at a time: their weights stay in the first cache."""
    leaf()
    zero = x.dtype.type(0)
    for o in range(0, outs, 8):
        w = view(weight, o * stride, 8 * stride)
        w0, w1, w2, w3 = w, view(w, stride, stride), view(w, 2 * stride, stride), view(w, 3 * stride, stride)
        w4, w5 = view(w, 4 * stride, stride), view(w, 5 * stride, stride)
        w6, w7 = view(w, 6 * stride, stride), view(w, 7 * stride, stride)
        for row in range(rows):
            v = view(x, row * row_size + x_at, stride)
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
            y = view(x, row * row_size + y_at + o, 8)
            y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7] = a0, a1, a2, a3, a4, a5, a6, a7


@compiled
def linear_back(
    weight: Array, stride: int, outs: int, d: Array, d_y_at: int, d_x_at: int, row_size: int, rows: int
) -> None:
    """d_x = W' d_y for every row; both stand in d. Eight outputs at a time."""
    leaf()
    for row in range(rows):
        fill_zero(view(d, row * row_size + d_x_at, stride))
    for o in range(0, outs, 8):
        w = view(weight, o * stride, 8 * stride)
        w0, w1, w2, w3 = w, view(w, stride, stride), view(w, 2 * stride, stride), view(w, 3 * stride, stride)
        w4, w5 = view(w, 4 * stride, stride), view(w, 5 * stride, stride)
        w6, w7 = view(w, 6 * stride, stride), view(w, 7 * stride, stride)
        for row in range(rows):
            g = view(d, row * row_size + d_y_at + o, 8)
            d0, d1, d2, d3, d4, d5, d6, d7 = g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]
            d_x = view(d, row * row_size + d_x_at, stride)
            for j in range(stride):
                a = d0 * w0[j] + d1 * w1[j] + d2 * w2[j] + d3 * w3[j]
                d_x[j] += a + (d4 * w4[j] + d5 * w5[j] + d6 * w6[j] + d7 * w7[j])


@compiled
def outer_add(d_y: Array, x: Array, pairs: int, stride: int, outs: int, d_weight: Array) -> None:
    """d_W += sum of d_y x' over pairs (a multiple of eight, zeros at the end), two rows and eight pairs at a time."""
    leaf()
    for o0 in range(0, outs, OUTER_BLOCK):
        for pair in range(0, pairs, 8):
            v = view(x, pair * stride, 8 * stride)
            x0, x1, x2, x3 = v, view(v, stride, stride), view(v, 2 * stride, stride), view(v, 3 * stride, stride)
            x4, x5 = view(v, 4 * stride, stride), view(v, 5 * stride, stride)
            x6, x7 = view(v, 6 * stride, stride), view(v, 7 * stride, stride)
            d = view(d_y, pair * outs, 8 * outs)
            for o in range(o0, min(o0 + OUTER_BLOCK, outs), 2):
                a0, a1, a2, a3 = d[o], d[outs + o], d[2 * outs + o], d[3 * outs + o]
                a4, a5, a6, a7 = d[4 * outs + o], d[5 * outs + o], d[6 * outs + o], d[7 * outs + o]
                q = o + 1
                b0, b1, b2, b3 = d[q], d[outs + q], d[2 * outs + q], d[3 * outs + q]
                b4, b5, b6, b7 = d[4 * outs + q], d[5 * outs + q], d[6 * outs + q], d[7 * outs + q]
                d_a, d_b = view(d_weight, o * stride, stride), view(d_weight, q * stride, stride)
                for j in range(stride):
                    a = a0 * x0[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j]
                    d_a[j] += a + (a4 * x4[j] + a5 * x5[j] + a6 * x6[j] + a7 * x7[j])
                    b = b0 * x0[j] + b1 * x1[j] + b2 * x2[j] + b3 * x3[j]
                    d_b[j] += b + (b4 * x4[j] + b5 * x5[j] + b6 * x6[j] + b7 * x7[j])


@compiled
def lstm_cell(gates: Array, cell: Array, new_cell: Array, tanh_cell: Array, hidden: Array) -> None:
    """Gates input, forget, candidate, output: pre-activations in, activations out."""
    leaf()
    c = cell.size
    one = cell.dtype.type(1)
    i, f, g, o = view(gates, 0, c), view(gates, c, c), view(gates, 2 * c, c), view(gates, 3 * c, c)
    for j in range(c):
        i_j, f_j, g_j, o_j = sigmoid(i[j], one), sigmoid(f[j], one), tanh(g[j]), sigmoid(o[j], one)
        i[j], f[j], g[j], o[j] = i_j, f_j, g_j, o_j
        c_j = f_j * cell[j] + i_j * g_j
        new_cell[j] = c_j
        tanh_j = tanh(c_j)
        tanh_cell[j] = tanh_j
        hidden[j] = o_j * tanh_j


@compiled
def lstm_cell_back(gates: Array, cell: Array, tanh_cell: Array, d_hidden: Array, d_cell: Array, d_gates: Array) -> None:
    """Gradients of the pre-activations; d_cell of the new cell becomes that of the old one."""
    leaf()
    c = cell.size
    one = cell.dtype.type(1)
    i, f, g, o = view(gates, 0, c), view(gates, c, c), view(gates, 2 * c, c), view(gates, 3 * c, c)
    d_i, d_f, d_g, d_o = view(d_gates, 0, c), view(d_gates, c, c), view(d_gates, 2 * c, c), view(d_gates, 3 * c, c)
    for j in range(c):
        d_c = d_cell[j] + d_hidden[j] * o[j] * (one - tanh_cell[j] * tanh_cell[j])
        d_o[j] = d_hidden[j] * tanh_cell[j] * o[j] * (one - o[j])
        d_i[j] = d_c * g[j] * i[j] * (one - i[j])
        d_f[j] = d_c * cell[j] * f[j] * (one - f[j])
        d_g[j] = d_c * i[j] * (one - g[j] * g[j])
        d_cell[j] = d_c * f[j]


@compiled
def tanh_layer_back(hidden: Array, d_hidden: Array, d_gates: Array) -> None:
    leaf()
    one = hidden.dtype.type(1)
    for j in range(d_hidden.size):
        d_gates[j] = d_hidden[j] * (one - hidden[j] * hidden[j])
