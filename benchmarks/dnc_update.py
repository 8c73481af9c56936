"""Complete updates of a DNC a second, on its fused scan and on the reference, in one run.

    python benchmarks/dnc_update.py [--device cuda] [--rounds 7] [--out benchmarks/results/DATE-cpu-dnc.json]

Copy at length 20 (41 steps, 9 inputs, 8 outputs), LSTM controller of 100, memory of 64 x 20, four read heads, float32.
On a CPU batches of 1 and 16 in the loop of a run (`tapehead.train`) and in a loop of the user's own (drop-in); on a GPU
a population of 64 seeds with batches of 1 and 16 in the loop of a run, on the fused scan and on the reference. Both
with Adam. An update is sampling, forward, loss, backward, clipping and optimiser. Where the package `dnc` is installed
(`pip install --no-deps dnc`), the same loop is timed with its DNC of the same sizes.

Rounds visit all subjects in turn, because machines are shared and clocks move: compare figures of one run with each
other. `cpu_ms` is the least processor time of an update, all threads together, which other processes disturb least; it
counts threads of torch that spin while they wait, so a user's own loop also runs on one thread. `kernels_us`, on a GPU:
mean time of a launch of the fused scan's kernels, from a profile of one more round; with graphs there are two launches
of each an update, one for each group of seeds, and they overlap.
"""

import argparse
import datetime
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import tapehead
from tapehead.bench.measure import DropIn, experiment_subject, synchronise
from tapehead.environment import environment
from tapehead.experiment.config import Experiment
from tapehead.experiment.parts import BLOCK

MACHINE = {"controller": "lstm", "controller_size": 100, "memory_slots": 64, "memory_width": 20, "read_heads": 4}

OWN = ("dnc_", "update_")  # what the names of our kernels begin with


class Subject:
    """`run` does `updates` updates, and is timed `repeats` times in a round."""

    def __init__(
        self, system: str, seeds: int, batch: int, threads: int, updates: int, repeats: int, run: Callable[[], object]
    ) -> None:
        self.system, self.seeds, self.batch, self.threads = system, seeds, batch, threads
        self.updates, self.repeats, self.run = updates, repeats, run
        self.forget()

    def forget(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def round(self) -> None:
        torch.set_num_threads(self.threads)
        synchronise()
        for _ in range(self.repeats):
            began, worked = time.perf_counter(), time.process_time()
            self.run()
            synchronise()
            self.wall.append((time.perf_counter() - began) / self.updates)
            self.cpu.append((time.process_time() - worked) / self.updates)

    def kernels(self) -> dict[str, float]:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            self.run()
            synchronise()
        mine = [event for event in seen.key_averages() if event.key.startswith(OWN)]
        return {event.key: round(event.device_time_total / event.count, 1) for event in mine}

    def row(self) -> dict[str, Any]:
        episodes = self.seeds * self.batch
        return {
            "system": self.system,
            "seeds": self.seeds,
            "batch": self.batch,
            "threads": self.threads,
            "median_ms": 1e3 * statistics.median(self.wall),
            "least_ms": 1e3 * min(self.wall),
            "cpu_ms": 1e3 * min(self.cpu),
            "episodes_per_second": episodes / statistics.median(self.wall),
            "most_episodes_per_second": episodes / min(self.wall),
        }


def loop(backend: str, seeds: int, batch: int, threads: int, updates: int, repeats: int, device: str) -> Subject:
    """The loop of a run."""
    experiment = Experiment.from_plain(
        {
            "task": {"name": "copy", "length": 20},
            "model": {"name": "dnc"} | MACHINE,
            "optimiser": {"name": "adam"},
            "seeds": range(seeds),
            "training": {"batch_size": batch},
            "place": {"backend": backend, "device": device},
        }
    )
    subject = experiment_subject(experiment, updates)
    system = f"loop of a run, {subject.system.split()[-1]}"
    return Subject(system, seeds, batch, threads, updates, repeats, subject.run)


def drop_in(backend: str, batch: int, threads: int, updates: int, repeats: int) -> Subject:
    """A user's own loop."""
    dnc = tapehead.DNC(DropIn.WIDTH + 1, DropIn.WIDTH, backend=backend, **MACHINE)
    one = DropIn(dnc, torch.optim.Adam(dnc.parameters(), lr=1e-3), batch, "cpu")

    def run() -> None:
        for _ in range(updates):
            one.update()

    return Subject(f"drop-in, {dnc.backend_in_use()}", 1, batch, threads, updates, repeats, run)


class Installable(torch.nn.Module):
    """The package that is installed as `dnc`, used like a model of tapehead. It has as many outputs as inputs."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"nr_cells": MACHINE["memory_slots"], "cell_size": MACHINE["memory_width"]}
        self.dnc = importlib.import_module("dnc").DNC(
            DropIn.WIDTH + 1, MACHINE["controller_size"], read_heads=MACHINE["read_heads"], batch_first=False, **sizes
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        y, state = self.dnc(x, (None, None, None), reset_experience=True)
        return y[..., : DropIn.WIDTH], state


def installable(batch: int, threads: int) -> list[Subject]:
    """A user's own loop with that package, where there is one."""
    if importlib.util.find_spec("dnc") is None:
        return []
    model = Installable()
    one = DropIn(model, torch.optim.Adam(model.parameters(), lr=1e-3), batch, "cpu")
    return [Subject("drop-in, package dnc", 1, batch, threads, 1, 2, one.update)]


def subjects(device: str) -> list[Subject]:
    if device.startswith("cuda"):
        fused = [loop("gpu", 64, batch, 1, BLOCK, 1, device) for batch in (1, 16)]
        return [*fused, *(loop("reference", 64, batch, 1, 1, 1, device) for batch in (1, 16))]
    found = []
    for batch, threads, repeats in ((1, 1, 10), (16, 1, 2), (16, 2, 2)):
        found += [loop("auto", 1, batch, threads, 10, repeats, device), drop_in("auto", batch, threads, 10, repeats)]
        found += installable(batch, threads)
    for batch in (1, 16):
        found += [loop("reference", 1, batch, 1, 1, 2, device), drop_in("reference", batch, 1, 1, 2)]
    return found


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'system':28} seeds batch threads  median ms   least ms     CPU ms  episodes/s (most)")
    for row in rows:
        print(
            f"{row['system']:28} {row['seeds']:5} {row['batch']:5} {row['threads']:7} {row['median_ms']:10.2f} "
            f"{row['least_ms']:10.2f} {row['cpu_ms']:10.2f}  {row['episodes_per_second']:8,.0f} "
            f"({row['most_episodes_per_second']:,.0f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    all_subjects = subjects(options.device)
    for subject in all_subjects:
        for _ in range(2):  # compiles, warms up and, on a GPU, captures graphs
            subject.round()
        subject.forget()
    for _ in range(options.rounds):
        for subject in all_subjects:
            subject.round()
    rows = [subject.row() for subject in all_subjects]
    show(rows)
    if options.device.startswith("cuda"):
        for subject, row in zip(all_subjects, rows, strict=True):
            row["kernels_us"] = subject.kernels()
            print(f"{row['system']:28} {row['seeds']:5} {row['batch']:5} {row['kernels_us']}")
    if options.out:
        record = {
            "what": "copy at length 20, DNC with an LSTM of 100, 64 x 20, four read heads: complete updates",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "tapehead": tapehead.__version__,
            "torch": torch.__version__,
            "machine": environment("cpu", "cpu")["device"],
            "device": torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu",
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
            "rounds": options.rounds,
            "rows": rows,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
