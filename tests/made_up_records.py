"""Records of confirmations that never were, for tests of what is made from records."""

import json
import math

from tapehead.paper.recipes import row_experiment
from tapehead.paper.results import KIND, Results

ENVIRONMENT = {
    "device": "Made-up CPU",
    "cpus": 2,
    "threads": 2,
    "backend": "cpu",
    "python": "3.11.7",
    "torch": "2.13.0",
    "numba": "0.68.1",
    "tapehead": "0.1.0",
    "commit": "0123456789abcdef",
    "date": "2026-01-02",
}


def made_up(row, *, solved=None, recipe="tuned", seeds=None, episodes=None, curve=None, file=None, **costs):
    """A record. solved: sequences until each machine was solved (None: never). costs: by label, with underscores for
    spaces, the bits of each machine, or of all of them. Copy machines are not selected by a validation."""
    lists = [bits for bits in costs.values() if isinstance(bits, list)]
    solved = [1000] * (len(lists[0]) if lists else seeds or 10) if solved is None else solved
    count = len(solved)
    labels = {label.replace("_", " ").replace(" and ", ", "): _listed(bits, count) for label, bits in costs.items()}
    changes = {"seeds": tuple(range(1000, 1000 + count))} | ({"training.episodes": episodes} if episodes else {})
    unselected = recipe == "tuned" and row.startswith("copy-")
    experiment = row_experiment(row, "once" if unselected else recipe, changes)
    machines = [
        {
            "seed": 1000 + m,
            "episodes": experiment.training.episodes,
            "solved_at": at,
            "last_window_bits": 0.01,
            "attempts": 1,
            "passed": True,
            "worst_window_after_solving_bits": None if at is None else 0.02,
            "skipped_updates": 0,
            "weights_sha256": "0" * 64,
            "scores": {label: {"bits": _plain(bits[m]), "perfect": 0.0} for label, bits in labels.items()},
            "met": [bits[m] < 1 for bits in labels.values()],
            "curve": curve or [],
        }
        for m, at in enumerate(solved)
    ]
    return {
        "kind": KIND,
        "name": row if recipe == "tuned" else f"{row}-{recipe}",
        "row": row,
        "recipe": recipe,
        "experiment": experiment.to_plain(),
        "seeds": list(experiment.seeds),
        "seeds_side_by_side": count,
        "seconds": 12.5,
        "environment": ENVIRONMENT,
        "solved_bits": 0.1,
        "points": [{"label": label, "sizes": {}, "slots": None, "sequences": 200} for label in labels],
        "criteria": [{"says": f"under 1 bit at {label}", "points": [label], "under": 1.0} for label in labels],
        "headline": next(iter(labels), ""),
        "machines": machines,
    } | ({"file": file or f"{row}-{recipe}.json"})


def copies():
    """Three records of the copy task: of a good NTM, of one without shifts that is as good, of an LSTM that is too."""
    costs = {"Length_20": 0.01, "Length_30": 0.02, "Length_50": 0.03, "Length_120": 0.5}
    return [made_up(row, **costs) for row in ("copy-ntm-lstm", "copy-no-shift-ntm-lstm", "copy-lstm")]


def results_of(tmp_path, *records):
    """The results of a folder with these records in it."""
    for record in records:
        (tmp_path / record["file"]).write_text(json.dumps(record))
    return Results.load(tmp_path)


def _listed(bits, count):
    return bits if isinstance(bits, list) else [bits] * count


def _plain(bits):
    return None if math.isinf(bits) else bits
