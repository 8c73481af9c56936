"""A scan's compiled functions on every group of every seed, over threads; and tensors as they take them."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tapehead.kernels import jit
from tapehead.kernels.ntm_scan.cpu import buffers, openmp
from tapehead.kernels.ntm_scan.cpu.compiled.plan import GAP
from tapehead.kernels.ntm_scan.cpu.threads import Job, pool


def dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def whole(tensor: Tensor) -> Tensor:
    return dense(tensor if tensor.dtype == torch.int64 else tensor.to(torch.int64))


def with_state(table: dict[int, Tensor], first: int, state: Sequence[Tensor]) -> dict[int, Tensor]:
    for k, part in enumerate(state):
        table[first + k] = part
    return table


@functools.lru_cache(maxsize=4)
def zeros(size: int, dtype: torch.dtype) -> Tensor:
    return torch.zeros(size, dtype=dtype)


def execute(
    entries: tuple[jit.Entry, jit.Entry],
    plan: Any,
    sizes: Any,
    table: dict[int, Tensor],
    table_size: int,
    dtype: torch.dtype,
    *options: float,
) -> None:
    """The entries are called with sizes, addresses, options, scratch memory, seed and group.

    plan: with the fields of a `Layout`. The tensors of `table` must be contiguous.
    """
    run_forward, run_backward = entries
    row = [0] * table_size
    for index, tensor in table.items():
        row[index] = tensor.data_ptr()
    addresses = np.array(row, np.int64)
    size = 2 * GAP + plan.rows * plan.work + plan.shared + (0 if plan.keep else plan.rows * plan.record)

    def work(item: tuple[int, int], alive: Any = table) -> None:  # the tensors live as long as this function
        scratch = buffers.take_scratch(size, dtype)
        if plan.forward:
            run_forward(sizes, addresses, *options, *scratch, *item)
        if plan.backward:
            run_backward(sizes, addresses, *options, *scratch, *item)
        buffers.give_scratch(scratch, dtype)

    if plan.S == plan.groups == 1:
        work((0, 0))
        return
    threads = torch.get_num_threads()
    items = [(s, g) for s in range(plan.S) for g in range(plan.groups)]
    if threads == 1 or not items:
        for item in items:
            work(item)
    elif not plan.loss and openmp.usable(threads, len(items)):
        openmp.run(Job(work, items), threads)
    else:  # a run's loop has no operations of torch that would keep its threads awake
        pool(threads).run(Job(work, items))


def add_groups(d_parameters: Tensor) -> Tensor:
    """[S, groups, P] -> [S, P], always in the same order.

    In numpy: torch would spread the sum over its own threads, which then spin and keep a core from the kernel's.
    """
    seeds, groups, size = d_parameters.shape
    if groups == 1:
        return d_parameters.view(seeds, size)
    if groups == 0:
        return d_parameters.new_zeros(seeds, size)
    total = d_parameters[:, 0]
    for g in range(1, groups):
        np.add(total.numpy(), d_parameters[:, g].numpy(), out=total.numpy())
    return total.contiguous()
