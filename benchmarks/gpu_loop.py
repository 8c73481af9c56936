"""The whole training loop on a GPU, kernel by kernel, and how long 132 machines take to learn to copy.

    python benchmarks/gpu_loop.py --out benchmarks/results/DATE-gpu-loop.json

Copy at length 20, LSTM controller of 100, 128 x 20 memory, Graves' RMSProp, elementwise clipping. Times of updates are
medians of rounds with least and most; those of kernels are means of a launch from a profile of one more round, which is
not timed. With several seeds there are two launches of each an update, one for each group, and they overlap.
`tapehead bench --device cuda` has the table beside torch's LSTM; this says where the time goes.
"""

import argparse
import datetime
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import tapehead
from tapehead.bench.measure import Subject, ntm_subject, synchronise
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import BLOCK
from tapehead.paper.recipes import row_experiment

SHAPES = ((132, 1, 50 * BLOCK), (1, 1, 50 * BLOCK), (1, 4096, 2 * BLOCK))  # seeds, batch, updates of a round
OWN = ("ntm_", "update_")  # what our kernels' names begin with


def kernels(subject: Subject) -> dict[str, float]:
    """Mean microseconds of a launch of our kernels in one more round, by name."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        subject.run()
        synchronise()
    mine = [event for event in seen.key_averages() if event.key.startswith(OWN)]
    return {event.key: round(event.device_time_total / event.count, 1) for event in mine}


def measure(seeds: int, batch: int, updates: int, rounds: int, device: str) -> dict[str, Any]:
    subject = ntm_subject("auto", "lstm", batch, 1, seeds=seeds, device=device, updates=updates)
    subject.run()  # compiles, captures, and fills the stock
    for _ in range(rounds):
        subject.round()
    return subject.row().to_dict() | {"kernels_us": kernels(subject)}


def learn(seeds: int, device: str) -> dict[str, Any]:
    """The recipe of `tapehead train copy` until all are solved or its end: updates and seconds by number solved."""
    changes = {"seeds": tuple(range(seeds)), "place.device": device}
    experiment = row_experiment("copy-ntm-lstm", "tuned", changes)
    warm = Trainer(experiment)
    for _ in range(2):
        warm.block()
    trainer, solved = Trainer(experiment), 0
    marks: list[dict[str, Any]] = []
    synchronise()
    begin = time.perf_counter()
    for _ in trainer.iter_blocks():
        now = int((trainer.seeds.solved_at >= 0).sum())
        if now > solved:
            seconds = round(time.perf_counter() - begin, 2)
            marks.append({"solved": now, "updates": trainer.updates, "seconds": seconds})
            solved = now
        if solved == seeds:
            break
    return {"recipe": experiment.recipe, "seeds": seeds, "marks": marks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device here, and nothing else to measure")
    record: dict[str, Any] = {
        "what": "copy at length 20: whole updates, and our kernels in them; copy learned by many seeds",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "tapehead": tapehead.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(),
        "rows": [],
    }
    for seeds, batch, updates in SHAPES:
        row = measure(seeds, batch, updates, options.rounds, options.device)
        record["rows"].append(row)
        print(json.dumps(row), flush=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    record["learning"] = learn(132, options.device)
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["learning"]["marks"][-1:]))


if __name__ == "__main__":
    main()
