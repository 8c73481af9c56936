"""Scores of machines at sizes of a task, inside and beyond their training range, for any task and model.

Legend: S seeds, P parameters, B rows of one call.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tapehead.models import SequenceModel
from tapehead.streams import stream
from tapehead.tasks import Batch, Size, Task
from tapehead.typed import Typed

CALL_STEPS = 40_000
"""Steps of all sequences of one machine together in one call: bounds the memory that an evaluation takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score(Typed):
    """What S machines did on the same sequences of one size. Lists have one entry for each machine."""

    label: str
    sizes: dict[str, Any]
    sequences: int
    bits: tuple[float | None, ...]
    """Mean cost per sequence in bits, over the best possible where the task knows it; None if it is not finite."""
    wrong: tuple[float, ...]
    """Mean number of wrong answers per sequence: bits or symbols, as the task's loss has it."""
    accuracy: tuple[float, ...]
    """Share of all answers that are right."""
    perfect: tuple[float, ...]
    """Share of sequences without a wrong answer."""

    @property
    def costs(self) -> list[float]:
        """The costs in bits, infinite where they are not finite."""
        return [math.inf if value is None else value for value in self.bits]


@torch.no_grad()
def score(
    model: SequenceModel,
    flat: Tensor,
    task: Task,
    sizes: dict[str, Size],
    sequences: int,
    *,
    source: str = "evaluation",
    tick: Callable[[int], None] | None = None,
) -> Score:
    """Machines flat [S, P] on so many sequences of a size; always the same sequences, for every machine.

    source: the name of the stream that they are drawn from. What was chosen by one is
    confirmed on another. tick: told how many more sequences were scored, those of all machines counted.
    """
    bits: list[Tensor] = []
    wrong: list[Tensor] = []
    answers, done = 0, 0
    while done < sequences:
        draws = stream(0, source, done, device=flat.device)
        probe = task.sample(draws, batch_size=1, **sizes)
        rows = max(1, min(sequences - done, CALL_STEPS // probe.inputs.shape[0]))
        batch = task.sample(draws, batch_size=rows, **sizes)
        # each a copy: a product of matrices may round apart at another alignment
        with _evaluating(model):
            scored = []
            for one in flat.split(1):
                scored.append(_costs(model, one.clone(), task, batch))
                if tick is not None:
                    tick(rows)
        costs, errors, asked = zip(*scored, strict=True)
        bits.append(torch.cat(costs))
        wrong.append(torch.cat(errors))
        answers += asked[0]
        done += rows
    all_bits, all_wrong = torch.cat(bits, dim=-1), torch.cat(wrong, dim=-1).double()
    return Score(
        label=task.label(sizes),
        sizes=sizes,
        sequences=sequences,
        bits=tuple(value if math.isfinite(value) else None for value in all_bits.mean(dim=-1).tolist()),
        wrong=tuple(all_wrong.mean(dim=-1).tolist()),
        accuracy=tuple((1 - all_wrong.sum(dim=-1) / max(1, answers)).tolist()),
        perfect=tuple((all_wrong == 0).double().mean(dim=-1).tolist()),
    )


@contextlib.contextmanager
def _evaluating(model: SequenceModel) -> Iterator[None]:
    """While inside, all modules of a model are in eval mode; afterwards each is in its own again, whatever happens."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _costs(model: SequenceModel, flat: Tensor, task: Task, batch: Batch) -> tuple[Tensor, Tensor, int]:
    """Bits over the best possible and wrong answers of one machine flat [1, P], each [1, B]; the number of scored
    answers."""
    inputs, targets, mask, lengths = (part.unsqueeze(0) for part in batch)
    logits = model.population(flat, inputs, lengths)
    scored = (logits, targets, mask)
    bits = task.loss.bits(*scored) - task.optimal_bits(batch)
    return bits, task.loss.wrong(*scored), task.loss.answers(targets, mask)
