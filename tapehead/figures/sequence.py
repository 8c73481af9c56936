"""`tapehead.draw`: the standard figures of any machine on sequences of one's own.

Legend: T time, B batch, I inputs, O outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from tapehead import checks
from tapehead.figures.answers import draw_strips, make_strip
from tapehead.figures.memory import draw_memory
from tapehead.figures.memory_trace import make_memory_trace
from tapehead.losses import BINARY, Loss
from tapehead.models.sequence import SequenceModel
from tapehead.streams import Stream
from tapehead.tasks import Batch, Task
from tapehead.tasks.task import Range

MOST_ROWS = 6
"""Sequences of a batch whose answers are drawn."""


@dataclass(frozen=True, kw_only=True)
class OneSequence(Task):
    """A task that has one sequence, whatever the stream: what draws tasks can then draw it."""

    @classmethod
    def of(cls, batch: Batch, row: int, loss: Loss) -> "OneSequence":
        """A row of a batch, without its padding."""
        task, steps = cls(), int(batch.lengths[row])
        inputs, targets, mask = (part[:steps, row : row + 1].cpu().float() for part in batch[:3])
        one = Batch(inputs, targets, mask, batch.lengths[row : row + 1].cpu().long())
        for name, value in (("_batch", one), ("_row", row), ("loss", loss)):
            object.__setattr__(task, name, value)  # no options of an experiment
        return task

    @property
    def batch(self) -> Batch:
        found: Batch = vars(self)["_batch"]
        return found

    @property
    def input_size(self) -> int:
        return self.batch.inputs.shape[-1]

    @property
    def output_size(self) -> int:
        return self.batch.targets.shape[-1]

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        return self.batch

    def label(self, sizes: Mapping[str, int | Range]) -> str:
        return f"Sequence {vars(self)['_row']}"


def draw(
    model: SequenceModel, batch: Batch | Tensor, *, row: int = 0, loss: Loss = BINARY, title: str = ""
) -> dict[str, Figure]:
    """The figures of a machine on sequences: "answers" of up to 6 rows, and "memory", its use by one of them.

    batch: a `Batch`, or inputs [T, B, I] alone, which have no answers to be compared with: then the memory is all that
    is drawn. A model without a memory has answers alone. A figure is matplotlib's: `figure.savefig("memory.png")`.
    """
    whole = as_batch(model, batch)
    rows = whole.inputs.shape[1]
    if not 0 <= checks.whole("row", row, 0) < rows:
        raise ValueError(f"row is {row}, but the batch has rows 0 to {rows - 1}.")
    figures = {}
    if isinstance(batch, Batch):
        tasks = [OneSequence.of(whole, k, loss) for k in range(min(rows, MOST_ROWS))]
        scored = [task for task in tasks if bool(task.batch.mask.any())]
        if scored:
            strips = [make_strip(model, task, {}) for task in scored]
            figures["answers"] = draw_strips(title or f"{type(model).__name__}: targets and outputs", {"": strips})
    task = OneSequence.of(whole, row, loss)
    trace = make_memory_trace(model, task)
    if trace is not None:
        heading = title or f"{type(model).__name__}: memory use (sequence {row}, {len(task.batch.inputs)} steps)"
        figures["memory"] = draw_memory(trace, task, seed=0, title=heading)
    return figures


def as_batch(model: SequenceModel, batch: Batch | Tensor) -> Batch:
    """A batch that the model takes, or one sentence why it does not; inputs alone become one whose outputs are all
    shown."""
    if not isinstance(model, SequenceModel):
        raise TypeError(
            f"the model is of type {type(model).__name__}, but it must be a tapehead.SequenceModel, such as NTM."
        )
    if isinstance(batch, Tensor):
        inputs = checks.tensor("batch", batch)
        if inputs.ndim != 3:
            raise ValueError(
                f"batch has shape {tuple(inputs.shape)}, but inputs are [time, batch, {model.input_size}]."
            )
        steps, rows, _ = inputs.shape
        ones = torch.ones(steps, rows)
        batch = Batch(inputs, torch.zeros(steps, rows, model.output_size), ones, torch.full((rows,), steps))
    elif not isinstance(batch, Batch):
        raise TypeError(f"batch is of type {type(batch).__name__}, but it must be a Batch, or a tensor of inputs.")
    steps, rows = batch.mask.shape if batch.mask.ndim == 2 else (0, 0)
    shapes = {
        "inputs": (steps, rows, model.input_size),
        "targets": (steps, rows, model.output_size),
        "mask": (steps, rows),
        "lengths": (rows,),
    }
    for name, shape in shapes.items():
        found = tuple(getattr(batch, name).shape)
        if found != shape or 0 in found:
            raise ValueError(f"batch.{name} has shape {found}, but this model needs {shape}, time before batch.")
    return batch
