"""From a sweep to records, for the report: a record of each finished job."""

from collections.abc import Iterator
from pathlib import Path

from tapehead.experiment.folder import read_result
from tapehead.lab import records
from tapehead.lab.confirmation import record_of
from tapehead.sweep.folder import SweepFolder


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
