"""`run_sweep`, the one entry to sweeps: commands, reports, notebooks and tests call it.

outcome = run_sweep(read_jobs(Path("sweep.toml")), "runs/sweep")
outcome.results["copy-seed-0-..."].solved

A driver keeps workers running while there are jobs to take, and watches the folder. Any number of drivers may do so at
the same time: the leases share out the jobs.
"""

import contextlib
import dataclasses
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from tapehead import registry, signals
from tapehead.checks import whole
from tapehead.experiment.results import Result
from tapehead.experiment.run import Interrupted
from tapehead.sweep.engines import Engine, engine_kind
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.jobs import Job, distinct
from tapehead.sweep.lease import EXPIRY, HEARTBEAT
from tapehead.sweep.state import Cell, Snapshot, Watch, cells
from tapehead.sweep.work import Assignment

POLL_SECONDS = 0.25
"""Least time between two looks at the folder, which also take at most a tenth of the driver's time."""

REST_SECONDS = 5.0
"""Before workers are started again, after one found no job that it could take."""

DRAIN_SECONDS = 20.0
"""For workers to end by themselves when all jobs are settled."""

MOST_WORKERS = 1000
FUTILE = 3
"""Workers that may die one after the other without having taken a job, for each that should run, before the sweep
ends."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a sweep."""

    folder: Path
    states: Snapshot

    @property
    def results(self) -> dict[str, Result]:
        """Of the finished jobs, by name."""
        return {one.job.name: one.result for one in self.states if one.result is not None}

    @property
    def failures(self) -> dict[str, str]:
        """Why the others failed, by name."""
        return {one.job.name: one.failure for one in self.states if one.state == "failed"}

    @property
    def cells(self) -> list[Cell]:
        """By configuration."""
        return cells(self.states)


class SweepObserver:
    """Told how a sweep goes; a subclass takes what it is interested in."""

    def begin(self, sweep: SweepFolder, workers: int) -> None:
        """Before the first worker is started."""

    def update(self, states: Snapshot) -> None:
        """After every look at the folder."""

    def died(self, reason: str) -> None:
        """A worker has died; its job will be taken by another."""

    def stopping(self, signal_name: str) -> None:
        """A signal has asked the sweep to stop."""


def run_sweep(
    jobs: Sequence[Job] | None,
    folder: str | Path,
    *,
    engine: str = "local",
    engine_options: Mapping[str, str] | None = None,
    workers: int | None = None,
    device: str | None = None,
    backend: str | None = None,
    retry: bool = False,
    observer: SweepObserver | None = None,
    heartbeat: float = HEARTBEAT,
    expiry: float = EXPIRY,
) -> Outcome:
    """Carry out the jobs that are not done yet, and wait for those that others have; what came of all.

    jobs: None continues the sweep that is in the folder. engine: local, ray or slurm. workers: how many at a time; by
    default one for each core or GPU. device, backend: instead of the experiments' own. retry: also jobs that failed
    before. `Interrupted` is raised if a signal asks the process to stop, after all workers have saved and ended;
    outside the main thread signals are left alone.
    """
    if workers is not None:
        whole("workers", workers, 1, MOST_WORKERS)
    kind, path = engine_kind(engine), Path(folder)
    sweep = SweepFolder(path) if jobs is None else SweepFolder.create(path, distinct(jobs))
    with sweep.working():
        if retry:
            sweep.forget_failures()
        states = Watch(sweep).snapshot()
        if states.is_over:
            return Outcome(path, states)
        assignment = Assignment(
            folder=str(path.absolute()),
            driver=secrets.token_hex(8),
            device=device,
            backend=backend,
            search=tuple(dict.fromkeys([*map(str, registry.SEARCH), *filter(None, map(os.path.abspath, sys.path))])),
            heartbeat=heartbeat,
            expiry=expiry,
        )
        carried_by = kind(sweep, assignment, engine_options or {})
        try:
            return Outcome(path, _Driver(sweep, carried_by, workers, observer or SweepObserver()).run())
        finally:
            carried_by.close()


class _Driver:
    """Keeps the workers of one engine running until all jobs are settled."""

    def __init__(self, sweep: SweepFolder, engine: Engine, workers: int | None, observer: SweepObserver) -> None:
        self._sweep, self._engine, self._observer = sweep, engine, observer
        self._workers = min(workers or engine.default_workers(), len(sweep.jobs))
        self._watch = Watch(sweep)
        self._signals: list[int] = []
        self._futile, self._rest_until = 0, 0.0
        self._progress: tuple[int, int] = (-1, -1)

    def run(self) -> Snapshot:
        self._observer.begin(self._sweep, self._workers)
        with signals.handled_by(self._note):
            while not self._signals:
                began = time.monotonic()
                states = self._watch.snapshot()
                took = time.monotonic() - began
                self._observer.update(states)
                self._bury(states)
                if states.is_over:
                    self._drain()
                    return states
                self._hire(states)
                self._pause(max(POLL_SECONDS, 10 * took))
            self._stop()
        raise Interrupted(self._signals[0])

    def _hire(self, states: Snapshot) -> None:
        """Start workers for the jobs that nobody has. A worker takes one after the other, so they may be fewer."""
        if time.monotonic() < self._rest_until:
            return
        wanted = min(self._workers, states.to_take)
        for _ in range(wanted - self._engine.running):
            if not self._signals:
                self._engine.start()

    def _bury(self, states: Snapshot) -> None:
        """Note workers that ended; the next ones are started where jobs are left. End if they die for nothing."""
        for reason in self._engine.ended():
            progress = (len(states.in_state("finished", "failed")), sum(one.claims for one in states))
            futile, self._progress = progress == self._progress, progress
            if not reason:
                if futile and states.to_take:  # it could take none of them: locked by a process that is no worker
                    self._rest_until = time.monotonic() + REST_SECONDS
                continue
            self._futile = self._futile + 1 if futile else 0
            self._observer.died(reason)
            if self._futile > FUTILE * max(2, self._workers):
                raise ValueError(f"the workers of the sweep die before they take a job ({reason}): see its logs/.")

    def _pause(self, seconds: float) -> None:
        """Wait, but not longer than it takes a signal to arrive."""
        until = time.monotonic() + seconds
        while not self._signals and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_SECONDS))

    def _drain(self) -> None:
        """Wait for workers that have nothing to take any more; those that wait for a place are ended by the engine."""
        until = time.monotonic() + DRAIN_SECONDS
        while self._engine.running and not self._signals and time.monotonic() < until:
            self._engine.ended()
            time.sleep(0.01)

    def _stop(self) -> None:
        """Let all workers save and end; a second SIGINT ends them at once."""
        self._engine.stop()
        while self._engine.running:
            if len(self._signals) > 1 and signal.SIGINT in self._signals[1:]:
                self._engine.kill()
            self._engine.ended()
            time.sleep(0.02)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        if len(self._signals) == 1:
            with contextlib.suppress(RuntimeError):  # in the middle of another line to the same stream
                self._observer.stopping(signal.Signals(number).name)
