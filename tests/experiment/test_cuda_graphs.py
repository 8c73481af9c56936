"""Runs of updates: one after the other, in groups and, on a GPU, as graphs: to the same bits."""

import dataclasses

import pytest
import torch
from tiny import PATHS, differences, tiny

from tapehead.experiment import cuda_graphs
from tapehead.experiment.cuda_graphs import Replaying, one_by_one
from tapehead.experiment.loop import Trainer
from tapehead.models.ntm import MOST_STARTS
from tapehead.streams import stream
from tapehead.tasks import Batch

pytestmark = pytest.mark.usefixtures("one_thread")


class _Counted:
    """A population that only counts, and a graph that only says that it is one."""

    def __init__(self):
        self.working, self.steps, self.replays, self.captures = object(), 0, 0, 0

    def step(self, batch, slots, rates, group, checked):
        self.steps += 1
        return torch.zeros(1, 1), torch.zeros(1, dtype=torch.bool)


def test_what_has_come_often_enough_is_captured(monkeypatch):
    class Graph:
        def __init__(self, population, data, slots):
            population.captures += 1
            self.population = population

        def __call__(self, data, slots, rates):
            self.population.replays += 1
            return torch.ones(len(rates), 1, 1), torch.zeros(len(rates), 1, dtype=torch.bool)

    monkeypatch.setattr(cuda_graphs, "_Graph", Graph)
    counted, replaying = _Counted(), cuda_graphs.Replaying()

    def block(updates, steps=5):
        data = Batch(torch.zeros(updates, 1, steps, 1, 2), *[torch.zeros(updates, 1)] * 3)
        return replaying(counted, data, None, torch.full((updates, 1), 1e-4))[0]

    assert block(100).sum() == 0
    assert (counted.steps, counted.captures) == (100, 0)
    assert block(105).flatten().tolist() == [1.0] * 100 + [0.0] * 5  # what does not fill a graph runs one by one
    assert (counted.steps, counted.captures, counted.replays) == (105, 1, 2)
    block(100, steps=6)  # another shape waits again
    assert (counted.steps, counted.captures) == (205, 1)
    counted.working = object()  # and so do other seeds
    block(100, steps=6)
    assert (counted.steps, counted.captures) == (305, 1)
    block(100, steps=6)
    assert (counted.steps, counted.captures) == (305, 2)


@pytest.mark.parametrize(("parameters", "each"), [(8, 1), (6, 2), (7, 4)])
@pytest.mark.parametrize("seeds", [1, 3, 4, 7, 8, 9, 11, 20, 132])
def test_groups_are_all_seeds_in_order_and_aligned(seeds, parameters, each):
    groups = cuda_graphs.groups_of(seeds, parameters)
    assert [seed for group in groups for seed in range(seeds)[group]] == list(range(seeds))
    assert all(group.start * parameters % cuda_graphs.ALIGNED == 0 for group in groups)
    assert len(groups) == (2 if seeds >= 2 * cuda_graphs.FEWEST else 1)
    sizes = [len(range(seeds)[group]) for group in groups]
    assert max(sizes) - min(sizes) < 2 * each


@pytest.mark.parametrize(
    ("seeds", "parameters", "together", "groups"),
    [(10, 8, 10, 1), (20, 8, 10, 2), (20, 7, 10, 1), (40, 7, 10, 2), (8, 8, 1, 2)],
)
def test_groups_leave_together_what_is_computed_together(seeds, parameters, together, groups):
    found = cuda_graphs.groups_of(seeds, parameters, together)
    assert len(found) == groups
    assert all(group.start % together == 0 for group in found)


def test_groups_of_seeds_are_updated_like_everyone():
    experiment = tiny(seeds=(3, 4, 5, 6, 7, 8), episodes=20)
    whole, parted = Trainer(experiment), Trainer(experiment)
    data, slots = whole.source.data(list(experiment.seeds), [0] * 6, range(5))
    rates = torch.linspace(1e-4, 1e-2, 30).view(5, 6)
    costs, skips = cuda_graphs.one_by_one(whole.population, data, slots, rates)
    parts = [
        cuda_graphs.one_by_one(parted.population, data, slots, rates, group) for group in (slice(0, 4), slice(4, 6))
    ]
    assert torch.equal(costs, torch.cat([part[0] for part in parts], dim=1))
    assert torch.equal(skips, torch.cat([part[1] for part in parts], dim=1))
    assert differences(whole, parted) == []


# --- on a GPU --------------------------------------------------------------------------------------------------------


def large(**changes):
    """Eleven machines of a usual size, with an odd number of parameters."""
    experiment = tiny(
        task={"name": "copy"}, seeds=tuple(range(5, 16)), schedule="cosine", slots=(21, 32), average=0.99,
        device="cuda", backend="gpu",
        **{"model.controller_size": 20, "model.memory_slots": 32, "model.memory_width": 20, "model.write_gate": True},
    )  # fmt: skip
    return experiment.with_values({PATHS.get(name, name): value for name, value in changes.items()})


def transformers(**changes):
    """Twelve of an odd number of parameters: a group of ten, and one of two and copies."""
    settings = {"model": "transformer", "optimiser": "adam", "clip": "norm", "limit": 1.0, "batch_size": 4}
    settings |= {"learning_rate": 1e-3, "episodes": 2000, "seeds": tuple(range(5, 17)), "device": "cuda"}
    settings |= {"task": {"name": "copy", "length": (1, 20)}, "model.hidden_size": 32, "model.num_layers": 2}
    return tiny(**settings | changes)


@pytest.mark.gpu
@pytest.mark.parametrize("positions", ["rotary", "alibi", "none"])
def test_graphs_change_no_bit_of_transformers(positions):
    experiment = transformers(**{"model.positions": positions})
    with_graphs, without = on_gpu(experiment, 4), on_gpu(experiment, 4, graphs=False)
    assert isinstance(Trainer(experiment)._step, Replaying)
    assert with_graphs._step._graph is not None
    assert differences(with_graphs, without) == []
    assert with_graphs.metrics == without.metrics


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_transformer_alone_is_the_one_among_others(dropout):
    experiment = transformers(**{"model.dropout": dropout})
    everyone = Trainer(experiment)
    alone = Trainer(dataclasses.replace(experiment, seeds=(16,)))
    for _ in range(3):
        everyone.block()
        alone.block()
    ours = {name: tensor[-1:] for name, tensor in everyone.population.tensors().items()}
    assert same(ours, alone.population.tensors()) == []


def on_gpu(experiment, blocks, graphs=True):
    trainer = Trainer(experiment)
    trainer._step = Replaying() if graphs else one_by_one
    for _ in range(blocks):
        trainer.block()
    return trainer


def same(ours, theirs):
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]


@pytest.mark.gpu
@pytest.mark.parametrize("clip", ["elementwise", "norm"])
def test_graphs_change_no_bit(clip):
    experiment = large(clip=clip)
    with_graphs, without = on_gpu(experiment, 4), on_gpu(experiment, 4, graphs=False)
    assert with_graphs._step._graph is not None  # something was captured
    assert differences(with_graphs, without) == []
    assert with_graphs.metrics == without.metrics


@pytest.mark.gpu
def test_graphs_change_no_bit_of_seeds_at_different_places_of_their_schedules():
    experiment = large(batch_size=10, episodes=6000)
    costs = on_gpu(experiment, 2).seeds.recent.mean(dim=1)
    experiment = large(batch_size=10, episodes=6000, attempts=2, after=2000, above_bits=float(costs.median()))
    with_graphs, without = on_gpu(experiment, 5), on_gpu(experiment, 5, graphs=False)
    assert set(with_graphs.seeds.begun_at.tolist()) == {0, 200}
    assert with_graphs._step._graph is not None
    assert differences(with_graphs, without) == []
    assert with_graphs.metrics == without.metrics


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 70])
def test_a_seed_alone_is_the_seed_among_others(batch):
    experiment = large(batch_size=batch, episodes=300 * batch)
    everyone = on_gpu(experiment, 3)
    alone = on_gpu(dataclasses.replace(experiment, seeds=(7,)), 3)
    place = experiment.seeds.index(7)
    ours = {name: tensor[place : place + 1] for name, tensor in everyone.population.tensors().items()}
    assert same(ours, alone.population.tensors()) == []
    assert everyone.population.state.parameters.shape[1] % 4 == 1  # so that seeds begin at all places of 16 bytes


@pytest.mark.gpu
def test_a_look_at_the_machines_between_blocks_changes_no_bit():
    straight, looked_at = on_gpu(large(), 6), on_gpu(large(), 3)
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
    assert differences(straight, looked_at) == []


@pytest.mark.gpu
def test_resuming_changes_no_bit():
    straight, stopped = on_gpu(large(), 5), on_gpu(large(), 2)
    resumed = Trainer(large())
    resumed.restore(
        {name: tensor.cpu().clone() for name, tensor in stopped.tensors().items()}, stopped.updates, stopped.metrics
    )
    for _ in range(3):
        resumed.block()
    assert differences(straight, resumed) == []
    assert straight.metrics == resumed.metrics


@pytest.mark.gpu
def test_seeds_that_leave_do_not_disturb_those_that_stay():
    experiment = large(early_stop=True, episodes=6000, **{"task.length": (1, 2)})
    everyone = Trainer(experiment)
    while not everyone.finished:
        everyone.block()
    assert len(set(everyone.seeds.solved_at.tolist())) > 1
    alone = Trainer(dataclasses.replace(experiment, seeds=(7,)))
    while not alone.finished:
        alone.block()
    place = experiment.seeds.index(7)
    ours = {name: tensor[place : place + 1] for name, tensor in everyone.population.tensors().items()}
    assert same(ours, alone.population.tensors()) == []


@pytest.mark.gpu
def test_running_ahead_of_the_records_changes_no_bit():
    experiment = large(episodes=1600)
    straight, ahead = Trainer(experiment), Trainer(experiment)
    for _ in ahead.iter_blocks():
        straight.block()
        assert torch.equal(straight.population.kept, ahead.population.kept)
    assert torch.isfinite(straight.seeds.kept_cost).all()
    assert differences(straight, ahead) == []
    assert straight.metrics == ahead.metrics
