"""From a sweep to records: of each finished job, for the report, or of all seeds of a configuration together."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from tapehead.experiment.folder import read_result
from tapehead.lab import records
from tapehead.lab.confirmation import name_of, record_of, row_and_recipe
from tapehead.paper.results import parse
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.jobs import Job, slug


def write_records(sweep: Path, out: Path, *, sequences: int | None = None, device: str = "cpu") -> Iterator[Path]:
    """Score the machines of every finished job as a confirmation does, and write its record under the job's name. A
    record that is there is left as it is.

    sequences: at each point, if not the usual number. device: where they are scored."""
    folder = SweepFolder(sweep)
    for job in folder.jobs:
        result = read_result(folder.run_folder(job))
        if result is None or (out / f"{job.name}.json").exists():
            continue
        experiment = job.experiment.with_values({"place.device": device})
        record = record_of(experiment, folder.run_folder(job), result, name=job.name, sequences=sequences)
        yield records.write_record(record, out)


def write_joined(sweep: Path, out: Path, *, sequences: int | None = None, device: str = "cpu") -> Iterator[Path]:
    """The same with one record of all jobs that differ in their seeds alone, under the name of the row of the paper
    that they train, or else of their label; and the README of the folder.

    Jobs are taken in their order until the first that is not finished: of those behind it the finished ones are the
    fast ones. A record with as many seeds is left as it is."""
    folder = SweepFolder(sweep)
    for label, group in itertools.groupby(folder.jobs, key=lambda job: job.label):
        finished = list(itertools.takewhile(lambda job: read_result(folder.run_folder(job)) is not None, group))
        if finished and (record := _joined(folder, label, finished, out, sequences, device)) is not None:
            yield records.write(record, out)


def _joined(
    folder: SweepFolder, label: str, jobs: list[Job], out: Path, sequences: int | None, device: str
) -> dict[str, object] | None:
    row, recipe = row_and_recipe(jobs[0].experiment)
    name = slug(label) if recipe == "custom" else None
    path = out / f"{name or name_of(row, recipe)}.json"
    seeds = [seed for job in jobs for seed in job.seeds]
    if path.exists() and parse(path).get("seeds") == seeds:
        return None
    parts = []
    for job in jobs:
        result = read_result(folder.run_folder(job))
        assert result is not None
        experiment = job.experiment.with_values({"place.device": device})
        parts.append(record_of(experiment, folder.run_folder(job), result, name=name, sequences=sequences))
    return records.join(parts)
