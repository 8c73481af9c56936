"""Training data: addressed by seed and update alone, sampled ahead in bounds, of the curriculum while that holds."""

import math

import pytest
import torch
from tiny import EXPERIMENTS, differences, lines_of, tiny, trained

import tapehead
from tapehead.experiment import data
from tapehead.experiment.data import BatchSource, excess_bits
from tapehead.experiment.loop import Trainer
from tapehead.streams import stream
from tapehead.tasks import Batch

pytestmark = pytest.mark.usefixtures("one_thread", "quickly_solved")

PLAIN, RICH = EXPERIMENTS["plain"], EXPERIMENTS["rich"]
CPU = torch.device("cpu")
ZEROS = {"density": (0.0, 0.0)}
"""A curriculum that is learned at once."""


def data_of(source, seeds, span):
    """What seeds in their first attempt learn from."""
    return source.data(seeds, [span.start] * len(seeds), span)


def sample(source, seeds, span):
    """The same, not from stock, and without the slots."""
    return source.sample(seeds, [span.start] * len(seeds), span)


def test_training_data_and_slots_are_addressed():
    source = BatchSource(RICH, CPU)
    seeds, span = [9, 3], range(200, 203)
    drawn, slots = sample(source, seeds, span), source.sample_slots(seeds, span)
    assert slots.shape == (3, 2, 8)
    assert (int(slots.min()), int(slots.max())) == (3, 8)
    for k, update in enumerate(span):
        for s, seed in enumerate(seeds):
            alone = source.sample_slots([seed], range(update, update + 1))
            assert torch.equal(slots[k, s], alone[0, 0])
            one = sample(source, [seed], range(update, update + 1))
            steps = one.inputs.shape[2]
            assert torch.equal(drawn.inputs[k, s, :steps], one.inputs[0, 0])
            assert torch.equal(drawn.lengths[k, s], one.lengths[0, 0])
    assert BatchSource(PLAIN, CPU).sample_slots([0], range(3)) is None


def test_every_update_sees_its_own_batch_and_rate(monkeypatch):
    trainer = Trainer(tiny(schedule="cosine", episodes=200))
    seen = []

    def step(batch, slots, rates, group, checked):
        seen.append((batch, rates))
        return torch.zeros(1, 1), torch.zeros(1, dtype=torch.bool)

    monkeypatch.setattr(trainer.population, "step", step)
    while not trainer.finished:
        trainer.block()
    wanted = torch.tensor([trainer.experiment.rate(update) for update in range(200)])
    assert torch.equal(torch.cat([rates for _, rates in seen]), wanted)
    direct = trainer.task.sample(stream([0], "training/copy", 150), batch_size=1)
    batch = seen[150][0]
    assert isinstance(batch, Batch)
    assert torch.equal(batch.inputs[:, : direct.inputs.shape[1]], direct.inputs)


@pytest.mark.parametrize("stocked", [1, 1000, 4_000_000])
def test_the_stock_changes_no_data(monkeypatch, stocked):
    monkeypatch.setattr(data, "STOCKED_STEPS", stocked)
    source = BatchSource(RICH, CPU)
    for seeds, span in (
        ([3, 7], range(100)),
        ([3, 7], range(100, 200)),
        ([7], range(200, 300)),
        ([7], range(50)),
    ):
        drawn, slots = data_of(source, seeds, span)
        direct = sample(source, seeds, span)
        steps = direct.inputs.shape[2]
        assert torch.equal(drawn.inputs[:, :, :steps], direct.inputs)
        assert torch.equal(drawn.targets[:, :, :steps], direct.targets)
        assert torch.equal(drawn.mask[:, :, :steps], direct.mask)
        assert not any(part[:, :, steps:].any() for part in drawn[:3])
        assert torch.equal(drawn.lengths, direct.lengths)
        assert torch.equal(slots, source.sample_slots(seeds, span))


def test_the_stock_is_bounded_and_used(monkeypatch):
    source, drawn = BatchSource(tiny(episodes=5000), CPU), []
    monkeypatch.setattr(
        source, "sample", lambda seeds, done, span: drawn.append(span) or BatchSource.sample(source, seeds, done, span)
    )
    for first in range(0, 1200, 100):
        data_of(source, [0], range(first, first + 100))
    assert drawn == [range(100), range(100, 1100), range(1100, 2100)]


def test_the_stock_is_bounded_when_a_curriculum_of_short_sequences_ends():
    experiment = tiny(
        curriculum={"length": (1, 1)}, share=0.5, seeds=tuple(range(8)), **{"task.length": 2000}
    )  # fmt: skip
    source, seeds = BatchSource(experiment, CPU), list(range(8))
    for first in range(0, 300, 100):
        data_of(source, seeds, range(first, first + 100))
    assert len(source._stock[2].lengths) == 200  # up to the end of the curriculum
    data_of(source, seeds, range(300, 400))
    assert source._stock[2].inputs[..., 0].numel() <= data.STOCKED_STEPS


# --- curricula -------------------------------------------------------------------------------------------------------


def test_a_curriculum_holds_in_training_alone():
    trainer = Trainer(tiny(curriculum=ZEROS | {"length": (2, 2)}))
    drawn, _ = data_of(trainer.source, [0], range(100))
    assert not drawn.targets.any()
    assert set(drawn.lengths.flatten().tolist()) == {5}
    assert trainer.task.length == (1, 3)


def test_a_curriculum_that_ends_is_not_judged():
    easy = {"curriculum": ZEROS, "episodes": 2450, "early_stop": True}
    assert 0 < trained(tiny(**easy)).seeds.solved_at[0] < 2000
    trainer = trained(tiny(**easy, share=0.5), 12)
    seeds = trainer.seeds
    assert trainer.updates == 1200 == trainer.experiment.curriculum_updates
    assert [line["curriculum"] for line in lines_of(trainer)] == [[True]] * 12
    assert seeds.recent.mean() < 0.1
    assert seeds.solved_at[0] == -1
    assert not torch.isfinite(seeds.kept_cost[0])
    trainer.block()
    drawn, _ = data_of(trainer.source, [0], range(1200, 1300))
    assert drawn.targets.any()
    assert lines_of(trainer)[-1]["curriculum"] == [False]
    assert torch.isfinite(seeds.recent).sum() == 100  # no sequence of the curriculum counts
    for _ in range(9):
        trainer.block()
    assert torch.isfinite(seeds.kept_cost[0])
    assert seeds.kept_cost[0] > 0.5


def test_a_curriculum_of_all_updates_has_no_end():
    trainer = trained(tiny(curriculum=ZEROS, share=0.9998, episodes=1400))
    assert trainer.experiment.curriculum_updates == trainer.experiment.updates
    assert trainer.seeds.solved_at[0] > 0
    assert not any(any(line["curriculum"]) for line in lines_of(trainer))  # so every line is judged


def test_a_share_of_nothing_is_no_curriculum():
    assert differences(trained(tiny(curriculum=ZEROS, share=0), 2), trained(tiny(), 2)) == []


def test_the_last_block_is_cut_short():
    trainer = Trainer(tiny(episodes=130, batch_size=4))
    trainer.block()
    assert trainer.finished
    assert lines_of(trainer)[-1]["episodes"] == 132


# --- costs -----------------------------------------------------------------------------------------------------------


def test_excess_is_measured_against_the_best_possible():
    task = tapehead.make_task("ngrams", length=20)
    batch = task.sample(stream(0, "x", 0), batch_size=3)
    costs = torch.tensor([20.0, 10.0, 5.0]) * math.log(2)
    assert torch.allclose(
        excess_bits(task, batch, costs), torch.tensor([20.0, 10.0, 5.0]).double() - task.optimal_bits(batch)
    )


def test_excess_is_over_the_optimum_of_each_seeds_own_task():
    experiment = tapehead.Experiment(
        task=tapehead.make_task("ngrams", length=20, order=4),
        curriculum=tapehead.Curriculum(options={"order": 2}, share=0.5),
        training=tapehead.Training(episodes=8000, early_stop=False),
        restarts=tapehead.Restarts(attempts=2, after=6000),
        seeds=(1, 2),
    )
    source, done = BatchSource(experiment, CPU), [0, 5000]
    drawn, _ = source.data([1, 2], done, range(5000, 5100))
    excess = source.excess(done, drawn, torch.ones(100, 2, 1))
    for row, task in enumerate((source.curriculum, source.task)):
        mine = Batch(*(part[:, row : row + 1] for part in drawn))
        assert torch.equal(excess[:, row : row + 1], excess_bits(task, mine, torch.ones(100, 1, 1)))
        other = (source.task, source.curriculum)[row]
        assert not torch.equal(excess[:, row : row + 1], excess_bits(other, mine, torch.ones(100, 1, 1)))


def test_data_with_other_channels_are_refused_by_every_backend():
    drawn, _ = data_of(BatchSource(tiny(**{"task.width": 3}), CPU), [0], range(100))
    for backend in ("cpu", "reference"):
        trainer = Trainer(tiny(backend=backend))
        with pytest.raises(ValueError, match=r"inputs|input"):
            trainer.population.step(Batch(*(part[0] for part in drawn)), None, torch.full((1,), 1e-4))


def test_a_gpu_is_given_sequences_of_one_length():
    """Whoever is trained: those of a task's greatest sizes."""
    assert data.longest_steps(tapehead.make_task("copy", length=(1, 4))) == 2 * 4 + 1
    assert data.longest_steps(tapehead.make_task("priority-sort", items=(2, 5), outputs=(1, 2))) == 5 + 1 + 2
    batch = sample(BatchSource(PLAIN, CPU), [3, 5], range(2))
    steps = batch.inputs.shape[2]
    longer = data.padded(batch, steps + 3)
    assert longer.inputs.shape[2] == longer.targets.shape[2] == longer.mask.shape[2] == steps + 3
    for part, whole in zip(batch[:-1], longer[:-1], strict=True):
        assert torch.equal(whole[:, :, :steps], part)
        assert not whole[:, :, steps:].any()
    assert torch.equal(longer.lengths, batch.lengths)
    assert data.padded(batch, steps - 1) is batch


def test_a_task_whose_greatest_sizes_exclude_each_other_is_padded_to_what_it_draws():
    task = tapehead.make_task("copy")

    class Exclusive(type(task)):
        def draw(self, draws, rows, sizes):
            raise ValueError("not so long")

    assert data.longest_steps(Exclusive()) == 0
