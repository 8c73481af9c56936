"""`RMSpropGraves` as a `torch.optim.Optimizer`, for models of your own. Runs update whole populations in one kernel."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from tapehead.kernels.update.optimisers import Graves

GRAVES = Graves()


class RMSpropGraves(torch.optim.Optimizer):
    """RMSProp in the form of Graves (2013), with momentum: the optimiser of the paper (section 4.6).

    `clip` clips every gradient component to +- its value first, as the paper does with 10; None does not clip.

        n = 0.95 n + 0.05 g^2;  m = 0.95 m + 0.05 g;  d = 0.9 d - lr g / sqrt(n - m^2 + 1e-4);  w = w + d
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-4, *, clip: float | None = 10.0) -> None:
        if not lr >= 0:
            raise ValueError(f"lr is {lr}, but a learning rate cannot be negative.")
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip}, but it must be positive, or None for no clipping.")
        super().__init__(params, {"lr": lr, "clip": clip})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_one(parameter, group["lr"], group["clip"])
        return loss

    def _step_one(self, parameter: Tensor, lr: float, clip: float | None) -> None:
        state = self.state[parameter]
        if not state:
            for name in GRAVES.moments:
                state[name] = torch.zeros_like(parameter)
        g = parameter.grad
        assert g is not None
        if clip is not None:
            g = g.clamp(-clip, clip)
        w, moments = GRAVES.step(parameter, g, [state[name] for name in GRAVES.moments], lr, torch.zeros(()))
        parameter.copy_(w)
        state.update(zip(GRAVES.moments, moments, strict=True))
