"""Restarts by `restarts.after`: each seed at its own time, with the rates and curriculum of its own attempt."""

import struct

import pytest
import torch
from scripted import (
    AFTER,
    ATTEMPT,
    assert_same,
    assert_same_seed,
    restarted,
    resumes_to_the_bit,
)
from tiny import lines_of, trained

import tapehead
from tapehead.experiment import events
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import WINDOW
from tapehead.experiment.population import Population
from tapehead.tasks.copy import Copy

pytestmark = pytest.mark.usefixtures("one_thread", "solved_at_once")

TAUGHT = {
    "curriculum": {"length": (1, 1), "density": [0.0, 0.0]},
    "share": 0.25,
    "episodes": 2000,
    "after": 1700,
}
"""Zeros, of length 1, for the first 500 updates."""


def test_a_seed_that_is_not_solved_in_time_is_restarted_at_once_and_the_others_go_on(solved_by):
    solved_by({1: 1, 2: 3, 3: 2})
    trainer = trained(restarted(), AFTER // 100)
    seeds, population = trainer.seeds, trainer.population
    assert seeds.attempts.tolist() == [1, 2, 2]
    assert seeds.begun_at.tolist() == [0, AFTER, AFTER]
    assert torch.equal(population.working.parameters[1:], trainer.model.initial_population([2, 3], attempt=1))
    assert population.state.applied.tolist() == [AFTER, 0, 0]
    first = population.working.parameters[0].clone()
    trainer.block()
    assert not torch.equal(population.working.parameters[0], first)
    while not trainer.finished:
        trainer.block()
    assert seeds.attempts.tolist() == [1, 3, 2]
    assert seeds.solved_at.tolist() == [WINDOW, 2 * AFTER + WINDOW, AFTER + WINDOW]
    assert not seeds.active.any()
    assert trainer.updates == 2 * AFTER + ATTEMPT
    last = {seed: line for line in lines_of(trainer) for seed in line["seeds"]}
    assert {seed: line["episodes"] for seed, line in last.items()} == {
        1: ATTEMPT, 2: 2 * AFTER + ATTEMPT, 3: AFTER + ATTEMPT
    }  # fmt: skip


def test_every_seed_has_the_rates_and_validations_of_its_own_attempt(solved_by):
    solved_by({1: 1, 2: 3, 3: 2})
    trainer = trained(restarted())
    begun = {1: 0, 2: 2 * AFTER, 3: AFTER}  # of the attempts that were solved
    shown = {seed: {} for seed in begun}
    for line in lines_of(trainer):
        for seed, rate, cost in zip(line["seeds"], line["rate"], line["validation"], strict=True):
            done = line["episodes"] - begun[seed]
            if done > 0:
                shown[seed][done] = (rate, cost is not None)
    wanted = {done: (trainer.experiment.rate(done - 1), done >= WINDOW) for done in range(100, ATTEMPT + 1, 100)}
    assert shown == {1: wanted, 2: wanted, 3: wanted}


def test_the_last_attempt_is_not_cut_short(monkeypatch):
    monkeypatch.setattr(Copy, "solved_bits", 0.0)
    trainer = trained(restarted(attempts=2))
    assert trainer.seeds.attempts.tolist() == [2, 2, 2]
    assert trainer.seeds.solved_at.tolist() == [-1, -1, -1]
    assert trainer.updates == AFTER + ATTEMPT


def test_a_seed_that_is_solved_in_time_and_does_not_pass_is_restarted_at_the_end(solved_by):
    solved_by({1: 1})
    trainer = trained(restarted(attempts=3, below_bits=1e-9))
    assert trainer.seeds.attempts.tolist() == [3, 3, 3]
    assert trainer.seeds.begun_at.tolist() == [ATTEMPT + AFTER, 2 * AFTER, 2 * AFTER]


@pytest.mark.parametrize("changes", [{"batch_size": 3, "episodes": 3 * ATTEMPT - 1, "after": 3 * AFTER - 7}, TAUGHT])
def test_a_seed_alone_equals_the_same_seed_among_others(solved_by, changes):
    solved_by({5: 3, 6: 1, 7: 2})
    everyone = trained(restarted(seeds=(5, 6, 7), **changes))
    each = everyone.experiment.restart_updates
    assert everyone.seeds.begun_at.tolist() == [2 * each, 0, each]  # whole blocks of updates
    for row, seed in enumerate((5, 6, 7)):
        assert_same_seed(trained(restarted(seeds=(seed,), **changes)), everyone, row)


@pytest.mark.parametrize(
    "changes",
    [
        {"episodes": 8000},  # a validation after every fourth block
        {"validation": {}},
        {"validation": {}, "curriculum": {"blanks": 0.5}, "share": 0.25, "after": 1600, "episodes": 2000},
        {"validation": {}, "attempts": 2},
    ],
)
def test_running_ahead_is_block_after_block(solved_by, changes):
    solved_by({5: 3, 6: 1, 7: 2})
    experiment = restarted(seeds=(5, 6, 7), **changes)
    ahead = Trainer(experiment)
    ahead.asynchronous = True
    whole = list(ahead.iter_blocks())
    assert 0 < sum(whole) < len(whole)
    assert_same(ahead, trained(experiment))


@pytest.mark.parametrize(("changes", "stops"), [({}, (10, 11, 12, 21, 22, 23)), (TAUGHT, (16, 17, 18, 22))])
def test_a_resumed_run_ends_in_the_same_bits(tmp_path, solved_by, changes, stops):
    solved_by({5: 3, 6: 1, 7: 2})
    resumes_to_the_bit(restarted(seeds=(5, 6, 7), **changes), tmp_path, *stops)


def test_every_seed_has_the_curriculum_of_its_own_attempt(solved_by, monkeypatch):
    solved_by({5: 1, 6: 2})
    trainer = trained(restarted(seeds=(5, 6), **TAUGHT), 17)
    assert trainer.seeds.begun_at.tolist() == [0, 1700]
    seen, step = [], trainer.population.step

    def noted(batch, slots, rates, group, checked):
        seen.append((batch.targets.any(dim=(1, 2, 3)).tolist(), batch.lengths.flatten().tolist()))
        return step(batch, slots, rates, group, checked)

    monkeypatch.setattr(trainer.population, "step", noted)
    places, excess = [], trainer.source.excess
    monkeypatch.setattr(trainer.source, "excess", lambda done, *rest: places.append(done) or excess(done, *rest))
    for _ in range(3):
        trainer.block()
    assert places == [[1700, 0], [1800, 100], [1900, 200]]
    ones, lengths = (list(zip(*part, strict=True)) for part in zip(*seen, strict=True))  # of each seed
    assert [any(of_seed) for of_seed in ones] == [True, False]  # the second has zeros
    assert [len(set(of_seed)) for of_seed in lengths] == [3, 1]  # of one length
    while not trainer.finished:
        trainer.block()
    assert trainer.seeds.solved_at.tolist() == [500 + WINDOW, 1700 + 500 + WINDOW]


def test_the_metrics_say_whose_curriculum_holds():
    """Without choosing the seeds that are judged, because that is what the line says."""
    trainer = trained(restarted(seeds=(5, 6), validation={}, above_bits=0.0, **TAUGHT), 5)
    assert [line["curriculum"] for line in lines_of(trainer)] == [[True, True]] * 5
    trainer.seeds.begun_at[1] = 500  # the second begins another attempt here
    for _ in range(6):
        trainer.block()
    assert [line["curriculum"] for line in lines_of(trainer)[5:]] == [[False, True]] * 5 + [[False, False]]


def test_solved_seeds_are_retired_and_the_others_restarted(solved_by):
    solved_by({1: 1, 2: 3, 3: 2})
    trainer = trained(restarted(validation={}, early_stop=True))
    assert trainer.seeds.attempts.tolist() == [1, 3, 2]
    assert trainer.seeds.solved_at.tolist() == [WINDOW, 2 * AFTER + WINDOW, AFTER + WINDOW]
    assert trainer.updates == 2 * AFTER + WINDOW


def test_a_block_ends_where_seeds_are_restarted(solved_by):
    solved_by({})
    trainer = Trainer(restarted())
    trainer.block(50)
    while trainer.updates < AFTER:
        trainer.block()
    assert trainer.seeds.begun_at.tolist() == [AFTER] * 3


def test_a_seed_that_has_passed_or_is_solved_may_not_be_restarted(script, solved_by):
    costs, _ = script
    solved_by({1: 1, 2: 1})
    trainer, may = Trainer(restarted(seeds=(1, 2), attempts=2, below_bits=0.01)), []
    costs += [[0.5, 0.5], [0.5, 0.001], [0.001, 0.001]]
    while not trainer.finished:
        trainer.block()
        may.append(trainer.seeds.may_restart(trainer.updates))
    assert may == [True] * 11 + [False]
    trainer = Trainer(restarted(seeds=(1, 2), attempts=2, validation={}))
    for _ in range(10):
        assert trainer.seeds.may_restart(trainer.updates)
        trainer.block()
    assert not trainer.seeds.may_restart(trainer.updates)


def test_the_end_that_is_expected_moves_with_the_restarts(solved_by):
    solved_by({1: 1, 2: 2})
    trainer = Trainer(restarted(seeds=(1, 2), attempts=2, validation={}))
    while trainer.updates < AFTER - 100:
        trainer.block()
    assert trainer.seeds.expected(trainer.updates) == ATTEMPT
    trainer.block()
    assert trainer.seeds.expected(trainer.updates) == AFTER + ATTEMPT
    while not trainer.finished:
        trainer.block()
    assert trainer.seeds.expected(trainer.updates) == trainer.updates


def test_tensorboard_has_a_rate_for_every_seed(solved_by):
    solved_by({1: 1})
    trainer = trained(restarted(seeds=(1, 2), attempts=2))
    line = lines_of(trainer)[AFTER // 100]
    assert line["rate"][0] != line["rate"][1]
    written = events._line(trainer.metrics[AFTER // 100], 1e9)
    for seed, rate in zip(line["seeds"], line["rate"], strict=True):
        assert b"rate/seed-%d" % seed + struct.pack("<Bf", 2 << 3 | 5, rate) in written


def test_a_seed_below_the_cost_that_is_given_is_not_restarted(monkeypatch):
    monkeypatch.setattr(Copy, "solved_bits", 0.0)
    trainer, restart = Trainer(restarted(validation={}, attempts=2)), Population.restart
    means = []
    monkeypatch.setattr(
        Population, "restart", lambda self, *given: means.append(self.seeds.recent.mean(dim=1)) or restart(self, *given)
    )
    for _ in range(AFTER // 100):
        trainer.block()
    (low, high, *_), (best, *_) = means[-1].sort()
    trainer = trained(restarted(validation={}, attempts=2, above_bits=float(low + high) / 2))
    attempts = [2, 2, 2]
    attempts[int(best)] = 1  # and without a validation its attempt is not judged at the end
    assert trainer.seeds.attempts.tolist() == attempts


def test_the_result_counts_the_episodes_of_all_attempts(solved_by):
    solved_by({1: 1, 2: 3, 3: 2})
    result = tapehead.train(restarted(), scored=False)
    assert result.attempts == (1, 3, 2)
    assert result.episodes == 2 * AFTER + ATTEMPT
    assert result.solved_at == (WINDOW, 2 * AFTER + WINDOW, AFTER + WINDOW)
