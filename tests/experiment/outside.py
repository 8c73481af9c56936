"""Parts of experiments that are not in tapehead: what a user would write in a module of their own."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional as F

import tapehead
from tapehead.experiment.schedules import Schedule
from tapehead.losses import CATEGORICAL, Binary, Loss
from tapehead.tasks.copy import Copy
from tapehead.tasks.task import Batch


@dataclass(frozen=True, kw_only=True)
class Momentum(tapehead.Optimiser):
    """Gradient descent with momentum."""

    moments = ("velocity",)

    momentum: float = 0.9

    def step(self, w, g, moments, rate, count):
        (velocity,) = moments
        velocity = self.momentum * velocity + g
        return w - rate * velocity, [velocity]


@dataclass(frozen=True, kw_only=True)
class Warmup(Schedule):
    """From nothing to the learning rate over the first updates."""

    updates: int = 200

    def factor(self, update, updates):
        return min(1.0, (update + 1) / self.updates)


class Squares(Loss):
    """Squared errors of the probabilities."""

    def each(self, logits, targets):
        return (logits.sigmoid() - targets) ** 2

    def errors(self, logits, targets):
        return ~((logits > 0) == (targets > 0.5))


class Doubled(Binary):
    """Twice the cost of the built-in loss that it inherits from."""

    def each(self, logits, targets):
        return 2 * super().each(logits, targets)


class Plain(Binary):
    """The same cost, in a class of its own."""


@dataclass(frozen=True, kw_only=True)
class CopySquares(Copy):
    name: ClassVar[str] = "copy"  # so that its sequences are those of copy
    loss = Squares()


@dataclass(frozen=True, kw_only=True)
class CopyDoubled(Copy):
    name: ClassVar[str] = "copy"
    loss = Doubled()


@dataclass(frozen=True, kw_only=True)
class CopyPlain(Copy):
    name: ClassVar[str] = "copy"
    loss = Plain()


@dataclass(frozen=True, kw_only=True)
class CopySymbols(Copy):
    """Copy one symbol of 2^width at a time, one-hot, with the delimiter behind them."""

    name: ClassVar[str] = "copy-symbols"
    loss = CATEGORICAL

    @property
    def input_size(self):
        return 2**self.width + 1

    @property
    def output_size(self):
        return 2**self.width

    def draw(self, draws, rows, sizes):
        bits = Copy.draw(Copy(width=self.width), draws, rows, sizes)
        values = 2 ** torch.arange(self.width, device=bits.inputs.device)

        def symbols(part):
            return F.one_hot((part * values).sum(dim=-1).long(), self.output_size).float()

        delimiter = bits.inputs[..., self.width :]
        asked = bits.inputs[..., : self.width]
        shown = symbols(asked) * (torch.cumsum(delimiter, dim=-3) == 0)
        targets = symbols(bits.targets) * bits.mask.unsqueeze(-1)
        return Batch(torch.cat([shown, delimiter], dim=-1), targets, bits.mask, bits.lengths)
