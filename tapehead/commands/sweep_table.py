"""What a person sees of a sweep: a live table on a terminal, plain lines elsewhere, and the table of its cells."""

import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tapehead import terminal
from tapehead.commands.progress import duration
from tapehead.commands.tables import new_table
from tapehead.sweep.driver import SweepObserver
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.jobs import seed_words
from tapehead.sweep.state import Cell, JobState, Snapshot, State

LINE_SECONDS = 10.0
PACE_SECONDS = 600.0
"""Over which the pace is measured."""
SHOWN_COSTS = 3
"""Sizes of which the costs are shown: the first, the middle and the last."""


def summary(states: Snapshot) -> str:
    """ "12 of 40 jobs finished, 2 failed, 4 running, 9 of 12 seeds solved"."""
    solved, seeds = states.solved
    parts = [f"{len(states.in_state('finished')):,} of {len(states):,} jobs finished"]
    others: tuple[State, ...] = ("failed", "running", "stopped", "waiting")
    for state in others:
        count = len(states.in_state(state))
        parts += [f"{count:,} {state}"] if count else []
    return ", ".join([*parts, f"{solved:,} of {seeds:,} seeds solved"] if seeds else parts)


def cell_table(cells: Sequence[Cell]) -> Table:
    """One row for each configuration."""
    table = new_table("Configurations", ("configuration",), ("seeds", "solved", "episodes to solve", "median bits"))
    for cell in cells:
        table.add_row(
            cell.label,
            f"{cell.trained:,} of {cell.seeds:,}" if cell.trained < cell.seeds else f"{cell.seeds:,}",
            f"{cell.solved:,} of {cell.trained:,}" if cell.trained else "",
            "" if cell.episodes is None else f"{cell.episodes:,.0f}",
            costs_text(cell.costs),
        )
    return table


def costs_text(costs: dict[str, float | None] | dict[str, float]) -> str:
    """Costs at the first, the middle and the last size."""
    items = list(costs.items())
    places = sorted({0, len(items) // 2, len(items) - 1}) if items else []
    return ", ".join(f"{items[at][0]}: {_number(items[at][1])}" for at in places[:SHOWN_COSTS])


def _number(value: float | None) -> str:
    return "infinite" if value is None or math.isinf(value) else f"{value:.3g}"


class SweepProgress(SweepObserver):
    """On standard error: what runs, what is solved, costs, the time left. A terminal that is gone does not end the
    sweep."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False)
        self._live: Live | None = None
        self._marks: deque[tuple[float, float]] = deque()  # when how many jobs were done
        self._reported: set[str] = set()
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()

    def begin(self, sweep: SweepFolder, workers: int) -> None:
        jobs = f"{len(sweep.jobs):,} job{'s' if len(sweep.jobs) > 1 else ''}"
        terminal.say(f"{sweep.path}: {jobs}, {workers} worker{'s' if workers > 1 else ''}.")
        self._shown_at = time.monotonic()
        if self._console.is_terminal and not terminal.is_quiet():
            self._live = Live(console=self._console, transient=True, auto_refresh=False)
            with suppress(OSError):
                self._live.start()

    def update(self, states: Snapshot) -> None:
        now = time.monotonic()
        first = not self._marks
        self._marks.append((now, states.done))
        while len(self._marks) > 2 and self._marks[1][0] <= now - PACE_SECONDS:
            self._marks.popleft()
        if first:  # what was settled before this call is no news
            self._reported = {one.job.name for one in states.in_state("finished", "failed")}
        self._report(states)
        says = ", ".join(filter(None, (summary(states), self._left(states))))
        if self._live is not None:
            with suppress(OSError):
                self._live.update(self._picture(states, says), refresh=True)
        elif now - self._shown_at > LINE_SECONDS:
            self._shown_at = now
            terminal.say(says)

    def _report(self, states: Snapshot) -> None:
        """A line for each job that is newly settled."""
        for one in states.in_state("finished", "failed"):
            if one.job.name not in self._reported:
                self._reported.add(one.job.name)
                self._say(f"{one.job.label}, {seed_words(one.job.seeds)}: {_outcome(one)}")

    def _left(self, states: Snapshot) -> str:
        (since, before), (now, done) = self._marks[0], self._marks[-1]
        if done <= before or done >= len(states):
            return ""
        return f"about {duration((len(states) - done) * (now - since) / (done - before))} left"

    def _picture(self, states: Snapshot, says: str) -> Group:
        table = new_table("", ("running",), ("episodes", "bits", "solved"))
        table.columns[0].no_wrap = False  # on a narrow terminal names take more lines, and numbers stay whole
        running = states.in_state("running")
        fitting = max(3, self._console.height - 8)
        for one in running[:fitting]:
            table.add_row(f"{one.job.label}, {seed_words(one.job.seeds)}", *progress_cells(one))
        more = [Text(f"and {len(running) - fitting} more")] if len(running) > fitting else []
        return Group(*([table] if running else []), *more, Text(says))

    def died(self, reason: str) -> None:
        self._say(f"A worker died ({reason}); its job is taken up again.")

    def stopping(self, signal_name: str) -> None:
        terminal.say(f"{signal_name}: stopping after the present blocks of updates; Ctrl-C stops at once.")

    def _say(self, words: str) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.console.print(words, soft_wrap=True)
        else:
            terminal.say(words)


def progress_cells(one: JobState) -> tuple[str, str, str]:
    """Episodes, bits and solved seeds of a running job; empty before its first heartbeat."""
    progress = one.progress
    if not progress:
        return "", "", ""
    bits = progress.get("bits")
    return (
        f"{progress.get('episodes', 0):,} of {progress.get('expected', 0):,}",
        "" if bits is None else f"{bits:.3g}",
        f"{progress.get('solved', 0)} of {len(one.job.seeds)}",
    )


def _outcome(one: JobState) -> str:
    if one.result is None:
        return f"failed: {one.failure}"
    costs = costs_text(Cell("", {}, (one,)).costs)
    solved = f"{one.result.solved} of {len(one.result.seeds)} solved"
    return f"{solved}{'; bits: ' + costs if costs else ''}"
