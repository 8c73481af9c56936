"""What every backend of the update agrees on.

Legend: S seeds, P parameters. All state tensors are [S, P] and changed in place. A seed whose cost or gradient is not
finite is left as it was, all of it, and reported as skipped. The optimisers themselves are in optimisers.py.
"""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from tapehead.kernels.update.optimisers import Graves, Optimiser

Clip = Literal["elementwise", "norm", "none"]


@dataclasses.dataclass(frozen=True)
class UpdateRule:
    """How gradients become new weights; the learning rates come with each call."""

    optimiser: Optimiser = Graves()  # noqa: RUF009 (frozen)
    clip: Clip = "elementwise"
    clip_at: float = 10.0
    average: float = 0.0
    """Decay of an exponential moving average of the weights; 0 keeps none."""


class UpdateState:
    """The tensors that an update changes: parameters, the optimiser's moments, the average, the updates applied."""

    def __init__(self, rule: UpdateRule, parameters: Tensor) -> None:
        self.parameters = parameters
        self.moments = [torch.zeros_like(parameters) for _ in rule.optimiser.moments]
        self.average = parameters.clone() if rule.average else None
        self.applied = torch.zeros(parameters.shape[0], dtype=torch.int64, device=parameters.device)  # [S]
        self.seen: Any = None
        """What a backend found out about the tensors, for its next update."""

    def __getstate__(self) -> dict[str, Any]:
        """For every kind of copy, which has other tensors."""
        return self.__dict__ | {"seen": None}

    def tensors(self, rule: UpdateRule) -> dict[str, Tensor]:
        """All of it by name."""
        names = ("parameters", "applied", *rule.optimiser.moments, *([] if self.average is None else ["average"]))
        return dict(zip(names, self._all(), strict=True))

    @property
    def weights(self) -> Tensor:
        """What the state stands for, [S, P]: the average, if there is one."""
        return self.parameters if self.average is None else self.average

    def _all(self) -> list[Tensor]:
        return [self.parameters, self.applied, *self.moments, *([] if self.average is None else [self.average])]

    def _each(self, change: Callable[[Tensor], Tensor]) -> "UpdateState":
        other = copy.copy(self)
        other.parameters, other.applied = change(self.parameters), change(self.applied)
        other.moments = [change(moment) for moment in self.moments]
        other.average = None if self.average is None else change(self.average)
        return other

    def clone(self) -> "UpdateState":
        return self._each(Tensor.clone)

    def part(self, seeds: slice) -> "UpdateState":
        """Some seeds, in the same memory."""
        return self._each(lambda tensor: tensor[seeds])

    def select(self, index: Tensor) -> "UpdateState":
        """A copy of the seeds `index`."""
        return self._each(lambda tensor: tensor[index])

    def put(self, index: Tensor, part: "UpdateState") -> None:
        """Write a selection back."""
        for here, there in zip(self._all(), part._all(), strict=True):
            here[index] = there


Update = Callable[[UpdateRule, UpdateState, Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""update(rule, state, gradient [S, P], costs [S, B], rates [S], squares) changes the state, and returns which seeds
were skipped.

rates: of the parameters' type and on their device.

squares [S, parts]: the gradient's sums of squares in any number of parts, NaN where it or a cost is not finite, if
the kernel that made the gradient has them: an update that would need a pass over the gradient for it takes them.
"""
