"""Optimisers with all their hyper-parameters. Each is its own definition in plain torch, for a whole population at
once.

Legend: S seeds, P parameters. The fused updates know the built-in ones by `kernel`; any other runs in torch, more
slowly."""

import abc
import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from tapehead.typed import Typed

SMALLEST = 2.0**-126
"""The smallest number that float32 holds at full precision."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimiser(Typed, abc.ABC):
    """How a gradient becomes new weights. One of your own needs `moments` and `step`."""

    moments: ClassVar[tuple[str, ...]] = ()
    """Names of the tensors [S, P] that it keeps from update to update; they start at zero."""
    kernel: ClassVar[str | None] = None
    """The name under which the fused updates know it; None for one that only torch knows."""

    learning_rate: float = 1e-4

    def check(self) -> None:
        if not self.learning_rate >= SMALLEST:
            raise ValueError(
                f"learning_rate is {self.learning_rate}, but it must be a positive number that float32 holds: at least "
                f"{SMALLEST:.1e}."
            )

    @abc.abstractmethod
    def step(
        self, w: Tensor, g: Tensor, moments: list[Tensor], rate: float | Tensor, count: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """New weights and moments from clipped gradients g, all [S, P]; no seed may see another.

        rate [S, 1]: the scheduled learning rate. count [S, 1]: updates of each seed, this one included.
        """

    @property
    def numbers(self) -> tuple[float, ...]:
        """Its hyper-parameters in the order in which the fused updates take them."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "learning_rate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graves(Optimiser):
    """RMSProp in the form of Graves (2013), Eqs. 38 to 41, with momentum: section 4.6 of the paper.

        n <- decay n + (1 - decay) g^2        mean of squares
        m <- decay m + (1 - decay) g          mean
        d <- momentum d - rate g / sqrt(n - m^2 + epsilon)
        w <- w + d

    It is centred, and its epsilon is inside the root; `torch.optim.RMSprop(centered=True)` has it outside.
    """

    moments = ("mean_square", "mean", "delta")
    kernel = "graves"

    decay: float = 0.95
    momentum: float = 0.9
    epsilon: float = 1e-4

    def check(self) -> None:
        super().check()
        check_decays(decay=self.decay, momentum=self.momentum)
        check_epsilon(self.epsilon)

    def step(
        self, w: Tensor, g: Tensor, moments: list[Tensor], rate: float | Tensor, count: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        n, m, d = moments
        n = self.decay * n + (1 - self.decay) * g * g
        m = self.decay * m + (1 - self.decay) * g
        variance = (n - m * m).clamp_min(0)  # rounding makes it negative, beyond epsilon under a steady gradient of 10
        d = self.momentum * d - rate * g / torch.sqrt(variance + self.epsilon)
        return w + d, [n, m, d]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(Optimiser):
    """Adam (Kingma and Ba 2015)."""

    moments = ("first_moment", "second_moment")
    kernel = "adam"

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def check(self) -> None:
        super().check()
        check_decays(beta1=self.beta1, beta2=self.beta2)
        check_epsilon(self.epsilon)

    def step(
        self, w: Tensor, g: Tensor, moments: list[Tensor], rate: float | Tensor, count: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        first, second = moments
        first = self.beta1 * first + (1 - self.beta1) * g
        second = self.beta2 * second + (1 - self.beta2) * g * g
        unbiased_first = first / (1 - torch.pow(self.beta1, count))
        unbiased_second = second / (1 - torch.pow(self.beta2, count))
        return w - rate * unbiased_first / (torch.sqrt(unbiased_second) + self.epsilon), [first, second]


def check_decays(**decays: float) -> None:
    for name, value in decays.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}, but a decay lies in 0 to just under 1.")


def check_epsilon(epsilon: float) -> None:
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}, but it keeps a divisor from zero: give a small positive number.")
