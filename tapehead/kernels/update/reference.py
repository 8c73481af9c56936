"""The truth: the update in plain torch, straight from the formulas. Never made faster."""

import torch
from torch import Tensor

from tapehead.kernels.update.contract import (
    ADAM_BETAS,
    ADAM_EPSILON,
    GRAVES_DECAY,
    GRAVES_EPSILON,
    GRAVES_MOMENTUM,
    UpdateRule,
    UpdateState,
)


def clipped(rule: UpdateRule, gradient: Tensor) -> Tensor:
    """Gradient [S, P] clipped by element or, seed by seed, by norm."""
    if rule.clip == "elementwise":
        return gradient.clamp(-rule.clip_at, rule.clip_at)
    if rule.clip == "norm":
        norm: Tensor = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True, dtype=torch.float64)
        scale = rule.clip_at / norm.clamp_min(rule.clip_at)
        return gradient * scale.to(gradient.dtype)
    return gradient


def graves(
    w: Tensor, g: Tensor, n: Tensor, m: Tensor, d: Tensor, rate: float | Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Graves' RMSProp: new w, n, m, d."""
    n = GRAVES_DECAY * n + (1 - GRAVES_DECAY) * g * g
    m = GRAVES_DECAY * m + (1 - GRAVES_DECAY) * g
    variance = (n - m * m).clamp_min(0)  # rounding makes it negative, beyond epsilon under a steady gradient of 10
    d = GRAVES_MOMENTUM * d - rate * g / torch.sqrt(variance + GRAVES_EPSILON)
    return w + d, n, m, d


def adam(
    w: Tensor, g: Tensor, first: Tensor, second: Tensor, rate: float | Tensor, count: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Adam (Kingma and Ba 2015): new w, first and second moment; `count` [S, 1] includes this update."""
    first = ADAM_BETAS[0] * first + (1 - ADAM_BETAS[0]) * g
    second = ADAM_BETAS[1] * second + (1 - ADAM_BETAS[1]) * g * g
    unbiased_first = first / (1 - torch.pow(ADAM_BETAS[0], count))
    unbiased_second = second / (1 - torch.pow(ADAM_BETAS[1], count))
    return w - rate * unbiased_first / (torch.sqrt(unbiased_second) + ADAM_EPSILON), first, second


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

    Looks for itself, whatever `squares` say.
    """
    good = torch.isfinite(costs).all(dim=-1) & torch.isfinite(gradient).all(dim=-1)
    rate = rates.unsqueeze(-1)
    g = clipped(rule, torch.where(good.unsqueeze(-1), gradient, 0.0))
    if rule.optimiser == "graves":
        w, *moments = graves(state.parameters, g, state.moments[0], state.moments[1], state.moments[2], rate)
    else:
        count = (state.applied + 1).to(g.dtype).unsqueeze(-1)
        w, *moments = adam(state.parameters, g, state.moments[0], state.moments[1], rate, count)
    for old, new in zip(state.moments, moments, strict=True):
        old.copy_(torch.where(good.unsqueeze(-1), new, old))
    state.parameters.copy_(torch.where(good.unsqueeze(-1), w, state.parameters))
    if state.average is not None:
        mixed = rule.average * state.average + (1 - rule.average) * state.parameters
        state.average.copy_(torch.where(good.unsqueeze(-1), mixed, state.average))
    state.applied += good
    return ~good
