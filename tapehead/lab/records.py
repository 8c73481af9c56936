"""The folder of results: one record for each row, and a README with a picture and tables of all of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapehead import files
from tapehead.lab.summary import summarise
from tapehead.lab.tables import CURVES, PICTURE, readme
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
        other = sorted(name for name in first if name not in JOINED and part.get(name) != first[name])
        if other or _but(part["experiment"], "seeds") != _but(first["experiment"], "seeds"):
            raise ValueError(f"{part['name']} cannot be joined: its {', '.join(other or ['experiment'])} differs.")
        places = [_but(one["environment"], "date") for one in (first, part)]
        if differing := sorted(name for name in places[0] | places[1] if places[0].get(name) != places[1].get(name)):
            name = differing[0]
            raise ValueError(
                f"machines of {first['name']} were trained with different {name} ({places[0].get(name)} and "
                f"{places[1].get(name)}), so that they make no one record: leave out --join."
            )
    seconds = [part["seconds"] for part in parts]
    seeds = [seed for part in parts for seed in part["seeds"]]
    return first | {
        "experiment": first["experiment"] | {"seeds": seeds},
        "seeds": seeds,
        "seeds_side_by_side": max(part["seeds_side_by_side"] for part in parts),
        "seconds": None if None in seconds else sum(seconds),
        "environment": first["environment"] | {"date": max(part["environment"]["date"] for part in parts)},
        "machines": [machine for part in parts for machine in part["machines"]],
    }


JOINED = ("experiment", "seeds", "seeds_side_by_side", "seconds", "environment", "machines")
"""What differs from part to part of a record."""


def _but(table: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != name}


def read(path: Path) -> dict[str, Any]:
    """A record, or one sentence why it is none."""
    record = parse(path)
    if record.get("kind") != KIND:
        raise ValueError(f"{path} is no record of a confirmation: make one with tapehead confirm ROW.")
    if (wrong := contradiction(record)) is not None:
        raise ValueError(damaged(path, wrong))
    return record
