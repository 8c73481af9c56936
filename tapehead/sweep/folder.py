"""The folder of a sweep. docs/sweeps.md describes it for users.

sweep.json           all jobs, with the hash of each; sealed
sweep.lock           locked while the list is written
work.lock            shared by all that work on the sweep, so that it is not packed meanwhile
jobs/NAME/           one for each job: lease.lock, lease-*.json (lease.py), failure.json,
                     run/  the run's folder, with config.json and, in the end, result.json
logs/                what workers print
stops/               requests to stop, for workers that a signal does not reach
"""

import contextlib
import datetime
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tapehead import files
from tapehead.experiment import checkpoint
from tapehead.experiment.folder import LOCK as RUN_LOCK
from tapehead.experiment.results import Result
from tapehead.sweep.jobs import Job

if sys.platform != "win32":
    import fcntl

LIST, LIST_LOCK, WORK_LOCK = "sweep.json", "sweep.lock", "work.lock"
FAILURE = "failure.json"
LIST_BYTES = 64 << 20


class SweepFolder:
    """A sweep that is there, with the jobs that it had when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.jobs = _read_list(path)
        self._by_name = {job.name: job for job in self.jobs}

    @classmethod
    def create(cls, path: Path, jobs: Sequence[Job]) -> "SweepFolder":
        """Open the folder, or make it. A list that is there may grow: all its jobs must be among `jobs`."""
        with files.writing(path):
            _refuse_other(path)
            files.make_folders(path)
            with _list_lock(path):
                if os.path.lexists(path / LIST):
                    _refuse_fewer(path, jobs)
                stored = _read_list(path) if os.path.lexists(path / LIST) else ()
                if [job.hash for job in stored] != [job.hash for job in jobs]:
                    files.replace(path / LIST, files.seal({"jobs": [job.to_plain() for job in jobs]}))
                for name in ("jobs", "logs", "stops"):
                    files.make_folder(path / name)
        return cls(path)

    def job(self, name: str) -> Job:
        return self._by_name[name]

    def job_folder(self, job: Job) -> Path:
        return self.path / "jobs" / job.name

    def run_folder(self, job: Job) -> Path:
        return self.job_folder(job) / "run"

    # --- what came of a job ------------------------------------------------------------------------------------------

    def result(self, job: Job) -> Result | None:
        """A job's result, every byte of it verified; None if it has none that can be read."""
        try:
            result = Result.from_plain(files.unseal(files.read(self.run_folder(job) / "result.json")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return result if result.seeds == job.seeds else None

    def failure(self, job: Job) -> str | None:
        """Why a job failed, in one sentence; None if it did not."""
        try:
            values = files.unseal(files.read(self.job_folder(job) / FAILURE))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            return "its failure.json is damaged."
        return str(values.get("reason", "unknown"))

    def write_failure(self, job: Job, reason: str, traceback: str = "") -> None:
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        values = {"reason": " ".join(reason.split()), "when": when, "traceback": traceback}
        files.replace(self.job_folder(job) / FAILURE, files.seal(values))

    def forget_failures(self) -> int:
        """Let the jobs that failed be tried again, as if for the first time; how many they are."""
        count = 0
        for job in self.jobs:
            path = self.job_folder(job) / FAILURE
            files.expect_file(path)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                count += 1
        return count

    def newest_checkpoint(self, job: Job) -> str:
        """The name of a job's newest checkpoint, whole or not; empty if there is none."""
        found = checkpoint.folders(self.run_folder(job) / "checkpoints")
        return found[0].name if found else ""

    def is_trained_outside(self, job: Job) -> bool:
        """Whether a process trains a job's run, such as `tapehead train` in its folder."""
        return files.is_locked(self.run_folder(job) / RUN_LOCK)

    def refuse_trained_outside(self) -> None:
        for job in self.jobs:
            if self.is_trained_outside(job):
                raise ValueError(
                    f"another process is training in {self.run_folder(job)}: stop it first, or wait until it is done."
                )

    # --- who works ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """While inside, the sweep is not packed; refused while it is."""
        descriptor = _open_lock(self.path / WORK_LOCK)
        try:
            _flock(descriptor, fcntl.LOCK_SH, f"{self.path} is being packed: wait until it is.")
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While inside, no worker works on the sweep; refused while one does, or another program trains a run."""
        descriptor = _open_lock(self.path / WORK_LOCK)
        try:
            _flock(
                descriptor, fcntl.LOCK_EX, f"{self.path} is being worked on: stop it first, or wait until it is done."
            )
            self.refuse_trained_outside()
            yield
        finally:
            os.close(descriptor)

    def stop_request(self, driver: str) -> Path:
        """The file that asks the workers of a driver to stop."""
        return self.path / "stops" / driver


def is_sweep(path: Path) -> bool:
    return (path / LIST).is_file()


def _open_lock(path: Path) -> int:
    files.need_locks()
    files.expect_file(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)


def _flock(descriptor: int, kind: int, refusal: str) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(refusal) from None


@contextlib.contextmanager
def _list_lock(path: Path) -> Iterator[None]:
    """The lock under which the list is written; waits for another driver, which has it for a moment."""
    descriptor = _open_lock(path / LIST_LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _refuse_other(path: Path) -> None:
    """Refuse a folder with files in it that is no sweep."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file, but a sweep needs a folder: choose another with --out.")
    if path.is_dir() and not os.path.lexists(path / LIST):
        others = [p.name for p in path.iterdir() if p.name != LIST_LOCK and not files.is_temporary(p.name, of=LIST)]
        if others and not os.path.lexists(path / LIST):  # which another driver may have written since
            raise ValueError(f"{path} has files in it, but no sweep: choose an empty or new folder with --out.")


def _refuse_fewer(path: Path, jobs: Sequence[Job]) -> None:
    asked = {job.hash for job in jobs}
    for stored in _read_list(path):
        if stored.hash not in asked:
            raise ValueError(
                f"{path} holds a sweep with the job {stored.name}, which is not among those asked for: choose another "
                "folder with --out, or keep its jobs and add others."
            )


def _read_list(path: Path) -> tuple[Job, ...]:
    try:
        values = files.unseal(files.read(path / LIST, LIST_BYTES))
        return tuple(map(Job.from_plain, values["jobs"]))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{path} holds no sweep (no {LIST}): give the folder of a sweep, or for tapehead sweep run its TOML file."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path / LIST} is damaged ({error}): restore it, or begin in another folder.") from error
