"""Results that nobody trained for: records with given curves and scores, and small machines, so that figures can be
compared with sums by hand."""

import json

import torch

from tapehead.models.lstm import PaperLSTM
from tapehead.models.ntm import NTM
from tapehead.paper.recipes import row_experiment
from tapehead.paper.results import KIND, Machine, Results
from tapehead.tasks import make_task

POINTS = {
    "copy": [{"length": length} for length in (10, 20, 30, 50, 120)],
    "repeat-copy": [{"length": length, "repeats": repeats} for length, repeats in ((10, 20), (20, 10))],
    "associative-recall": [{"items": items} for items in (6, 10, 15, 20)],
    "ngrams": [{}],
    "priority-sort": [{"items": 20, "outputs": 16}],
}
SMALL = {
    "copy": {"length": (1, 4)},
    "repeat-copy": {"length": (1, 3), "repeats": (1, 3)},
    "associative-recall": {"items": (2, 3)},
    "ngrams": {"length": 30},
    "priority-sort": {"items": 6, "outputs": 4},
}


def task_of(row):
    return row.removesuffix("-feedforward").removesuffix("-lstm").removesuffix("-ntm")


def machine(seed, solved_at, curve, bits, labels, episodes=300):
    """A machine of a record. bits: its cost at every point; None if it is not finite."""
    score = {"bits": bits, "wrong": 0.0, "accuracy": 1.0, "perfect": float(bits is not None and bits < 0.01)}
    made = {"seed": seed, "episodes": episodes, "solved_at": solved_at, "scores": dict.fromkeys(labels, score)}
    return made | {"met": []} | ({} if curve is None else {"curve": curve})


def record(row, recipe="tuned", *, solved, curves, bits, first=1000, episodes=300):
    """One machine for every entry of the three lists; curves: a list of costs at 100, 200, ... sequences each, [] for a
    machine that failed from the beginning, None for a record that was made before records had curves."""
    task = make_task(task_of(row))
    points = [
        {"label": task.label(sizes), "sizes": sizes, "slots": None, "sequences": 200} for sizes in POINTS[task.name]
    ]
    labels = [point["label"] for point in points]
    seeds = tuple(range(first, first + len(solved)))
    machines = [
        machine(
            seed, at, None if costs is None else [[100 * (k + 1), bits] for k, bits in enumerate(costs)], cost, labels
        )
        for seed, at, costs, cost in zip(seeds, solved, curves, bits, strict=True)
    ]
    return {
        "kind": KIND,
        "name": row,
        "row": row,
        "recipe": recipe,
        "experiment": row_experiment(row, recipe, {"seeds": seeds, "training.episodes": episodes}).to_plain(),
        "seeds": list(seeds),
        "seeds_side_by_side": len(seeds),
        "seconds": 1.0,
        "environment": {"device": "abacus", "backend": "cpu", "date": "2026-01-02"},
        "solved_bits": task.solved_bits,
        "points": points,
        "criteria": [],
        "headline": labels[-1],
        "machines": machines,
    }


def save(folder, name, values):
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))
    return path


def small_machine(row):
    """An untrained machine of a row on a small form of its task."""
    torch.manual_seed(0)
    task = make_task(task_of(row), **SMALL[task_of(row)])
    if "-ntm-" in row:
        heads = 2 if task.name == "priority-sort" else 1
        sizes = {
            "controller_size": 8,
            "memory_slots": 16,
            "memory_width": 5,
            "num_heads": heads,
            "backend": "reference",
        }
        model = NTM(task.input_size, task.output_size, controller=row.rpartition("-")[2], **sizes)
    else:
        model = PaperLSTM(task.input_size, task.output_size, hidden_size=8)
    return Machine(row, model.eval(), task, 7, f"seed 7 of {row}")


class MadeUp(Results):
    """Results with small machines of some rows and of no others."""

    rows = ()

    def machine(self, row):
        return small_machine(row) if row in self.rows else None


def made_up(folder, records=(), rows=()):
    """Results of these records, and with machines of these rows."""
    files = [one if "file" in one else one | {"file": f"{one['name']}.json"} for one in records]
    results = MadeUp(folder, tuple(files))
    object.__setattr__(results, "rows", tuple(rows))
    return results
