"""The equations of the paper, one pure function each.

Shapes: `...` any leading dimensions, H heads, N memory slots, M memory width. Every function is finite, with finite
gradients, for every finite input: zero rows, zero keys, huge strengths, weightings with exact zeros, one slot.

A weighting (Eq. 1) is a tensor [..., N] with entries in [0, 1] that sum to one.
"""

import torch
from torch import Tensor

from tapehead import checks
from tapehead.checks import shapes

# Added to squared norms. It keeps the cosine of a zero vector at 0 with a finite slope, and is far below the squared
# norm of a row of the default initial memory (2e-11 for width 20 at 1e-6).
NORM_EPSILON = 1e-18

# Added to weightings under the logarithm of Eq. 9. (w + eps)^gamma is w^gamma to float32 for every weight that matters.
SHARPEN_EPSILON = 1e-20


@shapes(memory="N M", weighting="H N")
def read(memory: Tensor, weighting: Tensor) -> Tensor:
    """Eq. 2: r = sum_i w(i) M(i).   memory [..., N, M], weighting [..., H, N] -> [..., H, M]"""
    return weighting @ memory


@shapes(memory="N M", weighting="H N", erase="H M")
def erase(memory: Tensor, weighting: Tensor, erase: Tensor) -> Tensor:
    """Eq. 3: M~(i) = M(i) [1 - w(i) e], for all heads.   erase [..., H, M] -> [..., N, M]"""
    kept = 1 - weighting.unsqueeze(-1) * erase.unsqueeze(-2)  # [..., H, N, M]
    return memory * kept.prod(dim=-3)


@shapes(memory="N M", weighting="H N", add="H M")
def add(memory: Tensor, weighting: Tensor, add: Tensor) -> Tensor:
    """Eq. 4: M'(i) = M~(i) + w(i) a, for all heads.   add [..., H, M] -> [..., N, M]"""
    return memory + weighting.transpose(-1, -2) @ add


@shapes(keys="H M", memory="N M")
def cosine_similarity(keys: Tensor, memory: Tensor) -> Tensor:
    """Eq. 6: K[k, M(i)] = k . M(i) / (|k| |M(i)|).   keys [..., H, M], memory [..., N, M] -> [..., H, N]"""
    keys, memory = _bounded(keys), _bounded(memory)
    key_norms = (keys.square().sum(-1) + NORM_EPSILON).sqrt()  # [..., H]
    row_norms = (memory.square().sum(-1) + NORM_EPSILON).sqrt()  # [..., N]
    return (keys @ memory.transpose(-1, -2)) / (key_norms.unsqueeze(-1) * row_norms.unsqueeze(-2))


def _bounded(vectors: Tensor) -> Tensor:
    """Vectors with an entry above one, scaled down to it: squares cannot overflow, and the cosine does not change."""
    scale = vectors.detach().abs().amax(dim=-1, keepdim=True).clamp_min(1)
    return vectors / scale


@shapes(keys="H M", strengths="H", memory="N M")
def content_weighting(keys: Tensor, strengths: Tensor, memory: Tensor) -> Tensor:
    """Eq. 5: w_c = softmax_i(beta K[k, M(i)]).   strengths [..., H] -> [..., H, N]"""
    return torch.softmax(strengths.unsqueeze(-1) * cosine_similarity(keys, memory), dim=-1)


@shapes(gate="H", content="H N", previous="H N")
def interpolate(gate: Tensor, content: Tensor, previous: Tensor) -> Tensor:
    """Eq. 7: w_g = g w_c + (1 - g) w_prev.   gate [..., H], weightings [..., H, N]"""
    g = gate.unsqueeze(-1)
    return g * content + (1 - g) * previous


@shapes(weighting="H N", shifts="H 2r+1")
def shift(weighting: Tensor, shifts: Tensor) -> Tensor:
    """Eq. 8 with a distribution over integer shifts: entry j of `shifts` moves the focus by j - r, circularly.

    weighting [..., H, N], shifts [..., H, 2r+1] -> [..., H, N]
    """
    taps = shifts.shape[-1]
    if taps % 2 == 0:
        raise ValueError(f"shifts has {taps} entries, but they are centred on no shift: give an odd number, 2r + 1.")
    moved = [torch.roll(weighting, j - taps // 2, dims=-1) * shifts[..., j, None] for j in range(taps)]
    return torch.stack(moved).sum(0)


@shapes(weighting="H N", amount="H")
def scalar_shift(weighting: Tensor, amount: Tensor) -> Tensor:
    """Eq. 8 with the paper's other parameterisation: a width-one uniform distribution of shifts from `amount` on.

    An amount of 6.7 puts 0.3 on a shift of 6 and 0.7 on a shift of 7.   weighting [..., H, N], amount [..., H]
    """
    slots = weighting.shape[-1]
    whole = torch.floor(amount.detach())
    part = (amount - whole).unsqueeze(-1)  # [..., H, 1]
    steps = torch.remainder(whole, slots).long().unsqueeze(-1)
    positions = torch.arange(slots, device=weighting.device)
    near = torch.gather(weighting, -1, torch.remainder(positions - steps, slots))
    far = torch.gather(weighting, -1, torch.remainder(positions - steps - 1, slots))
    return (1 - part) * near + part * far


@shapes(weighting="H N", gamma="H")
def sharpen(weighting: Tensor, gamma: Tensor) -> Tensor:
    """Eq. 9: w(i) = w~(i)^gamma / sum_j w~(j)^gamma.   weighting [..., H, N], gamma [..., H]

    Written as a softmax of logarithms, so that gamma = 100 neither underflows nor divides by zero.
    """
    return torch.softmax(gamma.unsqueeze(-1) * torch.log(weighting + SHARPEN_EPSILON), dim=-1)


def bayes_ngram(ones: Tensor, zeros: Tensor) -> Tensor:
    """Eq. 10: the optimal probability of a one after `ones` ones and `zeros` zeros in the same context."""
    checks.same_device(ones=checks.tensor("ones", ones), zeros=checks.tensor("zeros", zeros))
    checks.broadcast("zeros", tuple(zeros.shape), tuple(ones.shape))
    return (ones + 0.5) / (ones + zeros + 1)
