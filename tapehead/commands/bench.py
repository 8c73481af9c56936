"""`tapehead bench`: the gate, then the table, then how the cost grows."""

import datetime
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table

from tapehead import files
from tapehead.bench import growth as growing
from tapehead.bench.gate import quick_gate
from tapehead.bench.measure import Row, Subject, kernel_subject, lstm_subject, ntm_subject, time_all
from tapehead.commands.options import check_count, check_device, make_folder
from tapehead.commands.tables import new_table, print_table
from tapehead.environment import environment
from tapehead.experiment.config import BLOCK

if TYPE_CHECKING:
    from tapehead import cli

SLOW_UPDATES = 2
"""Updates in one timing of a subject that takes a tenth of a second each."""


def run(options: "cli.Bench") -> int:
    check_device(options.device)
    check_count("--rounds", options.rounds)
    make_folder(options.out)
    console = Console(stderr=True, highlight=False, markup=False)
    fast = "gpu" if options.device.startswith("cuda") else "cpu"
    console.print(f"The gate: is the {fast} backend right?")
    failures = quick_gate(fast, torch.device(options.device))
    if failures:
        print("\n".join(f"tapehead: {failure}" for failure in failures), file=sys.stderr)
        print("tapehead: the gate is red, so no speed is shown.", file=sys.stderr)
        return 1
    threads = torch.get_num_threads()
    with console.status("timing") as status:
        subjects = _subjects(fast, options.device)
        time_all(subjects, options.rounds, status.update)
        curves = growing.growth(fast, options.device, options.rounds, status.update) if options.growth else {}
    torch.set_num_threads(threads)
    rows = [subject.row() for subject in subjects]
    print_table(_table(rows, options.rounds))
    for path in _keep(rows, curves, fast, options):
        print(path)
    return 0


def _subjects(fast: str, device: str) -> list[Subject]:
    if fast == "gpu":
        many = 10 * BLOCK  # data are sampled for up to ten blocks at once, and that belongs to an update's time
        return [
            ntm_subject("gpu", "lstm", 1, 1, seeds=132, device=device, updates=many),
            ntm_subject("gpu", "lstm", 1, 1, device=device, updates=many),
            ntm_subject("gpu", "lstm", 4096, 1, device=device),
            ntm_subject("gpu", "feedforward", 1, 1, seeds=132, device=device, updates=many),
            lstm_subject(1, 1, device=device),
            lstm_subject(1024, 1, device=device),
        ]
    threads = (1, 2)
    subjects = [ntm_subject("cpu", c, b, t) for c in ("lstm", "feedforward") for b in (1, 16) for t in threads]
    subjects += [kernel_subject("cpu", "lstm", 1, 1)]
    subjects += [lstm_subject(b, t) for b in (1, 16) for t in threads]
    subjects += [
        ntm_subject("reference", c, b, t, updates=SLOW_UPDATES)
        for c in ("lstm", "feedforward")
        for b in (1, 16)
        for t in threads
    ]
    return subjects


def _table(rows: list[Row], rounds: int) -> Table:
    title = f"Complete updates, copy at length 20, 128 x 20 memory, controller of 100; median of {rounds} rounds"
    numbers = ("seeds", "batch", "threads", "update, ms", "spread", "episodes/s")
    table = new_table(title, ("system", "controller"), numbers)
    for row in rows:
        times = row.seconds
        table.add_row(
            row.system,
            row.controller,
            str(row.seeds),
            str(row.batch),
            str(row.threads),
            f"{1e3 * times.median:.3g}",
            f"{1e3 * times.least:.3g} - {1e3 * times.most:.3g}",
            f"{row.episodes_per_second:,.0f}",
        )
    return table


def _keep(rows: list[Row], curves: dict[str, list[growing.Point]], fast: str, options: "cli.Bench") -> list[Path]:
    """Leave the figures in a dated file, and the growth as a picture beside it."""
    name = f"{datetime.date.today()}-{fast}"
    record: dict[str, Any] = environment(options.device, fast) | {
        "rounds": options.rounds,
        "rows": [row.to_dict() for row in rows],
        "growth_seconds": growing.as_dict(curves),
    }
    path = options.out / f"{name}.json"
    with files.writing(options.out):
        files.replace(path, (json.dumps(record, indent=1) + "\n").encode())
    pictures = growing.draw(curves, fast, options.out, f"{name}-growth") if curves else []
    return [path, *pictures]
