"""Populations: a seed's numbers never depend on its neighbours, and nothing that is not finite is ever kept."""

import dataclasses
import json

import pytest
import torch
from tiny import EXPERIMENTS, SMALL, SOLVED_BITS, differences, lines_of, tiny, trained

import tapehead
from tapehead import notices
from tapehead.evaluation.generalisation import score
from tapehead.experiment import checkpoint, events
from tapehead.experiment.folder import read_metrics, read_result
from tapehead.experiment.loop import Trainer

pytestmark = pytest.mark.usefixtures("one_thread", "quickly_solved")

RICH = EXPERIMENTS["rich"]
RECORDS = ("recent", "kept_cost")
"""Which are infinite until a window is full."""


# --- the same numbers, whichever seeds are beside it -----------------------------------------------------------------


def rows_of_seed(folder, experiment, seed):
    """A seed's part of a finished run's state, metrics and scores."""
    place = experiment.seeds.index(seed)
    point = checkpoint.load_newest(folder / "checkpoints")
    mine = [
        (line.episodes, *(getattr(line, name)[line.seeds.index(seed)] for name in ("bits", "skipped", "rate")))
        for line in read_metrics(folder)
        if seed in line.seeds
    ]
    scores = [
        (one.label, *(getattr(one, name)[place] for name in ("bits", "wrong", "accuracy", "perfect")))
        for one in read_result(folder).generalisation
    ]
    return {name: tensor[place] for name, tensor in point.tensors.items()}, mine, scores


@pytest.mark.parametrize("seed", RICH.seeds)
def test_a_seed_alone_equals_the_same_seed_among_others(tmp_path, finished, seed):
    experiment = dataclasses.replace(RICH, seeds=(seed,))
    tapehead.train(experiment, tmp_path / "alone")
    alone = rows_of_seed(tmp_path / "alone", experiment, seed)
    among = rows_of_seed(finished["rich"], RICH, seed)
    assert alone[1:] == among[1:]
    assert alone[0].keys() == among[0].keys()
    for name, tensor in alone[0].items():
        assert torch.equal(tensor, among[0][name]), name


@pytest.mark.parametrize("model", ["lstm", "ntm", "transformer"])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_whatever_the_model_and_backend_a_seed_is_not_changed_by_others(model, backend):
    options = {} if model == "ntm" else {"model.hidden_size": 8}
    settings = {"model": model, "backend": backend, "episodes": 60, "batch_size": 3, "clip": "norm", **options}
    everyone, alone = trained(tiny(seeds=(4, 5, 6), **settings)), trained(tiny(seeds=(5,), **settings))
    for name, tensor in alone.tensors().items():
        assert torch.equal(tensor[0], everyone.tensors()[name][1]), name
    assert lines_of(alone)[0]["bits"][0] == lines_of(everyone)[0]["bits"][1]
    scores = [score(one.model, one.population.delivered(), one.task, {"length": 5}, 7) for one in (alone, everyone)]
    assert scores[0].bits == scores[1].bits[1:2]


def test_seeds_leave_at_different_times_and_stay_as_they_were(finished):
    result = read_result(finished["rich"])
    assert len(set(result.solved_at)) > 1  # or the tests above prove less than they say
    lines = read_metrics(finished["rich"])
    for seed, solved_at in zip(RICH.seeds, result.solved_at, strict=True):
        assert [line.episodes for line in lines if seed in line.seeds][-1] == solved_at
    assert all(bits < SOLVED_BITS for bits in result.last_window_bits)


def test_early_stop_freezes_a_solved_seed():
    trainer = Trainer(RICH)
    frozen = {}
    while not trainer.finished:
        trainer.block()
        now = trainer.tensors()
        for place, active in enumerate(trainer.seeds.active.tolist()):
            row = {name: tensor[place].clone() for name, tensor in now.items()}
            if not active:
                before = frozen.setdefault(place, row)
                assert all(torch.equal(before[name], row[name]) for name in row)
    assert set(frozen) == {0, 1, 2}


def test_no_early_stop_notes_the_time_and_goes_on():
    trainer = trained(RICH.with_values({"training.early_stop": False}))
    assert trainer.updates == RICH.updates
    assert bool((trainer.seeds.solved_at > 0).all())
    assert bool(trainer.seeds.active.all())


@pytest.mark.parametrize("model", ["ntm", "lstm"])
def test_one_and_two_threads_are_equal(model):
    options = SMALL if model == "ntm" else {"hidden_size": 8, "num_layers": 2}
    options = {f"model.{name}": value for name, value in options.items()}
    experiment = tiny(model=model, seeds=(1, 2), batch_size=4, episodes=80, clip="norm", **options)
    made = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        made.append(trained(experiment, blocks=1))
    torch.set_num_threads(1)
    assert made[0].metrics == made[1].metrics
    assert differences(*made) == []


@pytest.mark.parametrize("clip", ["elementwise", "norm"])
def test_metrics_of_a_seed_do_not_depend_on_the_layout_of_its_neighbours(clip):
    """A block's mean cost is a sum: its order must not change with the number of seeds."""
    bits = [lines_of(trained(tiny(seeds=seeds, clip=clip), 1))[0]["bits"][0] for seeds in ((5,), (5, 6, 7, 8, 9))]
    assert bits[0] == bits[1]


# --- numbers that are none -------------------------------------------------------------------------------------------


def poison(trainer, monkeypatch, where, when, value):
    """Put a value into one place of seed 1 of a trainer at its when-th update."""
    original, count = trainer.model.loss_and_gradient, [0]

    def poisoned(flat, *rest, **named):
        costs, gradient, squares = original(flat, *rest, **named)
        if count[0] == when:
            target = {"cost": costs, "gradient": gradient, "parameter": flat}[where]
            target[1, 0] = value
        count[0] += 1
        return costs, gradient, squares

    monkeypatch.setattr(trainer.model, "loss_and_gradient", poisoned)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["cost", "gradient"])
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_bad_cost_or_gradient_skips_that_update_of_that_seed(monkeypatch, where, value, average):
    clean, hit = (Trainer(tiny(seeds=(0, 1, 2), average=average)) for _ in range(2))
    poison(hit, monkeypatch, where, 40, value)
    heard: list[str] = []
    with notices.heard_by(heard.append):
        for trainer in (clean, hit):
            trainer.block()
    assert heard == []  # one is no reason to worry
    assert hit.seeds.skipped.tolist() == [0, 1, 0]
    assert hit.population.state.applied.tolist() == [100, 99, 100]
    assert lines_of(hit)[0]["skipped"] == [0, 1, 0]
    for name, tensor in hit.tensors().items():
        if name not in RECORDS:
            assert bool(torch.isfinite(tensor).all()), name
        for seed in (0, 2):
            assert torch.equal(tensor[seed], clean.tensors()[name][seed]), name  # the neighbours noticed nothing
    assert not torch.equal(hit.population.state.parameters[1], clean.population.state.parameters[1])
    assert None not in lines_of(hit)[0]["bits"]


@pytest.mark.parametrize("when", [0, 40, 99])
@pytest.mark.parametrize("optimiser", ["graves", "adam"])
def test_weights_that_are_no_numbers_are_put_back_and_never_saved(monkeypatch, when, optimiser):
    experiment = tiny(seeds=(0, 1, 2), episodes=300, optimiser=optimiser)
    trainer, clean = Trainer(experiment), trained(experiment, 1)
    start = trainer.population.state.parameters.clone()
    poison(trainer, monkeypatch, "parameter", when, float("nan"))
    trainer.block()
    saved = trainer.tensors()
    assert all(name in RECORDS or bool(torch.isfinite(tensor).all()) for name, tensor in saved.items())
    assert torch.equal(saved["update.parameters"][1], start[1])  # as at the beginning of the block
    assert saved["skipped"].tolist() == [0, 100, 0]
    for seed in (0, 2):
        assert torch.equal(saved["update.parameters"][seed], clean.population.state.parameters[seed])
    trainer.block()  # and it goes on
    assert trainer.seeds.skipped.tolist() == [0, 100, 0]
    assert not torch.equal(trainer.population.state.parameters[1], start[1])


def test_an_overflow_of_the_weights_is_never_saved(tmp_path):
    experiment = tiny(learning_rate=1e38, clip="none", episodes=200)
    result = tapehead.train(experiment, tmp_path / "run")
    for path in checkpoint.folders(tmp_path / "run" / "checkpoints"):
        for name, tensor in checkpoint.load(path).tensors.items():
            assert name in RECORDS or bool(torch.isfinite(tensor).all()), name
    assert result.skipped_updates[0] > 0
    assert read_result(tmp_path / "run") == result


def test_metrics_stay_json_when_nothing_is_a_number(monkeypatch):
    trainer = Trainer(tiny(episodes=100))
    original = trainer.model.loss_and_gradient

    def nothing(*given, **named):
        return (*(part * float("nan") for part in original(*given, **named)[:2]), None)

    monkeypatch.setattr(trainer.model, "loss_and_gradient", nothing)
    heard: list[str] = []
    with notices.heard_by(heard.append):
        trainer.block(60)
        trainer.block(40)
    assert lines_of(trainer)[0]["bits"] == [None]
    assert trainer.seeds.skipped.tolist() == [100]
    assert len(heard) == 1
    assert "1 of 1 seeds skipped all of their last 60 updates" in heard[0]
    assert events._line(trainer.metrics[0], 1e9)  # and TensorBoard gets what there is


# --- what is kept and restored ---------------------------------------------------------------------------------------


def test_the_best_weights_of_a_full_window_are_kept(monkeypatch):
    trainer = Trainer(tiny(seeds=(0, 1), early_stop=True))
    monkeypatch.setattr(type(trainer.task), "solved_bits", 0.1)
    population, seeds = trainer.population, trainer.seeds
    width = population.state.parameters.shape[1]

    def record(first, second, weight):
        population.working.parameters.copy_(torch.full((len(seeds.index), width), float(weight)))
        costs = torch.tensor([first, second], dtype=torch.float64).unsqueeze(1).expand(2, 500)[seeds.index]
        seeds.record(costs, torch.zeros(len(seeds.index), dtype=torch.int64), 500 * weight)
        judgement = seeds.judge(500 * weight)
        population.keep(judgement.kept, population.working.weights)
        population.retire(judgement.retired)

    record(0.05, 4.0, 1)  # half a window: nothing is judged
    assert seeds.solved_at.tolist() == [-1, -1]
    assert torch.isinf(seeds.kept_cost).all()
    assert population.delivered()[:, 0].tolist() == [1.0, 1.0]  # so far the latest
    record(0.25, 2.0, 2)  # means 0.15 and 3
    record(0.45, 6.0, 3)  # worse: 0.35 and 4
    assert seeds.kept_cost.tolist() == pytest.approx([0.15, 3.0])
    assert population.delivered()[:, 0].tolist() == [2.0, 2.0]
    record(0.0, 3.0, 4)
    record(0.0, 1.0, 5)  # seed 0 is solved and leaves
    assert seeds.solved_at.tolist() == [2500, -1]
    assert seeds.active.tolist() == [False, True]
    record(9.0, 0.0, 6)
    assert population.delivered()[:, 0].tolist() == [5.0, 6.0]
    assert trainer.tensors()["update.parameters"][:, 0].tolist() == [5.0, 6.0]
    record(9.0, float("nan"), 7)  # a cost that is none spoils the window
    assert seeds.kept_cost.tolist() == [0.0, 0.5]
    assert seeds.solved_at.tolist() == [2500, -1]


def test_the_average_is_what_is_kept_and_delivered():
    population = trained(tiny(average=0.5, episodes=100)).population
    assert torch.equal(population.delivered(), population.state.average)
    assert not torch.equal(population.delivered(), population.state.parameters)


def test_a_restored_trainer_is_the_same_in_every_part():
    trainer = trained(RICH, 4)
    saved = {name: tensor.clone() for name, tensor in trainer.tensors().items()}
    other = Trainer(RICH)
    other.restore(saved, trainer.updates, list(trainer.metrics))
    assert differences(other, trainer) == []
    assert torch.equal(other.seeds.index, trainer.seeds.index)
    assert (other.updates, other.metrics) == (trainer.updates, trainer.metrics)
    for wrong in (saved | {"more": saved["kept"]}, saved | {"kept": saved["kept"][:, :-1]}, {"kept": saved["kept"]}):
        with pytest.raises(ValueError, match="other tensors"):
            Trainer(RICH).restore(wrong, 400, [])


def test_a_line_of_metrics_is_of_its_block(finished):
    """The mean over the block's sequences, from the costs that the update saw."""
    trainer = Trainer(tiny(seeds=(0, 1), batch_size=2, episodes=200))
    seen, step = [], trainer.population.step

    def noted(*given, **named):
        costs, skipped = step(*given, **named)
        seen.append(costs.double())
        return costs, skipped

    trainer.population.step = noted
    trainer.block()
    wanted = torch.stack(seen).mean(dim=(0, 2)) / torch.log(torch.tensor(2.0, dtype=torch.float64))
    assert json.loads(trainer.metrics[0])["bits"] == pytest.approx(wanted.tolist(), rel=1e-12)
