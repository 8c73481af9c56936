"""Targets over outputs at several sizes, in the manner of the paper's Figures 4, 5 and 8.

Only what is scored is shown. Time runs to the right at one scale in the whole picture; channels run downwards. Where an
answer is short (recall), several sequences stand side by side.
"""

from math import ceil
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from tapehead.evaluation.metrics import bits_per_sequence, wrong_bits
from tapehead.models.sequence import SequenceModel
from tapehead.pictures import style
from tapehead.pictures.playing import play, source
from tapehead.tasks import Task

# Inches.
LEFT, RIGHT, TOP, FOOT = 0.85, 0.2, 0.5, 0.5
ROOM = style.WIDTH - LEFT - RIGHT
HEADING, GAP, TICKS, APART = 0.4, 0.05, 0.07, 0.2
CELL, LARGEST_CELL, LARGEST_HEIGHT = 0.054, 0.16, 0.12
NARROWEST = 1.5  # room for a heading

FEW, FILL = 8, 28  # answers of fewer than FEW steps are drawn side by side, until there are FILL steps


class Strip(NamedTuple):
    """One size of a task: O channels, C columns; columns between two sequences hold NaN."""

    heading: str
    note: str
    targets: NDArray[np.float64]  # [O, C]
    outputs: NDArray[np.float64]  # [O, C]
    wrong: NDArray[np.bool_]  # [O, C], at the rounding of `wrong_bits`


class Place(NamedTuple):
    """Where a strip goes, in inches from the top left corner."""

    x: float
    y: float
    first: bool  # of its line, so that it bears the labels


def make_strip(model: SequenceModel, task: Task, sizes: dict[str, int]) -> Strip:
    """Answer sequences of a size, the first at the address of all pictures."""
    steps = int(task.sample(source(task), batch_size=1, **sizes).mask.sum())
    rows = ceil(FILL / (steps + 1)) if steps < FEW else 1
    batch = task.sample(source(task), batch_size=rows, **sizes)
    logits = play(model, batch)
    scored = (logits, batch.targets, batch.mask)
    wrong, bits = int(wrong_bits(*scored).sum()), float(bits_per_sequence(*scored).mean())
    right = (batch.targets > 0.5).where(logits > 0, batch.targets < 0.5) & (logits == logits)
    missed = right.logical_not()
    note = f"{wrong} of {int(batch.mask.sum()) * task.output_size} wrong, {style.number(bits)} bits"
    targets, outputs, marks = (_columns(part, batch.mask) for part in (batch.targets, logits.sigmoid(), missed))
    return Strip(task.label(sizes), note, targets, outputs, np.nan_to_num(marks).astype(bool))


def _columns(values: Tensor, mask: Tensor) -> NDArray[np.float64]:
    """The scored steps of values [T, B, O] as [O, C]: sequence after sequence, with a column of NaN between them."""
    parts = []
    for row in range(values.shape[1]):
        if row:
            parts.append(np.full((values.shape[2], 1), np.nan))
        parts.append(values[mask[:, row] > 0, row].double().numpy().T)
    return np.concatenate(parts, axis=1)


@style.look()
def draw_answers(model: SequenceModel, task: Task, seed: int) -> Figure:
    """Every size of the task's `generalisation`."""
    strips = [make_strip(model, task, sizes) for sizes in task.generalisation]
    cell = cell_width([strip.targets.shape[1] for strip in strips])
    tall = min(max(cell, CELL), LARGEST_HEIGHT) * task.output_size  # of a row of targets
    line = HEADING + 2 * tall + GAP + 0.03 + TICKS + APART
    places, lines = arrange([strip.targets.shape[1] * cell for strip in strips], line)
    figure = Figure(figsize=(style.WIDTH, TOP + lines * line + FOOT))
    title = f"{style.task_title(task.name)}: targets and outputs (seed {seed})"
    _text(figure, 0.15, 0.3, title, fontsize=12)
    for strip, place in zip(strips, places, strict=True):
        _draw_strip(figure, strip, place, cell, tall)
    _draw_foot(figure)
    return figure


def cell_width(columns: list[int]) -> float:
    """Inches a step: as wide as fits, if all fit into one line; otherwise small, and small enough for the longest."""
    one_line = (ROOM - APART * (len(columns) - 1)) / sum(columns)
    return min(LARGEST_CELL, one_line) if one_line >= CELL else min(CELL, ROOM / max(columns))


def arrange(widths: list[float], line: float) -> tuple[list[Place], int]:
    """Strips from left to right, and a new line where one does not fit: their places, and the number of lines."""
    places: list[Place] = []
    x, lines = 0.0, 1
    for width in widths:
        if x > 0 and x + max(width, NARROWEST) > ROOM + 1e-9:
            x, lines = 0.0, lines + 1
        places.append(Place(LEFT + x, TOP + (lines - 1) * line, x == 0))
        x += max(width, NARROWEST) + APART
    return places, lines


def _draw_strip(figure: Figure, strip: Strip, place: Place, cell: float, tall: float) -> None:
    x, width = place.x, strip.targets.shape[1] * cell
    _text(figure, x, place.y + 0.13, strip.heading, fontweight="bold")
    _text(figure, x, place.y + 0.3, strip.note, fontsize=8.5, color=style.FAINT)
    top = place.y + HEADING
    rows = [("Targets", top, tall), ("Outputs", top + tall + GAP, tall), ("Wrong", top + 2 * tall + GAP + 0.03, TICKS)]
    for (label, y, height), values in zip(rows, (strip.targets, strip.outputs, strip.wrong.any(axis=0)), strict=True):
        axes = _axes(figure, x, y, width, height)
        if label == "Wrong":
            axes.imshow(values[None].astype(float), cmap=ListedColormap([style.PAPER, style.INK]), vmin=0, vmax=1)
        else:
            axes.imshow(values, cmap=style.BITS, vmin=0, vmax=1)
        if place.first:
            size = 7.5 if label == "Wrong" else 9
            _text(figure, x - 0.1, y + height / 2, label, ha="right", fontsize=size, va="center_baseline")


def _draw_foot(figure: Figure) -> None:
    """The arrow of time, what the marks mean, the key of colours."""
    y = figure.get_figheight() - 0.26
    _text(figure, LEFT, y, "Time")
    arrow = {"arrowstyle": "-|>", "color": style.INK, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
    start, end = _point(figure, LEFT + 0.4, y), _point(figure, LEFT + 1.2, y)
    figure.add_artist(_arrow_holder(figure, start, end, arrow))
    _text(figure, LEFT + 1.5, y, "bits: cost of a sequence. Marks: steps with a wrong bit.", fontsize=8, color=style.FAINT)
    axes = _axes(figure, style.WIDTH - RIGHT - 1.75, y - 0.05, 1.5, 0.1)
    key = figure.colorbar(ScalarMappable(cmap=style.BITS), cax=axes, orientation="horizontal", ticks=[])
    key.outline.set_visible(False)  # type: ignore[operator]
    for x, label, side in ((-0.03, "0", "right"), (1.03, "1", "left")):
        axes.text(x, 0.45, label, ha=side, va="center_baseline", transform=axes.transAxes, fontsize=8)


def _arrow_holder(figure: Figure, start: tuple[float, float], end: tuple[float, float], arrow: dict[str, Any]) -> Any:
    from matplotlib.patches import FancyArrowPatch

    return FancyArrowPatch(start, end, transform=figure.transFigure, mutation_scale=9, **arrow)


def _point(figure: Figure, x: float, y: float) -> tuple[float, float]:
    """Inches from the top left corner, as matplotlib's fractions from the bottom left."""
    width, height = figure.get_size_inches()
    return x / width, 1 - y / height


def _text(figure: Figure, x: float, y: float, words: str, **look: Any) -> None:
    figure.text(*_point(figure, x, y), words, **{"va": "center_baseline"} | look)


def _axes(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Bare axes at a place in inches, y being the upper edge."""
    left, bottom = _point(figure, x, y + height)
    across, up = figure.get_size_inches()
    axes = figure.add_axes((left, bottom, width / across, height / up))
    axes.set_axis_off()
    return axes
