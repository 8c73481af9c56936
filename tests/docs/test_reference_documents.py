"""docs/run-folder.md names every field that a run writes, and docs/architecture.md every room of the package."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from test_architecture import ORDER

from tapehead.environment import environment
from tapehead.evaluation.generalisation import Score
from tapehead.experiment.config import Experiment
from tapehead.experiment.metrics import Line
from tapehead.experiment.parts import NAMED, PARTS
from tapehead.experiment.restarts import Seeds
from tapehead.experiment.results import Result
from tapehead.typed import hints

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS))
import update_results  # noqa: E402 (docs/update_results.py)


def named(document):
    """The words in code type."""
    return set(re.findall(r"`([\w./]+)`", (DOCS / document).read_text()))


FIELDS = {
    "metrics": hints(Line),
    "result": hints(Result),
    "score": hints(Score),
    "experiment": hints(Experiment),
    "environment": environment("cpu", "auto"),
    "records of the seeds": Seeds.RECORDS,
    **{part: hints(kind) for part, kind in PARTS.items() if part not in (*NAMED, "model")},
}


@pytest.mark.parametrize("what", FIELDS)
def test_the_run_folder_is_described_field_by_field(what):
    assert set(FIELDS[what]) - named("run-folder.md") == set()


def test_the_architecture_has_every_room_in_order():
    text = (DOCS / "architecture.md").read_text()
    rooms = [room for line in ORDER for room in line if not room.startswith("_")]
    table = text[text.index("| room |") : text.index("## Contracts")]
    found = [word.rstrip("/").removesuffix(".py") for word in re.findall(r"`([\w./]+)`", table)]
    places = [found.index(room) for room in rooms]
    lines = [[found.index(room) for room in line if not room.startswith("_")] for line in ORDER]
    assert sorted(places) == sorted(set(places))
    for earlier, later in pairwise(filter(None, lines)):
        assert max(earlier) < min(later)


def test_results_in_readme_and_lecture_are_those_of_the_records():
    """Rows of records that say otherwise: run docs/update_results.py."""
    readme, lecture = update_results.README.read_text(), update_results.LECTURE.read_text()
    assert update_results.ROW.findall(readme) == list(update_results.CRITERIA)
    assert update_results.with_results(readme, lecture) == (readme, lecture)
    assert all(f"| {label} | " in lecture for label in update_results.IN_LECTURE)
    changed = readme.replace("20 of 20", "21 of 21"), lecture.replace("| 6,", "| 5,")
    assert update_results.with_results(*changed) != changed
