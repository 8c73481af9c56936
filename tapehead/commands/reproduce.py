"""`tapehead reproduce`: train what is missing at one of three scales, and write the report."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tapehead.commands.options import check_device
from tapehead.commands.progress import Progress
from tapehead.commands.tables import new_table, print_table
from tapehead.experiment.run import Interrupted, Observer
from tapehead.paper.results import Results
from tapehead.report import page
from tapehead.reproduce import plan as planning
from tapehead.reproduce import run as running
from tapehead.reproduce.plan import Step, duration
from tapehead.reproduce.scales import Job, jobs_of
from tapehead.terminal import say

if TYPE_CHECKING:
    from tapehead import cli


def run(options: "cli.Reproduce") -> int:
    check_device(options.device)
    out = options.out or Path(f"reproduction-{options.scale}")
    place = {"place.device": options.device}
    steps = planning.plan(
        jobs_of(options.scale),
        _results(out),
        limit=planning.NIGHT if options.scale == "laptop" else None,
        place=place,
        rate=None if options.scale == "smoke" and not options.dry_run else planning.measured_rate,
    )
    _show(steps)
    if options.dry_run:
        return 0
    try:
        failed = running.run(steps, out, options.scale, _watch, place)
    except Interrupted as stop:
        say(f"{stop}; saved in {out}. The same command goes on from there.")
        return stop.exit_code
    for sentence in failed:
        say(sentence)
    print(out / "report" / page.NAME)
    return 1 if failed else 0


def _results(out: Path) -> Results:
    """What is there already; nothing is written."""
    folder = out / "results"
    return Results.load(folder) if folder.is_dir() else Results(folder)


@contextlib.contextmanager
def _watch(job: Job) -> Iterator[Observer]:
    with Progress(f"{job.name}, {job.seeds} seeds.") as progress:
        yield progress


def _show(steps: list[Step]) -> None:
    table = new_table("The plan", ("row", "recipe", "state"), ("seeds", "sequences", "time"))
    for step in steps:
        episodes = step.job.experiment().training.episodes
        time = "" if step.seconds is None else duration(step.seconds)
        cells = (step.job.row, step.job.recipe, step.state, str(step.job.seeds), f"{episodes:,}", time)
        table.add_row(*cells)
    print_table(table)
    known = [step.seconds for step in steps if step.to_do and step.seconds is not None]
    if known:
        print(f"{duration(sum(known))} in all, by the speed that was measured here just now.")
