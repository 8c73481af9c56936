"""Carrying out a plan: one confirmation after the other, each resumable, then the report.

    OUT/results/   the records, and reproduction.json: the scale and its warning
    OUT/runs/      the folder of each run
    OUT/report/    index.html

The machines of a confirmation train side by side and use all cores, so one job runs at a time.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tapehead import files
from tapehead.experiment.run import Interrupted, Observer
from tapehead.lab import records
from tapehead.lab.confirmation import confirm
from tapehead.report import page
from tapehead.reproduce.plan import Step
from tapehead.reproduce.scales import WARNINGS, Job, Scale

Watch = Callable[[Job], AbstractContextManager[Observer | None]]


def results_folder(out: Path) -> Path:
    """The folder of the records, made if it is not there."""
    folder = out / "results"
    with files.writing(out, "choose another folder with --out."):
        files.make_folders(folder)
    return folder


def run(steps: Sequence[Step], out: Path, scale: Scale, watch: Watch, place: dict[str, Any] | None = None) -> list[str]:
    """Do what is to do, and write the report. Sentences about jobs that failed; the others are not affected.

    `Interrupted` is raised if a signal asks the process to stop; the same call goes on from there."""
    folder = results_folder(out)
    _write_scale(folder, scale)
    failed = []
    for step in steps:
        if step.to_do:
            try:
                _confirm(step.job, folder, out / "runs", watch, place)
            except Interrupted:
                raise
            except Exception as error:  # of any kind: a night's work must not end with its first job
                failed.append(f"{step.job.name} failed ({type(error).__name__}: {error})")
    page.write(folder, out / "report")
    return failed


def _confirm(job: Job, folder: Path, runs: Path, watch: Watch, place: dict[str, Any] | None) -> None:
    experiment = job.experiment(place)
    run_folder = runs / f"{job.name}-{experiment.hash[:8]}"
    with watch(job) as observer:
        record = confirm(experiment, run_folder, sequences=job.sequences, observer=observer)
    records.write_record(record, folder)


def _write_scale(folder: Path, scale: Scale) -> None:
    values = {"kind": "tapehead reproduction", "scale": scale, "warning": WARNINGS[scale]}
    with files.writing(folder):
        files.replace(folder / page.SCALE, (json.dumps(values, indent=1) + "\n").encode())
