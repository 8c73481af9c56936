"""A Transformer under `train`: it learns, resumes to the bit, and its dropout is a seed's own."""

import pytest
import torch
from tiny import lines_of, outcome, tiny, train_some_blocks, trained

import tapehead
from tapehead.experiment.folder import read_metrics

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"model.hidden_size": 16, "model.num_layers": 2, "model.num_heads": 2}


def small(**changes):
    settings = {"model": "transformer", "optimiser": "adam", "clip": "norm", "limit": 1.0, "schedule": "warmup-cosine"}
    settings |= {"learning_rate": 1e-2, "batch_size": 4, "episodes": 1200, **SMALL}
    return tiny(**settings | changes)


def test_it_learns_and_resumes_to_the_bit(tmp_path):
    """With dropout: what was dropped before the stop is not drawn again."""
    experiment = small(**{"model.dropout": 0.05})
    result = tapehead.train(experiment, tmp_path / "whole")
    bits = [line.bits[0] for line in read_metrics(tmp_path / "whole")]
    assert bits[-1] < 0.45 * experiment.task.chance_bits < bits[0]
    train_some_blocks(experiment, tmp_path / "parts", 1)
    tapehead.train(experiment, tmp_path / "parts")
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    assert result.backend == "torch"


def test_dropout_is_a_seeds_own():
    settings = {"model.dropout": 0.3, "episodes": 80}
    among, alone = trained(small(seeds=(6, 7), **settings)), trained(small(seeds=(7,), **settings))
    for name, tensor in alone.tensors().items():
        assert torch.equal(tensor[0], among.tensors()[name][1]), name
    assert lines_of(alone)[0]["bits"][0] == lines_of(among)[0]["bits"][1]
    without = trained(small(seeds=(7,), episodes=80))
    assert lines_of(alone)[0]["bits"] != lines_of(without)[0]["bits"]


def test_every_update_and_every_attempt_drops_other_values():
    trainer = trained(small(**{"model.dropout": 0.3, "episodes": 80}))
    words = [trainer.population._draws(slice(None))[0].words(1, 8)]
    trainer.population.working.applied += 1
    words.append(trainer.population._draws(slice(None))[0].words(1, 8))
    trainer.seeds.attempts += 1
    words.append(trainer.population._draws(slice(None))[0].words(1, 8))
    assert len({tuple(each[0].tolist()) for each in words}) == 3


def test_symbols_are_learned_too():
    experiment = tapehead.general_experiment(
        "reverse",
        "transformer",
        SMALL | {"task.length": (1, 3), "task.symbols": 3, "training.episodes": 1600, "optimiser.learning_rate": 1e-2},
    )
    trainer = trained(experiment)
    assert lines_of(trainer)[-1]["bits"][0] < 0.75 * experiment.task.chance_bits
