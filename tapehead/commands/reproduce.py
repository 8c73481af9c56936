"""`tapehead reproduce`: train what is missing at one of three scales, and write the report."""

from pathlib import Path
from typing import TYPE_CHECKING

from tapehead.commands.options import check_count, check_device
from tapehead.commands.sweep_table import SweepProgress
from tapehead.commands.tables import new_table, print_table
from tapehead.experiment.run import Interrupted
from tapehead.paper.results import Results
from tapehead.report import page
from tapehead.reproduce import plan as planning
from tapehead.reproduce import run as running
from tapehead.reproduce.plan import Step, duration
from tapehead.reproduce.scales import jobs_of
from tapehead.terminal import complain

if TYPE_CHECKING:
    from tapehead import arguments


def run(options: "arguments.Reproduce") -> int:
    if options.engine == "local":
        check_device(options.device)
    if options.workers is not None:
        check_count("--workers", options.workers)
    out = options.out or Path(f"reproduction-{options.scale}")
    steps = _plan(options, out)
    _show(steps)
    if options.dry_run:
        return 0
    jobs = [step.job for step in steps if step.is_taken]
    running.store_plan(jobs, out, options.scale)
    with SweepProgress() as progress:
        try:
            failed = running.run(
                jobs,
                out,
                engine=options.engine,
                engine_options=options.engine_options,
                workers=options.workers,
                device=options.device,
                observer=progress,
            )
        except Interrupted as stop:
            complain(f"{stop}; saved in {out}. The same command goes on from there.")
            return stop.exit_code
    for sentence in failed:
        complain(sentence)
    print(out / "report" / page.NAME)
    return 1 if failed else 0


def _plan(options: "arguments.Reproduce", out: Path) -> list[Step]:
    """The plan that was begun, or a new one, with times where they are needed."""
    stored = running.stored_plan(out, options.scale)
    timed = options.dry_run or (options.scale == "laptop" and stored is None)
    return planning.plan(
        [(job,) for job in stored] if stored is not None else jobs_of(options.scale),
        _results(out),
        limit=planning.NIGHT if options.scale == "laptop" and stored is None else None,
        place={"place.device": options.device},
        rate=planning.measured_rate if timed else None,
    )


def _results(out: Path) -> Results:
    """What is there already; nothing is written."""
    folder = out / "results"
    return Results.load(folder) if folder.is_dir() else Results(folder)


def _show(steps: list[Step]) -> None:
    table = new_table("The plan", ("row", "recipe", "state"), ("seeds", "sequences", "time"))
    for step in steps:
        episodes = step.job.experiment().training.episodes
        time = "" if step.seconds is None else duration(step.seconds)
        cells = (step.job.row, step.job.recipe, step.state, str(step.job.seeds), f"{episodes:,}", time)
        table.add_row(*cells)
    print_table(table, width=None)
    known = [step.seconds for step in steps if step.to_do and step.seconds is not None]
    if known:
        print(f"{duration(sum(known))} in all, by the speed that was measured here just now.")
