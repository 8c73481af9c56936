"""What a person sees while a run trains: a live bar on a terminal, plain lines elsewhere. An observer of `train`."""

import time
from collections import deque
from contextlib import suppress
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from tapehead import terminal
from tapehead.commands.experiments import describe
from tapehead.experiment.run import Observer, Status

LINE_SECONDS = 5.0
PACE_SECONDS = 30.0
"""Over which the pace is measured: it changes when seeds are retired."""


class Progress(Observer):
    """Episodes per second, bits per sequence and time left, on standard error.

    A terminal or pipe that is gone does not end the run.
    """

    def __init__(self, heading: str = "") -> None:
        """heading: a sentence to begin with, once the run has been accepted."""
        self.began, self._heading = False, heading
        self._console = Console(stderr=True, highlight=False, markup=False)
        self._bar: Bar | None = None
        self._shown_at = time.monotonic()
        self._marks: deque[tuple[float, int]] = deque()  # when how many episodes were done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()

    def begin(self, status: Status) -> None:
        """Say what is trained, and begin to count after whatever was restored."""
        self.began = True
        self._announce(status)
        self._shown_at = time.monotonic()
        self._marks = deque([(self._shown_at, status.episodes)])
        if self._console.is_terminal:
            columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[says]}"))
            self._bar = Bar(*columns, TimeElapsedColumn(), console=self._console)
            self._task = self._bar.add_task("train", total=None, says="")
            with suppress(OSError):
                self._bar.start()

    def _announce(self, status: Status) -> None:
        if self._heading:
            self._say(self._heading)
        seeds = status.experiment.seeds
        which = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
        place = f"{status.backend} backend on {status.experiment.place.device}"
        self._say(f"{describe(status.experiment)}: {status.parameters:,} parameters, {which}, {place}.")
        if status.backend_reason:
            self._say(f"No faster backend: {status.backend_reason}")
        if status.resumed:
            self._say(f"Resumed at episode {status.episodes:,}.")
        if status.note:
            self._say(f"Note: {status.note}")

    def _say(self, words: str) -> None:
        terminal.say(words)

    def block(self, status: Status) -> None:
        """After a block."""
        now = time.monotonic()
        says = self._says(status, now)
        if self._bar is not None:
            self._bar.update(self._task, completed=status.episodes, total=status.expected, says=says)
        elif now - self._shown_at > LINE_SECONDS or status.finished:
            self._shown_at = now
            terminal.say(f"{status.episodes:,} of {status.expected:,} episodes, {says}")

    def stopping(self, signal_name: str) -> None:
        terminal.say(f"{signal_name}: stopping after this block of updates; Ctrl-C stops at once.")

    def notice(self, sentence: str) -> None:
        terminal.say_ours(sentence)

    def _says(self, status: Status, now: float) -> str:
        self._marks.append((now, status.episodes))
        while len(self._marks) > 2 and self._marks[1][0] <= now - PACE_SECONDS:
            self._marks.popleft()
        since, before = self._marks[0]
        pace = (status.episodes - before) / max(now - since, 1e-9)  # of one seed
        left = (status.expected - status.episodes) / max(pace, 1e-9)
        parts = [] if status.bits is None else [f"{status.bits:.3g} bits"]
        parts.append(f"{pace * max(1, status.active):,.0f} episodes/s")
        if len(status.experiment.seeds) > 1:
            parts.append(f"{status.solved} of {len(status.experiment.seeds)} seeds solved")
        if status.experiment.restarts.attempts > 1:
            first, last = status.attempts
            parts.append(f"attempt {first}" if first == last else f"attempts {first} to {last}")
        if not status.finished:
            more = ", more if a seed is restarted" if status.may_restart else ""
            parts.append(f"{'' if more else 'at most '}{duration(left)} left{more}")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """In words: "42 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
