"""Predictions of the next bit, in the manner of the paper's Figure 14: input, optimal and machine, one above the other.

Every column is one scored bit of the sequence: the bit itself, what the Bayes predictor (Eq. 10) said about it from the
bits before, and what the machine said. As in the paper, small arrows point at places where the machine goes wrong.
"""

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tapehead.evaluation.metrics import bits_per_sequence
from tapehead.figures import page, style
from tapehead.figures.run_model import run_model, source
from tapehead.figures.view import RunView
from tapehead.models.sequence import SequenceModel
from tapehead.tasks.ngrams import NGrams

SEQUENCES = 4
FAR = 0.25  # between machine and optimum: an arrow

# Inches.
LEFT, TALL, HEADING, GAP, ARROWS, APART = 0.85, 0.17, 0.28, 0.03, 0.12, 0.16
ROOM = style.WIDTH - LEFT - page.RIGHT


class Prediction(NamedTuple):
    """One sequence of C scored bits."""

    note: str
    rows: list[NDArray[np.float64]]  # bits, optimal and machine's probabilities of a one, each [C]

    @property
    def far(self) -> NDArray[np.intp]:
        """Where the machine is far from the optimum."""
        return np.flatnonzero(np.abs(self.rows[2] - self.rows[1]) > FAR)


def predict(model: SequenceModel, task: NGrams) -> list[Prediction]:
    """The first sequences from the stream of all figures."""
    batch = task.sample(source(task), batch_size=SEQUENCES)
    logits = run_model(model, batch)
    costs, optimum = bits_per_sequence(logits, batch.targets, batch.mask), task.optimal_bits(batch)
    bits = batch.targets.squeeze(-1)
    parts = (bits, task.bayes_predictions(bits), logits.squeeze(-1).sigmoid())
    predictions = []
    for row in range(SEQUENCES):
        scored = batch.mask[:, row] > 0
        cost, best = float(costs[row]), float(optimum[row])
        note = f"machine {cost:.1f} bits, optimal {best:.1f}, gap {cost - best:.1f}"
        predictions.append(Prediction(note, [part[scored, row].double().numpy() for part in parts]))
    return predictions


def predictions(view: RunView) -> Figure | None:
    """The figure of a run on N-grams; there is none of other tasks."""
    return draw_predictions(view.model, view.task, view.seed) if isinstance(view.task, NGrams) else None


@style.look()
def draw_predictions(model: SequenceModel, task: NGrams, seed: int) -> Figure:
    shown = predict(model, task)
    block = HEADING + 3 * (TALL + GAP) + ARROWS + APART
    figure = Figure(figsize=(style.WIDTH, page.TOP + len(shown) * block + page.FOOT))
    page.text(
        figure, 0.15, 0.3, f"{style.task_title(task.name)}: predictions of the next bit (seed {seed})", fontsize=12
    )
    widest = max(len(prediction.rows[0]) for prediction in shown)
    for i, prediction in enumerate(shown):
        width = ROOM * len(prediction.rows[0]) / widest
        _draw_block(figure, prediction, f"Sequence {i + 1}", page.TOP + i * block, width)
    words = f"arrows: machine and optimal differ by more than {FAR:g}"
    page.foot(figure, LEFT, words, style.GREYS, "probability of a one")
    return figure


def _draw_block(figure: Figure, prediction: Prediction, heading: str, y: float, width: float) -> None:
    page.text(figure, LEFT, y + 0.13, heading, fontweight="bold")
    page.text(figure, LEFT + width, y + 0.13, prediction.note, ha="right", fontsize=8.5, color=style.FAINT)
    y += HEADING
    for label, values in zip(("Input", "Optimal", "Machine"), prediction.rows, strict=True):
        axes = page.bare_axes(figure, LEFT, y, width, TALL, frame=True)
        axes.imshow(values[None], cmap=style.GREYS, vmin=0, vmax=1)
        page.text(figure, LEFT - 0.1, y + TALL / 2, label, ha="right")
        y += TALL + GAP
    axes = page.bare_axes(figure, LEFT, y, width, ARROWS)
    axes.set(xlim=(-0.5, len(prediction.rows[0]) - 0.5), ylim=(0, 1))
    axes.scatter(
        prediction.far, np.full(len(prediction.far), 0.55), marker="^", s=9, color=style.VERMILION, linewidth=0
    )
