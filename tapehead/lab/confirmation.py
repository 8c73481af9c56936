"""A confirmation: train machines on held-out seeds, score them on held-out sequences, and record everything that a
claim rests on.

Legend: S seeds, P parameters.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

from torch import Tensor

from tapehead import files
from tapehead.evaluation.generalisation import Score, score
from tapehead.experiment.config import Experiment
from tapehead.experiment.folder import delivered, read_metrics, read_result
from tapehead.experiment.loop import Trainer
from tapehead.experiment.metrics import Line
from tapehead.experiment.results import Result
from tapehead.experiment.run import Observer, ticks, train
from tapehead.lab.acceptance import Acceptance, Point, acceptance_of
from tapehead.lab.blocks import Block, attempt_solved_at, blocks_of, curve_of, worst_after
from tapehead.models import SequenceModel
from tapehead.paper.recipes import row_experiment, rows
from tapehead.paper.results import KIND

SOURCE = "confirmation"
"""The stream of the sequences, which is not the one of `tapehead eval` and all tuning."""
CURVE_POINTS = 100
"""Of a learning curve in a record: episodes, and the mean cost in bits since the point before."""


def confirm(
    experiment: Experiment,
    folder: Path,
    *,
    name: str | None = None,
    sequences: int | None = None,
    observer: Observer | None = None,
) -> dict[str, Any]:
    """Train in a folder, or resume there, and score: the record, without its summary.

    name: of the record, if the experiment's recipe does not say it. sequences: at each point, if not the usual
    number."""
    if sequences is not None and sequences < 1:
        raise ValueError(f"--sequences is {sequences}, but at least 1 sequence must be scored.")
    if read_result(folder) is None:
        Trainer(experiment).block(updates=1)  # compiles the kernels, outside the time that is measured
    result = train(experiment, folder, observer=observer, scored=False)
    return record_of(experiment, folder, result, name=name, sequences=sequences, observer=observer)


def record_of(
    experiment: Experiment,
    folder: Path,
    result: Result,
    *,
    name: str | None = None,
    sequences: int | None = None,
    observer: Observer | None = None,
) -> dict[str, Any]:
    """The record of a finished run."""
    task, model = experiment.task, experiment.build()
    asked = acceptance_of(task, model)
    weights = delivered(folder, experiment).to(experiment.place.device)
    row, recipe = row_and_recipe(experiment, name)
    scores = [
        _score(experiment, model, weights, point, _count(asked, point, sequences), observer) for point in asked.points
    ]
    where = files.unseal(files.read(folder / "env.json"))
    where.pop("command", None)
    return {
        "kind": KIND,
        "name": name_of(row, recipe),
        "row": row,
        "recipe": recipe,
        "experiment": experiment.to_plain(),
        "seeds": list(experiment.seeds),
        "seeds_side_by_side": len(experiment.seeds),
        "seconds": result.seconds,
        "environment": where,
        "solved_bits": task.solved_bits,
        "points": [
            {"label": point.label(task), "sizes": point.sizes, "slots": point.slots, "sequences": scored.sequences}
            for point, scored in zip(asked.points, scores, strict=True)
        ],
        "criteria": [
            {
                "says": criterion.says(task),
                "points": [point.label(task) for point in criterion.points],
                "under": criterion.under,
            }
            for criterion in asked.criteria
        ],
        "headline": asked.headline.label(task),
        "machines": _machines(experiment, result, read_metrics(folder), weights, asked, scores),
    }


def row_and_recipe(experiment: Experiment, name: str | None = None) -> tuple[str, str]:
    """The row of a record and its recipe; of an experiment that is no row of the paper, a name for it and "custom"."""
    row, slash, recipe = experiment.recipe.partition("/")
    if slash and name is None and _is_row(experiment, row, recipe):
        return row, recipe
    return name or f"{experiment.task.name}-{experiment.model.name.rpartition(':')[2].lower()}", "custom"


def _is_row(experiment: Experiment, row: str, recipe: str) -> bool:
    """Whether an experiment is what its label says, but for its seeds, its episodes, and its own evaluation, which is
    not the one of the record."""
    if row not in rows():
        return False
    changes = {"seeds": experiment.seeds, "training.episodes": experiment.training.episodes}
    named = row_experiment(row, recipe, changes)
    return dataclasses.replace(experiment, evaluation=named.evaluation).hash == named.hash


def name_of(row: str, recipe: str) -> str:
    """The name of a record and of the machine that comes of it: the row's, and the recipe's if it has several."""
    return row if recipe in ("tuned", "custom") else f"{row}-{recipe}"


def _count(asked: Acceptance, point: Point, sequences: int | None) -> int:
    count = asked.sequences if sequences is None else sequences
    return count if point.most is None else min(count, point.most)


def _score(
    experiment: Experiment,
    model: SequenceModel,
    weights: Tensor,
    point: Point,
    sequences: int,
    observer: Observer | None,
) -> Score:
    if point.slots is not None:
        model = model.with_memory(point.slots)
    tick = ticks(observer, point.label(experiment.task), sequences, len(weights))
    return score(model, weights, experiment.task, dict(point.sizes), sequences, source=SOURCE, tick=tick)


def _machines(
    experiment: Experiment, result: Result, metrics: list[Line], weights: Tensor, asked: Acceptance, scores: list[Score]
) -> list[dict[str, Any]]:
    """What there is to say about each seed."""
    task = experiment.task
    labels = [point.label(task) for point in asked.points]
    kept = "validation_bits" if result.kept_by == "validation" else "best_window_bits"
    machines = []
    for s, seed in enumerate(experiment.seeds):
        blocks, solved_at = blocks_of(seed, metrics), result.solved_at[s]
        there = {label: _one(scored, s) for label, scored in zip(labels, scores, strict=True)}
        machine = {
            "seed": seed,
            "episodes": blocks[-1].end,
            "solved_at": solved_at,
            "last_window_bits": result.last_window_bits[s],
            "attempts": result.attempts[s],
            "passed": result.passed[s],
            kept: result.kept_bits[s],
            "worst_window_after_solving_bits": None if solved_at is None else _worst(blocks, solved_at),
            "skipped_updates": result.skipped_updates[s],
            "weights_sha256": weights_hash(weights[s]),
            "scores": there,
            "met": [criterion.met(task, there) for criterion in asked.criteria],
            "curve": [[end, float(f"{bits:.4g}")] for end, bits in curve_of(blocks, CURVE_POINTS)],
        }
        machines.append(machine)
    return machines


def _worst(blocks: list[Block], solved_at: int) -> float | None:
    """The highest window mean after solving, in the attempt that was delivered: another attempt's beginning is no
    relapse."""
    worst = worst_after(attempt_solved_at(blocks, solved_at), solved_at)
    return worst if math.isfinite(worst) else None


def _one(scored: Score, s: int) -> dict[str, float | None]:
    """The scores of one machine of a population."""
    return {
        "bits": scored.bits[s],
        "wrong": scored.wrong[s],
        "accuracy": scored.accuracy[s],
        "perfect": scored.perfect[s],
    }


def weights_hash(flat: Tensor) -> str:
    """SHA-256 of the parameters [P] of one machine."""
    return files.sha256(flat.detach().contiguous().cpu().numpy().tobytes())
