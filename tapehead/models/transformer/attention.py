"""Causal attention over cached and new steps, with its positions.

Legend: B batch, L layers, H heads, D size of a head, N cached steps, T new steps.

Row b has `steps[b]` cached steps, in the first columns of the cache; columns behind them are zero and are never
attended to. Its new steps have the positions steps[b], steps[b] + 1, ...
"""

import contextlib
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from tapehead.kernels.ntm_scan.contract import is_vmapped

Positions = Literal["rotary", "alibi", "none"]
ROTARY_BASE = 10_000.0


class TransformerState(NamedTuple):
    """The key-value cache. State of a layer that was skipped is zero, and of no use to a model that does not skip
    it."""

    keys: Tensor  # [B, L, H, N, D], rotated if positions are rotary
    values: Tensor  # [B, L, H, N, D]
    steps: Tensor  # int64 [B], how many columns of N each row has


class Scene(NamedTuple):
    """What all layers of one call have in common."""

    angles: Tensor | None  # of the new steps, [B or 1, 1, T, D / 2], at least float32; rotary positions only
    mask: Tensor | None  # what is added to the scores, or bools: [B or 1, H or 1, T, N + T]
    causal: bool  # no cache and no mask: torch's own causal attention


def make_scene(past: TransformerState, steps: int, positions: Positions, even: bool) -> Scene:
    """even: all rows have N cached steps, so that one mask does for all."""
    cached, like = past.keys.shape[3], past.keys
    now = torch.arange(steps, device=like.device)
    begun = past.steps.new_full((1,), cached) if even else past.steps
    asking = begun.unsqueeze(-1) + now  # positions, [B or 1, T]
    angles = None
    if positions == "rotary":  # half precision cannot tell large angles of neighbouring steps apart
        precision = torch.promote_types(like.dtype, torch.float32)
        angles = _angles(asking, like.shape[-1]).to(precision).unsqueeze(1)
    if positions != "alibi" and even and (cached == 0 or steps == 1):
        return Scene(angles, None, cached == 0 and steps > 1)
    columns = torch.arange(cached, device=like.device).expand(len(begun), cached)
    known = columns < begun.unsqueeze(-1)  # [B or 1, N]
    visible = torch.cat(
        [
            known.unsqueeze(1).expand(-1, steps, -1),
            (now <= now.unsqueeze(-1)).expand(len(begun), steps, steps),
        ],
        dim=-1,
    )  # [B or 1, T, N + T]
    if positions != "alibi":
        return Scene(angles, visible.unsqueeze(1), False)
    asked = torch.cat([columns, asking], dim=-1)  # positions of the keys, [B or 1, N + T]
    distance = (asking.unsqueeze(-1) - asked.unsqueeze(-2)).unsqueeze(1)  # [B or 1, 1, T, N + T]
    bias = -_slopes(like.shape[2], like.device).to(like.dtype).view(-1, 1, 1) * distance.to(like.dtype)
    return Scene(None, bias.masked_fill(~visible.unsqueeze(1), -torch.inf), False)


def is_even(state: TransformerState) -> bool:
    """Whether all rows have as many steps as the cache has columns. On a GPU this waits for the device."""
    return not is_vmapped(state.steps) and bool((state.steps == state.keys.shape[3]).all())


def check_steps(state: TransformerState) -> None:
    """Refuse numbers of steps that the cache cannot have. On a GPU this waits for the device."""
    columns = state.keys.shape[3]
    if not is_vmapped(state.steps) and bool(((state.steps < 0) | (state.steps > columns)).any()):
        raise ValueError(
            f"state.steps has {int(state.steps.min())} to {int(state.steps.max())}, but the cache has {columns} "
            f"columns: give 0 to {columns}."
        )


def _angles(positions: Tensor, size: int) -> Tensor:
    """Angles of rotary positions in float64: position x base^(-2j / D).   [...] -> [..., D / 2]"""
    exponents = torch.arange(0, size, 2, device=positions.device, dtype=torch.float64) / size
    return positions.unsqueeze(-1).double() * ROTARY_BASE**-exponents


def _slopes(heads: int, device: torch.device) -> Tensor:
    """ALiBi's slopes: 2^(-8 (h + 1) / H) for head h of H."""
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1, dtype=torch.float64, device=device) / heads)


def rotate(vectors: Tensor, angles: Tensor | None) -> Tensor:
    """Each pair (j, j + D / 2) of a vector turned by its angle.   vectors [B, H, T, D]"""
    if angles is None:
        return vectors
    one, other = vectors.chunk(2, dim=-1)
    cos, sin = angles.cos().to(vectors.dtype), angles.sin().to(vectors.dtype)
    return torch.cat([one * cos - other * sin, one * sin + other * cos], dim=-1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, scene: Scene) -> Tensor:
    """[B, H, T, D] from keys and values [B, H, N + T, D].

    On a GPU gradients go through torch's plain implementation: the fused ones add up in an order that may differ from
    run to run, and a resumed run must give the same bits. So do `torch.func.vmap` and forward derivatives, for which
    the fused ones have no rule.
    """
    plain = is_vmapped(queries) or (queries.is_cuda and torch.is_grad_enabled()) or is_dual(queries)
    with sdpa_kernel(SDPBackend.MATH) if plain else contextlib.nullcontext():
        found: Tensor = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=scene.mask, is_causal=scene.causal
        )
    return found


def is_dual(tensor: Tensor) -> bool:
    """Whether a tensor carries a forward derivative."""
    return forward_ad.unpack_dual(tensor).tangent is not None


def weightings(queries: Tensor, keys: Tensor, scene: Scene) -> Tensor:
    """What each head attended to, for traces: [B, H, T, N + T], each row a distribution over the steps so far."""
    scores = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
    if scene.causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    elif scene.mask is not None:
        is_bool = scene.mask.dtype == torch.bool
        scores = scores.masked_fill(~scene.mask, -torch.inf) if is_bool else scores + scene.mask
    weights: Tensor = scores.softmax(dim=-1)
    return weights


def extend(
    past: TransformerState, keys: Tensor, values: Tensor, lengths: Tensor | None, even: bool
) -> TransformerState:
    """The cache with T more steps, keys and values [B, L, H, T, D]; of each row only its first `lengths` [B]."""
    steps = keys.shape[3]
    all_keys, all_values = torch.cat([past.keys, keys], dim=3), torch.cat([past.values, values], dim=3)
    if lengths is None and even:
        return TransformerState(all_keys, all_values, past.steps + steps)
    total = past.steps + (steps if lengths is None else lengths)
    columns = all_keys.shape[3] if is_vmapped(total) or not len(total) else int(total.max())
    column, cached = torch.arange(columns, device=total.device), past.keys.shape[3]
    behind = column - past.steps.unsqueeze(-1)  # [B, columns]; not negative where a new step goes
    source = torch.where(behind < 0, column, behind + cached).clamp(max=all_keys.shape[3] - 1)
    inside = column < total.unsqueeze(-1)
    return TransformerState(_moved(all_keys, source, inside), _moved(all_values, source, inside), total)


def cut(state: TransformerState, steps: int) -> TransformerState:
    """The cache of the first `steps` steps; all rows must have so many."""
    count = torch.full_like(state.steps, steps)
    return TransformerState(state.keys[..., :steps, :], state.values[..., :steps, :], count)


def _moved(cache: Tensor, source: Tensor, inside: Tensor) -> Tensor:
    """Each row's columns [B, L, H, N, D] in another order, source [B, M]; zeros where it is not inside [B, M]."""
    places = source[:, None, None, :, None].expand(*cache.shape[:3], source.shape[1], cache.shape[4])
    return torch.where(inside[:, None, None, :, None], cache.gather(3, places), 0.0)
