"""Carrying out a plan: a sweep of its jobs, a record of each that is done, then the report.

OUT/results/   the records, and reproduction.json: the scale, its warning, and the jobs of the plan
OUT/sweep/     the sweep, with the folder of each run
OUT/report/    index.html
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tapehead import files
from tapehead.lab import records
from tapehead.lab.confirmation import record_of
from tapehead.paper.results import Results, parse
from tapehead.report import page
from tapehead.reproduce.plan import is_there
from tapehead.reproduce.scales import WARNINGS, Job, Scale
from tapehead.sweep import jobs as sweep_jobs
from tapehead.sweep.driver import Outcome, SweepObserver, run_sweep
from tapehead.sweep.folder import SweepFolder, is_sweep

KIND = "tapehead reproduction"


def stored_plan(out: Path, scale: Scale) -> list[Job] | None:
    """The jobs of the plan that was begun in a folder, or None; a plan of another scale is refused."""
    path = out / "results" / page.SCALE
    if not path.exists():
        return None
    values = parse(path)
    if values.get("kind") != KIND or values.get("scale") != scale:
        raise ValueError(f"{out} holds a reproduction at the scale {values.get('scale')}: choose another with --out.")
    return [Job(**job) for job in values["jobs"]]


def store_plan(jobs: Sequence[Job], out: Path, scale: Scale) -> None:
    """So that the same command later goes on with the same jobs, however fast the computer is then."""
    folder = out / "results"
    values = {"kind": KIND, "scale": scale, "warning": WARNINGS[scale], "jobs": [vars(job) for job in jobs]}
    with files.writing(folder, "choose another folder with --out."):
        files.make_folders(folder)
        files.replace(folder / page.SCALE, (json.dumps(values, indent=1) + "\n").encode())


def run(
    jobs: Sequence[Job],
    out: Path,
    *,
    engine: str = "local",
    engine_options: Mapping[str, str] | None = None,
    workers: int | None = None,
    device: str = "cpu",
    observer: SweepObserver | None = None,
) -> list[str]:
    """Train what is missing, write the records and the report. Sentences about jobs that failed.

    `Interrupted` is raised if a signal asks the process to stop; the same call goes on from there. A job that failed is
    tried again by the next call.
    """
    missing = _missing(jobs, out)
    failed = []
    if missing:
        outcome = run_sweep(
            [_sweep_job(job) for job in missing],
            out / "sweep",
            engine=engine,
            engine_options=engine_options,
            workers=workers,
            device=device,
            retry=True,
            observer=observer,
        )
        failed = [f"{name} failed: {why}" for name, why in outcome.failures.items()]
        for job in missing:
            _record(job, out, outcome, {"place.device": device})
    page.write(out / "results", out / "report")
    return failed


def _missing(jobs: Sequence[Job], out: Path) -> list[Job]:
    """Jobs without a record; also those with one that the sweep has, because the list of a sweep does not shrink."""
    results, sweep = Results.load(out / "results"), out / "sweep"
    known = {job.hash for job in SweepFolder(sweep).jobs} if is_sweep(sweep) else set()
    return [job for job in jobs if not is_there(job, results) or job.experiment().hash in known]


def _sweep_job(job: Job) -> sweep_jobs.Job:
    return sweep_jobs.Job.of(job.name, job.experiment())


def _record(job: Job, out: Path, outcome: Outcome, place: dict[str, Any]) -> None:
    """Score the machines of a job that is done, unless its record is there."""
    one = _sweep_job(job)
    result = outcome.results.get(one.name)
    if result is None or is_there(job, Results.load(out / "results")):
        return
    folder = SweepFolder(outcome.folder).run_folder(one)
    record = record_of(job.experiment(place), folder, result, sequences=job.sequences)
    records.write_record(record, out / "results")
