"""The records in results/: of recipes as they are now, and the page made of them."""

from pathlib import Path

import pytest

from tapehead.experiment.config import Experiment
from tapehead.lab import records
from tapehead.lab.tables import readme
from tapehead.paper.recipes import row_experiment

RESULTS = Path(__file__).parents[2] / "results"
RECORDS = sorted(RESULTS.glob("*.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_of_its_recipe_as_it_is_now(path):
    """But for the number of episodes, which the page shows. A recipe that changes needs a new confirmation."""
    experiment = Experiment.from_plain(records.read(path)["experiment"])
    row, _, recipe = experiment.recipe.partition("/")
    changes = {"seeds": experiment.seeds, "training.episodes": experiment.training.episodes}
    assert experiment.hash == row_experiment(row, recipe, changes).hash


def test_there_are_records():
    assert len(RECORDS) > 10


def test_the_page_is_made_of_its_records():
    assert (RESULTS / "README.md").read_text() == readme([records.read(path) for path in RECORDS])
