"""The records in results/: of recipes as they are now, and the page made of them."""

from pathlib import Path

import pytest

from tapehead.experiment.config import Experiment, read_toml
from tapehead.lab import records
from tapehead.lab.tables import readme
from tapehead.paper.recipes import row_experiment

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
RECORDS = sorted(RESULTS.glob("*.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_of_its_recipe_as_it_is_now(path):
    """But for the number of episodes, which the page shows. A recipe that changes needs a new confirmation.

    A record that is of no row is of the example with its name.
    """
    experiment = Experiment.from_plain(records.read(path)["experiment"])
    row, _, recipe = experiment.recipe.partition("/")
    changes = {"seeds": experiment.seeds, "training.episodes": experiment.training.episodes}
    if experiment.recipe == "custom":
        (file,) = ROOT.glob(f"examples/**/{path.stem}.toml")
        now = Experiment.from_plain(read_toml(file)).with_values(changes | {"recipe": "custom"})
    else:
        now = row_experiment(row, recipe, changes)
    assert experiment.hash == now.hash


def test_there_are_records():
    assert len(RECORDS) > 10


def test_the_page_is_made_of_its_records():
    assert (RESULTS / "README.md").read_text() == readme([records.read(path) for path in RECORDS])
