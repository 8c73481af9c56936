"""The folder of results: one record for each row, and a README with a picture and tables of all of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapehead import files
from tapehead.lab.summary import summarise
from tapehead.lab.tables import CURVES, PICTURE, readme
from tapehead.lab.verification import PLACE
from tapehead.paper.record_form import contradiction
from tapehead.paper.results import KIND, damaged, parse


def write(record: dict[str, Any], folder: Path) -> Path:
    """Write a record with its summary, in the place of an older one, and the folder's README; the record's file."""
    path = write_record(record, folder)
    write_readme(folder)
    return path


def write_record(record: dict[str, Any], folder: Path) -> Path:
    """Write a record with its summary alone."""
    path = folder / f"{record['name']}.json"
    whole = record | {"summary": summarise(record)}
    with files.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        files.replace(path, (json.dumps(whole, indent=1, allow_nan=False) + "\n").encode())
    return path


def write_readme(folder: Path) -> None:
    """Make the README of a folder of results again, and its pictures."""
    # here, because matplotlib is slow to load and reading needs none
    from tapehead.figures import style
    from tapehead.figures.records import draw_costs, draw_learning

    records = [record for path in sorted(folder.glob("*.json")) if (record := parse(path)).get("kind") == KIND]
    style.save(draw_costs(records), folder, PICTURE)
    style.save(draw_learning(records), folder, CURVES)
    with files.writing(folder):
        files.replace(folder / "README.md", readme(records).encode())


def join(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record of machines that were trained apart, of one experiment but for the seeds. The parts have no summary.

    Its seconds are those of all parts, whether they ran one after the other or at the same time."""
    first = parts[0]
    for part in parts[1:]:
        places = first["environment"], part["environment"]
        other = [name for name in first if name not in JOINED and part.get(name) != first[name]]
        other += ["experiment"] * (_but_seeds(part["experiment"]) != _but_seeds(first["experiment"]))
        other += [f"environment.{field}"] if (field := other_place(*places)) is not None else []
        if other:
            raise ValueError(f"records of {part['name']} cannot be joined: {other[0]} is not the same in all of them.")
    seconds, commits = [part["seconds"] for part in parts], [part["environment"].get("commit") for part in parts]
    seeds = [seed for part in parts for seed in part["seeds"]]
    environment = first["environment"] | {"date": max(part["environment"]["date"] for part in parts)}
    environment |= {"commit": ", ".join(dict.fromkeys(map(str, commits)))} if len(set(commits)) > 1 else {}
    whole = first | {
        "experiment": first["experiment"] | {"seeds": seeds},
        "seeds": seeds,
        "seeds_side_by_side": max(part["seeds_side_by_side"] for part in parts),
        "seconds": None if None in seconds else sum(seconds),
        "environment": environment,
        "machines": [machine for part in parts for machine in part["machines"]],
    }
    if (wrong := contradiction(whole)) is not None:
        raise ValueError(f"records of {first['name']} cannot be joined: {wrong}.")
    return whole


JOINED = ("experiment", "seeds", "seeds_side_by_side", "seconds", "environment", "machines")
"""What differs from part to part of a record."""


def other_place(one: dict[str, Any], other: dict[str, Any]) -> str | None:
    """By what machines of one record may not differ in the place that they were trained at. Different commits are all
    named in the record; threads do not matter."""
    return next((field for field in PLACE if field != "commit" and one.get(field) != other.get(field)), None)


def _but_seeds(experiment: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in experiment.items() if key != "seeds"}


def read(path: Path) -> dict[str, Any]:
    """A record, or one sentence why it is none."""
    record = parse(path)
    if record.get("kind") != KIND:
        raise ValueError(f"{path} is no record of a confirmation: make one with tapehead confirm ROW.")
    if (wrong := contradiction(record)) is not None:
        raise ValueError(damaged(path, wrong))
    return record
