"""A fault: something that goes wrong, cases of it by number, and how many of them are asked for.

A case is a pure function of its number, so that cases run in any order and in any number of processes, a run of them
can be resumed, and one that fails can be repeated alone: `python tests/soak 4 --case 17`.
"""

import dataclasses
import importlib.util
import random
from collections.abc import Callable
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Case:
    """One case: its number, how many of the things that are counted happen in it, and an empty folder for it."""

    fault: int
    number: int
    size: int
    folder: Path

    @property
    def random(self) -> random.Random:
        """Its random numbers, from the start at every call."""
        return random.Random(f"fault {self.fault}, case {self.number}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    number: int
    title: str
    promise: str
    """What holds in every case."""
    counted: str
    """What the counts are numbers of."""
    full: int
    quick: int
    """How many in `make soak` and in `make test`."""
    check: Callable[[Case], None]
    """Carries out a case, and raises if the promise does not hold."""
    each: int | None = 1
    """How many of the things that are counted a case has; None for all of them in one case."""
    chunk: int = 1
    """Cases that a process carries out one after the other."""
    needs: tuple[str, ...] = ()
    """Packages without which it cannot run."""

    def sizes(self, count: int) -> list[int]:
        """How many of the things that are counted each case has."""
        each = count if self.each is None else self.each
        return [min(each, count - first) for first in range(0, count, each)]

    def missing(self) -> str | None:
        """Why it cannot run here, if it cannot."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed" if absent else None
