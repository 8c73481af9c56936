"""`tapehead bench`: the gate, then the table, then how the cost grows."""

import datetime
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table

from tapehead import files
from tapehead.bench import growth as growing
from tapehead.bench.gate import quick_gate
from tapehead.bench.measure import (
    Row,
    Subject,
    drop_in_subject,
    experiment_subject,
    kernel_subject,
    lstm_subject,
    ntm_subject,
    time_all,
)
from tapehead.commands.experiments import describe, read_experiment
from tapehead.commands.options import check_count, check_device, make_folder
from tapehead.commands.progress import Steps
from tapehead.commands.tables import new_table, print_table
from tapehead.environment import environment
from tapehead.experiment.parts import BLOCK
from tapehead.terminal import complain, say

if TYPE_CHECKING:
    from tapehead import arguments

COPY = "copy at length 20, 128 x 20 memory, controller of 100"
SLOW_UPDATES = 2
"""Updates in one timing of a subject that takes a tenth of a second each."""


def run(options: "arguments.Bench") -> int:
    check_count("--rounds", options.rounds)
    experiment = None if options.experiment is None else read_experiment(options.experiment)
    if experiment is not None and options.device is not None:
        experiment = experiment.with_values({"place.device": options.device})
    device = options.device or "cpu" if experiment is None else experiment.place.device
    check_device(device)
    fast = "gpu" if device.startswith("cuda") else "cpu"
    if experiment is not None:
        subjects = [experiment_subject(experiment)]  # before any folder is made: refuses what cannot be trained
    make_folder(options.out)
    say(f"The gate: is the {fast} backend right?")
    failures = quick_gate(fast, torch.device(device))
    if failures:
        for sentence in (*failures, "the gate is red, so no speed is shown."):
            complain(f"tapehead: {sentence}")
        return 1
    threads = torch.get_num_threads()
    with Steps("timing") as steps:
        drop_ins: list[Subject] = []
        if experiment is None:
            subjects, drop_ins = _subjects(fast, device), _drop_ins(fast, device)
        grows = options.growth and experiment is None
        points = sum(map(len, growing.AXES.values())) if grows else 0
        tell = _counted(steps, (options.rounds + 1) * (len(subjects) + len(drop_ins) + points))
        time_all(subjects + drop_ins, options.rounds, tell)
        curves = growing.growth(fast, device, options.rounds, tell) if grows else {}
    torch.set_num_threads(threads)
    rows, drop_in_rows = [subject.row() for subject in subjects], [subject.row() for subject in drop_ins]
    about = COPY if experiment is None else describe(experiment)
    print_table(_table(rows, f"Complete updates, {about}; median of {options.rounds} rounds"))
    if drop_ins:
        print_table(_table(drop_in_rows, f"Drop-in updates, {about}; median of {options.rounds} rounds"))
    record = environment(device, fast) | {
        "rounds": options.rounds,
        "rows": [row.to_dict() for row in rows],
        "drop_in_rows": [row.to_dict() for row in drop_in_rows],
        "growth_seconds": growing.as_dict(curves),
    }
    name = fast
    if options.experiment is not None and experiment is not None:
        path = options.experiment.resolve()
        name = path.parent.name if path.name == "config.json" else path.stem
        record["experiment"] = experiment.to_plain()
    for path in _keep(record, curves, fast, options.out, f"{datetime.date.today()}-{name}"):
        print(path)
    return 0


def _counted(steps: Steps, of: int) -> Callable[[str], None]:
    """What shows each timing as it begins, with how many there are."""
    done = itertools.count()
    steps.begin()

    def tell(words: str) -> None:
        k = next(done)
        steps.show(k, of, words, f"{k} of {of} timings, {words}")

    return tell


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


def _drop_ins(fast: str, device: str) -> list[Subject]:
    """The same updates as a user of the library writes them."""
    if fast == "gpu":
        return [drop_in_subject("gpu", "lstm", batch, 1, device=device) for batch in (1, 256, 4096)]
    subjects = [drop_in_subject("cpu", "lstm", b, t) for b in (1, 16) for t in (1, 2)]
    return subjects + [drop_in_subject("reference", "lstm", b, t, updates=SLOW_UPDATES) for b, t in ((1, 1), (16, 2))]


def _table(rows: list[Row], title: str) -> Table:
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


def _keep(
    record: dict[str, Any], curves: dict[str, list[growing.Point]], fast: str, out: Path, name: str
) -> list[Path]:
    """Write the numbers to a dated file, and the growth as a figure beside it."""
    path = out / f"{name}.json"
    with files.writing(out):
        files.replace(path, (json.dumps(record, indent=1) + "\n").encode())
    if not curves:
        return [path]
    from tapehead.figures import style
    from tapehead.figures.benchmarks import draw_growth

    points = {axis: [(point.size, point.seconds) for point in curve] for axis, curve in curves.items()}
    return [path, *style.save(draw_growth(points, fast), out, f"{name}-growth")]
