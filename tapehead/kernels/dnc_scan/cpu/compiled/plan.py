"""The plan: every size, option and offset, computed once for a machine and a shape."""

from typing import NamedTuple


class Plan(NamedTuple):
    """Integers that steer the kernel. `*_at` are offsets, into a row's record unless said otherwise.

    Fields that the plan of an NTM has too mean the same there, and are explained there.
    """

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
    M: int
    P: int
    # options
    lstm: int
    oneplus: int
    detached: int  # no gradient from the usage to write weightings
    masked: int
    deallocation: int
    sharp: int
    # what to do
    forward: int
    backward: int
    loss: int
    keep: int
    segment: int
    time_mask: int
    rows: int
    groups: int
    # derived sizes
    first_width: int
    next_width: int
    first_stride: int
    next_stride: int
    gates: int
    gates_stride: int
    hidden_stride: int
    summary: int
    output_width: int
    output_stride: int
    logits_stride: int
    F: int
    F_stride: int
    raw_read: int  # interface entries of a read head
    raw_write: int
    read_strength: int  # where the parts of a read head begin in its entries; the key is first
    read_free_gate: int
    read_modes: int
    read_mask: int
    read_sharpness: int
    write_strength: int  # the same of the write head
    write_erase: int
    write_add: int
    write_allocation_gate: int
    write_write_gate: int
    write_mask: int
    ask_read: int  # entries after activations, see interface.py
    asks: int  # of all heads: R * ask_read, then the write head's
    # parameters
    interface_p: int
    output_p: int
    # record of a row: what the backward pass needs
    v_at: int
    gates_at: int
    tanh_at: int
    cells_at: int
    summary_at: int
    raw_at: int
    logits_at: int
    ask_at: int  # [T, asks]
    similarity_at: int  # [T, H, N], the read heads first, then the write head
    content_at: int  # [T, H, N]
    weighting_at: int  # [T + 1, H, N]
    forward_at: int  # [T, R, N], from the links, sharpened where the machine does that
    backward_at: int
    raw_forward_at: int  # [T, R, N], before the sharpening
    raw_backward_at: int
    order_at: int  # [T, N], slots by usage
    allocation_at: int  # [T, N]
    usage_at: int  # [T + 1, N]
    precedence_at: int  # [T + 1, N]
    norms_at: int  # [T + 1, N], inverse norms of the slots before each step
    memory_at: int  # [T / segment, M * N], before the first step of each segment
    link_at: int  # [T / segment, N * N], likewise
    steps: int  # T of the above
    record: int  # size
    # a row's working memory
    hidden_w: int
    reads_w: int
    memory_w: int
    link_w: int  # [N, N]
    d_memory_w: int
    d_link_w: int
    d_weighting_w: int  # [H, N]
    d_usage_w: int  # [N]
    d_precedence_w: int  # [N]
    d_hidden_w: int
    d_cell_w: int
    d_reads_w: int
    replay_w: int  # [segment + 1, M * N]
    replay_link_w: int  # [segment + 1, N * N]
    d_logits_w: int
    d_summary_w: int
    d_gates_w: int
    d_v_w: int
    d_raw_w: int
    work: int  # size
    # working memory of the group
    key_g: int  # [M], of norm one
    focus_g: int  # [M], the same times the mask
    squares_g: int  # [M]
    zeros_g: int  # [M]
    d_ask_g: int  # [max ask]
    norms_g: int  # [N], of masked slots
    retention_g: int  # [N]
    d_retention_g: int
    products_g: int  # [N]
    d_allocation_g: int
    d_content_g: int
    alpha_g: int
    delta_g: int
    before_g: int  # [R, N]
    d_gates_g: int  # [R]
    left_g: int  # [pairs, N]: gradients of a link are sums of outer products
    right_g: int
    pairs: int  # 2 R up to a multiple of eight
    kept_g: int  # [M * N], the memory after de-allocation
    lanes_g: int
    packed_g: int
    d_packed_g: int
    pending_g: int
    shared: int  # size


PLAN_SIZE = len(Plan._fields)

# Of the table of addresses; those below are the NTM's. Nine each, in the order of DNCState.
STATE, FINAL, D_FINAL, D_STATE = 12, 21, 30, 39
TABLE_SIZE = 48
