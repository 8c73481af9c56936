"""Matrix products and the controller's cells.

A weight is packed as [outs, stride]: a row holds the bias beside the weights and zeros up to a multiple of sixteen
numbers, the input a one in that place; there are zero rows up to a multiple of eight. So loops have no ends to tidy up,
rows begin at cache lines, and the bias needs no code of its own.
"""

from typing import NamedTuple

from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.lanes import add_product, load, spread, store
from tapehead.kernels.ntm_scan.cpu.compiled.maths import sigmoid, tanh
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled, inlined
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
    for o in range(w.outs):
        row, own = view(packed, o * w.stride, w.stride), view(parameters, w.at + o * w.width, w.width)
        copy(own, view(row, 0, w.split))
        row[w.split] = parameters[w.at + w.outs * w.width + o]
        fill_zero(view(row, w.split + 1, w.skip - w.split - 1))
        copy(view(own, w.split, w.width - w.split), view(row, w.skip, w.width - w.split))
        fill_zero(view(row, w.skip + w.width - w.split, w.stride - w.skip - w.width + w.split))
    fill_zero(view(packed, w.outs * w.stride, (w.outs_stride - w.outs) * w.stride))


@compiled
def unpack(w: Matrix, packed: Array, parameters: Array) -> None:
    leaf()
    for o in range(w.outs):
        row, own = view(packed, o * w.stride, w.stride), view(parameters, w.at + o * w.width, w.width)
        copy(row, view(own, 0, w.split))
        parameters[w.at + w.outs * w.width + o] = row[w.split]
        copy(view(row, w.skip, w.width - w.split), view(own, w.split, w.width - w.split))


@compiled
def linear(
    weight: Array, stride: int, columns: int, outs: int, x: Array, x_at: int, y_at: int, row_size: int, rows: int
) -> None:
    """y = W x for every row; both stand in x. From `columns` on, a multiple of four, the weights are zeros.

    Four outputs of two rows at a time: every number that is loaded goes into several sums. The last of an odd number of
    rows has eight outputs at a time. Both loops have eight sums, so that they are vectorised alike, and a row's bits do
    not depend on the others (a test of the kernel sees to it).
    """
    leaf()
    zero = x.dtype.type(0)
    for o in range(0, outs, 8):
        w = view(weight, o * stride, 8 * stride)
        for row in range(0, rows - 1, 2):
            v, u = view(x, row * row_size + x_at, stride), view(x, (row + 1) * row_size + x_at, stride)
            for half in range(0, 8, 4):
                w0, w1 = view(w, half * stride, stride), view(w, (half + 1) * stride, stride)
                w2, w3 = view(w, (half + 2) * stride, stride), view(w, (half + 3) * stride, stride)
                a0, a1, a2, a3, b0, b1, b2, b3 = zero, zero, zero, zero, zero, zero, zero, zero
                for j in range(columns):
                    s, z = v[j], u[j]
                    a0 += w0[j] * s
                    a1 += w1[j] * s
                    a2 += w2[j] * s
                    a3 += w3[j] * s
                    b0 += w0[j] * z
                    b1 += w1[j] * z
                    b2 += w2[j] * z
                    b3 += w3[j] * z
                y = view(x, row * row_size + y_at + o + half, 4)
                y[0], y[1], y[2], y[3] = a0, a1, a2, a3
                y = view(x, (row + 1) * row_size + y_at + o + half, 4)
                y[0], y[1], y[2], y[3] = b0, b1, b2, b3
        if rows % 2 == 1:
            w0, w1, w2, w3 = w, view(w, stride, stride), view(w, 2 * stride, stride), view(w, 3 * stride, stride)
            w4, w5 = view(w, 4 * stride, stride), view(w, 5 * stride, stride)
            w6, w7 = view(w, 6 * stride, stride), view(w, 7 * stride, stride)
            v = view(x, (rows - 1) * row_size + x_at, stride)
            a0, a1, a2, a3, a4, a5, a6, a7 = zero, zero, zero, zero, zero, zero, zero, zero
            for j in range(columns):
                z = v[j]
                a0 += w0[j] * z
                a1 += w1[j] * z
                a2 += w2[j] * z
                a3 += w3[j] * z
                a4 += w4[j] * z
                a5 += w5[j] * z
                a6 += w6[j] * z
                a7 += w7[j] * z
            y = view(x, (rows - 1) * row_size + y_at + o, 8)
            y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7] = a0, a1, a2, a3, a4, a5, a6, a7


@inlined
def _add_eight(rows: Array, stride: int, x: Array, y: Array, step: int, a: Array, b: Array) -> None:
    """a += sum_k x_k rows_k and b += sum_k y_k rows_k, of eight rows; x and y are every `step`-th number."""
    for j in range(0, stride - 16, 32):
        a0, a1, b0, b1 = load(a, j), load(a, j + 16), load(b, j), load(b, j + 16)
        for k in range(8):
            r0, r1 = load(rows, k * stride + j), load(rows, k * stride + j + 16)
            p, q = spread(x[k * step]), spread(y[k * step])
            a0, a1 = add_product(a0, p, r0), add_product(a1, p, r1)
            b0, b1 = add_product(b0, q, r0), add_product(b1, q, r1)
        store(a0, a, j)
        store(a1, a, j + 16)
        store(b0, b, j)
        store(b1, b, j + 16)
    if stride % 32 != 0:
        j = stride - 16
        a0, b0 = load(a, j), load(b, j)
        for k in range(8):
            r0 = load(rows, k * stride + j)
            a0, b0 = add_product(a0, spread(x[k * step]), r0), add_product(b0, spread(y[k * step]), r0)
        store(a0, a, j)
        store(b0, b, j)


@compiled
def linear_back(
    weight: Array, stride: int, outs: int, d: Array, d_y_at: int, d_x_at: int, row_size: int, rows: int
) -> None:
    """d_x = W' d_y for every row; both stand in d. Eight outputs of two rows at a time."""
    leaf()
    for row in range(rows):
        fill_zero(view(d, row * row_size + d_x_at, stride))
    for o in range(0, outs, 8):
        w = view(weight, o * stride, 8 * stride)
        for row in range(0, rows - 1, 2):
            g, h = view(d, row * row_size + d_y_at + o, 8), view(d, (row + 1) * row_size + d_y_at + o, 8)
            d_x, e_x = view(d, row * row_size + d_x_at, stride), view(d, (row + 1) * row_size + d_x_at, stride)
            _add_eight(w, stride, g, h, 1, d_x, e_x)
        if rows % 2 == 1:
            g, d_x = view(d, (rows - 1) * row_size + d_y_at + o, 8), view(d, (rows - 1) * row_size + d_x_at, stride)
            for j in range(0, stride - 16, 32):
                a, b = load(d_x, j), load(d_x, j + 16)
                for k in range(8):
                    x = spread(g[k])
                    a = add_product(a, x, load(w, k * stride + j))
                    b = add_product(b, x, load(w, k * stride + j + 16))
                store(a, d_x, j)
                store(b, d_x, j + 16)
            if stride % 32 != 0:
                j = stride - 16
                a = load(d_x, j)
                for k in range(8):
                    a = add_product(a, spread(g[k]), load(w, k * stride + j))
                store(a, d_x, j)


@compiled
def outer_add(d_y: Array, x: Array, pairs: int, stride: int, outs: int, d_weight: Array) -> None:
    """d_W += sum of d_y x' over pairs (a multiple of eight, zeros at the end), two rows and eight pairs at a time."""
    leaf()
    for o0 in range(0, outs, OUTER_BLOCK):
        for pair in range(0, pairs, 8):
            v, d = view(x, pair * stride, 8 * stride), view(d_y, pair * outs, 8 * outs)
            for o in range(o0, min(o0 + OUTER_BLOCK, outs), 2):
                d_a, d_b = view(d_weight, o * stride, stride), view(d_weight, (o + 1) * stride, stride)
                size = 7 * outs + 1
                _add_eight(v, stride, view(d, o, size), view(d, o + 1, size), outs, d_a, d_b)


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
