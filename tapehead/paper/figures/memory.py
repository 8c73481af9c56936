"""Memory use of one machine (Figures 6, 9, 12 and 15), and where its heads are on many sequences.

Legend: T time, B sequences, H heads; locations are the slots of the greatest weighting.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from tapehead.figures import style
from tapehead.figures.memory import draw_memory
from tapehead.figures.memory_trace import longest_sizes, make_memory_trace
from tapehead.figures.run_model import run_with_trace
from tapehead.paper.figures.figure import PaperFigure, missing_machine, needed, paragraph
from tapehead.paper.results import Machine, Results
from tapehead.streams import stream
from tapehead.tasks import Batch

SEQUENCES = 20


class Locations(NamedTuple):
    """Where the heads are on B sequences of the largest training sizes."""

    batch: Batch
    read: Tensor  # [T, B, H]
    write: Tensor  # [T, B, H]
    slots: int

    @property
    def answer(self) -> int:
        """The first scored step."""
        return int(self.batch.mask[:, 0].argmax())

    def offset(self, read: Tensor, written: Tensor) -> tuple[int, float]:
        """The most frequent distance from locations to others of the same shape, around the tape, and its share."""
        distances = ((read - written + self.slots // 2) % self.slots - self.slots // 2).flatten()
        most = int(distances.mode().values)
        return most, float((distances == most).float().mean())


def locations(machine: Machine) -> Locations:
    """Sequences that are not trained on, and where the heads are."""
    task, model = machine.task, machine.model
    source = stream(0, f"locations/{task.name}", 0, device="cpu")
    batch = task.sample(source, batch_size=SEQUENCES, **longest_sizes(task))
    _, trace = run_with_trace(model, batch)
    read, write = (heads.weightings.argmax(dim=-1) for heads in (trace.read, trace.write))
    assert model.memory_slots is not None
    return Locations(batch, read.cpu(), write.cpu(), model.memory_slots)


def away(distance: int) -> str:
    """ "2 slots after"."""
    if distance == 0:
        return "at"
    return f"{abs(distance)} slot{'' if abs(distance) == 1 else 's'} {'after' if distance > 0 else 'before'}"


def percent(share: float) -> str:
    """ "99.6 %"."""
    return f"{100 * share:.1f} %"


def no_marks(figure: Figure, machine: Machine) -> None:
    """Leave a figure as it is."""


@dataclasses.dataclass(frozen=True)
class MemoryUse:
    number: int
    title: str
    row: str
    says: Callable[[Locations], str]
    """What the heads do, in numbers."""
    differs: str
    """How the paper's figure differs."""
    marks: Callable[[Figure, Machine], None] = no_marks
    """Draws what is peculiar to this figure."""

    def figure(self) -> PaperFigure:
        return PaperFigure(self.number, self.title, self.draw, self.caption, self.missing)

    def missing(self, results: Results) -> str | None:
        return missing_machine(results, self.row)

    @style.look()
    def draw(self, results: Results) -> Figure:
        machine = needed(results, self.row)
        trace = make_memory_trace(machine.model, machine.task)
        if trace is None:
            raise ValueError(f"{machine.origin} has no memory to draw: give a Neural Turing Machine as {self.row}.")
        figure = draw_memory(trace, machine.task, machine.seed, f"Figure {self.number}. {self.title}")
        self.marks(figure, machine)
        return figure

    @torch.no_grad()
    def caption(self, results: Results) -> str:
        machine = results.machine(self.row)
        if machine is None:
            return paragraph([missing_machine(results, self.row) or "", f"In the paper: {self.differs}"])
        sizes = machine.task.label(longest_sizes(machine.task)).lower()
        return paragraph(
            [
                f"One sequence ({sizes}) through one machine: {machine.origin}.",
                "Left: inputs, add vectors and write weightings; right: outputs, read vectors and read weightings.",
                f"On {SEQUENCES} sequences of this size: {self.says(locations(machine))}",
                f"Command: `tapehead zoo show {self.row}` prints the line that trains it.",
                f"In the paper: {self.differs}",
            ]
        )
