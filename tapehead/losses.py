"""What a wrong answer costs. A task owns its loss; the built-in ones are also fused in the kernels.

Shapes: logits and targets [*lead, T, B, O], mask [*lead, T, B], results [*lead, B]. Steps whose mask is zero do not
count, whatever the logits are there, NaN included, and no gradient flows through them. Any mask that is not zero counts
as one."""

import abc
import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from tapehead import checks


class Loss(abc.ABC):
    """The cost of answers. One of your own needs `each` and `errors`; it is differentiated by autograd."""

    kernel: ClassVar[str | None] = None
    """The name under which the fused kernels compute it; None for a loss that only torch knows."""

    @abc.abstractmethod
    def each(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The cost of every step in nats, [*lead, T, B, any], of finite logits; it is summed over the last
        dimension."""

    @abc.abstractmethod
    def errors(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Which answers are wrong, as bools [*lead, T, B, any]. A NaN is wrong."""

    def probabilities(self, logits: Tensor) -> Tensor:
        """Logits as numbers in 0 to 1, for pictures."""
        return logits.sigmoid()

    def nats(self, logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
        """The cost of each sequence in nats: the sum over its scored steps, in the type of the logits."""
        scored = scored_steps(logits, targets, mask)
        each = self.each(torch.where(scored, logits, 0.0), targets)  # a NaN would pass through a product with zero
        self._check("each", each, mask)
        return torch.where(scored, each, 0.0).sum(dim=(-3, -1))

    def bits(self, logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
        """The cost of each sequence in bits, in float64. Finite for every finite logit."""
        scored_steps(logits, targets, mask)  # refuses what has no numbers to convert
        return self.nats(logits.double(), targets.double(), mask) / math.log(2)

    def wrong(self, logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
        """How many scored answers of each sequence are wrong, int64."""
        scored, errors = scored_steps(logits, targets, mask), self.errors(logits, targets)
        self._check("errors", errors, mask)
        return (scored & errors).sum(dim=(-3, -1))

    def _check(self, name: str, values: Tensor, mask: Tensor) -> None:
        """A loss from outside that left out the last dimension would be broadcast without a word."""
        if values.ndim != mask.ndim + 1 or values.shape[:-1] != mask.shape:
            raise ValueError(
                f"{type(self).__name__}.{name} returned {list(values.shape)}, but it must return [*lead, T, B, any], "
                f"here {[*mask.shape, 'any']}."
            )

    def answers(self, targets: Tensor, mask: Tensor) -> int:
        """How many answers are scored in all."""
        return int((mask != 0).sum()) * self.errors(targets[..., :1, :1, :], targets[..., :1, :1, :]).shape[-1]


class Binary(Loss):
    """Every output is a bit with a probability of its own: binary cross-entropy of sigmoid(logits)."""

    kernel = "binary"

    def each(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="none")

    def errors(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Bits that are wrong after rounding; a logit of 0 rounds to zero."""
        return ~torch.where(targets > 0.5, logits > 0, logits <= 0)


class Categorical(Loss):
    """Every step is one of O symbols: cross-entropy of softmax(logits) with targets that are one-hot, or weights."""

    kernel = "categorical"

    def each(self, logits: Tensor, targets: Tensor) -> Tensor:
        return -(targets * torch.log_softmax(logits, dim=-1)).sum(dim=-1, keepdim=True)

    def errors(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Steps whose likeliest symbol is another one; of equal logits the first counts."""
        right = logits.argmax(dim=-1) == targets.argmax(dim=-1)
        return (~right | logits.isnan().any(dim=-1)).unsqueeze(-1)

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.softmax(dim=-1)


BINARY = Binary()
CATEGORICAL = Categorical()


def scored_steps(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Which steps count, as bools [*lead, T, B, 1]; everything is checked here."""
    for name, value in (("logits", logits), ("targets", targets), ("mask", mask)):
        checks.tensor(name, value)
    checks.same_device(logits=logits, targets=targets, mask=mask)
    if logits.ndim < 3 or logits.shape != targets.shape or mask.shape != targets.shape[:-1]:
        shapes = f"logits {list(logits.shape)}, targets {list(targets.shape)}, mask {list(mask.shape)}"
        raise ValueError(f"{shapes} do not belong together: give [*lead, T, B, O] twice and [*lead, T, B].")
    return mask.unsqueeze(-1) != 0
