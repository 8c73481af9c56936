"""`RMSpropGraves` as a `torch.optim.Optimizer`, for models of your own. Runs update whole populations in one kernel."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from tapehead import checks
from tapehead.kernels.update.optimisers import Graves

GRAVES = Graves()


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a group with `lr` and `clip`, where it has them, as floats."""
    options = dict(options)
    if "lr" in options:
        options["lr"] = checks.real("lr", options["lr"])
        if options["lr"] < 0:
            raise ValueError(f"lr is {options['lr']}, but a learning rate cannot be negative.")
    if options.get("clip") is not None:
        options["clip"] = checks.real("clip", options["clip"])
        if options["clip"] <= 0:
            raise ValueError(f"clip is {options['clip']}, but it must be positive, or None for no clipping.")
    return options


class RMSpropGraves(torch.optim.Optimizer):
    """RMSProp in the form of Graves (2013), with momentum: the optimiser of the paper (section 4.6).

    `clip` clips every gradient component to +- its value first, as the paper does with 10; None does not clip.

        n = 0.95 n + 0.05 g^2;  m = 0.95 m + 0.05 g;  d = 0.9 d - lr g / sqrt(n - m^2 + 1e-4);  w = w + d
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-4, *, clip: float | None = 10.0) -> None:
        if not isinstance(params, Iterable) or isinstance(params, Tensor | range):
            raise TypeError(f"params is of type {type(params).__name__}, but it must be an iterable of tensors.")
        super().__init__(params, _checked({"lr": lr, "clip": clip}))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Every group may have its own `lr` and `clip`; the constructor comes here, too."""
        if "params" not in param_group:
            raise ValueError(f"params has a group with {list(param_group)} alone, but it needs 'params'.")
        super().add_param_group(_checked(param_group))

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
