"""One update of `tapehead.NTM` in a loop of the user's own, part by part, beside three neighbours in the same run.

    python benchmarks/drop_in.py [--device cuda] [--out benchmarks/results/DATE-drop-in.json]

Copy at length 20 (41 steps, 9 inputs, 8 outputs), LSTM controller of 100, 128 x 20 memory, float32. Beside it
`torch.nn.LSTM` with 3 layers of 256, the same NTM on the reference backend and, on a CPU, in the loop of a run
(`tapehead.train`), which has no parts. `update` is a whole update, without
marks between its parts, and on a GPU with one wait at the end of a round: least and median of the rounds, which visit
all subjects in turn, because machines are shared and clocks move. The parts are the medians of the host's time: on a
GPU that is what Python and the launches cost, not what the device does meanwhile.
"""

import argparse
import datetime
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import tapehead
from tapehead.bench.measure import DropIn, drop_in_ntm, ntm_subject, synchronise


class LSTM(nn.Module):
    """The paper's baseline in torch's own modules, with the call of `tapehead.NTM`."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.lstm = nn.LSTM(DropIn.WIDTH + 1, 256, num_layers=3, device=device)
        self.readout = nn.Linear(256, DropIn.WIDTH, device=device)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        hidden, state = self.lstm(x)
        return self.readout(hidden), state


def lstm(batch: int, device: str) -> DropIn:
    model = LSTM(device)
    optimiser = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9, centered=True)
    return DropIn(model, optimiser, batch, device)


class Subject:
    def __init__(self, name: str, drop_in: DropIn, threads: int, updates: int) -> None:
        self.name, self.drop_in, self.threads, self.updates = name, drop_in, threads, updates
        self.batch = drop_in.batch
        self.forget()

    def forget(self) -> None:
        self.seconds: list[float] = []
        self.parts: list[list[float]] = [[] for _ in DropIn.PARTS]

    def round(self) -> None:
        torch.set_num_threads(self.threads)
        synchronise()
        began = time.perf_counter()
        for _ in range(self.updates):
            self.drop_in.update()
        synchronise()
        self.seconds.append((time.perf_counter() - began) / self.updates)
        for _ in range(self.updates):
            marks: list[float] = []
            self.drop_in.update(lambda: marks.append(time.perf_counter()))
            for part, before, after in zip(self.parts, marks, marks[1:], strict=False):
                part.append(after - before)

    def row(self) -> dict[str, Any]:
        timed = {name: each for name, each in zip(DropIn.PARTS, self.parts, strict=True) if each}
        parts = {name: 1e3 * statistics.median(each) for name, each in timed.items()}
        least, median = 1e3 * min(self.seconds), 1e3 * statistics.median(self.seconds)
        return {
            "system": self.name,
            "batch": self.batch,
            "threads": self.threads,
            "least_ms": least,
            "median_ms": median,
            "parts_ms": parts,
        }


class Loop(Subject):
    """The loop of a run on the same sequences."""

    def __init__(self, batch: int, threads: int) -> None:
        self.name, self.batch, self.threads = "NTM, loop of a run", batch, threads
        self._subject = ntm_subject("cpu", "lstm", batch, threads)
        self.forget()

    def round(self) -> None:
        self._subject.round()
        self.seconds.append(self._subject.seconds[-1])


def subjects(device: str) -> list[Subject]:
    if device.startswith("cuda"):
        found = [
            Subject("NTM", drop_in_ntm("gpu", "lstm", b, device), 1, n) for b, n in ((1, 50), (256, 20), (4096, 5))
        ]
        found += [Subject("torch.nn.LSTM 3 x 256", lstm(b, device), 1, 10) for b in (1, 256, 4096)]
        return [*found, Subject("NTM, reference", drop_in_ntm("reference", "lstm", 1, device), 1, 1)]
    shapes = ((1, 1), (16, 2))
    found = [Subject("NTM", drop_in_ntm("cpu", "lstm", b, device), t, 20 // t) for b, t in shapes]
    found += [Loop(b, t) for b, t in shapes]
    found += [Subject("torch.nn.LSTM 3 x 256", lstm(b, device), t, 2) for b, t in shapes]
    return found + [Subject("NTM, reference", drop_in_ntm("reference", "lstm", b, device), t, 1) for b, t in shapes]


def show(rows: list[dict[str, Any]]) -> None:
    heads = ["system", "batch", "threads", "update: least", "median", *DropIn.PARTS]
    lines = [
        [
            row["system"],
            str(row["batch"]),
            str(row["threads"]),
            *(f"{row[name]:.3f}" for name in ("least_ms", "median_ms")),
            *(f"{row['parts_ms'][name]:.3f}" if name in row["parts_ms"] else "-" for name in DropIn.PARTS),
        ]
        for row in rows
    ]
    widths = [max(len(line[k]) for line in [heads, *lines]) for k in range(len(heads))]
    for name, *numbers in [heads, *lines]:
        print("  ".join([name.ljust(widths[0]), *(map(str.rjust, numbers, widths[1:]))]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    all_subjects = subjects(options.device)
    for subject in all_subjects:
        subject.round()  # compiles and warms up
        subject.forget()
    for _ in range(options.rounds):
        for subject in all_subjects:
            subject.round()
    rows = [subject.row() for subject in all_subjects]
    print(f"Milliseconds; {options.rounds} rounds; parts: medians of the host's time")
    show(rows)
    if options.out:
        record = {
            "what": "copy at length 20: updates of a user's own loop, and their parts on the host, in milliseconds",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "tapehead": tapehead.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name() if options.device.startswith("cuda") else platform.processor(),
            "rounds": options.rounds,
            "rows": rows,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
