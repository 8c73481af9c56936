"""Machines that are validated on the way: which weights are kept, and who begins again."""

import json
import struct

import pytest
import torch
from tapehead.pictures import curves
from tapehead.training import events, loop
from tapehead.training.checkpoint import Checkpoint
from tapehead.training.config import WINDOW, RunConfig
from tapehead.training.loop import Trainer
from tapehead.training.population import ATTEMPTS, Population, excess_bits
from tapehead.training.progress import Progress
from tapehead.training.runs import Run
from tapehead.training.teaching import Teacher
from tiny_laboratory import tapehead

from tapehead.evaluation.generalisation import Score, score
from tapehead.lab import tables
from tapehead.lab.blocks import attempt_solved_at, blocks_of, worst_after
from tapehead.lab.confirmation import record_of
from tapehead.tasks import Batch
from tapehead.tasks.copy import Copy

pytestmark = pytest.mark.usefixtures("one_thread")

ATTEMPT = WINDOW + 200
"""Episodes of an attempt: when they are over, a machine that is solved at once was validated three times."""

PATIENCE = WINDOW + 100


def config(**changes):
    settings = {
        "task": "copy",
        "task_options": {"length": (1, 3), "width": 2},
        "model_options": {"controller_size": 8, "memory_slots": 8, "memory_width": 4},
        "episodes": ATTEMPT,
        "learning_rate": 1e-3,
        "schedule": "cosine",
        "average": 0.9,
        "early_stop": False,
        "validation": {"length": 5},
        "validation_sequences": 20,
        "attempts": 3,
    }
    return RunConfig(**settings | changes)


@pytest.fixture(autouse=True)
def solved_at_once(monkeypatch):
    """Solved as soon as a window is full."""
    monkeypatch.setattr(Copy, "solved_bits", 100.0)


@pytest.fixture
def script(monkeypatch):
    """Costs of the validations to come, one list for each time; the weights that came to each are kept beside them."""
    costs, seen = [], []

    def scripted(model, flat, task, sizes, episodes, *, source):
        seen.append(flat.clone())
        bits = costs.pop(0)
        assert len(bits) == len(flat)
        return Score("", sizes, episodes, bits, [0.0] * len(bits), [1.0] * len(bits))

    monkeypatch.setattr(loop, "score", scripted)
    return costs, seen


def finished(settings):
    trainer = Trainer(settings)
    while not trainer.finished:
        trainer.block()
    return trainer


def assert_same(ours, theirs):
    """Two trainers, to the bit."""
    mine, others = ours.population.tensors(), theirs.population.tensors()
    assert [name for name in mine if not torch.equal(mine[name], others[name])] == []
    assert ours.metrics == theirs.metrics


def assert_same_seed(alone, everyone, row):
    """What a trainer of one seed has, and one of several has of the same."""
    for name in ("kept", "kept_cost", "solved_at", "attempts", "begun_at", "recent"):
        assert torch.equal(getattr(alone.population, name)[0], getattr(everyone.population, name)[row]), name


def resumes_to_the_bit(settings, folder, blocks):
    """A run that is broken off after so many blocks and taken up again is the run that was not."""
    first = Trainer(settings, Run(folder, settings))
    for _ in range(blocks):
        first.block()
    first.save()
    first.run.close()
    second = Trainer(settings, Run(folder, settings))
    assert second.restore()
    while not second.finished:
        second.block()
    second.run.close()
    assert_same(second, finished(settings))


def test_the_weights_of_the_lowest_validation_cost_are_kept(script):
    costs, seen = script
    costs += [[5.0, 0.2], [4.0, 0.3], [4.5, float("nan")]]
    trainer = finished(config(seeds=(1, 2), episodes=WINDOW + 200, attempts=1))
    assert costs == []
    population = trainer.population
    assert torch.equal(population.delivered(), torch.stack([seen[1][0], seen[0][1]]))
    assert population.kept_cost.tolist() == [4.0, 0.2]
    assert population.solved_at.tolist() == [WINDOW, WINDOW]
    lines = [json.loads(line, parse_constant=pytest.fail) for line in trainer.metrics]
    shown = {line["episodes"]: line["validation"] for line in lines if "validation" in line}
    assert shown == {n: [None, None] for n in range(100, 1000, 100)} | {
        1000: [5.0, 0.2], 1100: [4.0, 0.3], 1200: [4.5, None]
    }  # fmt: skip


def test_validation_is_of_the_size_and_the_sequences_that_it_says():
    trainer = finished(config(attempts=1))
    line = json.loads(trainer.metrics[-1])
    last = score(trainer.model, trainer.population.state.average, trainer.task, {"length": 5}, 20, source="validation")
    assert line["validation"] == last.bits
    other = score(trainer.model, trainer.population.state.average, trainer.task, {"length": 5}, 20)
    assert line["validation"] != other.bits


def test_to_be_validated_changes_no_weights():
    plain, validated = finished(config(validation={}, attempts=1)), finished(config(attempts=1))
    assert torch.equal(plain.population.state.parameters, validated.population.state.parameters)
    assert torch.equal(plain.population.recent, validated.population.recent)


def test_who_has_not_passed_begins_again_with_other_weights_and_the_others_leave(script):
    costs, seen = script
    costs += [[0.5, 0.5, 0.5]] * 2 + [[0.5, 0.001, 0.5]]  # seed 2 passes
    costs += [[0.4, 0.6]] * 2 + [[0.4, 0.0]]  # seed 3 passes
    costs += [[0.9]] * 3  # seed 1 never does, and its second attempt was the best
    trainer = Trainer(config(seeds=(1, 2, 3)))
    for _ in range(12):
        trainer.block()
    population = trainer.population
    assert population.active.tolist() == [True, False, True]
    fresh = trainer.model.initial_population([1, 3], attempt=1)
    assert torch.equal(population.working.parameters, fresh)
    assert torch.equal(population.working.average, fresh)
    assert not any(moment.any() for moment in population.working.moments)
    assert not torch.equal(fresh, trainer.model.initial_population([1, 3]))
    assert population.attempts.tolist() == [2, 1, 2]
    while not trainer.finished:
        trainer.block()
    assert costs == []
    assert trainer.updates == 3 * ATTEMPT
    assert population.attempts.tolist() == [3, 1, 2]
    assert population.kept_cost.tolist() == [0.4, 0.001, 0.0]
    assert population.solved_at.tolist() == [ATTEMPT + WINDOW, WINDOW, ATTEMPT + WINDOW]
    assert torch.equal(population.delivered(), torch.stack([seen[3][0], seen[2][1], seen[5][1]]))


def test_a_run_ends_when_all_have_passed(script):
    costs, _ = script
    costs += [[0.0]] * 3
    trainer = finished(config())
    assert trainer.updates == ATTEMPT
    assert trainer.population.attempts.tolist() == [1]


def test_who_is_not_solved_is_not_validated_and_delivers_what_its_window_chose(monkeypatch, script):
    monkeypatch.setattr(Copy, "solved_bits", 0.0)
    trainer, kept = Trainer(config(attempts=2)), []
    while not trainer.finished:
        trainer.block()
        if trainer.updates < 2 * ATTEMPT:
            kept.append((float(trainer.population.kept_cost), trainer.population.kept.clone()))
    population = trainer.population
    assert population.attempts.tolist() == [2]
    assert population.solved_at.tolist() == [-1]
    assert torch.isinf(population.validation_cost).all()
    assert float(population.kept_cost) <= min(cost for cost, _ in kept)  # of both attempts
    assert torch.equal(population.delivered(), population.kept)
    assert torch.equal(kept[11][1], kept[12][1])  # to begin again takes nothing away


def test_a_validation_that_is_no_number_leaves_what_was_there(script):
    costs, _ = script
    costs += [[float("nan")], [float("inf")], [float("nan")]]
    population = finished(config(attempts=1)).population
    assert not population.validated.any()
    assert population.solved_at.tolist() == [WINDOW]  # solved, and not passed
    assert torch.isfinite(population.kept_cost).all()


def test_the_end_of_a_curriculum_does_not_touch_who_has_left(script):
    costs, _ = script
    costs += [[0.0, 0.5]] * 2 + [[0.5]] * 2
    settings = config(
        seeds=(1, 2), batch_size=10, episodes=4000, attempts=2, curriculum={"blanks": 0.5}, curriculum_share=0.5
    )
    trainer = Trainer(settings)
    for _ in range(4):
        trainer.block()
    window = trainer.population.recent[0].clone()
    while not trainer.finished:
        trainer.block()
    assert costs == []
    assert torch.isfinite(window).all()
    assert torch.equal(trainer.population.recent[0], window)


def test_every_attempt_has_its_own_rates_lessons_and_data():
    settings = config(attempts=2, curriculum={"blanks": 0.5}, curriculum_share=0.5)
    assert settings.rate(ATTEMPT) == pytest.approx(0.05 * settings.learning_rate)
    trainer = Trainer(settings)
    first = trainer.teacher.sample([0], [0], range(10))
    for _ in range(12):
        trainer.block()
    again = trainer.teacher.sample([0], trainer._done(ATTEMPT), range(ATTEMPT, ATTEMPT + 10))
    assert first.inputs.shape != again.inputs.shape or not torch.equal(first.inputs, again.inputs)
    while not trainer.finished:
        trainer.block()
    lines = [json.loads(line) for line in trainer.metrics]
    assert [line["attempt"] for line in lines] == [[1]] * 12 + [[2]] * 12
    rates = [[settings.rate(update)] for update in range(99, ATTEMPT, 100)]
    assert [line["rate"] for line in lines] == rates * 2
    assert [line.get("curriculum") for line in lines] == ([[True]] * 6 + [None] * 6) * 2


def test_an_attempt_that_is_no_whole_number_of_blocks(script):
    costs, _ = script
    costs += [[1.0]] * 4
    trainer = finished(config(episodes=1050, attempts=2))
    ends = [json.loads(line)["updates"] for line in trainer.metrics]
    assert ends == [*range(100, 1100, 100), 1050, *range(1150, 2100, 100), 2100]


def test_a_seed_alone_equals_the_same_seed_among_others():
    everyone = finished(config(seeds=(5, 6, 7), passing_bits=13.0))
    for row, seed in enumerate((5, 6, 7)):
        alone = finished(config(seeds=(seed,), passing_bits=13.0))
        assert_same_seed(alone, everyone, row)
    assert everyone.population.attempts.tolist() == [3, 1, 1]  # some pass, and some do not


def test_walking_ahead_is_block_after_block():
    settings = config(
        seeds=(5, 6, 7), episodes=4000, attempts=2, passing_bits=11.0
    )  # a validation after every other block
    plain, walked = finished(settings), Trainer(settings)
    walked.asynchronous = True
    whole = list(walked.walk())
    assert whole[:4] == [False, True, False, True]
    assert_same(walked, plain)


@pytest.mark.parametrize("blocks", [11, 12, 13, 25])
def test_resumed_around_the_end_of_an_attempt_it_ends_in_the_same_bits(tmp_path, blocks):
    settings = config(seeds=(5, 6, 7), passing_bits=13.0)
    resumes_to_the_bit(settings, tmp_path / "run", blocks)


def test_a_checkpoint_of_seeds_that_began_together_is_taken_up(tmp_path):
    settings = config(seeds=(5, 6), passing_bits=1e-9)
    first = Trainer(settings, Run(tmp_path / "run", settings))
    for _ in range(13):
        first.block()
    tensors = {name: tensor for name, tensor in first.population.tensors().items() if name != "begun_at"}
    first.run.save(Checkpoint(first.updates, tensors, {"config": settings.hash, "updates": first.updates}, {
        "metrics.jsonl": b"\n".join(line.encode() for line in first.metrics)
    }))  # fmt: skip
    first.run.close()
    second = Trainer(settings, Run(tmp_path / "run", settings))
    assert second.restore()
    assert second.population.begun_at.tolist() == first.population.begun_at.tolist() == [ATTEMPT, ATTEMPT]
    second.run.close()


def test_a_checkpoint_from_before_there_were_attempts_is_taken_up():
    trainer = Trainer(config(validation={}, attempts=1))
    for _ in range(11):
        trainer.block()
    tensors = {name: tensor.clone() for name, tensor in trainer.population.tensors().items()}
    for name in ATTEMPTS:
        del tensors[name]
    other = Trainer(config(validation={}, attempts=1))
    other.population.restore(tensors)
    assert other.population.attempts.tolist() == [1]
    assert other.population.attempt_solved_at.tolist() == other.population.solved_at.tolist() == [WINDOW]


@pytest.fixture
def solved_by(monkeypatch):
    """Who is solved in which attempt: solved_by({seed: attempt}); in no other is it judged, and in that one at once."""

    def choose(attempts):
        judge = Population.judge

        def chosen(self, *how):
            wanted = torch.tensor([attempts.get(seed, 0) for seed in self._seeds])
            judge(self, *how[:-1], how[-1] & (self.attempts == wanted)[self.index])

        monkeypatch.setattr(Population, "judge", chosen)

    return choose


def patient(**changes):
    return config(**{"seeds": (1, 2, 3), "attempts": 4, "patience": PATIENCE, "passing_bits": 1e9} | changes)


def test_who_is_not_solved_in_time_begins_again_at_once_and_the_others_go_on(solved_by):
    solved_by({1: 1, 2: 3, 3: 2})
    trainer = Trainer(patient())
    for _ in range(PATIENCE // 100):
        trainer.block()
    population = trainer.population
    assert population.attempts.tolist() == [1, 2, 2]
    assert population.begun_at.tolist() == [0, PATIENCE, PATIENCE]
    assert torch.equal(population.working.parameters[1:], trainer.model.initial_population([2, 3], attempt=1))
    assert population.state.applied.tolist() == [PATIENCE, 0, 0]
    first = population.working.parameters[0].clone()
    trainer.block()
    assert not torch.equal(population.working.parameters[0], first)
    while not trainer.finished:
        trainer.block()
    assert population.attempts.tolist() == [1, 3, 2]
    assert population.solved_at.tolist() == [WINDOW, 2 * PATIENCE + WINDOW, PATIENCE + WINDOW]
    assert not population.active.any()
    assert trainer.updates == 2 * PATIENCE + ATTEMPT
    last = {seed: line for line in map(json.loads, trainer.metrics) for seed in line["seeds"]}
    assert {seed: line["episodes"] for seed, line in last.items()} == {
        1: ATTEMPT, 2: 2 * PATIENCE + ATTEMPT, 3: PATIENCE + ATTEMPT
    }  # fmt: skip


def test_every_seed_has_the_rates_and_validations_of_its_own_attempt(solved_by):
    solved_by({1: 1, 2: 3, 3: 2})
    trainer = finished(patient())
    begun = {1: 0, 2: 2 * PATIENCE, 3: PATIENCE}  # of the attempts that were solved
    lines = [json.loads(line) for line in trainer.metrics]
    shown = {seed: {} for seed in begun}
    for line in lines:
        for place, seed in enumerate(line["seeds"]):
            done = line["episodes"] - begun[seed]
            if done > 0:
                validated = line.get("validation", [None] * 3)[place] is not None
                shown[seed][done] = (line["rate"][place], validated)
    wanted = {done: (trainer.config.rate(done - 1), done >= WINDOW) for done in range(100, ATTEMPT + 1, 100)}
    assert shown == {1: wanted, 2: wanted, 3: wanted}


def test_the_last_attempt_has_all_the_time(monkeypatch):
    monkeypatch.setattr(Copy, "solved_bits", 0.0)
    trainer = finished(patient(attempts=2))
    assert trainer.population.attempts.tolist() == [2, 2, 2]
    assert trainer.population.solved_at.tolist() == [-1, -1, -1]
    assert trainer.updates == PATIENCE + ATTEMPT


def test_who_is_solved_in_time_and_does_not_pass_begins_again_at_the_end(solved_by):
    solved_by({1: 1})
    trainer = finished(patient(attempts=3, passing_bits=1e-9))
    assert trainer.population.attempts.tolist() == [3, 3, 3]
    assert trainer.population.begun_at.tolist() == [ATTEMPT + PATIENCE, 2 * PATIENCE, 2 * PATIENCE]


def test_with_patience_a_seed_alone_equals_the_same_seed_among_others(solved_by):
    solved_by({5: 3, 6: 1, 7: 2})
    settings = {"batch_size": 3, "episodes": 3 * ATTEMPT - 1, "patience": 3 * PATIENCE - 7}
    everyone = finished(patient(seeds=(5, 6, 7), **settings))
    assert everyone.population.begun_at.tolist() == [2 * PATIENCE, 0, PATIENCE]  # whole blocks of updates
    for row, seed in enumerate((5, 6, 7)):
        alone = finished(patient(seeds=(seed,), **settings))
        assert_same_seed(alone, everyone, row)


@pytest.mark.parametrize(
    "changes",
    [
        {"episodes": 8000},  # a validation after every fourth block
        {"validation": {}},
        {"validation": {}, "curriculum": {"blanks": 0.5}, "curriculum_share": 0.25, "patience": 1600, "episodes": 2000},
        {"validation": {}, "attempts": 2},
    ],
)
def test_with_patience_walking_ahead_is_block_after_block(solved_by, changes):
    solved_by({5: 3, 6: 1, 7: 2})
    settings = patient(seeds=(5, 6, 7), **changes)
    plain, walked = finished(settings), Trainer(settings)
    walked.asynchronous = True
    whole = list(walked.walk())
    assert 0 < sum(whole) < len(whole)
    assert_same(walked, plain)


TAUGHT = {
    "curriculum": {"length": (1, 1), "density": [0.0, 0.0]},
    "curriculum_share": 0.25,
    "episodes": 2000,
    "patience": 1700,
}
"""Zeros, of length 1, for the first 500 updates."""


@pytest.mark.parametrize(
    ("blocks", "changes"),
    [*((blocks, {}) for blocks in (10, 11, 12, 21, 22, 23)), *((blocks, TAUGHT) for blocks in (16, 17, 18, 22))],
)
def test_with_patience_a_resumed_run_ends_in_the_same_bits(tmp_path, solved_by, blocks, changes):
    solved_by({5: 3, 6: 1, 7: 2})
    settings = patient(seeds=(5, 6, 7), **changes)
    resumes_to_the_bit(settings, tmp_path / "run", blocks)


def test_every_seed_has_the_lessons_of_its_own_attempt(solved_by, monkeypatch):
    solved_by({5: 1, 6: 2})
    trainer = Trainer(patient(seeds=(5, 6), **TAUGHT))
    judged, judge = [], Population.judge
    monkeypatch.setattr(Population, "judge", lambda self, *how: judged.append(how[-1].tolist()) or judge(self, *how))
    for _ in range(17):
        trainer.block()
    assert trainer.population.begun_at.tolist() == [0, 1700]
    assert judged == [[False, False]] * 5 + [[True, True]] * 12
    seen, step = [], trainer.population.step

    def noted(batch, slots, rates, group):
        seen.append((batch.targets.any(dim=(1, 2, 3)).tolist(), batch.lengths.flatten().tolist()))
        return step(batch, slots, rates, group)

    monkeypatch.setattr(trainer.population, "step", noted)
    places, excess = [], trainer.teacher.excess
    monkeypatch.setattr(trainer.teacher, "excess", lambda done, *rest: places.append(done) or excess(done, *rest))
    for _ in range(3):
        trainer.block()
    assert places == [[1700, 0], [1800, 100], [1900, 200]]
    ones, lengths = (list(zip(*part, strict=True)) for part in zip(*seen, strict=True))  # of each seed
    assert [any(of_seed) for of_seed in ones] == [True, False]  # the second has zeros
    assert [len(set(of_seed)) for of_seed in lengths] == [3, 1]  # of one length
    assert judged[17:] == [[True, False]] * 3
    lines = [json.loads(line) for line in trainer.metrics]
    assert [line.get("curriculum") for line in lines] == [[True, True]] * 5 + [None] * 12 + [[False, True]] * 3
    while not trainer.finished:
        trainer.block()
    assert trainer.population.solved_at.tolist() == [500 + WINDOW, 1700 + 500 + WINDOW]
    assert curves.lessons_ended([json.loads(line) for line in trainer.metrics]) == [500, 2200]


def test_with_lessons_too_a_seed_alone_equals_the_same_seed_among_others(solved_by):
    solved_by({5: 3, 6: 1, 7: 2})
    everyone = finished(patient(seeds=(5, 6, 7), **TAUGHT))
    for row, seed in enumerate((5, 6, 7)):
        alone = finished(patient(seeds=(seed,), **TAUGHT))
        assert_same_seed(alone, everyone, row)


def test_who_is_solved_leaves_and_who_is_hopeless_begins_again(solved_by):
    solved_by({1: 1, 2: 3, 3: 2})
    trainer = finished(patient(validation={}, early_stop=True))
    assert trainer.population.attempts.tolist() == [1, 3, 2]
    assert trainer.population.solved_at.tolist() == [WINDOW, 2 * PATIENCE + WINDOW, PATIENCE + WINDOW]
    assert trainer.updates == 2 * PATIENCE + WINDOW


def test_a_block_ends_where_patience_does(solved_by):
    solved_by({})
    trainer = Trainer(patient())
    trainer.block(50)
    while trainer.updates < PATIENCE:
        trainer.block()
    assert trainer.population.begun_at.tolist() == [PATIENCE] * 3


def test_excess_is_over_the_optimum_of_each_seeds_own_task():
    settings = RunConfig(
        task="ngrams", task_options={"length": 20, "order": 4}, curriculum={"order": 2}, curriculum_share=0.5,
        episodes=8000, attempts=2, patience=6000, seeds=(1, 2), early_stop=False
    )  # fmt: skip
    teacher, done = Teacher(settings, torch.device("cpu")), [0, 5000]
    data, _ = teacher.data([1, 2], done, range(5000, 5100))
    excess = teacher.excess(done, data, torch.ones(100, 2, 1))
    for row, task in enumerate((teacher.lessons, teacher.task)):
        mine = Batch(*(part[:, row : row + 1] for part in data))
        assert torch.equal(excess[:, row : row + 1], excess_bits(task, mine, torch.ones(100, 1, 1)))
        other = (teacher.task, teacher.lessons)[row]
        assert not torch.equal(excess[:, row : row + 1], excess_bits(other, mine, torch.ones(100, 1, 1)))


def test_progress_knows_who_may_begin_again(solved_by):
    solved_by({1: 1, 2: 2})
    trainer, progress = Trainer(patient(seeds=(1, 2), attempts=2, validation={})), Progress()

    def says(updates):
        while trainer.updates < updates:
            trainer.block()
        return progress._says(trainer, 0.0)

    assert "attempt 1" in says(PATIENCE - 100)
    assert "left, more if one begins again" in says(PATIENCE - 100)
    assert trainer.expected == ATTEMPT
    assert "attempts 1 to 2" in says(PATIENCE)
    assert "at most" in says(PATIENCE)  # the first is past its patience, and the second has no attempt left
    assert trainer.expected == PATIENCE + ATTEMPT


def test_who_has_passed_or_is_solved_does_not_begin_again(script, solved_by):
    costs, _ = script
    solved_by({1: 1, 2: 1})
    trainer, may = Trainer(patient(seeds=(1, 2), attempts=2, passing_bits=0.01)), []
    costs += [[0.5, 0.5], [0.5, 0.001], [0.001, 0.001]]
    while not trainer.finished:
        trainer.block()
        may.append(trainer.may_begin_again)
    assert may == [True] * 11 + [False]
    trainer = Trainer(patient(seeds=(1, 2), attempts=2, validation={}))
    for _ in range(10):
        assert trainer.may_begin_again
        trainer.block()
    assert not trainer.may_begin_again


def test_tensorboard_has_a_rate_for_every_seed(solved_by):
    solved_by({1: 1})
    trainer = finished(patient(seeds=(1, 2), attempts=2))
    line = json.loads(trainer.metrics[PATIENCE // 100])
    assert line["rate"][0] != line["rate"][1]
    written = events._line(trainer.metrics[PATIENCE // 100])
    for seed, rate in zip(line["seeds"], line["rate"], strict=True):
        assert b"rate/seed-%d" % seed + struct.pack("<Bf", 2 << 3 | 5, rate) in written


def test_who_is_near_enough_is_not_hopeless(monkeypatch):
    monkeypatch.setattr(Copy, "solved_bits", 0.0)
    trainer, begin_again = Trainer(patient(validation={}, attempts=2)), Population.begin_again
    means = []
    monkeypatch.setattr(
        Population, "begin_again", lambda self, *who: means.append(self.recent.mean(dim=1)) or begin_again(self, *who)
    )
    for _ in range(PATIENCE // 100):
        trainer.block()
    (low, high, *_), (best, *_) = means[-1].sort()
    trainer = finished(patient(validation={}, attempts=2, hopeful_bits=float(low + high) / 2))
    attempts = [2, 2, 2]
    attempts[int(best)] = 1  # and without a validation its attempt is not asked about at the end
    assert trainer.population.attempts.tolist() == attempts


def test_without_a_validation_too_the_record_shows_the_attempts(monkeypatch, tmp_path):
    monkeypatch.setattr(Copy, "solved_bits", 0.0)
    settings = patient(validation={}, attempts=2, preset="copy-ntm-lstm/sure")
    trainer = Trainer(settings, Run(tmp_path / "run", settings))
    while not trainer.finished:
        trainer.block()
    trainer.save()
    record = record_of(trainer, sequences=2)
    trainer.run.close()
    assert [machine["attempts"] for machine in record["machines"]] == [2, 2, 2]
    assert all(machine["best_window_bits"] > 0 for machine in record["machines"])
    assert "| 3 x 2 |" in tables.readme([record])
    assert "attempts: 3 x 2\n" in tables.describe(record)


def test_the_record_and_the_picture_know_each_seeds_own_attempts(solved_by):
    solved_by({1000: 1, 1001: 3, 1002: 2})
    trainer = finished(patient(seeds=(1000, 1001, 1002)))
    metrics = [json.loads(line) for line in trainer.metrics]
    blocks = blocks_of(1001, metrics)
    own = attempt_solved_at(blocks, int(trainer.population.solved_at[1]))
    assert [block.end for block in own] == [2 * PATIENCE + done for done in range(100, ATTEMPT + 1, 100)]
    drawn = curves.curves(metrics, trainer.task.solved_bits)
    again = {seed: curve.episodes[curve.given_up].tolist() for seed, curve in drawn.items()}
    assert again == {1000: [], 1001: [PATIENCE, 2 * PATIENCE], 1002: [PATIENCE]}
    words = [text.get_text() for text in curves.draw_curves(trainer.task, metrics).axes[0].get_legend().get_texts()]
    assert "begins again (3 times)" in words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patience": -1}, "patience is -1"),
        ({"patience": 1000, "attempts": 1}, "with one attempt nobody begins again"),
        ({"patience": 900}, "must lie in 1,000 to 1,100"),
        ({"patience": 1101}, "must lie in 1,000 to 1,100"),
        ({"patience": 1200}, "must lie in 1,000 to 1,100"),
        ({"patience": 500, "episodes": 900}, "nothing for so short attempts"),
        ({"patience": 1500, "curriculum": {"blanks": 0.5}, "curriculum_share": 0.5}, "nothing for so short attempts"),
        ({"patience": 1000, "hopeful_bits": float("nan")}, "hopeful_bits is nan"),
        ({"hopeful_bits": 1.0}, "without patience nobody looks"),
        ({"validation": {}}, "attempts is 3, but without validation"),
        ({"early_stop": True}, "validation or early_stop"),
        ({"attempts": 0}, "attempts is 0"),
        ({"validation_sequences": 0}, "validation_sequences is 0"),
        ({"passing_bits": 0.0}, "passing_bits is 0"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_sizes_that_the_task_does_not_have_are_refused():
    with pytest.raises(ValueError, match="items"):
        Trainer(config(validation={"items": 5}))


def test_a_run_without_validation_is_written_as_before_there_was_any():
    plain = config(validation={}, attempts=1)
    names = {"validation", "validation_sequences", "passing_bits", "attempts", "patience"}
    assert not names & plain.to_dict().keys()
    assert "patience" not in config().to_dict()
    assert RunConfig.from_dict(patient().to_dict()) == patient()
    assert RunConfig.from_dict(config().to_dict()) == config()


def test_the_record_shows_the_attempts(script, tmp_path):
    costs, _ = script
    costs += [[0.5, 0.001, 0.3]] * 3 + [[0.0, 0.4]] * 3
    settings = config(seeds=(1000, 1001, 1002), preset="copy-ntm-lstm/sure", attempts=2)
    trainer = Trainer(settings, Run(tmp_path / "run", settings))
    while not trainer.finished:
        trainer.block()
    trainer.save()
    record = record_of(trainer, sequences=2)
    trainer.run.close()
    machines = record["machines"]
    assert [machine["attempts"] for machine in machines] == [2, 1, 2]
    assert [machine["episodes"] for machine in machines] == [2 * ATTEMPT, ATTEMPT, 2 * ATTEMPT]
    assert [machine["validation_bits"] for machine in machines] == [0.0, 0.001, 0.3]
    # the last one delivers its first attempt: how its second began is not its falling back
    blocks = blocks_of(1002, [json.loads(line) for line in trainer.metrics])
    own = machines[2]["worst_window_after_solving_bits"]
    assert own == worst_after(blocks[:12], WINDOW)
    assert own < worst_after(blocks, WINDOW)
    page = tables.readme([record])
    assert "| 1 x 1, 2 x 2; 2 passed |" in page
    assert "| 1,200, at most 2 times |" in page
    assert "attempts: 1 x 1, 2 x 2; 2 passed" in tables.describe(record)


def test_the_picture_shows_the_machine_that_was_delivered(script):
    costs, _ = script
    costs += [[0.5, 0.3]] * 3 + [[0.4, 0.9]] * 3
    trainer = finished(config(seeds=(1, 2), attempts=2))
    metrics = [json.loads(line) for line in trainer.metrics]
    drawn = curves.curves(metrics, trainer.task.solved_bits)
    solved = [int(drawn[seed].episodes[drawn[seed].solved]) for seed in (1, 2)]
    assert solved == trainer.population.solved_at.tolist() == [ATTEMPT + WINDOW, WINDOW]
    first = drawn[1].episodes == ATTEMPT + 100  # a window does not reach back into another attempt
    assert drawn[1].mean[first] == drawn[1].bits[first]
    assert [drawn[seed].episodes[drawn[seed].given_up].tolist() for seed in (1, 2)] == [[ATTEMPT], [ATTEMPT]]
    words = [text.get_text() for text in curves.draw_curves(trainer.task, metrics).axes[0].get_legend().get_texts()]
    assert "begins again (2 times)" in words


def train(folder, *more):
    """`tapehead train` on a tiny machine that has two attempts, and passes none; the exit code."""
    small = {"controller_size": 8, "memory_slots": 8, "memory_width": 4}
    options = [str(word) for pair in small.items() for word in pair]
    return tapehead(
        "train", "copy", "--seeds", 2, "--episodes", ATTEMPT, "--out", folder, "--no-early-stop",
        "--task-options", "length", "[1,3]", "width", 2, "--model-options", *options,
        "--validation", "length", 5,
        "--settings", "attempts", 2, "validation_sequences", 5, "passing_bits", 1e-6, "slots", "none", *more,
    )  # fmt: skip


def test_the_command_line_validates_and_says_who_began_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Copy, "generalisation", ({"length": 2},))
    assert train(tmp_path / "run") in (0, None)
    said = capsys.readouterr()
    assert "2 of 2 seeds solved" in said.out
    assert "2 began again, 0 passed" in said.out
    assert "attempt 2" in said.err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["attempts"] == [2, 2]
    assert result["passed"] == [False, False]
    assert all(bits > 1e-6 for bits in result["validation_bits"])
    assert "best_window_bits" not in result
    assert train(tmp_path / "run") in (0, None)  # and again from what is there
    assert "2 began again, 0 passed" in capsys.readouterr().out


def test_a_size_that_is_none_is_one_sentence(tmp_path, capsys):
    assert train(tmp_path / "run", "--validation", "lenght", 5) == 2
    assert "Did you mean 'length'? Valid: length." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_pace_is_that_of_now(solved_by):
    solved_by({})
    trainer, progress = Trainer(patient()), Progress()
    progress._marks.append((0.0, 0))
    for second in (100, 101, 140):  # one update a second, then a hundred, then two and a half
        trainer.block()
        said = progress._says(trainer, float(second))
    assert trainer.updates == 300
    assert "8 episodes/s" in said  # of three seeds: 100 updates in the last 39 seconds
