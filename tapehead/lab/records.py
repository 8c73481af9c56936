"""The folder of results: one record for each row, and a README with a picture and tables of all of them."""

import json
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


def read(path: Path) -> dict[str, Any]:
    """A record, or one sentence why it is none."""
    record = parse(path)
    if record.get("kind") != KIND:
        raise ValueError(f"{path} is no record of a confirmation: make one with tapehead confirm ROW.")
    if (wrong := contradiction(record)) is not None:
        raise ValueError(damaged(path, wrong))
    return record
