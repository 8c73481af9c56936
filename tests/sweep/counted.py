"""Tasks for the tests of sweeps, found by worker processes as `counted:...`: their folder is on the path."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tapehead.tasks.copy import Copy

SCORED = 7
"""The length at which trained machines are scored; no other sequences have it."""

FILE = """
seeds = {{ first = 0, count = {seeds} }}

[task]
name = "counted:{task}"
length = [1, 3]
width = 2
log = "{log}"

[model]
controller_size = 8
memory_slots = 8
memory_width = 4

[training]
episodes = {episodes}
early_stop = false

[evaluation]
sizes = [{{ length = 7 }}]
sequences = 5

[grid]
task.number = {numbers}
"""


@dataclass(frozen=True, kw_only=True)
class Counted(Copy):
    """Copy that logs every scoring of a trained machine. number: of the job; the data do not depend on it."""

    log: str = ""
    number: int = 0

    def draw(self, draws, rows, sizes):
        if sizes["length"] == (SCORED, SCORED) and rows > 1:  # the first call of a scoring draws one row
            self.note("scored")
        return super().draw(draws, rows, sizes)

    def note(self, word):
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{word} {self.number}\n".encode())
        os.close(descriptor)


@dataclass(frozen=True, kw_only=True)
class Faulty(Counted):
    """Fails when number 1 is trained, until the file `mended` is beside the log."""

    def draw(self, draws, rows, sizes):
        if self.number == 1 and not Path(self.log).with_name("mended").exists():
            raise KeyError("a mistake")
        return super().draw(draws, rows, sizes)


@dataclass(frozen=True, kw_only=True)
class Deadly(Counted):
    """Kills its process once, when number 1 is trained."""

    def draw(self, draws, rows, sizes):
        if self.number == 1 and not Path(self.log).with_name("killed").exists():
            Path(self.log).with_name("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().draw(draws, rows, sizes)


@dataclass(frozen=True, kw_only=True)
class Slow(Counted):
    """Takes a second for each draw while the file `hold` is beside the log."""

    def draw(self, draws, rows, sizes):
        if Path(self.log).with_name("hold").exists():
            time.sleep(1)
        return super().draw(draws, rows, sizes)


def write_file(folder, *, numbers=2, seeds=1, task="Counted", episodes=200):
    """A sweep's file in a folder, with so many jobs for each seed."""
    path = folder / "sweep.toml"
    log = folder / "log"
    text = FILE.format(seeds=seeds, task=task, log=log, episodes=episodes, numbers=list(range(numbers)))
    path.write_text(text)
    return path


def scorings(folder):
    """The numbers of the jobs that were scored, one entry for each time."""
    log = folder / "log"
    return [int(line.split()[1]) for line in log.read_text().splitlines()] if log.exists() else []
