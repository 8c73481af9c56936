"""Drivers and workers that are killed at random moments while they carry out a sweep: the same storm for the quick test
and for `make soak`."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import counted

HERE = Path(__file__).parent
PATIENCE = 1200
"""Seconds for one job to finish, on the slowest machine."""


def driver(path, out, workers, extra=(), **options):
    """`tapehead sweep` as a program of its own."""
    command = [
        sys.executable,
        "-m",
        "tapehead.cli",
        "sweep",
        str(path),
        "--out",
        str(out),
        "--workers",
        str(workers),
        *extra,
    ]
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        command, env=environment, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE, **options
    )


class Storm:
    """Kills so many workers and drivers while the jobs of a file are carried out.

    The moments are random, from a seed, in numbers of finished jobs: a slow machine sees the same storm. Every driver
    that is killed is replaced by another.
    """

    def __init__(self, folder, *, jobs, workers, drivers, seed, teams=(2, 1)):
        """workers, drivers: how many are killed. teams: the workers of each driver that runs."""
        self.folder, self.out = folder, folder / "sweep"
        self._path = counted.write_file(folder, numbers=jobs, episodes=300)
        self._random = random.Random(seed)
        moments = [self._random.randrange(int(0.8 * jobs)) for _ in range(workers + drivers)]
        kinds = ["worker"] * workers + ["driver"] * drivers
        self._random.shuffle(kinds)
        self._plan = list(zip(sorted(moments), kinds, strict=True))
        self._jobs, self._teams = jobs, list(teams)
        self.results, self.twice = {}, set()
        self.workers_seen, self.killed = set(), {"worker": 0, "driver": 0}

    def run(self):
        drivers = [driver(self._path, self.out, team) for team in self._teams]
        try:
            self._rage(drivers)
            codes = [one.wait(PATIENCE) for one in drivers]
            said = [one.communicate() for one in drivers]
            assert codes == [0] * len(codes), said
        finally:
            for one in drivers:
                one.kill()
                one.communicate()
        self._look()

    def _rage(self, drivers):
        changed = time.monotonic()
        while self._plan:
            before = len(self.results)
            self._look()
            changed = time.monotonic() if len(self.results) > before else changed
            assert time.monotonic() - changed < PATIENCE, "no job has finished for a long time"
            if len(self.results) >= self._plan[0][0] and self._kill(self._plan[0][1], drivers):
                self._plan.pop(0)
                time.sleep(self._random.uniform(0, 0.3))
            time.sleep(0.01)

    def _kill(self, kind, drivers):
        """Whether a process was killed: a worker that has a job, or a driver."""
        if kind == "driver":
            place = self._random.randrange(len(drivers))
            drivers[place].kill()
            drivers[place].communicate()
            drivers[place] = driver(self._path, self.out, self._teams[place])
            self.killed[kind] += 1
            return True
        holders = sorted(self._holders())
        if not holders:
            return False
        victim = self._random.choice(holders)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.killed[kind] += 1
        return True

    def _holders(self):
        """The processes that have a job."""
        for lease in self.out.glob("jobs/*/lease-*.json"):
            try:
                values = json.loads(lease.read_text())
            except (OSError, ValueError):
                continue
            self.workers_seen.add(values["process"])
            if values["ended"] is None and is_worker(values["process"]):
                yield values["process"]

    def _look(self):
        """Note results, and those that are not what they were."""
        for path in self.out.glob("jobs/*/run/result.json"):
            found = path.stat()
            identity = (found.st_ino, found.st_mtime_ns)
            if self.results.setdefault(path, identity) != identity:
                self.twice.add(path)

    def check(self):
        """All results are there, each once, all of the same bits, and no process is left."""
        stopped = self.killed["worker"] + max(self._teams) * self.killed["driver"]
        scored = counted.scorings(self.folder)
        assert len(self.results) == self._jobs
        assert self.twice == set()
        assert set(scored) == set(range(self._jobs))
        assert len(scored) <= self._jobs + stopped  # a worker may be stopped between a scoring and its result
        weights = {json.loads(path.read_text())["sha256"]["weights"] for path in self.results}
        assert len(weights) == 1
        until = time.monotonic() + 60
        while any(map(is_worker, self.workers_seen)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(map(is_worker, self.workers_seen))


def is_worker(process):
    try:
        return b"tapehead.sweep.worker" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
