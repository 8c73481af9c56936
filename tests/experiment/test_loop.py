"""The loop: running ahead of the records, holding and leaving change no bit."""

import pytest
import torch
from tiny import differences, tiny, trained

from tapehead.experiment import data
from tapehead.experiment.loop import Trainer
from tapehead.models.dnc.model import DNC
from tapehead.streams import stream

pytestmark = pytest.mark.usefixtures("one_thread", "quickly_solved")


def as_on_a_gpu(experiment):
    """A trainer that asks for the next block before it records one."""
    trainer = Trainer(experiment)
    trainer.asynchronous = True
    return trainer


@pytest.fixture
def rising(monkeypatch):
    """Costs that rise after the first full window, so that the weights kept are not the last ones."""
    blocks = []

    def excess(task, batch, costs):
        blocks.append(None)
        return torch.full(costs.shape, abs(len(blocks) - 13.0), dtype=torch.float64)

    monkeypatch.setattr(data, "excess_bits", excess)
    return blocks


@pytest.mark.parametrize("early_stop", [False, True])
def test_iterating_is_block_after_block(early_stop):
    """Also where a curriculum ends, where weights are kept on the way, and where it is held or cut."""
    experiment = tiny(
        seeds=(3, 4), curriculum={"blanks": 0.2}, share=0.2, episodes=1450, average=0.9, early_stop=early_stop,
        **{"task.length": (1, 2), "task.width": 8},
    )  # fmt: skip
    plain, ahead = trained(experiment), as_on_a_gpu(experiment)
    held = list(ahead.iter_blocks(hold=lambda: ahead.updates == 500))
    assert early_stop or held == [False] * 5 + [True] + [False] * 7 + [True] * 2
    assert differences(ahead, plain) == []
    assert ahead.metrics == plain.metrics
    assert early_stop or bool(torch.isfinite(ahead.seeds.kept_cost).any())

    part, cut = as_on_a_gpu(experiment), Trainer(experiment)
    assert list(part.iter_blocks(end=530)) == [early_stop] * 4 + [True] * 2
    for updates in (100, 100, 100, 100, 100, 30):
        cut.block(updates)
    assert part.updates == 530
    assert differences(part, cut) == []


def test_the_weights_kept_are_those_of_their_block(rising):
    experiment = tiny(seeds=(3, 4), episodes=2000, average=0.9)
    plain, ahead = Trainer(experiment), as_on_a_gpu(experiment)
    kept = []
    while not plain.finished:
        plain.block()
        kept.append(plain.population.kept.clone())
    assert not torch.equal(kept[-1], plain.population.working.weights)
    rising.clear()
    for number, _ in enumerate(ahead.iter_blocks()):
        assert torch.equal(ahead.population.kept, kept[number])
    assert differences(ahead, plain) == []


def test_leaving_early_finds_one_state():
    experiment = tiny(seeds=(3, 4), episodes=800)
    ahead = as_on_a_gpu(experiment)
    for _ in ahead.iter_blocks():
        if ahead.updates == 300:
            break
    assert ahead.updates == 400  # what was under way is done
    assert differences(ahead, trained(experiment, 4)) == []
    for _ in ahead.iter_blocks():
        pass
    plain = trained(experiment)
    assert differences(ahead, plain) == []
    assert ahead.metrics == plain.metrics


def test_a_look_at_the_machines_between_blocks_changes_no_bit():
    experiment = tiny(seeds=(3, 4), episodes=400, early_stop=True, average=0.9)
    looked_at = Trainer(experiment)
    while not looked_at.finished:
        looked_at.block()
        batch = looked_at.task.sample(stream(0, "t", 0), batch_size=7)
        looked_at.model.population(
            looked_at.population.delivered()[:1], *(part.unsqueeze(0) for part in (batch.inputs, batch.lengths))
        )
        looked_at.tensors()
    assert differences(looked_at, trained(experiment)) == []


def test_a_dnc_is_trained_on_the_slots_that_it_uses(monkeypatch):
    """Bits are those of the whole memory, of which no sequence uses more."""
    values = {"model.name": "dnc", "training.slots": (3, 6), "training.batch_size": 4, "task.length": (1, 2)}
    experiment = tiny(seeds=(3, 4), episodes=400).with_values(values | {"model.memory_slots": 20})
    short = trained(experiment)
    assert (short.trained.memory_slots, short.model.memory_slots) == (6, 20)
    monkeypatch.setattr(DNC, "for_training", lambda self, slots: self)
    whole = trained(experiment)
    assert whole.trained.memory_slots == 20
    assert differences(short, whole) == []
    assert short.metrics == whole.metrics
