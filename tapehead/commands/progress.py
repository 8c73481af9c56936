"""What a person sees while something takes long: a live bar on a terminal, plain lines elsewhere, nothing with --quiet.

All numbers of a population are those of one seed: episodes and episodes per second of each seed, and the median of the
seeds' mean costs, with how many seeds are solved.
"""

import time
from collections import deque
from contextlib import suppress
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Column

from tapehead import terminal
from tapehead.commands.experiments import describe
from tapehead.experiment.parts import WINDOW
from tapehead.experiment.run import Observer, Status

BAR_WIDTH = 20
LINE_SECONDS = 5.0
PACE_SECONDS = 30.0
"""Over which the pace is measured: it changes when seeds are retired."""


class Steps:
    """Steps that are done of those that there are, on standard error. A terminal or pipe that is gone ends nothing."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._console = Console(stderr=True, highlight=False, markup=False)
        self._bar: Bar | None = None
        self._shown_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin(self) -> None:
        """Show the bar, where there is a terminal; again has no effect."""
        if self._bar is None and self._console.is_terminal and not terminal.is_quiet():
            whole = [Column(no_wrap=True) for _ in range(4)]  # only the words take a second line where there is no room
            self._bar = Bar(
                TextColumn(self._doing, table_column=whole[0]),
                BarColumn(BAR_WIDTH, table_column=whole[1]),
                MofNCompleteColumn(table_column=whole[2]),
                TextColumn("{task.fields[says]}", table_column=Column()),
                TimeElapsedColumn(table_column=whole[3]),
                console=self._console,
            )
            self._task = self._bar.add_task(self._doing, total=None, says="")
            with suppress(OSError):
                self._bar.start()

    def show(self, done: int, of: int, says: str, line: str, *, last: bool = False) -> None:
        """says: behind the bar; line: instead of it where there is no terminal, every few seconds and at the end."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=of, says=says)
        elif time.monotonic() - self._shown_at > LINE_SECONDS or last:
            self._shown_at = time.monotonic()
            terminal.say(line)

    def stop(self) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()
            self._bar = None


class Phases:
    """Steps of one thing after the other: phases(doing, done, of)."""

    def __init__(self) -> None:
        self._doing, self._steps = "", Steps("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Before something is printed."""
        self._steps.stop()
        self._doing = ""

    def __call__(self, doing: str, done: int, of: int) -> None:
        if doing != self._doing:
            self._steps.stop()
            self._doing, self._steps = doing, Steps(doing)
            self._steps.begin()
        self._steps.show(done, of, "", f"{doing}: {done:,} of {of:,}")


class Progress(Observer):
    """An observer of `train`, `evaluate` and `confirm`."""

    def __init__(self, heading: str = "") -> None:
        """heading: a sentence to begin with, once the run has been accepted."""
        self.began, self._heading = False, heading
        self._training, self._scoring = Steps("training"), Steps("scoring")
        self._marks: deque[tuple[float, int]] = deque()  # when how many episodes were done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._training.stop()
        self._scoring.stop()

    def begin(self, status: Status) -> None:
        """Say what is trained, and begin to count after whatever was restored."""
        self.began = True
        self._announce(status)
        self._marks = deque([(time.monotonic(), status.episodes)])
        self._training.begin()

    def _announce(self, status: Status) -> None:
        if self._heading:
            terminal.say(self._heading)
        seeds = status.experiment.seeds
        which = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
        place = f"{status.backend} backend on {status.experiment.place.device}"
        terminal.say(f"{describe(status.experiment)}: {status.parameters:,} parameters, {which}, {place}.")
        if status.backend_reason:
            terminal.say(f"No faster backend: {status.backend_reason}")
        if status.resumed:
            terminal.say(f"Resumed at episode {status.episodes:,}.")
        if status.note:
            terminal.say(f"Note: {status.note}")

    def block(self, status: Status) -> None:
        """After a block."""
        says = self._says(status, time.monotonic())
        each = " of each seed" if len(status.experiment.seeds) > 1 else ""
        line = f"{status.episodes:,} of {status.expected:,} episodes{each}, {says}"
        self._training.show(status.episodes, status.expected, says, line, last=status.finished)

    def scoring(self, label: str, done: int, of: int) -> None:
        if done < of:
            self._training.stop()  # two bars at a time do not go together
            self._scoring.begin()
        says = f"{label}: {done:,} of {of:,} sequences"
        self._scoring.show(done, of, label, f"scoring {says}")

    def stopping(self, signal_name: str) -> None:
        terminal.say(f"{signal_name}: stopping after this block of updates; Ctrl-C stops at once.")

    def notice(self, sentence: str) -> None:
        terminal.say_ours(sentence)

    def _says(self, status: Status, now: float) -> str:
        self._marks.append((now, status.episodes))
        while len(self._marks) > 2 and self._marks[1][0] <= now - PACE_SECONDS:
            self._marks.popleft()
        since, before = self._marks[0]
        pace = (status.episodes - before) / max(now - since, 1e-9)
        left = (status.expected - status.episodes) / max(pace, 1e-9)
        seeds = len(status.experiment.seeds)
        parts = [] if status.bits is None else [f"{status.bits:.3g} bits ({_over(status)})"]
        if seeds > 1:
            parts.append(f"{status.solved} of {seeds} seeds solved")
        parts.append(f"{pace:,.0f} episodes/s{' each' if seeds > 1 else ''}")
        if status.experiment.restarts.attempts > 1:
            first, last = status.attempts
            parts.append(f"attempt {first}" if first == last else f"attempts {first} to {last}")
        if not status.finished:
            more = ", more if a seed is restarted" if status.may_restart else ""
            parts.append(f"{'' if more else 'at most '}{duration(left)} left{more}")
        return ", ".join(parts)


def _over(status: Status) -> str:
    """What the cost is the mean of."""
    window = f"last {min(WINDOW, status.episodes):,} episodes"
    return f"median seed, {window}" if len(status.experiment.seeds) > 1 else window


def duration(seconds: float) -> str:
    """In words: "42 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
