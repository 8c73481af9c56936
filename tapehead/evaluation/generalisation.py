"""How well machines do at sizes of a task, inside and beyond their training range. Knows neither task nor trainer.

Legend: S seeds, P parameters, B rows of one call.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from tapehead.evaluation.metrics import bits_per_sequence, wrong_bits
from tapehead.models import SequenceModel
from tapehead.streams import stream
from tapehead.tasks import Batch, Size, Task

CALL_STEPS = 40_000
"""Steps of all sequences of one machine together in one call: bounds the memory that an evaluation takes."""


@dataclasses.dataclass(frozen=True)
class Score:
    """What S machines did on the same sequences of one size."""

    label: str
    sizes: dict[str, Size]
    episodes: int
    bits: list[float]
    """Mean cost per sequence of each machine, in bits; over the best possible where the task knows it (N-grams)."""
    wrong_bits: list[float]
    """Mean number of wrong bits per sequence."""
    perfect: list[float]
    """Fraction of sequences without a wrong bit."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@torch.no_grad()
def score(
    model: SequenceModel,
    flat: Tensor,
    task: Task,
    sizes: dict[str, Size],
    episodes: int,
    *,
    source: str = "evaluation",
) -> Score:
    """Machines flat [S, P] on `episodes` sequences of a size; always the same sequences, whoever is scored.

    source: the name of the stream that they are drawn from. Who has looked at one set takes another to confirm.
    """
    bits: list[Tensor] = []
    wrong: list[Tensor] = []
    done = 0
    while done < episodes:
        draws = stream(0, source, done, device=flat.device)
        probe = task.sample(draws, batch_size=1, **sizes)
        rows = max(1, min(episodes - done, CALL_STEPS // probe.inputs.shape[0]))
        batch = task.sample(draws, batch_size=rows, **sizes)
        costs, errors = zip(*(_costs(model, one, task, batch) for one in flat.split(1)), strict=True)
        bits.append(torch.cat(costs))
        wrong.append(torch.cat(errors))
        done += rows
    all_bits, all_wrong = torch.cat(bits, dim=-1), torch.cat(wrong, dim=-1).double()
    return Score(
        label=task.label(sizes),
        sizes=sizes,
        episodes=episodes,
        bits=all_bits.mean(dim=-1).tolist(),
        wrong_bits=all_wrong.mean(dim=-1).tolist(),
        perfect=(all_wrong == 0).double().mean(dim=-1).tolist(),
    )


def _costs(model: SequenceModel, flat: Tensor, task: Task, batch: Batch) -> tuple[Tensor, Tensor]:
    """Bits over the best possible and wrong bits of one machine flat [1, P], each [1, B]."""
    inputs, targets, mask, lengths = (part.unsqueeze(0) for part in batch)
    logits = model.population(flat, inputs, lengths)
    return bits_per_sequence(logits, targets, mask) - task.optimal_bits(batch), wrong_bits(logits, targets, mask)


def generalisation(model: SequenceModel, flat: Tensor, task: Task, episodes: int = 200) -> list[Score]:
    """Scores at the sizes that the task names."""
    return [score(model, flat, task, dict(sizes), episodes) for sizes in task.generalisation]
