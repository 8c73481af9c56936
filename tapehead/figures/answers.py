"""Targets over outputs at several sizes, in the manner of the paper's Figures 4, 5 and 8.

Only what is scored is shown. Time runs to the right at one scale in the whole picture; channels run downwards. Where an
answer is short (recall), several sequences stand side by side.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from tapehead.figures import page, style
from tapehead.figures.run_model import run_model, source
from tapehead.figures.view import RunView
from tapehead.models.sequence import SequenceModel
from tapehead.tasks import Task

# Inches.
LEFT = 0.85
ROOM = style.WIDTH - LEFT - page.RIGHT
HEADING, GAP, MARKS, APART = 0.4, 0.05, 0.07, 0.2
CELL, LARGEST_CELL, LARGEST_HEIGHT = 0.054, 0.16, 0.12
NARROWEST = 1.5  # room for a heading
CHARACTER = 0.06  # of a note
BLOCK = 0.32  # height of the heading of a block

FEW, FILL = 8, 28  # answers of fewer than FEW steps are drawn side by side, until there are FILL steps


class Strip(NamedTuple):
    """One size of a task: O channels, C columns; columns between two sequences hold NaN."""

    heading: str
    note: str
    targets: NDArray[np.float64]  # [O, C]
    outputs: NDArray[np.float64]  # [O, C]
    wrong: NDArray[np.float64]  # [any, C], one where the answer is wrong

    @property
    def marks(self) -> NDArray[np.float64]:
        """Columns with a wrong answer, [1, C]."""
        marks: NDArray[np.float64] = self.wrong.max(axis=0, keepdims=True)
        return marks

    def room(self, cell: float) -> float:
        """Inches that the columns, each of so many, and the note need; a note may reach into half of the gap behind."""
        return max(float(self.targets.shape[1] * cell), len(self.note) * CHARACTER - APART / 2)


class Place(NamedTuple):
    """Where a strip goes, in inches from the top left corner."""

    x: float
    y: float
    first: bool  # of its line, so that it bears the labels


def make_strip(model: SequenceModel, task: Task, sizes: dict[str, int]) -> Strip:
    """The answers to sequences of a size, drawn from the stream of all figures."""
    steps = int(task.sample(source(task), batch_size=1, **sizes).mask.sum())
    rows = ceil(FILL / (steps + 1)) if steps < FEW else 1
    batch = task.sample(source(task), batch_size=rows, **sizes)
    logits = run_model(model, batch)
    scored, loss = (logits, batch.targets, batch.mask), task.loss
    wrong, bits = int(loss.wrong(*scored).sum()), float(loss.bits(*scored).mean())
    each = " each" if batch.mask.shape[1] > 1 else ""  # a task may have fewer sequences than it is asked for
    note = f"{wrong:,} of {loss.answers(batch.targets, batch.mask):,} wrong, {style.number(bits)} bits{each}"
    parts = (batch.targets, loss.probabilities(logits), loss.errors(logits, batch.targets))
    targets, outputs, missed = (_columns(part, batch.mask) for part in parts)
    return Strip(task.label(sizes), note, targets, outputs, missed)


def _columns(values: Tensor, mask: Tensor) -> NDArray[np.float64]:
    """The scored steps of values [T, B, O] as [O, C]: sequence after sequence, with a column of NaN between them."""
    parts = []
    for row in range(values.shape[1]):
        if row:
            parts.append(np.full((values.shape[2], 1), np.nan))
        parts.append(values[mask[:, row] > 0, row].double().numpy().T)
    return np.concatenate(parts, axis=1)


def answers(view: RunView) -> Figure:
    """Answers of a run's machine at the sizes that its task names."""
    return draw_answers(view.model, view.task, view.seed)


def draw_answers(model: SequenceModel, task: Task, seed: int) -> Figure:
    """Every size of the task's `generalisation`."""
    strips = [make_strip(model, task, sizes) for sizes in task.generalisation]
    return draw_strips(f"{style.task_title(task.name)}: targets and outputs (seed {seed})", {"": strips})


@style.look()
def draw_strips(title: str, blocks: Mapping[str, Sequence[Strip]]) -> Figure:
    """Blocks of strips one below the other, each under its heading, at one scale; a block may have none."""
    strips = [strip for block in blocks.values() for strip in block]
    cell = min(cell_width([strip.targets.shape[1] for strip in block]) for block in blocks.values() if block)
    tall = min(max(cell, CELL), LARGEST_HEIGHT) * max(len(strip.targets) for strip in strips)  # of a row of targets
    line = HEADING + 2 * (tall + GAP) + MARKS + APART
    arranged = [arrange([strip.room(cell) for strip in block], line) for block in blocks.values()]
    headings = BLOCK * sum(bool(heading) for heading in blocks)
    height = page.TOP + headings + sum(lines for _, lines in arranged) * line + page.FOOT
    figure = Figure(figsize=(style.WIDTH, height))
    page.text(figure, 0.15, 0.3, title, fontsize=12)
    down = 0.0
    for (heading, block), (places, lines) in zip(blocks.items(), arranged, strict=True):
        if heading:
            page.text(figure, 0.15, page.TOP + down + 0.12, heading, fontsize=10.5, fontweight="bold")
            down += BLOCK
        for strip, place in zip(block, places, strict=True):
            _draw_strip(figure, strip, place._replace(y=place.y + down), cell, tall)
        down += lines * line
    words = "wrong, bits: of the sequences drawn; marks: steps with a wrong answer"
    page.foot(figure, LEFT, words, style.BITS, "output")
    return figure


def cell_width(columns: list[int]) -> float:
    """Inches a step: as wide as fits, if all fit into one line; otherwise small, and small enough for the longest."""
    one_line = (ROOM - APART * (len(columns) - 1)) / sum(columns)
    return min(LARGEST_CELL, one_line) if one_line >= CELL else min(CELL, ROOM / max(columns))


def arrange(widths: list[float], line: float) -> tuple[list[Place], int]:
    """Strips from left to right, and a new line where one does not fit: their places, and the number of lines."""
    places: list[Place] = []
    x, lines = 0.0, min(1, len(widths))
    for width in widths:
        if x > 0 and x + max(width, NARROWEST) > ROOM + 1e-9:
            x, lines = 0.0, lines + 1
        places.append(Place(LEFT + x, page.TOP + (lines - 1) * line, x == 0))
        x += max(width, NARROWEST) + APART
    return places, lines


def _draw_strip(figure: Figure, strip: Strip, place: Place, cell: float, tall: float) -> None:
    x, width = place.x, strip.targets.shape[1] * cell
    page.text(figure, x, place.y + 0.13, strip.heading, fontweight="bold")
    page.text(figure, x, place.y + 0.3, strip.note, fontsize=8.0, color=style.FAINT)
    top = place.y + HEADING
    rows: list[tuple[str, float, float, NDArray[np.float64], Colormap]] = [
        ("Targets", top, tall, strip.targets, style.BITS),
        ("Outputs", top + tall + GAP, tall, strip.outputs, style.BITS),
        ("Wrong", top + 2 * (tall + GAP), MARKS, strip.marks, style.MARKS),
    ]
    for label, y, height, values, colours in rows:
        page.bare_axes(figure, x, y, width, height).imshow(values, cmap=colours, vmin=0, vmax=1)
        if place.first:
            page.text(figure, x - 0.1, y + height / 2, label, ha="right")
