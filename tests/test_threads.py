"""Torch's number of threads: one where operations are short, and what it was again afterwards."""

import pytest
import torch
from tiny import tiny

from tapehead.experiment.loop import Trainer
from tapehead.threads import one_thread


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_one_thread_meanwhile():
    with one_thread() as had:
        assert (had, torch.get_num_threads()) == (2, 1)
        with one_thread() as inside:
            assert (inside, torch.get_num_threads()) == (1, 1)
    assert torch.get_num_threads() == 2
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_only_updates_have_all_threads(monkeypatch):
    """Sampling, copies of the weights and records are short; with two threads they wait for a core that is taken."""
    trainer = Trainer(tiny())
    seen = {}

    def watched(owner, name):
        inner = getattr(owner, name)

        def call(*given):
            seen[name] = torch.get_num_threads()
            return inner(*given)

        monkeypatch.setattr(owner, name, call)

    watched(trainer.source, "data")
    watched(trainer.population, "snapshot")
    watched(trainer.population, "put_back_broken")
    watched(trainer.population, "keep")
    watched(trainer, "_step")
    trainer.block()
    assert seen == {"data": 1, "snapshot": 1, "put_back_broken": 1, "keep": 1, "_step": 2}
    assert torch.get_num_threads() == 2
