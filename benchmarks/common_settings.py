"""Settings that several tasks share: each of a few candidates on rows of the paper and on tasks that are not in it, on
tuning seeds, in a few updates.

python benchmarks/common_settings.py --settings norm-10 --rows copy-ntm-lstm ngrams-ntm-lstm --out norm-10.json
python benchmarks/common_settings.py --settings tuned --rows repeat-copy-ntm-feedforward --updates 100000 \\
    --set model.order=write_then_read --seconds 240 --out order.json

A candidate is a name in SETTINGS; `tuned` and `once` are the row's own recipe, with its validation and restarts or
without. Task and sizes of the machine are the row's, and the defaults of a task without one (its name with -ntm-lstm or
-ntm-feedforward). After so many updates, or when the time is up, the delivered
weights are scored at the points of the row's acceptance. The file holds one result for each row, and is written again
after every row and, with --seconds, every tenth of that time; --weights puts the weights beside it, by seed.
No claim rests on these seeds.
"""

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tapehead.evaluation.generalisation import score
from tapehead.experiment.config import Experiment, changed
from tapehead.experiment.loop import Trainer
from tapehead.experiment.metrics import Line
from tapehead.experiment.parts import BLOCK
from tapehead.lab.acceptance import acceptance_of
from tapehead.lab.blocks import blocks_of, curve_of, mean_bits
from tapehead.paper.recipes import (
    ADDRESSES,
    BY_CONTENT,
    GENERAL,
    LEARNED_START,
    READ_FIRST,
    row_experiment,
)
from tapehead.paper.tables import TABLES

FIRST_SEED = 9100
LAST = 1000  # sequences by which a machine is judged at the end

ONE_EACH = GENERAL | READ_FIRST
"""The general settings until 2026-11-19: one sequence an update, each element of a gradient clipped at 10."""
FOUR = ONE_EACH | {"training.batch_size": 4}
NORM_10 = FOUR | {"clipping.kind": "norm", "clipping.limit": 10.0}
NORM_1 = FOUR | {"clipping.kind": "norm", "clipping.limit": 1.0, "optimiser.learning_rate": 5e-4}
WRITE_FIRST = {"model.order": "write_then_read"}
RANDOM = {"model.initial_memory": "random"}
GATE = {"model.write_gate": True, "model.write_gate_bias": -3.0}

SETTINGS: dict[str, dict[str, Any]] = {
    "one-each": ONE_EACH,
    "four": FOUR,
    "norm-10": NORM_10,
    "norm-10-content": NORM_10 | BY_CONTENT,
    "norm-10-addresses-content": NORM_10 | ADDRESSES | BY_CONTENT,
    "norm-10-write-first": NORM_10 | WRITE_FIRST,
    "norm-10-write-first-learned": NORM_10 | WRITE_FIRST | LEARNED_START,
    "norm-10-write-first-content": NORM_10 | WRITE_FIRST | BY_CONTENT,
    "norm-10-write-first-addresses-content": NORM_10 | WRITE_FIRST | ADDRESSES | BY_CONTENT,
    "norm-10-write-first-random-content": NORM_10 | WRITE_FIRST | RANDOM | BY_CONTENT | LEARNED_START,
    "norm-10-write-first-gate": NORM_10 | WRITE_FIRST | BY_CONTENT | LEARNED_START | GATE,
    "norm-1": NORM_1,
    "norm-1-addresses-content": NORM_1 | ADDRESSES | BY_CONTENT,
    "norm-1-write-first-addresses-content": NORM_1 | WRITE_FIRST | ADDRESSES | BY_CONTENT,
}

# Some minutes of a GPU for all five, where the recipes take 40,000, 50,000, 80,000, 26,667 and 100,000.
UPDATES = {
    "copy": 12_000,
    "repeat-copy": 25_000,
    "associative-recall": 30_000,
    "ngrams": 10_000,
    "priority-sort": 15_000,
    "addition": 60_000,
    "reverse": 60_000,
}

WITHOUT_A_ROW: dict[str, dict[str, Any]] = {
    f"{task}-ntm-{controller}": {"task.name": task, "model.controller": controller}
    for task in ("addition", "reverse")
    for controller in ("lstm", "feedforward")
}


def experiment_of(name: str, row: str, changes: dict[str, Any]) -> Experiment:
    if name in ("tuned", "once"):
        return row_experiment(row, name, changes)
    values: dict[str, Any] = {"recipe": name}
    if row in WITHOUT_A_ROW:
        values |= WITHOUT_A_ROW[row]
    else:
        values |= {"task.name": TABLES[row].task}
        values |= {f"model.{option}": value for option, value in TABLES[row].model.items()}
    return Experiment.from_plain(changed({}, SETTINGS[name] | values | changes))


def trial(given: argparse.Namespace, row: str, changes: dict[str, Any], found: list[dict[str, Any]]) -> None:
    """Train and score the seeds of a row; the result is added to those that were found before, and all are written."""
    seeds = tuple(range(given.first, given.first + given.seeds))
    changes = changes | {"seeds": seeds, "place.device": given.device}
    experiment = experiment_of(given.settings, row, changes)
    updates = UPDATES[experiment.task.name] if given.updates is None else given.updates
    if given.updates is not None and "training.episodes" in changes:
        raise SystemExit("--updates and --set training.episodes both say how long to train: give one of them.")
    if "training.episodes" not in changes and (given.settings not in ("tuned", "once") or given.updates is not None):
        changes |= {"training.episodes": updates * experiment.training.batch_size}
        experiment = experiment_of(given.settings, row, changes)
    trainer = Trainer(experiment)
    trainer.prepare()
    begin = told = time.perf_counter()
    for _ in trainer.iter_blocks():
        now = time.perf_counter()
        if now - begin > given.seconds:
            break
        if now - told > given.seconds / 10:
            told = now
            write(given.out, [*found, result_of(trainer, given, row, now - begin)])
    result = result_of(trainer, given, row, time.perf_counter() - begin)
    write(given.out, [*found, result])
    if given.weights:
        weights = trainer.population.delivered().cpu()
        of_seed = {str(seed): weights[s].contiguous() for s, seed in enumerate(experiment.seeds)}
        save_file(of_seed, given.out.with_name(f"{given.out.stem}-{row}.safetensors"))
    found.append(scored(trainer, result, given.sequences))
    write(given.out, found)
    print(sentence(found[-1]), flush=True)


def result_of(trainer: Trainer, given: argparse.Namespace, row: str, seconds: float) -> dict[str, Any]:
    experiment, seeds = trainer.experiment, trainer.seeds
    lines = [Line.from_json(line) for line in trainer.metrics]
    blocks = [blocks_of(seed, lines) for seed in experiment.seeds]
    of_attempt = [[block for block in mine if block.attempt == mine[-1].attempt] for mine in blocks]
    last = -(-LAST // (BLOCK * experiment.training.batch_size))  # blocks
    return {
        "settings": given.settings, "set": given.set, "row": row, "seeds": list(experiment.seeds),
        "updates": trainer.updates, "of": experiment.all_updates, "batch": experiment.training.batch_size,
        "seconds": round(seconds, 1),
        "solved_at": [None if at < 0 else at for at in seeds.attempt_solved_at.tolist()],
        "attempts": seeds.attempts.tolist(), "passed": seeds.passed.tolist(),
        "last_bits": [finite(round(mean_bits(mine[-last:]), 4)) for mine in of_attempt],
        "curves": [[(end, float(f"{bits:.3g}")) for end, bits in curve_of(mine, 40)] for mine in blocks],
    }  # fmt: skip


def finite(bits: float) -> float | None:
    return bits if math.isfinite(bits) else None


def scored(trainer: Trainer, result: dict[str, Any], sequences: int) -> dict[str, Any]:
    """A result with what the delivered weights cost at the points of the acceptance, and who meets its criteria."""
    asked, weights = acceptance_of(trainer.task, trainer.model), trainer.population.delivered().clone()
    points = {}
    for point in asked.points:
        model = trainer.model if point.slots is None else trainer.model.with_memory(point.slots)
        count = min(sequences, point.most or sequences)
        points[point.label(trainer.task)] = score(model, weights, trainer.task, dict(point.sizes), count)
    of_each = [
        {label: {"bits": one.bits[s], "perfect": one.perfect[s]} for label, one in points.items()}
        for s in range(len(weights))
    ]
    met = {c.says(trainer.task): sum(c.met(trainer.task, each) for each in of_each) for c in asked.criteria}
    return result | {"met": met, "scores": {label: list(one.bits) for label, one in points.items()}}


def sentence(result: dict[str, Any]) -> str:
    solved = [at for at in result["solved_at"] if at is not None]
    seconds = result["seconds"]
    last = [math.inf if bits is None else bits for bits in result["last_bits"]]
    medians = {
        label: round(statistics.median(float("inf") if bits is None else bits for bits in costs), 3)
        for label, costs in result["scores"].items()
    }
    return (
        f"{result['settings']} {' '.join(result['set'])} {result['row']}: {len(solved)} of {len(last)} solved"
        f"{f' (median {statistics.median(solved):,.0f})' if solved else ''}; last {statistics.median(last):.3f} (worst "
        f"{max(last):.3f}); {medians}; met {result['met']}; {result['updates']:,} updates of {result['of']:,}, batch "
        f"{result['batch']}, {seconds:.0f} s"
    )


def write(path: Path, results: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", choices=["tuned", "once", *SETTINGS], required=True)
    parser.add_argument("--rows", nargs="+", choices=[*TABLES, *WITHOUT_A_ROW], required=True)
    parser.add_argument("--set", nargs="*", default=[], help="further settings, as path=value")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="seed")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--updates", type=int, help="of an attempt, if not those of UPDATES or of the recipe")
    parser.add_argument("--sequences", type=int, default=100, help="at each point of the acceptance")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop training a row after so long")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--weights", action="store_true", help="write them, too")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    changes = {}
    for pair in given.set:
        path, _, value = pair.partition("=")
        try:
            changes[path] = json.loads(value)
        except json.JSONDecodeError:
            changes[path] = value
    found: list[dict[str, Any]] = []
    for row in given.rows:
        trial(given, row, changes, found)


if __name__ == "__main__":
    main()
