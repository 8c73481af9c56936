"""What is trained at each scale.

smoke    every row for a few updates, to see that everything works; its numbers say nothing
laptop   what fits one night on this computer, the rows that most claims rest on first
paper    every row with both recipes, 100 seeds each
"""

import dataclasses
from typing import Any, Literal

from tapehead.experiment.config import Experiment
from tapehead.paper.recipes import row_experiment, rows
from tapehead.paper.tables import ABLATIONS, TABLES, VARIANTS

Scale = Literal["smoke", "laptop", "paper"]

FIRST_SEED = 30_000
"""Held out: below 1,000 are those that recipes were tuned on, and records have others."""
WARNINGS: dict[Scale, str] = {
    "smoke": "Smoke test: machines were trained for a few updates only, to see that everything works. No number on "
    "this page says anything about them.",
    "laptop": "Laptop scale: fewer seeds than in the records that come with tapehead, and only the rows that fit one "
    "night.",
    "paper": "",
}


@dataclasses.dataclass(frozen=True)
class Job:
    """A confirmation: a row, trained with a recipe on so many seeds."""

    row: str
    seeds: int
    recipe: str = "tuned"
    updates: int | None = None
    """Of each machine, if not the recipe's number."""
    sequences: int | None = None
    """Scored at each point, if not the usual number."""

    @property
    def name(self) -> str:
        return self.row if self.recipe == "tuned" else f"{self.row}-{self.recipe}"

    def experiment(self, place: dict[str, Any] | None = None) -> Experiment:
        """What is trained. place: device and backend, by path."""
        changes: dict[str, Any] = {"seeds": tuple(range(FIRST_SEED, FIRST_SEED + self.seeds))} | (place or {})
        changes["evaluation.sizes"] = ()  # the record has scores of its own
        if self.updates is not None:
            batch = row_experiment(self.row, self.recipe).training.batch_size
            changes["training.episodes"] = self.updates * batch
        return row_experiment(self.row, self.recipe, changes)


# The rows by what they are worth: key claims first, then ablations, then what takes longest.
LAPTOP_ROWS = (
    "copy-ntm-lstm",
    "copy-ntm-feedforward",
    "associative-recall-ntm-lstm",
    "repeat-copy-ntm-lstm",
    "associative-recall-ntm-feedforward",
    *ABLATIONS,
    "ngrams-ntm-feedforward",
    "ngrams-ntm-lstm",
    "repeat-copy-pulses-ntm-lstm",
    "ngrams-lstm",
    "copy-lstm",
    "associative-recall-lstm",
    "priority-sort-lstm",
    "priority-sort-ntm-lstm",
    "repeat-copy-lstm",
)
LAPTOP_SEEDS = (10, 5)
"""Tried in this order; fewer decide no claim."""


def jobs_of(scale: Scale) -> list[tuple[Job, ...]]:
    """The jobs of a scale, in order; of alternatives, the first that fits is taken."""
    if scale == "smoke":
        return [(_smoke(row),) for row in rows()]
    if scale == "laptop":
        return [tuple(Job(row, seeds) for seeds in LAPTOP_SEEDS) for row in LAPTOP_ROWS]
    return [(Job(row, 100, recipe),) for recipe, some in (("tuned", rows()), ("paper", list(TABLES))) for row in some]


def _smoke(row: str) -> Job:
    """Of an LSTM fewer updates: its batches are larger, and it has many times the parameters."""
    variant = VARIANTS[row].row if row in VARIANTS else TABLES[row]
    return Job(row, 2, updates=2 if variant.machine == "lstm" else 20, sequences=2)


def sequences_of(experiment: Experiment) -> float:
    """Training sequences of one machine to reckon with: half of the restarts that its recipe allows are counted."""
    training, restarts = experiment.training, experiment.restarts
    again = (restarts.attempts - 1) / 2
    return training.episodes + again * (restarts.after or training.episodes)
