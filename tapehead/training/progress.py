"""What a person sees while a run trains: a live bar on a terminal, plain lines elsewhere."""

import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from tapehead import terminal

if TYPE_CHECKING:
    from tapehead.training.loop import Trainer

LINE_SECONDS = 5.0
PACE_SECONDS = 30.0
"""Over which the pace is measured: it changes when seeds leave."""


class Progress:
    """Episodes per second, bits per sequence and time left, on standard error.

    A terminal or pipe that is gone does not end the run.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Bar | None = None
        self._shown_at = time.monotonic()
        self._marks: deque[tuple[float, int]] = deque()  # when how many updates were done

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[says]}"))
            self._bar = Bar(*columns, TimeElapsedColumn(), console=self._console)
            self._task = self._bar.add_task("train", total=None, says="")
            with suppress(OSError):
                self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()

    def start(self, trainer: "Trainer") -> None:
        """Begin to count, after whatever was restored."""
        self._shown_at = time.monotonic()
        self._marks = deque([(self._shown_at, trainer.updates)])

    def show(self, trainer: "Trainer") -> None:
        """After a block."""
        now = time.monotonic()
        batch = trainer.config.batch_size
        done, total = trainer.updates * batch, trainer.expected * batch
        says = self._says(trainer, now)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, says=says)
        elif now - self._shown_at > LINE_SECONDS or trainer.finished:
            self._shown_at = now
            terminal.say(f"{done:,} of {total:,} episodes, {says}")

    def _says(self, trainer: "Trainer", now: float) -> str:
        population = trainer.population
        self._marks.append((now, trainer.updates))
        while len(self._marks) > 2 and self._marks[1][0] <= now - PACE_SECONDS:
            self._marks.popleft()
        since, before = self._marks[0]
        pace = (trainer.updates - before) * trainer.config.batch_size / max(now - since, 1e-9)  # of one seed
        left = (trainer.expected - trainer.updates) * trainer.config.batch_size / max(pace, 1e-9)
        seeds = len(trainer.config.seeds)
        there = population.index if len(population.index) else slice(None)  # those who left have nothing new to say
        recent = population.recent[there, -100:].median(dim=0).values
        recent = recent[torch.isfinite(recent)]  # there may be fewer than a hundred yet, or none
        parts = [f"{float(recent.mean()):.3g} bits"] if len(recent) else []
        parts.append(f"{pace * max(1, int(population.active.sum())):,.0f} episodes/s")
        if seeds > 1:
            parts.append(f"{int((population.solved_at >= 0).sum())} of {seeds} seeds solved")
        if trainer.config.attempts > 1:
            attempts = population.attempts[there]
            first, last = int(attempts.min()), int(attempts.max())
            parts.append(f"attempt {first}" if first == last else f"attempts {first} to {last}")
        if not trainer.finished:
            again = trainer.may_begin_again
            parts.append(
                f"{_duration(left)} left, more if one begins again" if again else f"at most {_duration(left)} left"
            )
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
