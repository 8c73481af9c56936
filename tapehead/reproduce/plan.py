"""A plan: which jobs are run, how long each takes on this computer, and which do not fit."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from tapehead.experiment.config import Experiment
from tapehead.experiment.loop import Trainer
from tapehead.paper.results import Results
from tapehead.reproduce.scales import Job, sequences_of

NIGHT = 8 * 3600.0
"""Seconds."""
LEAST_SECONDS = 1.0
"""How long an update is timed for."""

Rate = Callable[[Experiment], float]
"""Training sequences of all seeds per second."""


@dataclasses.dataclass(frozen=True)
class Step:
    job: Job
    seconds: float | None
    """Estimated, with all cores; None if it was not estimated."""
    state: str = "to do"
    """to do; there; or why it is left out."""

    @property
    def to_do(self) -> bool:
        return self.state == "to do"

    @property
    def is_taken(self) -> bool:
        return self.state in ("to do", "there")


def measured_rate(experiment: Experiment) -> float:
    """Training sequences of all seeds per second, here and now: a few updates, after one that compiles."""
    trainer = Trainer(experiment)
    trainer.block(updates=1)
    began, first = time.perf_counter(), trainer.updates
    while time.perf_counter() - began < LEAST_SECONDS and not trainer.finished:
        trainer.block(updates=5)
    updates = max(1, trainer.updates - first)
    sequences = updates * experiment.training.batch_size * len(experiment.seeds)
    return sequences / (time.perf_counter() - began)


def plan(
    alternatives: Sequence[tuple[Job, ...]],
    results: Results,
    *,
    limit: float | None = None,
    place: dict[str, Any] | None = None,
    rate: Rate | None = measured_rate,
) -> list[Step]:
    """The steps of a scale. limit: seconds for all that is to do; a job that does not fit what is left is replaced by
    its next alternative, or left out. rate: how sequences per second are found; None: times are not estimated, and
    everything is done."""
    steps, left = [], limit
    for some in alternatives:
        there = next((job for job in some if is_there(job, results)), None)
        step = Step(there, None, "there") if there else _fitting(some, left, place, rate)
        if left is not None and step.to_do and step.seconds is not None:
            left -= step.seconds
        steps.append(step)
    return steps


def is_there(job: Job, results: Results) -> bool:
    """Whether the results have a record of a job: of its experiment, seeds included."""
    wanted = job.experiment().hash
    of_row = [record for record in results.records if (record["row"], record["recipe"]) == (job.row, job.recipe)]
    return any(Experiment.from_plain(record["experiment"], record["file"]).hash == wanted for record in of_row)


def _fitting(some: tuple[Job, ...], left: float | None, place: dict[str, Any] | None, rate: Rate | None) -> Step:
    if rate is None:
        return Step(some[0], None)
    per_second = rate(some[0].experiment(place))
    times = [job.seeds * sequences_of(job.experiment(place)) / per_second for job in some]
    for job, seconds in zip(some, times, strict=True):
        if left is None or seconds <= left:
            return Step(job, seconds)
    return Step(some[-1], times[-1], f"left out, {duration(left or 0)} left")


def duration(seconds: float) -> str:
    """ "8 s", "12 min", "5.2 h", "3.1 days"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.1f} days"
