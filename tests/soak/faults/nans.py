"""11: a NaN or an infinity in an input, a cost, a gradient or a parameter, at any update of a run."""

import math
import random
from typing import Any
from unittest import mock

import torch
from tiny import lines_of, tiny

from soak.fault import Case, Fault
from tapehead.experiment import checkpoint
from tapehead.experiment.checkpoint import Checkpoint
from tapehead.experiment.loop import Trainer

RECORDS = ("recent", "kept_cost")
"""Which are infinite until a window is full."""
PLACES = ("input", "cost", "gradient", "parameter")
SEEDS = (0, 1, 2)
UPDATES = 12
"""Of a block."""
VALUES = (math.nan, math.inf, -math.inf)


def poisoned(trainer: Trainer, place: str, at: int, value: float) -> Any:
    """The second seed meets the value at update `at`."""
    original, count = trainer.model.loss_and_gradient, [0]

    def learn(parameters: torch.Tensor, inputs: torch.Tensor, *rest: Any, **named: Any) -> Any:
        now, count[0] = count[0] == at, count[0] + 1
        if now and place == "input":
            inputs = inputs.clone()
            inputs[1, 0, 0, 0] = value
        costs, gradient, squares = original(parameters, inputs, *rest, **named)
        if now and place == "cost":
            costs = costs.clone()
            costs[1, 0] = value
        if now and place == "gradient":
            gradient, squares = gradient.clone(), None
            gradient[1, 3] = value
        if now and place == "parameter":
            parameters[1, 5] = value
        return costs, gradient, squares

    return mock.patch.object(trainer.model, "loss_and_gradient", learn)


def experiment_of(source: random.Random) -> Any:
    return tiny(
        seeds=SEEDS, episodes=200, average=source.choice((0.0, 0.9)), optimiser=source.choice(("graves", "adam")),
        backend=source.choice(("auto", "reference")), clip=source.choice(("elementwise", "norm", "none")),
    )  # fmt: skip


def check(case: Case) -> None:
    source = case.random
    place, value = PLACES[case.number % len(PLACES)], source.choice(VALUES)
    experiment, at = experiment_of(source), source.randrange(UPDATES)
    clean, hit = Trainer(experiment), Trainer(experiment)
    with poisoned(hit, place, at, value):
        hit.block(UPDATES)
    clean.block(UPDATES)
    skipped = lines_of(hit)[0]["skipped"]
    expected = UPDATES if place == "parameter" else 1  # weights that are no numbers are put back as they were before
    assert skipped[1] == expected, f"{place} at update {at}: {skipped} updates were skipped"
    assert (skipped[0], skipped[2]) == (0, 0)
    checkpoint.save(case.folder, Checkpoint(UPDATES, hit.tensors(), {}, {}))
    saved = checkpoint.load_newest(case.folder)
    assert saved is not None
    for name, tensor in saved.tensors.items():
        if name not in RECORDS:
            assert bool(torch.isfinite(tensor).all()), f"{name} is not finite"
        for seed in (0, 2):
            assert torch.equal(tensor[seed], clean.tensors()[name][seed]), f"{name} of another seed has changed"
    hit.block(UPDATES)
    assert lines_of(hit)[1]["skipped"] == [0, 0, 0], "it does not go on"


FAULT = Fault(
    number=11,
    title="NaN and infinities in an input, a cost, a gradient, a parameter",
    promise="caught in that step, that seed alone skips it, never saved",
    counted="values",
    full=60,
    quick=8,
    chunk=60,
    check=check,
    needs=("numba",),
)
