"""Finished runs, made once; and costs and times that tests of validation and restarts choose themselves."""

import shutil
from pathlib import Path

import pytest
from tiny import EXPERIMENTS, SOLVED_BITS

import tapehead
from tapehead.evaluation.generalisation import Score
from tapehead.experiment import loop
from tapehead.experiment.restarts import Seeds
from tapehead.tasks.copy import Copy


@pytest.fixture
def quickly_solved(monkeypatch):
    """A machine of `tiny` is solved after some thousand episodes."""
    monkeypatch.setattr(Copy, "solved_bits", SOLVED_BITS)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Folders of uninterrupted runs of EXPERIMENTS."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Copy, "solved_bits", SOLVED_BITS)
        for name, experiment in EXPERIMENTS.items():
            tapehead.train(experiment, folder / name)
    return {name: folder / name for name in EXPERIMENTS}


@pytest.fixture
def used(tmp_path, finished):
    """A copy of the finished run of `tiny()`, to be changed."""
    return Path(shutil.copytree(finished["plain"], tmp_path / "used"))


@pytest.fixture
def solved_at_once(monkeypatch):
    """Solved as soon as a window is full."""
    monkeypatch.setattr(Copy, "solved_bits", 100.0)


@pytest.fixture
def script(monkeypatch):
    """Costs of the validations to come, one list for each time; the weights that came to each are kept beside them."""
    costs, seen = [], []

    def scripted(model, flat, task, sizes, sequences, *, source):
        seen.append(flat.clone())
        bits = costs.pop(0)
        assert len(bits) == len(flat)
        each = [0.0] * len(bits)
        finite = [cost if abs(cost) < float("inf") else None for cost in bits]  # also a NaN is not
        return Score(label="", sizes=sizes, sequences=sequences, bits=finite, wrong=each, accuracy=each, perfect=each)

    monkeypatch.setattr(loop, "score", scripted)
    return costs, seen


@pytest.fixture
def solved_by(monkeypatch):
    """Which seed is solved in which attempt: solved_by({seed: attempt}); no other is judged, and that one at once."""

    def choose(attempts):
        judged = Seeds.judged

        def chosen(self, updates):
            wanted = [attempts.get(seed, 0) for seed in self.experiment.seeds]
            mine = [int(self.attempts[i]) == wanted[i] for i in self.index.tolist()]
            return [is_judged and is_wanted for is_judged, is_wanted in zip(judged(self, updates), mine, strict=True)]

        monkeypatch.setattr(Seeds, "judged", chosen)

    return choose
