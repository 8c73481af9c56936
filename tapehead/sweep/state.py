"""Where a sweep stands: what each job is doing, from the files of its folder alone."""

import dataclasses
import statistics
from collections.abc import Iterable
from typing import Any, Literal

from tapehead.experiment.results import Result
from tapehead.sweep import lease
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.jobs import Job

State = Literal["finished", "failed", "running", "stopped", "waiting"]
"""stopped: it has a checkpoint, and no worker has it; waiting: it has none yet."""


@dataclasses.dataclass(frozen=True)
class JobState:
    job: Job
    state: State
    progress: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Of a running job, as its worker last said."""
    machine: str = ""
    """Where it runs."""
    result: Result | None = None
    failure: str = ""
    claims: int = 0
    """How often a worker has taken it."""

    @property
    def share(self) -> float:
        """The part of its training that is done, as far as that is known."""
        if self.state in ("finished", "failed"):
            return 1.0
        expected = self.progress.get("expected") or 0
        return min(1.0, self.progress.get("episodes", 0) / expected) if expected else 0.0


class Snapshot(tuple[JobState, ...]):
    """The states of all jobs, in the order of the sweep."""

    def in_state(self, *states: State) -> list[JobState]:
        return [one for one in self if one.state in states]

    @property
    def is_over(self) -> bool:
        return all(one.state in ("finished", "failed") for one in self)

    @property
    def to_take(self) -> int:
        """Jobs that no worker has."""
        return len(self.in_state("waiting", "stopped"))

    @property
    def done(self) -> float:
        """Jobs that are done, with the parts of those that run."""
        return sum(one.share for one in self)

    @property
    def solved(self) -> tuple[int, int]:
        """Seeds solved, and all seeds, of the finished jobs."""
        results = [one.result for one in self if one.result is not None]
        return sum(result.solved for result in results), sum(len(result.seeds) for result in results)


class Watch:
    """Takes snapshots of a sweep. What is settled is read once."""

    def __init__(self, sweep: SweepFolder) -> None:
        self.sweep = sweep
        self._settled: dict[str, JobState] = {}

    def snapshot(self) -> Snapshot:
        return Snapshot(self._settled.get(job.name) or self._look(job) for job in self.sweep.jobs)

    def _look(self, job: Job) -> JobState:
        sweep, folder = self.sweep, self.sweep.job_folder(job)
        if not folder.is_dir():
            return JobState(job, "waiting")
        found = sweep.result(job)
        failure = None if found is not None else sweep.failure(job)
        if found is not None or failure is not None:
            state: State = "failed" if found is None else "finished"
            self._settled[job.name] = JobState(job, state, result=found, failure=failure or "")
            return self._settled[job.name]
        latest = lease.latest(folder)
        claims = latest.number if latest else 0
        entry = lease.holder(folder)
        if entry is not None:
            machine = str(entry.values.get("machine", ""))
            return JobState(job, "running", entry.progress, machine, claims=claims)
        if sweep.is_trained_outside(job):
            return JobState(job, "running", claims=claims)
        return JobState(job, "stopped" if sweep.newest_checkpoint(job) else "waiting", claims=claims)


@dataclasses.dataclass(frozen=True)
class Cell:
    """The jobs of one configuration, which differ in their seeds: a row of a table, or a cell of a heat map."""

    label: str
    values: dict[str, Any]
    states: tuple[JobState, ...]

    @property
    def results(self) -> list[Result]:
        return [one.result for one in self.states if one.result is not None]

    @property
    def seeds(self) -> int:
        """Of all its jobs, finished or not."""
        return sum(len(one.job.seeds) for one in self.states)

    @property
    def trained(self) -> int:
        """Seeds of the finished jobs."""
        return sum(len(result.seeds) for result in self.results)

    @property
    def solved(self) -> int:
        return sum(result.solved for result in self.results)

    @property
    def episodes(self) -> float | None:
        """Median of the episodes until the solved seeds were solved."""
        solved = [at for result in self.results for at in result.solved_at if at is not None]
        return statistics.median(solved) if solved else None

    @property
    def costs(self) -> dict[str, float]:
        """Median cost in bits over the seeds, at each size."""
        found: dict[str, list[float]] = {}
        for result in self.results:
            for score in result.generalisation:
                found.setdefault(score.label, []).extend(score.costs)
        return {label: statistics.median(costs) for label, costs in found.items()}


def cells(states: Iterable[JobState]) -> list[Cell]:
    """Jobs by configuration, in the order of the sweep."""
    found: dict[str, list[JobState]] = {}
    for one in states:
        found.setdefault(one.job.label, []).append(one)
    return [Cell(label, group[0].job.values, tuple(group)) for label, group in found.items()]
