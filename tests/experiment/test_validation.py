"""Validation: the weights of the lowest cost are kept, and seeds that have not passed are restarted."""

import pytest
import torch
from scripted import (
    ATTEMPT,
    assert_same,
    assert_same_seed,
    resumes_to_the_bit,
    validated,
)
from tiny import lines_of, trained

import tapehead
from tapehead.evaluation.generalisation import score
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import WINDOW
from tapehead.tasks.copy import Copy

pytestmark = pytest.mark.usefixtures("one_thread", "solved_at_once")


def test_the_weights_of_the_lowest_validation_cost_are_kept(script):
    costs, seen = script
    costs += [[5.0, 0.2], [4.0, 0.3], [4.5, float("nan")]]
    trainer = trained(validated(seeds=(1, 2), attempts=1))
    assert costs == []
    assert torch.equal(trainer.population.delivered(), torch.stack([seen[1][0], seen[0][1]]))
    assert trainer.seeds.kept_cost.tolist() == [4.0, 0.2]
    assert trainer.seeds.solved_at.tolist() == [WINDOW, WINDOW]
    shown = {line["episodes"]: line["validation"] for line in lines_of(trainer)}
    assert shown == {n: [None, None] for n in range(100, 1000, 100)} | {
        1000: [5.0, 0.2], 1100: [4.0, 0.3], 1200: [4.5, None]
    }  # fmt: skip


def test_validation_is_of_the_size_and_the_sequences_that_it_says():
    trainer = trained(validated(attempts=1))
    shown = tuple(lines_of(trainer)[-1]["validation"])
    scored = (trainer.model, trainer.population.state.average, trainer.task, {"length": 5}, 20)
    assert shown == score(*scored, source="validation").bits
    assert shown != score(*scored).bits


def test_validation_may_be_on_a_tape_of_another_length():
    trainer = trained(validated(attempts=1, **{"validation.slots": 6}))
    shown = tuple(lines_of(trainer)[-1]["validation"])
    scored = (trainer.population.state.average, trainer.task, {"length": 5}, 20)
    assert shown == score(trainer.model.with_memory(6), *scored, source="validation").bits
    assert shown != score(trainer.model, *scored, source="validation").bits


def test_to_be_validated_changes_no_weights():
    plain, with_it = trained(validated(validation={}, attempts=1)), trained(validated(attempts=1))
    assert torch.equal(plain.population.state.parameters, with_it.population.state.parameters)
    assert torch.equal(plain.seeds.recent, with_it.seeds.recent)


def test_seeds_that_have_not_passed_are_restarted_with_other_weights_and_the_others_are_retired(script):
    costs, seen = script
    costs += [[0.5, 0.5, 0.5]] * 2 + [[0.5, 0.001, 0.5]]  # seed 2 passes
    costs += [[0.4, 0.6]] * 2 + [[0.4, 0.0]]  # seed 3 passes
    costs += [[0.9]] * 3  # seed 1 never does, and its second attempt was the best
    trainer = trained(validated(seeds=(1, 2, 3)), 12)
    seeds, population = trainer.seeds, trainer.population
    assert seeds.active.tolist() == [True, False, True]
    fresh = trainer.model.initial_population([1, 3], attempt=1)
    assert torch.equal(population.working.parameters, fresh)
    assert torch.equal(population.working.average, fresh)
    assert not any(moment.any() for moment in population.working.moments)
    assert not torch.equal(fresh, trainer.model.initial_population([1, 3]))
    assert seeds.attempts.tolist() == [2, 1, 2]
    while not trainer.finished:
        trainer.block()
    assert costs == []
    assert trainer.updates == 3 * ATTEMPT
    assert seeds.attempts.tolist() == [3, 1, 2]
    assert seeds.kept_cost.tolist() == [0.4, 0.001, 0.0]
    assert seeds.passed.tolist() == [False, True, True]
    assert seeds.solved_at.tolist() == [ATTEMPT + WINDOW, WINDOW, ATTEMPT + WINDOW]
    assert torch.equal(population.delivered(), torch.stack([seen[3][0], seen[2][1], seen[5][1]]))


def test_the_result_says_what_was_validated(script):
    costs, _ = script
    costs += [[0.5, 0.5]] * 2 + [[0.5, 0.001]] + [[0.4]] * 3
    result = tapehead.train(validated(seeds=(1, 2), attempts=2), scored=False)
    assert (result.kept_by, result.kept_bits) == ("validation", (0.4, 0.001))
    assert (result.attempts, result.passed) == ((2, 1), (False, True))
    assert result.episodes == 2 * ATTEMPT


def test_a_run_ends_when_all_have_passed(script):
    costs, _ = script
    costs += [[0.0]] * 3
    trainer = trained(validated())
    assert trainer.updates == ATTEMPT
    assert trainer.seeds.attempts.tolist() == [1]


def test_a_seed_that_is_not_solved_is_not_validated_and_delivers_what_its_window_chose(monkeypatch, script):
    monkeypatch.setattr(Copy, "solved_bits", 0.0)
    trainer, kept = Trainer(validated(attempts=2)), []
    while not trainer.finished:
        trainer.block()
        if trainer.updates < 2 * ATTEMPT:
            kept.append((float(trainer.seeds.kept_cost), trainer.population.kept.clone()))
    assert trainer.seeds.attempts.tolist() == [2]
    assert trainer.seeds.solved_at.tolist() == [-1]
    assert torch.isinf(trainer.seeds.validation_cost).all()
    assert float(trainer.seeds.kept_cost) <= min(cost for cost, _ in kept)  # of both attempts
    assert torch.equal(trainer.population.delivered(), trainer.population.kept)
    assert torch.equal(kept[11][1], kept[12][1])  # a restart takes nothing away


def test_a_validation_that_is_no_number_leaves_what_was_there(script):
    costs, _ = script
    costs += [[float("nan")], [float("inf")], [float("nan")]]
    seeds = trained(validated(attempts=1)).seeds
    assert not seeds.validated.any()
    assert seeds.solved_at.tolist() == [WINDOW]  # solved, and not passed
    assert not seeds.passed.any()
    assert torch.isfinite(seeds.kept_cost).all()


def test_the_end_of_a_curriculum_does_not_touch_seeds_that_are_retired(script):
    costs, _ = script
    costs += [[0.0, 0.5]] * 2 + [[0.5]] * 2
    experiment = validated(
        seeds=(1, 2), batch_size=10, episodes=4000, attempts=2, curriculum={"blanks": 0.5}, share=0.5
    )
    trainer = trained(experiment, 4)
    window = trainer.seeds.recent[0].clone()
    while not trainer.finished:
        trainer.block()
    assert costs == []
    assert torch.isfinite(window).all()
    assert torch.equal(trainer.seeds.recent[0], window)


def test_every_attempt_has_its_own_rates_curriculum_and_data():
    experiment = validated(attempts=2, curriculum={"blanks": 0.5}, share=0.5)
    assert experiment.rate(ATTEMPT) == pytest.approx(0.05 * experiment.optimiser.learning_rate)
    trainer = Trainer(experiment)
    first = trainer.source.sample([0], [0], range(10))
    for _ in range(12):
        trainer.block()
    again = trainer.source.sample([0], trainer.seeds.done(ATTEMPT), range(ATTEMPT, ATTEMPT + 10))
    assert first.inputs.shape != again.inputs.shape or not torch.equal(first.inputs, again.inputs)
    while not trainer.finished:
        trainer.block()
    lines = lines_of(trainer)
    assert [line["attempt"] for line in lines] == [[1]] * 12 + [[2]] * 12
    rates = [[experiment.rate(update)] for update in range(99, ATTEMPT, 100)]
    assert [line["rate"] for line in lines] == rates * 2
    assert [line["curriculum"] for line in lines] == ([[True]] * 6 + [[False]] * 6) * 2


def test_an_attempt_that_is_no_whole_number_of_blocks(script):
    costs, _ = script
    costs += [[1.0]] * 4
    trainer = trained(validated(episodes=1050, attempts=2))
    ends = [line["updates"] for line in lines_of(trainer)]
    assert ends == [*range(100, 1100, 100), 1050, *range(1150, 2100, 100), 2100]


def test_a_seed_alone_equals_the_same_seed_among_others():
    everyone = trained(validated(seeds=(5, 6, 7), below_bits=13.0))
    for row, seed in enumerate((5, 6, 7)):
        assert_same_seed(trained(validated(seeds=(seed,), below_bits=13.0)), everyone, row)
    assert everyone.seeds.attempts.tolist() == [3, 1, 1]  # some pass, and some do not


def test_running_ahead_is_block_after_block():
    experiment = validated(
        seeds=(5, 6, 7), episodes=4000, attempts=2, below_bits=11.0
    )  # a validation after every other block
    ahead = Trainer(experiment)
    ahead.asynchronous = True
    whole = list(ahead.iter_blocks())
    assert whole[:4] == [False, True, False, True]
    assert_same(ahead, trained(experiment))


def test_resumed_around_the_end_of_an_attempt_it_ends_in_the_same_bits(tmp_path):
    resumes_to_the_bit(validated(seeds=(5, 6, 7), below_bits=13.0), tmp_path, 11, 12, 13, 25)
