"""The truth: the update in plain torch, straight from the formulas. Never made faster."""

import torch
from torch import Tensor

from tapehead.kernels.update.contract import UpdateRule, UpdateState


def clipped(rule: UpdateRule, gradient: Tensor) -> Tensor:
    """Gradient [S, P] clipped by element or, seed by seed, by norm."""
    if rule.clip == "elementwise":
        return gradient.clamp(-rule.clip_at, rule.clip_at)
    if rule.clip == "norm":
        norm: Tensor = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True, dtype=torch.float64)
        scale = rule.clip_at / norm.clamp_min(rule.clip_at)
        return gradient * scale.to(gradient.dtype)
    return gradient


def identity(dtype: torch.dtype, device: torch.device) -> str:
    """A word for the code that is run: torch's."""
    return f"torch-{torch.__version__}"


def update(
    rule: UpdateRule,
    state: UpdateState,
    gradient: Tensor,
    costs: Tensor,
    rates: Tensor,
    squares: Tensor | None = None,
) -> Tensor:
    """Apply one update in place; returns which seeds [S] were skipped. gradient [S, P], costs [S, B], rates [S].

    Ignores `squares`.
    """
    good = torch.isfinite(costs).all(dim=-1) & torch.isfinite(gradient).all(dim=-1)
    rate = rates.unsqueeze(-1)
    g = clipped(rule, torch.where(good.unsqueeze(-1), gradient, 0.0))
    count = (state.applied + 1).to(g.dtype).unsqueeze(-1)
    w, moments = rule.optimiser.step(state.parameters, g, state.moments, rate, count)
    for old, new in zip(state.moments, moments, strict=True):
        old.copy_(torch.where(good.unsqueeze(-1), new, old))
    state.parameters.copy_(torch.where(good.unsqueeze(-1), w, state.parameters))
    if state.average is not None:
        mixed = rule.average * state.average + (1 - rule.average) * state.parameters
        state.average.copy_(torch.where(good.unsqueeze(-1), mixed, state.average))
    state.applied += good
    return ~good
