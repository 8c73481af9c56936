"""Do all recipes still train to the same bits? The first 1,000 updates of two seeds, and restarts, by their hashes.

    python benchmarks/same_numbers.py --record FILE      # before a change
    python benchmarks/same_numbers.py --check FILE       # after it, on the same machine with the same versions

Weights and optimiser state are hashed. The baseline LSTM runs 200 updates. A change of kernels, compiler or processor
may change the last bits; the file says where it was made.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tapehead.environment import environment
from tapehead.experiment.loop import Trainer
from tapehead.paper.recipes import TUNED, row_experiment

SEEDS = (41, 42)
PAPER = {"copy-ntm-lstm": 1000, "associative-recall-ntm-feedforward": 1000, "copy-lstm": 200}
RESTARTS: dict[str, tuple[int, dict[str, Any]]] = {
    "repeat-copy-pulses-ntm-lstm": (1200, {"training.episodes": 1000}),
    "associative-recall-ntm-feedforward": (1200, {"restarts.after": 1000}),
    "priority-sort-ntm-lstm": (700, {"training.episodes": 6000, "restarts.after": 3000}),
}


def cases() -> Iterator[tuple[str, str, str, int, dict[str, Any]]]:
    """Name, row, recipe, updates and changes of everything that is trained."""
    for row in TUNED:
        yield f"{row}/tuned", row, "tuned", 1000, {}
    for row, updates in PAPER.items():
        yield f"{row}/paper", row, "paper", updates, {}
    for row, (updates, changes) in RESTARTS.items():
        yield f"restart: {row}", row, "tuned", updates, changes


def trained(row: str, recipe: str, updates: int, changes: dict[str, Any]) -> dict[str, Any]:
    trainer = Trainer(row_experiment(row, recipe, {"seeds": SEEDS} | changes))
    while trainer.updates < updates:
        trainer.block()
    tensors = trainer.tensors()
    names = sorted(name for name in tensors if name.startswith("update.") and name != "update.parameters")
    digest = hashlib.sha256()
    for name in ("update.parameters", *names):
        digest.update(tensors[name].contiguous().cpu().numpy().tobytes())
    return {"sha256": digest.hexdigest(), "attempts": trainer.seeds.attempts.tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record", type=Path, metavar="FILE")
    what.add_argument("--check", type=Path, metavar="FILE")
    parser.add_argument("only", nargs="*", help="parts of the names of cases")
    options = parser.parse_args()
    torch.set_num_threads(2)
    before = json.loads(options.check.read_text()) if options.check else None
    found, different = {}, 0
    for name, *case in cases():
        if options.only and not any(part in name for part in options.only):
            continue
        found[name] = trained(*case)
        same = before is None or before["cases"][name] == found[name]
        different += not same
        print("same     " if same else "DIFFERENT", name, found[name]["sha256"][:12], flush=True)
    if options.record:
        record = {"environment": environment("cpu", "auto"), "cases": found}
        options.record.write_text(json.dumps(record, indent=1) + "\n")
    elif different:
        where = before["environment"] if before else {}
        sys.exit(
            f"{different} of {len(found)} differ; the file was made on {where.get('device')}, {where.get('torch')}."
        )


if __name__ == "__main__":
    main()
