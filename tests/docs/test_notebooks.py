"""The notebooks run, with little training where they say so, and their recorded outputs are those of their cells."""

import json
import sys
from pathlib import Path

import pytest

import tapehead

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/notebooks"
sys.path.append(str(FOLDER))
import run as notebooks  # noqa: E402 (docs/notebooks/run.py, which adds docs/_ext to the path)
from cells import cells_of, fingerprint  # noqa: E402

NAMES = ["copy.md", "inside.md", "layer.md", "lecture.md", "own-task.md"]


def test_every_notebook_is_here():
    assert sorted(path.name for path in FOLDER.glob("*.md")) == NAMES


@pytest.mark.filterwarnings("ignore:__array_:DeprecationWarning")  # torch's, where matplotlib takes tensors
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tapehead.TASKS, "_entries", dict(tapehead.TASKS))  # what a notebook registers goes with it
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAPEHEAD_QUICK", "1")
    source = (FOLDER / name).read_text()
    assert ("TAPEHEAD_QUICK" in source) == ("Tests of this notebook" in source)  # what is shortened is said
    ran = list(notebooks.execute(FOLDER / name))
    assert len(ran) >= 5
    assert sum(len(figures) for _, _, figures in ran) >= 1


@pytest.mark.parametrize("name", NAMES)
def test_recorded_outputs_are_those_of_the_cells(name):
    record = json.loads((FOLDER / "outputs" / name).with_suffix(".json").read_text())
    assert list(record["cells"]) == list(map(fingerprint, cells_of(FOLDER / name))), "run `make notebooks`"
    for cell in record["cells"].values():
        assert all((FOLDER / "outputs" / figure).exists() for figure in cell["figures"])


def test_a_cell_shows_its_last_expression(capsys):
    names = {}
    assert notebooks.run_cell("x = 3\nx + 1", names, "a cell") is None
    assert capsys.readouterr().out == "4\n"
    assert names["x"] == 3
    with pytest.raises(ZeroDivisionError):
        notebooks.run_cell("1 / 0", names, "a cell")


def test_a_fingerprint_is_of_what_a_cell_computes():
    assert fingerprint("x = f(1,2)  # why") == fingerprint("x = f(\n    1,\n    2,\n)")
    assert fingerprint("x = f(1, 2)") != fingerprint("x = f(1, 3)")
