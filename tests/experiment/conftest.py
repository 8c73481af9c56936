"""Finished runs, made once, for the tests of folders, resuming and results."""

import shutil
from pathlib import Path

import pytest
from tiny import EXPERIMENTS, SOLVED_BITS

import tapehead
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
