"""From a sweep to records: of each finished job, for the report, or of all seeds of a configuration together."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tapehead import files
from tapehead.experiment.config import Experiment
from tapehead.experiment.folder import read_result
from tapehead.lab import records
from tapehead.lab.acceptance import acceptance_of
from tapehead.lab.confirmation import name_of, record_of, row_and_recipe
from tapehead.paper.recipes import rows
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.jobs import HASH_DIGITS, Job, seed_words, slug


def write_records(sweep: Path, out: Path, *, sequences: int | None = None, device: str = "cpu") -> Iterator[Path]:
    """Score the machines of every finished job as a confirmation does, and write its record under the job's name. A
    record that is there is left as it is.

    sequences: at each point, if not the usual number. device: where they are scored."""
    folder = SweepFolder(sweep)
    for job in folder.jobs:
        if (result := read_result(folder.run_folder(job))) is None or (out / f"{job.name}.json").exists():
            continue
        experiment = job.experiment.with_values({"place.device": device})
        record = record_of(experiment, folder.run_folder(job), result, name=job.name, sequences=sequences)
        yield records.write_record(record, out)


def write_joined(
    sweep: Path,
    out: Path,
    *,
    sequences: int | None = None,
    device: str = "cpu",
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Path]:
    """The same with one record of all jobs that differ in their seeds alone, and the README of the folder.

    Jobs are taken in their order until the first that is not finished: of those behind it the finished ones are the
    fast ones. A record is replaced by one of the same experiment with other seeds or sequences, but not by one of fewer
    machines. A configuration that cannot be joined does not keep the others from it; `ValueError` then, at the end.

    tell: is given a sentence on every configuration of which jobs are left out, or whose record stays."""
    folder, wrong = SweepFolder(sweep), []
    for name, jobs in _named(_configurations(folder.jobs)):
        finished = list(itertools.takewhile(lambda job: read_result(folder.run_folder(job)) is not None, jobs))
        if len(finished) < len(jobs):
            tell(_left_out(folder, name, jobs, len(finished)))
        try:
            if finished and _is_wanted(out / f"{name}.json", name, finished, sequences, device, tell):
                _check_places(folder, finished)
                parts = [_part(folder, job, name, sequences, device) for job in finished]
                yield records.write(records.join(parts), out)
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise ValueError(" ".join(wrong))


def _configurations(jobs: tuple[Job, ...]) -> dict[str, list[Job]]:
    """Jobs by the experiment's hash without the seeds."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(dataclasses.replace(job.experiment, seeds=(0,)).hash, []).append(job)
    return found


def _named(groups: dict[str, list[Job]]) -> Iterator[tuple[str, list[Job]]]:
    """Configurations with the names of their records: that of a row of the paper if they are one, or else their
    label's. Where several would have the same, the digits of the hash make the difference."""
    names = {key: _name(jobs[0]) for key, jobs in groups.items()}
    count = Counter(names.values())
    for key, jobs in groups.items():
        yield (names[key] if count[names[key]] == 1 else f"{names[key]}-{key[:HASH_DIGITS]}"), jobs


def _name(job: Job) -> str:
    row, recipe = row_and_recipe(job.experiment)
    if recipe != "custom":
        return name_of(row, recipe)
    name = slug(job.label)
    return f"{name}-custom" if name in rows() else name


def _left_out(folder: SweepFolder, name: str, jobs: list[Job], count: int) -> str:
    first, behind = jobs[count], jobs[count + 1 :]
    why = "failed" if folder.failure(first) else "is not finished"
    done = sum(read_result(folder.run_folder(job)) is not None for job in behind)
    more = f"; {done} finished jobs behind it are left out" if done else ""
    return f"{name}: {count} of {len(jobs)} jobs, because that of {seed_words(first.seeds)} {why}{more}."


def _is_wanted(
    path: Path, name: str, jobs: list[Job], sequences: int | None, device: str, tell: Callable[[str], None]
) -> bool:
    """Whether a record of these jobs is to be made; not if it is there, or has more machines there."""
    if not path.exists():
        return True
    stored, experiment = records.read(path), _experiment(jobs[0], device)
    seeds = [seed for job in jobs for seed in job.seeds]
    usual = acceptance_of(experiment.task, experiment.build()).sequences
    same = Experiment.from_plain(stored["experiment"], str(path)).with_values({"seeds": (0,)}).hash
    count = max(point["sequences"] for point in stored["points"])
    equal = same == dataclasses.replace(experiment, seeds=(0,)).hash and count == (sequences or usual)
    if equal and stored["seeds"] == seeds:
        return False
    if len(stored["seeds"]) > len(seeds):
        tell(
            f"{path} stays: it has {len(stored['seeds'])} machines, and {name} of this sweep {len(seeds)}. Choose "
            "another folder with --out for these."
        )
        return False
    return True


def _check_places(folder: SweepFolder, jobs: list[Job]) -> None:
    """Before anything is scored: that the jobs were trained in places that `records.join` takes for one."""
    places = [files.unseal(files.read(folder.run_folder(job) / "env.json")) for job in jobs]
    for job, place in zip(jobs, places, strict=True):
        if (field := records.other_place(places[0], place)) is not None:
            raise ValueError(
                f"the jobs {jobs[0].name} and {job.name} make no one record, because their {field} differs "
                f"({places[0].get(field)} and {place.get(field)}): leave out --join."
            )


def _experiment(job: Job, device: str) -> Experiment:
    return job.experiment.with_values({"place.device": device})


def _part(folder: SweepFolder, job: Job, name: str, sequences: int | None, device: str) -> dict[str, Any]:
    result = read_result(folder.run_folder(job))
    assert result is not None
    own = None if name == _name(job) and row_and_recipe(job.experiment)[1] != "custom" else name
    return record_of(_experiment(job, device), folder.run_folder(job), result, name=own, sequences=sequences)
