"""Where the write head writes: usage, allocation and the weighting between allocation and content."""

import math
from typing import Any

from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import leaf, view
from tapehead.kernels.ntm_scan.cpu.compiled.options import Array, compiled


@compiled
def use(usage: Array, written: Array, psi: Array, new: Array) -> None:
    """u' = (u + w - u w) psi."""
    leaf()
    for i in range(new.size):
        u, w = usage[i], written[i]
        new[i] = (u + w - u * w) * psi[i]


@compiled
def use_back(
    usage: Array, written: Array, psi: Array, d_usage: Array, d_written: Array, d_psi: Array, detached: int
) -> None:
    """d_usage of the new usage becomes that of the old one; sets d_written, adds to d_psi."""
    leaf()
    zero, one = psi.dtype.type(0), psi.dtype.type(1)
    for i in range(psi.size):
        u, w, g = usage[i], written[i], d_usage[i]
        d_psi[i] += g * (u + w - u * w)
        g *= psi[i]
        d_usage[i] = g * (one - w)
        d_written[i] = zero if detached == 1 else g * (one - u)


@compiled
def sort_slots(usage: Array, order: Array) -> None:
    """The slots by usage, the least used first; of equally used ones the first comes first.

    A slot's place is the number of slots before it. That takes N^2 comparisons, but without branches, sixteen at a
    time: a fortieth of what the links cost.
    """
    leaf()
    n, zero, one = usage.size, usage.dtype.type(0), usage.dtype.type(1)
    for i in range(n):
        order[i] = i  # a NaN has no place, but whatever stands here is used as an index
    for i in range(n):
        x, place = usage[i], zero
        for j in range(i):
            place += one if usage[j] <= x else zero
        above = view(usage, i, n - i)
        for j in range(above.size):
            place += one if above[j] < x else zero
        order[int(place)] = i


@compiled
def allocate(usage: Array, order: Array, allocation: Array) -> None:
    """a[phi(j)] = (1 - u[phi(j)]) prod_{k<j} u[phi(k)]; NaN everywhere if one of the usages is."""
    leaf()
    one, total = usage.dtype.type(1), usage.dtype.type(0)
    product = one
    for i in range(usage.size):
        total += usage[i]
    if total != total:
        product = usage.dtype.type(math.nan)
        for i in range(usage.size):
            allocation[i] = product
    for j in range(usage.size):
        slot = int(order[j])
        u = usage[slot]
        allocation[slot] = (one - u) * product
        product *= u


@compiled
def allocate_back(usage: Array, order: Array, d_allocation: Array, products: Array, d_usage: Array) -> None:
    """Adds to d_usage. With P_j the product before place j, d_u_j = P_j (Q_j - d_a_j), where Q_j, the share of all
    later places, is d_a_{j+1} (1 - u_{j+1}) + u_{j+1} Q_{j+1}: nothing is divided by a usage, which may be zero."""
    leaf()
    n, one = usage.size, usage.dtype.type(1)
    product, later = one, usage.dtype.type(0)
    for j in range(n):
        products[j] = product
        product *= usage[int(order[j])]
    for j in range(n - 1, -1, -1):
        slot = int(order[j])
        u, d = usage[slot], d_allocation[slot]
        d_usage[slot] += products[j] * (later - d)
        later = d * (one - u) + u * later


@compiled
def weigh(allocation: Array, content: Array, g_a: Any, g_w: Any, weighting: Array) -> None:
    """w = g_w (g_a a + (1 - g_a) c)."""
    leaf()
    by_allocation, by_content = g_w * g_a, g_w * (weighting.dtype.type(1) - g_a)
    for i in range(weighting.size):
        weighting[i] = by_allocation * allocation[i] + by_content * content[i]


@compiled
def weigh_back(
    allocation: Array, content: Array, g_a: Any, g_w: Any, d_weighting: Array, d_allocation: Array, d_content: Array,
    d_gates: Array,
) -> None:  # fmt: skip
    """Sets the gradients of allocation, content and the two gates, g_a first."""
    leaf()
    by_allocation, by_content = g_w * g_a, g_w * (d_weighting.dtype.type(1) - g_a)
    along_a, along_c = d_weighting.dtype.type(0), d_weighting.dtype.type(0)
    for i in range(d_weighting.size):
        g = d_weighting[i]
        along_a += g * allocation[i]
        along_c += g * content[i]
        d_allocation[i] = by_allocation * g
        d_content[i] = by_content * g
    d_gates[0] = g_w * (along_a - along_c)
    d_gates[1] = g_a * (along_a - along_c) + along_c
