"""Predictions of the next bit, in the manner of the paper's Figure 14: input, optimal and machine, one above the other.

Every column is one scored bit of the sequence: the bit itself, what the Bayes predictor (Eq. 10) said about it from the
bits before, and what the machine said. As in the paper, small arrows point at places where the machine goes wrong.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from tapehead.evaluation.metrics import bits_per_sequence
from tapehead.figures import page, style
from tapehead.figures.run_model import run_model, source
from tapehead.figures.view import RunView
from tapehead.models.sequence import SequenceModel
from tapehead.tasks.ngrams import NGrams

SEQUENCES = 4
FAR = 0.25  # between machine and optimum: an arrow
BOXED = 2  # columns on either side of a boxed one

# Inches.
LEFT, TALL, HEADING, GAP, ARROWS, APART = 0.85, 0.17, 0.28, 0.03, 0.12, 0.16
ROOM = style.WIDTH - LEFT - page.RIGHT

Numbers = NDArray[np.float64]
Marks = NDArray[np.intp]  # columns


class Box(NamedTuple):
    """A place to draw a box around."""

    sequence: int
    name: str  # of the machine
    column: int


class Prediction(NamedTuple):
    """One sequence of C scored bits: what came, what the Bayes predictor said, and what machines said."""

    bits: Numbers  # [C]
    optimal: Numbers  # [C], the probability of a one
    optimal_cost: float
    said: dict[str, Numbers]  # probabilities of a one by machine, each [C]
    costs: dict[str, float]  # in bits

    def distances(self, name: str) -> Numbers:
        """Between a machine and the optimum, at every bit."""
        return np.abs(self.said[name] - self.optimal)

    def far(self, name: str) -> Marks:
        """Where a machine is far from the optimum."""
        return np.flatnonzero(self.distances(name) > FAR)

    @property
    def note(self) -> str:
        gaps = [f"{name} {cost:.1f} bits, gap {cost - self.optimal_cost:.1f}" for name, cost in self.costs.items()]
        return f"optimal {self.optimal_cost:.1f} bits; {'; '.join(gaps)}"


def predict(models: Mapping[str, SequenceModel], task: NGrams) -> list[Prediction]:
    """The first sequences from the stream of all figures, by each of some machines."""
    batch = task.sample(source(task), batch_size=SEQUENCES)
    logits = {name: run_model(model, batch) for name, model in models.items()}
    costs = {name: bits_per_sequence(found, batch.targets, batch.mask) for name, found in logits.items()}
    optimum, bits = task.optimal_bits(batch), batch.targets.squeeze(-1)
    optimal = task.bayes_predictions(bits)
    predictions = []
    for row in range(SEQUENCES):
        scored = batch.mask[:, row] > 0
        came, best = (part[scored, row].double().numpy() for part in (bits, optimal))
        said = {name: found[scored, row, 0].sigmoid().double().numpy() for name, found in logits.items()}
        own = {name: float(cost[row]) for name, cost in costs.items()}
        predictions.append(Prediction(came, best, float(optimum[row]), said, own))
    return predictions


def predictions(view: RunView) -> Figure | None:
    """The figure of a run on N-grams; there is none of other tasks."""
    return draw_predictions(view.model, view.task, view.seed) if isinstance(view.task, NGrams) else None


@style.look()
def draw_predictions(model: SequenceModel, task: NGrams, seed: int) -> Figure:
    shown = predict({"machine": model}, task)
    title = f"{style.task_title(task.name)}: predictions of the next bit (seed {seed})"
    words = f"arrows: machine and optimal differ by more than {FAR:g}"
    return draw_rows(title, shown, [{"machine": one.far("machine")} for one in shown], words)


@style.look()
def draw_rows(
    title: str,
    shown: Sequence[Prediction],
    arrows: Sequence[Mapping[str, Marks]],
    words: str,
    box: Box | None = None,
) -> Figure:
    """Sequences one below the other: input, optimal, and each machine with arrows under it. words: what those mean."""
    machines = len(shown[0].said)
    block = HEADING + 2 * (TALL + GAP) + machines * (TALL + GAP + ARROWS) + APART
    figure = Figure(figsize=(style.WIDTH, page.TOP + len(shown) * block + page.FOOT))
    page.text(figure, 0.15, 0.3, title, fontsize=12)
    widest = max(len(prediction.bits) for prediction in shown)
    for i, (prediction, marked) in enumerate(zip(shown, arrows, strict=True)):
        width = ROOM * len(prediction.bits) / widest
        rows = _draw_block(figure, prediction, marked, f"Sequence {i + 1}", page.TOP + i * block, width)
        if box is not None and box.sequence == i:
            _draw_box(rows[box.name], box.column)
    page.foot(figure, LEFT, words, style.GREYS, "probability of a one")
    return figure


def _draw_block(
    figure: Figure, prediction: Prediction, marked: Mapping[str, Marks], heading: str, y: float, width: float
) -> dict[str, Axes]:
    """The axes of the rows, by their names."""
    drawn = {}
    page.text(figure, LEFT, y + 0.13, heading, fontweight="bold")
    page.text(figure, LEFT + width, y + 0.13, prediction.note, ha="right", fontsize=8.5, color=style.FAINT)
    y += HEADING
    rows = {"Input": prediction.bits, "Optimal": prediction.optimal, **prediction.said}
    for label, values in rows.items():
        drawn[label] = page.bare_axes(figure, LEFT, y, width, TALL, frame=True)
        drawn[label].imshow(values[None], cmap=style.GREYS, vmin=0, vmax=1)
        page.text(figure, LEFT - 0.1, y + TALL / 2, label[0].upper() + label[1:], ha="right")
        y += TALL + GAP
        if label in marked:
            axes = page.bare_axes(figure, LEFT, y, width, ARROWS)
            axes.set(xlim=(-0.5, len(values) - 0.5), ylim=(0, 1))
            places = marked[label]
            axes.scatter(places, np.full(len(places), 0.55), marker="^", s=9, color=style.VERMILION, linewidth=0)
            y += ARROWS
    return drawn


def _draw_box(axes: Axes, column: int) -> None:
    box = Rectangle((column - BOXED - 0.5, -0.6), 2 * BOXED + 1, 1.2, fill=False, edgecolor=style.VERMILION)
    box.set(linewidth=1.4, clip_on=False, zorder=5)
    axes.add_patch(box)
