"""The equations of the Differentiable Neural Computer (Graves et al. 2016), one pure function each.

Not in the NTM paper. Shapes as in `tapehead.equations`: `...` any leading dimensions, H heads, N memory slots, M memory
width. A DNC has several read heads and one write head. Reading, erasing, adding and content addressing are the NTM's.

A weighting here is a tensor [..., N] of numbers in [0, 1] whose sum is at most one: a head may be nowhere. Functions
that take weightings keep that, and are finite with finite gradients for all of them: zeros, ones, ties, one slot.
"""

import torch
from torch import Tensor

from tapehead import equations
from tapehead.checks import shapes

LINK_EPSILON = 1e-6
"""Added to link weightings before they are sharpened; that of the code of Csordas and Schmidhuber."""


@shapes(free_gates="H", read_weightings="H N")
def retention(free_gates: Tensor, read_weightings: Tensor) -> Tensor:
    """psi(i) = prod_h (1 - f_h w_h(i)): how much of each slot the read heads do not free.

    free_gates [..., H], read_weightings [..., H, N] of the step before -> [..., N]
    """
    return (1 - free_gates.unsqueeze(-1) * read_weightings).prod(dim=-2)


@shapes(usage="N", write_weighting="N", retention="N")
def usage(usage: Tensor, write_weighting: Tensor, retention: Tensor) -> Tensor:
    """u' = (u + w - u w) psi: what was used, or written in the step before, and is not freed.   all [..., N]"""
    return (usage + write_weighting - usage * write_weighting) * retention


@shapes(usage="N")
def allocation(usage: Tensor) -> Tensor:
    """a[phi(j)] = (1 - u[phi(j)]) prod_{i<j} u[phi(i)], where phi orders the slots by usage, the least used first.

    Of equally used slots the first comes first. The order itself has no gradient.   usage [..., N] -> [..., N]
    """
    ordered, order = torch.sort(usage, dim=-1, stable=True)
    before = torch.cat([torch.ones_like(ordered[..., :1]), ordered[..., :-1]], dim=-1)
    return torch.zeros_like(usage).scatter(-1, order, (1 - ordered) * torch.cumprod(before, dim=-1))


@shapes(allocation="N", content="N", allocation_gate="", write_gate="")
def write_weighting(allocation: Tensor, content: Tensor, allocation_gate: Tensor, write_gate: Tensor) -> Tensor:
    """w = g_w (g_a a + (1 - g_a) c).   allocation, content [..., N], gates [...] -> [..., N]"""
    g_a = allocation_gate.unsqueeze(-1)
    return write_gate.unsqueeze(-1) * (g_a * allocation + (1 - g_a) * content)


@shapes(link="N N", precedence="N", write_weighting="N")
def link(link: Tensor, precedence: Tensor, write_weighting: Tensor) -> Tensor:
    """L'(i, j) = (1 - w(i) - w(j)) L(i, j) + w(i) p(j), and L'(i, i) = 0: how much slot i was written right after j.

    link [..., N, N], precedence [..., N] of the step before, write_weighting [..., N]
    """
    to, since = write_weighting.unsqueeze(-1), write_weighting.unsqueeze(-2)
    linked = (1 - to - since) * link + to * precedence.unsqueeze(-2)
    itself = torch.eye(link.shape[-1], dtype=torch.bool, device=link.device)
    return linked.masked_fill(itself, 0.0)


@shapes(precedence="N", write_weighting="N")
def precedence(precedence: Tensor, write_weighting: Tensor) -> Tensor:
    """p' = (1 - sum_i w(i)) p + w: how much each slot was the last one written.   all [..., N]"""
    return (1 - write_weighting.sum(dim=-1, keepdim=True)) * precedence + write_weighting


@shapes(link="N N", read_weightings="H N")
def forward_weighting(link: Tensor, read_weightings: Tensor) -> Tensor:
    """f = L w: where was written next, after where each head was.   link [..., N, N], weightings [..., H, N]"""
    return read_weightings @ link.transpose(-1, -2)


@shapes(link="N N", read_weightings="H N")
def backward_weighting(link: Tensor, read_weightings: Tensor) -> Tensor:
    """b = L^T w: where was written before.   link [..., N, N], weightings [..., H, N]"""
    return read_weightings @ link


@shapes(backward="H N", content="H N", forward="H N", modes="H 3")
def read_weighting(backward: Tensor, content: Tensor, forward: Tensor, modes: Tensor) -> Tensor:
    """w = pi(1) b + pi(2) c + pi(3) f.   weightings [..., H, N], modes [..., H, 3] -> [..., H, N]"""
    if modes.shape[-1] != 3:
        raise ValueError(f"modes has {modes.shape[-1]} entries, but there are three: backward, content, forward.")
    p_b, p_c, p_f = modes.unsqueeze(-2).unbind(dim=-1)  # each [..., H, 1]
    return p_b * backward + p_c * content + p_f * forward


# --- improvements of Csordas and Schmidhuber (2019) -------------------------------------------------------------------


@shapes(keys="H M", masks="H M", memory="N M")
def masked_similarity(keys: Tensor, masks: Tensor, memory: Tensor) -> Tensor:
    """K[m k, m M(i)], the cosine of the parts that a mask m in [0, 1] lets through.

    keys, masks [..., H, M], memory [..., N, M] -> [..., H, N]
    """
    rows = memory.unsqueeze(-3) * masks.unsqueeze(-2)  # [..., H, N, M]
    return equations.cosine_similarity((keys * masks).unsqueeze(-2), rows).squeeze(-2)


@shapes(memory="N M", retention="N")
def deallocate(memory: Tensor, retention: Tensor) -> Tensor:
    """M'(i) = psi(i) M(i): what is freed is forgotten.   memory [..., N, M], retention [..., N]"""
    return memory * retention.unsqueeze(-1)


@shapes(weighting="H N", sharpness="H")
def sharpen_link(weighting: Tensor, sharpness: Tensor) -> Tensor:
    """S(d, s)(i) = d(i)^s / sum_j d(j)^s of a forward or backward weighting d.   [..., H, N], sharpness s [..., H]

    The sum is then one, also where there is no link yet: as in its authors' code, an epsilon makes that uniform.
    """
    return torch.softmax(sharpness.unsqueeze(-1) * torch.log(weighting + LINK_EPSILON), dim=-1)
