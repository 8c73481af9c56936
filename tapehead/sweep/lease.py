"""Leases: which worker has a job, at most one at a time, on one machine or over a shared file system.

    lease.lock           locked (flock) by the process that has the job, and never removed
    lease-000001.json    one file for each time that the job was taken; the highest number is the present lease

A worker takes a job by locking `lease.lock` and then creating the next numbered file, which only one process can. It
rewrites that file every few seconds: the heartbeat, with the progress of the run. A lease is over when it was released;
when its lock is free on the kernel that it was taken on, because the process is then gone; or when its heartbeat is
older than the expiry that it names itself, by the clock of the file system. The last rule is for other machines: locks
do not reach them on every shared file system.

A worker that finds a higher number than its own has lost its lease (it was suspended, say), and stops at once.
"""

import contextlib
import dataclasses
import json
import os
import platform
import re
import threading
import time
from pathlib import Path
from typing import Any, Literal

from tapehead import files

LOCK = "lease.lock"
HEARTBEAT = 5.0
"""Seconds between two heartbeats."""
EXPIRY = 120.0
"""Seconds without a heartbeat after which another machine may take the job; clients of shared file systems see
changes up to a minute late."""
TRIES = 5
"""How often a lock is tried that somebody may be looking at."""
LEASE_BYTES = 1 << 16

_NAME = re.compile(r"lease-(\d{6})\.json")

Ended = Literal["finished", "failed", "interrupted"]


class LeaseLost(BaseException):
    """Another worker has the job now. No `Exception`: `train` would remove a folder that is no longer its own."""


def kernel_identity() -> str:
    """The running kernel, within which locks are exact: of the boot where Linux tells it, otherwise of the machine."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return platform.node()


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a lease's file says."""

    number: int
    values: dict[str, Any]
    age: float
    """Seconds since its last heartbeat, by the clock of the file system."""

    @property
    def ended(self) -> str | None:
        """How the lease ended, if it was released."""
        ended = self.values.get("ended")
        return ended if isinstance(ended, str) else None

    @property
    def progress(self) -> dict[str, Any]:
        progress = self.values.get("progress")
        return progress if isinstance(progress, dict) else {}

    @property
    def expired(self) -> bool:
        expiry = self.values.get("expiry")
        return self.age > (expiry if isinstance(expiry, int | float) else EXPIRY)


class Lease:
    """A job that this process has. The heartbeat is a thread of it."""

    def __init__(
        self, folder: Path, number: int, lock: int, values: dict[str, Any], heartbeat: float, deaths: int
    ) -> None:
        self.deaths = deaths
        """Workers that died with this job, one after the other, without a new checkpoint of it."""
        self._folder, self._number, self._lock, self._values = folder, number, lock, values
        self._heartbeat = heartbeat
        self._beaten_at = time.time()  # the wall clock goes on while a machine is suspended
        self._lost = False
        self._over = threading.Event()
        self.progress: dict[str, Any] = {}
        """What the heartbeat carries; replaced, never changed."""
        self._thread = threading.Thread(target=self._beat, name="tapehead-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise `LeaseLost` if another worker has taken the job; to be called before anything is written."""
        if not self._lost and time.time() - self._beaten_at > self._values["expiry"] / 2:
            self._look()
        if self._lost:
            raise LeaseLost

    def release(self, ended: Ended) -> None:
        """Give the job back, with what became of it."""
        self._over.set()
        self._thread.join()
        try:
            self._look()
            if not self._lost:
                self._write(ended)
        except OSError:  # a full disk: the free lock says enough on this machine, and the expiry on others
            pass
        finally:
            os.close(self._lock)

    def _beat(self) -> None:
        while not self._over.wait(self._heartbeat):
            with contextlib.suppress(OSError, files.NotPlain):
                self._look()
                if self._lost:
                    return
                self._write(None)

    def _look(self) -> None:
        numbers = _numbers(self._folder)
        self._lost = not numbers or numbers[-1] != self._number

    def _write(self, ended: str | None) -> None:
        values = self._values | {"progress": self.progress, "ended": ended}
        files.replace(_path(self._folder, self._number), json.dumps(values).encode())
        self._beaten_at = time.time()


def claim(folder: Path, *, at: str = "", heartbeat: float = HEARTBEAT, expiry: float = EXPIRY) -> Lease | None:
    """Take the job of a folder, which must be there; None if another process has it. at: how far the run is."""
    lock = _locked(folder)
    if lock is None:
        return None
    try:
        last = latest(folder)
        if last is not None and not _over(last):
            os.close(lock)
            return None
        number, deaths = (1 if last is None else last.number + 1), _deaths(folder, at)
        values = {
            "kernel": kernel_identity(),
            "machine": platform.node(),
            "process": os.getpid(),
            "expiry": expiry,
            "at": at,
        }
        files.write_new(_path(folder, number), json.dumps(values | {"progress": {}, "ended": None}).encode())
        return Lease(folder, number, lock, values, heartbeat, deaths)
    except FileExistsError:  # a process of another machine was faster
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise


def holder(folder: Path) -> Entry | None:
    """The present lease of a job, if a worker has it."""
    last = latest(folder)
    if last is None or last.ended is not None:
        return None
    if last.values.get("kernel") == kernel_identity():
        return last if files.is_locked(folder / LOCK) else None
    return None if last.expired else last


def latest(folder: Path) -> Entry | None:
    """The lease with the highest number, whether it is over or not."""
    numbers = _numbers(folder)
    return _read(folder, numbers[-1]) if numbers else None


def _deaths(folder: Path, at: str) -> int:
    """How many leases, up to the latest, ended without a word while the run was where it is now."""
    count = 0
    for number in reversed(_numbers(folder)):
        entry = _read(folder, number)
        if entry.ended is not None or entry.values.get("at") != at:
            break
        count += 1
    return count


def _over(entry: Entry) -> bool:
    """Whether a lease is over whose lock we hold."""
    return entry.ended is not None or entry.values.get("kernel") == kernel_identity() or entry.expired


def _locked(folder: Path) -> int | None:
    """The lock of a job. A process that looks at it has it for a moment, so it is tried again."""
    for attempt in range(TRIES):
        lock = files.lock(folder / LOCK)
        if lock is not None:
            return lock
        if attempt == 0 and (last := latest(folder)) is not None and last.ended is None and last.age < HEARTBEAT:
            return None  # surely at work
        time.sleep(0.002)
    return None


def _numbers(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 (names alone)
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def _path(folder: Path, number: int) -> Path:
    return folder / f"lease-{number:06d}.json"


def _read(folder: Path, number: int) -> Entry:
    """A lease. One that cannot be read, because it is being created or is damaged, has an age and nothing else."""
    path = _path(folder, number)
    values: Any = {}
    changed = time.time()
    with contextlib.suppress(OSError, ValueError, RecursionError):
        data = files.read(path, LEASE_BYTES)  # opens it: clients of shared file systems then ask for its present state
        values = json.loads(data)
    with contextlib.suppress(OSError):
        changed = path.stat().st_mtime
    return Entry(number, values if isinstance(values, dict) else {}, max(0.0, _now(folder) - changed))


def _now(folder: Path) -> float:
    """The present by the clock that dates the files of a folder, which may be another machine's."""
    path = folder / LOCK
    try:
        os.utime(path, follow_symlinks=False)
        return path.lstat().st_mtime
    except OSError:  # the folder cannot be written to
        return time.time()
