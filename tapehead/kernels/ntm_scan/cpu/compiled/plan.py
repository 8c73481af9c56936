"""The plan: every size, option and offset, computed once for a machine and a shape; and the weights."""

from typing import Any, NamedTuple

from numba.np.unsafe import ndarray as unsafe

from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import array_at, view
from tapehead.kernels.ntm_scan.cpu.compiled.linear import Matrix, linear, linear_back, outer_add, pack, unpack
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled, inlined
from tapehead.kernels.ntm_scan.cpu.compiled.vectors import copy, fill_zero

PENDING = 64  # (row, step) pairs whose outer products are added to the weights' gradients in one go
# Numbers between parts of a buffer. Before a vectorised loop LLVM tests whether its arrays are at least four vectors
# apart; otherwise it takes a scalar loop, which rounds otherwise. With the gap the bits never depend on addresses.
GAP = 64


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
    loss: int  # train, with costs from targets and gradients from costs: BINARY or CATEGORICAL; 0 otherwise
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
    raw_key: int  # where the parts of a head begin in its entries; those of every head,
    raw_strength: int
    raw_gate: int
    raw_shift: int
    raw_sharpening: int
    raw_erase: int  # and those of a write head
    raw_add: int
    raw_write_gate: int
    ask_read: int  # entries after activations, see interface.py
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


BINARY, CATEGORICAL = 1, 2  # losses
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
def pack_all(p: Plan, table: Array, seed: int, shared: Array) -> None:
    parameters = view(array_at(table[PARAMETERS], shared, p.S * p.P), seed * p.P, p.P)
    for k in range(p.L + 2):
        w = _matrix(p, k)
        pack(w, parameters, view(shared, p.packed_g + w.packed, w.outs_stride * w.stride))


@inlined
def unpack_all(p: Plan, shared: Array, d_parameters: Array) -> None:
    for k in range(p.L + 2):
        w = _matrix(p, k)
        unpack(w, view(shared, p.d_packed_g + w.packed, w.outs_stride * w.stride), d_parameters)


@compiled
def apply(p: Plan, k: int, shared: Array, records: Array, x_at: int, y_at: int, rows: int) -> None:
    w = _matrix(p, k)
    weight = view(shared, p.packed_g + w.packed, w.outs_stride * w.stride)
    columns = w.stride
    if w.stride % 32 != 0:  # sixteen columns that a vectorised loop takes four at a time: not those of padding
        columns = ((w.split + 1 if w.width == w.split else w.skip + w.width - w.split) + 3) // 4 * 4
    linear(weight, w.stride, columns, w.outs_stride, records, x_at, y_at, p.record, rows)


@compiled
def apply_back(p: Plan, k: int, shared: Array, works: Array, d_y_at: int, d_x_at: int, rows: int) -> None:
    w = _matrix(p, k)
    weight = view(shared, p.packed_g + w.packed, w.outs_stride * w.stride)
    linear_back(weight, w.stride, w.outs_stride, works, d_y_at, d_x_at, p.work, rows)


@compiled
def pend(p: Plan, k: int, pair: int, shared: Array, x: Array, x_at: int, d_y: Array, d_y_at: int) -> None:
    """Notes that matrix k took an input and has a gradient at its output: an outer product to be added later."""
    w = _matrix(p, k)
    at = p.pending_g + w.pending
    copy(view(x, x_at, w.stride), view(shared, at + pair * w.stride, w.stride))
    at += PENDING * w.stride
    copy(view(d_y, d_y_at, w.outs_stride), view(shared, at + pair * w.outs_stride, w.outs_stride))


@compiled
def flush(p: Plan, pairs: int, shared: Array) -> None:
    """Adds all pending outer products to the gradients of the weights."""
    whole = (pairs + 7) // 8 * 8
    for k in range(p.L + 2):
        w = _matrix(p, k)
        x = view(shared, p.pending_g + w.pending, whole * w.stride)
        d_y = view(shared, p.pending_g + w.pending + PENDING * w.stride, whole * w.outs_stride)
        fill_zero(view(x, pairs * w.stride, (whole - pairs) * w.stride))
        fill_zero(view(d_y, pairs * w.outs_stride, (whole - pairs) * w.outs_stride))
        d_weight = view(shared, p.d_packed_g + w.packed, w.outs_stride * w.stride)
        outer_add(d_y, x, whole, w.stride, w.outs_stride, d_weight)


@inlined
def input_at(p: Plan, layer: int, t: int) -> int:
    """Where a layer's input of step t stands in a record."""
    if layer == 0:
        return p.v_at + t * p.first_stride
    return p.v_at + (p.first_stride + (layer - 1) * p.next_stride) * p.steps + t * p.next_stride
