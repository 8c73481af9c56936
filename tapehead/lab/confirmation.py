"""A confirmation: train machines on seeds that nobody has looked at, score them on sequences that nobody has looked at,
and write down everything that a claim stands on.

Legend: S seeds, P parameters.
"""

import json
import math
from typing import Any

from torch import Tensor

from tapehead.evaluation.generalisation import Score, score
from tapehead.files import sha256
from tapehead.lab.blocks import Block, attempt_solved_at, blocks_of, worst_after
from tapehead.lab.claims import Claim, Point, claim_of
from tapehead.lab.clock import Clock, training
from tapehead.models.ntm import NTM
from tapehead.training.loop import Trainer

KIND = "tapehead confirmation"
SOURCE = "confirmation"
"""The stream of the sequences, which is not the one that `tapehead eval` and all tuning look at."""


def train(trainer: Trainer) -> None:
    """Go on with the run to its end, with a clock."""
    if trainer.finished:
        return
    Trainer(trainer.config).block(updates=1)  # compiles the kernels, outside the time that is measured
    with Clock() as clock:
        clock.start(trainer)
        try:
            trainer.train(clock)
        finally:
            clock.keep(trainer)


def record_of(trainer: Trainer, sequences: int | None = None) -> dict[str, Any]:
    """The record of a finished run, without its summary. sequences: at each point, if not the claim's number."""
    config, claim = trainer.config, claim_of(trainer.task, trainer.model)
    row, _, recipe = config.preset.partition("/")
    scores = [_score(trainer, point, _count(claim, point, sequences)) for point in claim.points]
    behind = training(trainer)
    return {
        "kind": KIND,
        "name": name_of(row, recipe),
        "row": row,
        "recipe": recipe,
        "config": config.to_dict(),
        "seeds": list(config.seeds),
        "seeds_side_by_side": len(config.seeds),
        "seconds": behind.seconds,
        "environment": behind.environment,
        "solved_bits": trainer.task.solved_bits,
        "points": [_point(trainer, *both) for both in zip(claim.points, scores, strict=True)],
        "criteria": [
            {
                "says": criterion.says(trainer.task),
                "points": [point.label(trainer.task) for point in criterion.points],
                "under": criterion.under,
            }
            for criterion in claim.criteria
        ],
        "headline": claim.headline.label(trainer.task),
        "machines": _machines(trainer, claim, scores),
    }


def name_of(row: str, recipe: str) -> str:
    """The name of a record and of the machine that comes of it: the row's, and the recipe's if that is not `sure`."""
    return row if recipe == "sure" else f"{row}-{recipe}"


def _count(claim: Claim, point: Point, sequences: int | None) -> int:
    count = claim.sequences if sequences is None else sequences
    return count if point.most is None else min(count, point.most)


def _score(trainer: Trainer, point: Point, sequences: int) -> Score:
    model = trainer.model
    if point.slots is not None:
        assert isinstance(model, NTM)  # `claim_of` sees to it
        model = model.with_memory(point.slots)
    return score(model, trainer.population.delivered(), trainer.task, dict(point.sizes), sequences, source=SOURCE)


def _point(trainer: Trainer, point: Point, scored: Score) -> dict[str, Any]:
    label = point.label(trainer.task)
    return {"label": label, "sizes": point.sizes, "slots": point.slots, "sequences": scored.episodes}


def _machines(trainer: Trainer, claim: Claim, scores: list[Score]) -> list[dict[str, Any]]:
    """What there is to say about each seed."""
    task, population, config = trainer.task, trainer.population, trainer.config
    metrics = [json.loads(line) for line in trainer.metrics]
    delivered = population.delivered()
    labels = [point.label(task) for point in claim.points]
    machines = []
    for s, seed in enumerate(config.seeds):
        blocks = blocks_of(seed, metrics)
        solved_at = int(population.solved_at[s])
        there = {label: _one(scored, s) for label, scored in zip(labels, scores, strict=True)}
        machine = {
            "seed": seed,
            "episodes": blocks[-1].end,
            "solved_at": solved_at if solved_at >= 0 else None,
            "last_window_bits": _finite(float(population.recent[s].mean())),
            **_kept(trainer, s),
            "worst_window_after_solving_bits": _worst(blocks, solved_at) if solved_at >= 0 else None,
            "skipped_updates": int(population.skipped[s]),
            "weights_sha256": weights_hash(delivered[s]),
            "scores": there,
            "met": [criterion.met(task, there) for criterion in claim.criteria],
        }
        machines.append(machine)
    return machines


def _worst(blocks: list[Block], solved_at: int) -> float | None:
    """Of the machine delivered: how another attempt began is not its falling back."""
    return _finite(worst_after(attempt_solved_at(blocks, solved_at), solved_at))


def _kept(trainer: Trainer, s: int) -> dict[str, Any]:
    """How often one machine began, where it may more than once, and by what its weights were chosen."""
    population, config = trainer.population, trainer.config
    attempts = {"attempts": int(population.attempts[s])} if config.counts_attempts else {}
    if config.validation:
        return attempts | {"validation_bits": _finite(float(population.validation_cost[s]))}
    return attempts | {"best_window_bits": _finite(float(population.kept_cost[s]))}


def _one(scored: Score, s: int) -> dict[str, float | None]:
    """The scores of one machine of a population."""
    return {
        "bits": _finite(scored.bits[s]),
        "wrong_bits": _finite(scored.wrong_bits[s]),
        "perfect": scored.perfect[s],
    }


def weights_hash(flat: Tensor) -> str:
    """SHA-256 of the parameters [P] of one machine."""
    return sha256(flat.detach().contiguous().cpu().numpy().tobytes())


def _finite(value: float) -> float | None:
    """JSON has no infinity: None stands for it, as for a window that is not full yet."""
    return value if math.isfinite(value) else None
