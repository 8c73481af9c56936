"""What a figure of the paper is made of: how it is drawn, its caption, and what to do if its data is not there."""

import dataclasses
import math
from collections.abc import Callable, Iterable

from matplotlib.figure import Figure

from tapehead.evaluation.summaries import Interval, wilson
from tapehead.figures import style
from tapehead.paper.results import MACHINES, Machine, Results

SYSTEMS = {
    "lstm": "LSTM",
    "ntm-lstm": "NTM with LSTM controller",
    "ntm-feedforward": "NTM with feedforward controller",
}
"""The three systems of the paper, by the endings of their rows."""


@dataclasses.dataclass(frozen=True)
class PaperFigure:
    number: int
    """In the paper."""
    title: str
    draw: Callable[[Results], Figure]
    caption: Callable[[Results], str]
    """How many seeds, which command, what it shows, how it differs from the paper's figure."""
    missing: Callable[[Results], str | None]
    """One sentence on the data that is not there and the command that makes it; None if the figure can be drawn."""


def paragraph(sentences: Iterable[str]) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def needed(results: Results, row: str) -> Machine:
    """The machine of a row, which the figure cannot be drawn without."""
    machine = results.machine(row)
    if machine is None:
        raise ValueError(missing_machine(results, row))
    return machine


def missing_machine(results: Results, row: str) -> str | None:
    """One sentence on a trained machine that is not there, with the command that makes it; None if it is there."""
    if results.machine(row) is not None:
        return None
    task, _, model = row.rpartition("-")
    kind = "--model lstm"
    if task.endswith("-ntm"):
        task, kind = task.removesuffix("-ntm"), f"--controller {model}"
    where = results.folder / MACHINES / row
    return f"There is no trained machine of {row}: make it with `tapehead train {task} {kind} --out {where}`."


INTERVALS = "In brackets: 95 % intervals, Wilson's of counts and bootstrap ones of medians."


def fraction(count: int, of: int) -> str:
    """ "16 of 20 (58-92 %)"."""
    low, high = wilson(count, of)
    return f"{count} of {of} ({100 * low:.0f}-{100 * high:.0f} %)"


def estimate(interval: Interval, unit: str) -> str:
    """ "6,700 (5,675 to 8,375) sequences"."""
    value, low, high = (quantity(part) for part in interval)
    return f"{value} ({low} to {high}) {unit}"


def quantity(value: float) -> str:
    """Three digits, whole from a hundred on."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    if value < 0:
        return f"-{quantity(-value)}"
    return f"{value:,.0f}" if value >= 100 else style.number(value)
