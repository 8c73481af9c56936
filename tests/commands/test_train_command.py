"""`tapehead train` with validation and restarts."""

import json

import pytest
from tiny import SMALL

from tapehead import cli
from tapehead.tasks.copy import Copy

pytestmark = pytest.mark.usefixtures("one_thread")


def train(folder, *more):
    """A tiny machine that has two attempts, and passes none; the exit code."""
    options = [word for pair in SMALL.items() for word in pair]
    words = [
        "train", "copy", "--seeds", 2, "--episodes", 1200, "--out", folder, "--no-early-stop",
        "--task-options", "length", "[1,3]", "width", 2, "--model-options", *options, "--validation", "length", 5,
        "--restarts.attempts", 2, "--validation.sequences", 5, "--validation.below_bits", 1e-6,
        "--training.slots", "none", "--evaluation.sequences", 5, *more,
    ]  # fmt: skip
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    return stop.value.code


def test_the_command_line_validates_and_says_which_seeds_were_restarted(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Copy, "solved_bits", 100.0)
    monkeypatch.setattr(Copy, "generalisation", ({"length": 2},))
    assert train(tmp_path / "run") in (0, None)
    said = capsys.readouterr()
    assert "2 of 2 seeds solved" in said.out
    assert "2 restarted, 0 passed" in said.out
    assert "attempt 2" in said.err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["attempts"], result["passed"], result["kept_by"]) == ([2, 2], [False, False], "validation")
    assert all(bits > 1e-6 for bits in result["kept_bits"])
    assert train(tmp_path / "run") in (0, None)  # and again from what is there
    assert "2 restarted, 0 passed" in capsys.readouterr().out


def test_a_size_that_the_task_does_not_have_is_one_sentence(tmp_path, capsys):
    assert train(tmp_path / "run", "--validation", "lenght", 5) == 2
    assert "Did you mean 'length'? Valid: length." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
