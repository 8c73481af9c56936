"""The training loop on a GPU: graphs, company and resuming change no bit."""

import dataclasses

import pytest
import torch
from tapehead.training.checkpoint import Checkpoint
from tapehead.training.config import RunConfig
from tapehead.training.loop import Trainer
from tapehead.training.stepping import Replaying, one_by_one

from tapehead.models.ntm import MOST_STARTS
from tapehead.streams import stream

pytestmark = pytest.mark.gpu

CONFIG = RunConfig(
    task="copy",
    model_options={"controller_size": 20, "memory_slots": 32, "write_gate": True},  # for an odd number of parameters
    seeds=tuple(range(5, 16)),
    episodes=600,
    schedule="cosine",
    learning_rate=1e-3,
    slots=(21, 32),
    average=0.99,
    early_stop=False,
    device="cuda",
    backend="gpu",
)


def trained(config: RunConfig, blocks: int, graphs: bool = True) -> Trainer:
    trainer = Trainer(config)
    trainer._step = Replaying() if graphs else one_by_one
    for _ in range(blocks):
        trainer.block()
    return trainer


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> list[str]:
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]


@pytest.mark.parametrize("clip", ["elementwise", "norm"])
def test_graphs_change_no_bit(clip):
    config = dataclasses.replace(CONFIG, clip=clip)
    with_graphs, without = trained(config, 4), trained(config, 4, graphs=False)
    assert with_graphs._step._graph is not None  # something was captured
    assert same(with_graphs.population.tensors(), without.population.tensors()) == []
    assert with_graphs.metrics == without.metrics


def test_graphs_change_no_bit_of_seeds_at_different_places_of_their_schedules():
    config = dataclasses.replace(CONFIG, batch_size=10, episodes=6000)
    costs = trained(config, 2).population.recent.mean(dim=1)
    config = dataclasses.replace(config, attempts=2, patience=2000, hopeful_bits=float(costs.median()))
    with_graphs, without = trained(config, 5), trained(config, 5, graphs=False)
    assert set(with_graphs.population.begun_at.tolist()) == {0, 200}
    assert with_graphs._step._graph is not None
    assert same(with_graphs.population.tensors(), without.population.tensors()) == []
    assert with_graphs.metrics == without.metrics


@pytest.mark.parametrize("batch", [1, 70])
def test_a_seed_alone_is_the_seed_among_others(batch):
    config = dataclasses.replace(CONFIG, batch_size=batch, episodes=300 * batch)
    everyone = trained(config, 3)
    alone = trained(dataclasses.replace(config, seeds=(7,)), 3)
    place = config.seeds.index(7)
    ours = {name: tensor[place : place + 1] for name, tensor in everyone.population.tensors().items()}
    assert same(ours, alone.population.tensors()) == []
    assert everyone.population.state.parameters.shape[1] % 4 == 1  # so that seeds begin at all places of 16 bytes


def test_a_look_at_the_machines_between_blocks_changes_no_bit():
    straight, looked_at = trained(CONFIG, 6), trained(CONFIG, 3)
    for _ in range(3):
        population = looked_at.population
        batch = looked_at.task.sample(stream(0, "t", 0, device="cuda"), batch_size=7)
        looked_at.model.population(
            population.delivered()[:1], *(part.unsqueeze(0) for part in (batch.inputs, batch.lengths))
        )
        for rows in range(7, 7 + MOST_STARTS):
            looked_at.model._population_start({}, batch.inputs[:, :1].expand(-1, rows, -1).unsqueeze(0), None)
        assert all(key[0] == 1 for key in looked_at.model._constant_starts)  # what the graph reads has been dropped
        starts = [
            torch.full_like(part, float("nan"))
            for part in straight.model.constants()
            if part.is_floating_point()
            for _ in range(50)
        ]
        del starts  # NaN wherever memory of its size was given back
        looked_at.block()
    assert same(straight.population.tensors(), looked_at.population.tensors()) == []


def test_resuming_changes_no_bit():
    straight, stopped = trained(CONFIG, 5), trained(CONFIG, 2)
    saved = {name: tensor.cpu().clone() for name, tensor in stopped.population.tensors().items()}
    checkpoint = Checkpoint(stopped.updates, saved, {"updates": stopped.updates}, {})
    resumed = Trainer(CONFIG)
    resumed.population.restore(checkpoint.tensors)
    resumed.updates = checkpoint.facts["updates"]
    for _ in range(3):
        resumed.block()
    assert same(straight.population.tensors(), resumed.population.tensors()) == []


def test_seeds_that_leave_do_not_disturb_those_that_stay():
    config = dataclasses.replace(CONFIG, early_stop=True, task_options={"length": (1, 2)}, episodes=6000)
    everyone = Trainer(config)
    while not everyone.finished:
        everyone.block()
    assert len(set(everyone.population.solved_at.tolist())) > 1
    alone = Trainer(dataclasses.replace(config, seeds=(7,)))
    while not alone.finished:
        alone.block()
    place = config.seeds.index(7)
    ours = {name: tensor[place : place + 1] for name, tensor in everyone.population.tensors().items()}
    assert same(ours, alone.population.tensors()) == []


def test_running_ahead_of_the_records_changes_no_bit():
    config = dataclasses.replace(CONFIG, episodes=1600)
    straight, walked = Trainer(config), Trainer(config)
    for _ in walked.walk():
        straight.block()
        assert torch.equal(straight.population.kept, walked.population.kept)
    assert torch.isfinite(straight.population.kept_cost).all()
    assert same(straight.population.tensors(), walked.population.tensors()) == []
    assert straight.metrics == walked.metrics
