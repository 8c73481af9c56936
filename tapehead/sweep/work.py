"""A worker: takes jobs of a sweep one after the other, as long as there are some to take. All engines run this."""

import contextlib
import dataclasses
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tapehead import registry, signals
from tapehead.experiment.config import Experiment
from tapehead.experiment.failures import explain
from tapehead.experiment.folder import Busy
from tapehead.experiment.run import Interrupted, Observer, Status, train
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.jobs import Job
from tapehead.sweep.lease import EXPIRY, HEARTBEAT, Ended, Lease, LeaseLost, claim

MOST_DEATHS = 4
"""Workers that may die with a job, one after the other and without a new checkpoint, before it counts as failed."""

STOP_SECONDS = 1.0
"""Between two looks for a request to stop."""


class Assignment(NamedTuple):
    """What a worker is told. Plain values: it may be a process of another machine."""

    folder: str
    driver: str
    """Whose request to stop it follows."""
    device: str | None = None
    """Instead of the experiments' own."""
    backend: str | None = None
    threads: int = 1
    search: tuple[str, ...] = ()
    """Folders with the modules of tasks and models from outside."""
    heartbeat: float = HEARTBEAT
    expiry: float = EXPIRY


def work(assignment: Assignment) -> int:
    """Take jobs until there is none to take, or until asked to stop; how many were carried out.

    Jobs that others have are left to them. In the main thread the signals that end a program stop the job in hand after
    its block of updates, saved.
    """
    import torch

    torch.set_num_threads(assignment.threads)
    registry.SEARCH.extend(path for path in map(Path, assignment.search) if path not in registry.SEARCH)
    sweep = SweepFolder(Path(assignment.folder))
    stop, count = _Stop(), 0
    with sweep.working(), signals.handled_by(stop.note), stop.watching(sweep.stop_request(assignment.driver)):
        for job, lease in _taken(sweep, assignment, stop):
            _carry_out(sweep, job, lease, assignment, stop)
            count += 1
    return count


class _Stop:
    """Whether this worker has been asked to stop."""

    def __init__(self) -> None:
        self.asked = False
        self.training = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """A signal. While it trains, `train` has a handler of its own, but not while it compiles or scores."""
        self.asked = True
        if self.training:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def watching(self, request: Path) -> Iterator[None]:
        """While inside, a file with this name is a request to stop."""
        self.asked = os.path.lexists(request)
        over = threading.Event()
        main = threading.current_thread() is threading.main_thread()

        def look() -> None:
            while not over.wait(STOP_SECONDS):
                if os.path.lexists(request):
                    self.asked = True
                    if main:
                        os.kill(os.getpid(), signal.SIGTERM)
                    return

        thread = threading.Thread(target=look, name="tapehead-stop", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class _Heart(Observer):
    """Hands the progress of a run to its lease, and ends the run when the lease is lost."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    def begin(self, status: Status) -> None:
        self.block(status)

    def writing(self) -> None:
        self._lease.check()

    def block(self, status: Status) -> None:
        self._lease.progress = {
            "episodes": status.episodes,
            "expected": status.expected,
            "active": status.active,
            "solved": status.solved,
            "bits": status.bits,
            "backend": status.backend,
        }


def _taken(sweep: SweepFolder, assignment: Assignment, stop: _Stop) -> Iterator[tuple[Job, Lease]]:
    """Jobs with their leases, in the order of the sweep; from the first again after each, as others may leave some."""
    settled: set[str] = set()
    found = True
    while found and not stop.asked:
        found = False
        for job in sweep.jobs:
            if stop.asked or job.name in settled:
                continue
            lease = None if _is_settled(sweep, job) else _claim(sweep, job, assignment)
            if lease is not None:
                found = True
                yield job, lease
                break
            if _is_settled(sweep, job):
                settled.add(job.name)


def _is_settled(sweep: SweepFolder, job: Job) -> bool:
    return sweep.result(job) is not None or sweep.failure(job) is not None


def _claim(sweep: SweepFolder, job: Job, assignment: Assignment) -> Lease | None:
    """A job that is to be trained; None if another worker has it, or had it until a moment ago.

    A worker that cannot import the job's classes ends here: that is no failure of the job, which was made from them.
    """
    job.check()
    folder = sweep.job_folder(job)
    folder.mkdir(exist_ok=True)
    if sweep.is_trained_outside(job):
        return None
    at = sweep.newest_checkpoint(job)
    lease = claim(folder, at=at, heartbeat=assignment.heartbeat, expiry=assignment.expiry)
    if lease is None:
        return None
    if _is_settled(sweep, job):
        lease.release("finished")
        return None
    if lease.deaths >= MOST_DEATHS:
        sweep.write_failure(
            job,
            f"{lease.deaths} workers died while they trained it (killed from outside, out of memory, or by an error "
            "in compiled code): see logs/ in the sweep's folder, and try again with --retry.",
        )
        lease.release("failed")
        return None
    return lease


def _carry_out(sweep: SweepFolder, job: Job, lease: Lease, assignment: Assignment, stop: _Stop) -> None:
    ended: Ended = "interrupted"
    try:
        experiment = _placed(job.experiment, assignment)
        stop.training = True
        if stop.asked:  # since the job was taken
            raise KeyboardInterrupt
        train(experiment, sweep.run_folder(job), observer=_Heart(lease))
        if sweep.result(job) is None:
            raise ValueError(f"the result in {sweep.run_folder(job)} cannot be read back: check the disk.")
        ended = "finished"
    except (Interrupted, KeyboardInterrupt):
        stop.asked = True
    except (LeaseLost, Busy):  # another process trains it, since a moment ago
        stop.training = False
        time.sleep(STOP_SECONDS)
    except (Exception, SystemExit) as error:
        stop.training = False
        if not stop.asked:  # a library may have made another error of the interrupt
            ended = "failed"
            sweep.write_failure(job, _reason(error), "".join(traceback.format_exception(error)))
    finally:
        stop.training = False
        lease.release(ended)


def _reason(error: BaseException) -> str:
    reason = explain(error)
    return f"internal error ({reason.says}): please report it." if reason.ours else reason.says


def _placed(experiment: Experiment, assignment: Assignment) -> Experiment:
    given: dict[str, Any] = {"device": assignment.device, "backend": assignment.backend}
    changes = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(experiment, place=dataclasses.replace(experiment.place, **changes))
