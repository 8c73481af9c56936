"""A task with symbols, a loss, a model, an optimiser, a schedule and a figure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from tapehead import CATEGORICAL, Batch, Loss, Optimiser, RunView, Schedule, SequenceModel, Size, Stream, Task, stream


class Focal(Loss):
    """Cross-entropy that counts sure answers less: -(1 - p)^2 log p of the right symbol."""

    def each(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_p = (targets * F.log_softmax(logits, dim=-1)).sum(dim=-1, keepdim=True)
        return -((1 - log_p.exp()) ** 2) * log_p

    def errors(self, logits: Tensor, targets: Tensor) -> Tensor:
        return CATEGORICAL.errors(logits, targets)


@dataclass(frozen=True, kw_only=True)
class Successor(Task):
    """Every step shows one of K symbols; the answer, at once, is the next one of the alphabet."""

    length: Size = (1, 3)
    symbols: int = 4

    limits: ClassVar[Mapping[str, int]] = {"length": 1}
    loss: ClassVar[Loss] = CATEGORICAL
    generalisation: ClassVar[tuple[dict[str, int], ...]] = ({"length": 3}, {"length": 8})
    solved_bits: ClassVar[float] = 0.5

    @property
    def input_size(self) -> int:
        return self.symbols

    @property
    def output_size(self) -> int:
        return self.symbols

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, tuple[int, int]]) -> Batch:
        lengths = draws.integers(rows, 1, *sizes["length"]).squeeze(-1)  # [*lead, B]
        longest = int(lengths.max())
        shown = draws.integers(rows, longest, 0, self.symbols - 1).transpose(-1, -2)  # [*lead, T, B]
        mask = (torch.arange(longest, device=draws.device).unsqueeze(-1) < lengths.unsqueeze(-2)).float()
        inputs, targets = (F.one_hot(s, self.symbols).float() for s in (shown, (shown + 1) % self.symbols))
        return Batch(inputs * mask.unsqueeze(-1), targets * mask.unsqueeze(-1), mask, lengths)


@dataclass(frozen=True, kw_only=True)
class FocalSuccessor(Successor):
    """The same with a loss that only torch knows, and a figure of its own."""

    loss: ClassVar[Loss] = Focal()
    figures: ClassVar[tuple[str, ...]] = ("learning-curve", "laboratory_elsewhere.parts:confusion")


class GRU(SequenceModel):
    """A gated recurrent unit with a linear readout."""

    def __init__(self, input_size: int, output_size: int, *, hidden_size: int = 8, layers: int = 1) -> None:
        super().__init__()
        self.input_size, self.output_size = input_size, output_size
        self.cells = nn.GRU(input_size, hidden_size, layers)
        self.readout = nn.Linear(hidden_size, output_size)

    def run(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        hidden = None if state is None else state.transpose(0, 1).contiguous()  # [layers, B, H]; a state begins with B
        if lengths is None:
            y, hidden = self.cells(x, hidden)
            return self.readout(y), hidden.transpose(0, 1)
        steps = []
        for t in range(x.shape[0]):
            y, new = self.cells(x[t : t + 1], hidden)
            hidden = torch.where((t < lengths).unsqueeze(-1), new, torch.zeros_like(new) if hidden is None else hidden)
            steps.append(y)
        return self.readout(torch.cat(steps)), hidden.transpose(0, 1)


@dataclass(frozen=True, kw_only=True)
class Lion(Optimiser):
    """Evolved sign momentum (Chen et al. 2023)."""

    moments = ("momentum",)

    learning_rate: float = 3e-3
    beta1: float = 0.9
    beta2: float = 0.99

    def step(
        self, w: Tensor, g: Tensor, moments: list[Tensor], rate: float | Tensor, count: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        (m,) = moments
        direction = torch.sign(self.beta1 * m + (1 - self.beta1) * g)
        return w - rate * direction, [self.beta2 * m + (1 - self.beta2) * g]


@dataclass(frozen=True, kw_only=True)
class WarmUp(Schedule):
    """Rises for the first updates, then stays."""

    updates: int = 50

    def factor(self, update: int, updates: int) -> float:
        return min(1.0, (update + 1) / self.updates)


def confusion(view: RunView) -> Figure:
    """Which symbol is taken for which."""
    batch = view.task.sample(stream(0, "confusion", 0), batch_size=50)
    with torch.no_grad():
        logits, _ = view.model(batch.inputs, None, batch.lengths)
    answers = F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    counts = torch.einsum("tba,tbc,tb->ac", batch.targets, answers, batch.mask)
    figure = Figure(figsize=(3, 3))
    axes = figure.add_subplot()
    axes.imshow(counts.numpy())
    axes.set(title=f"seed {view.seed}", xlabel="answer", ylabel="target")
    return figure
