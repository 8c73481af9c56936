"""Sequential memory access against parallel attention: NTM, LSTM and Transformer on the five tasks of the paper.

    python benchmarks/attention_and_memory.py --list
    python benchmarks/attention_and_memory.py --check
    python benchmarks/attention_and_memory.py --speed
    python benchmarks/attention_and_memory.py --rates
    python benchmarks/attention_and_memory.py --train --budget 360 --work runs/attention --out results/attention

All systems of a task are trained on equal numbers of sequences, those of the NTM's recipe, on ten held-out seeds. The
Transformer comes in two sizes, 4 layers of 128 and of the width whose number of parameters is nearest to the NTM's, the
LSTM in that of the paper and in the width nearest to the NTM's; the Transformer with rotary positions, ALiBi and none.
The NTM itself has records in results/ already. Transformers have the general settings, which are not tuned to a task,
but for the batch: 40,000 sequences are 2,500 updates of 16, in which copying is not learned (docs/lab-notes.md).

--check compares on the device updates as CUDA graphs with updates one by one, and a seed alone with the seed among
others, to the bit. --speed measures sequences a second of every system, ten seeds side by side, writes them to
speed.json (of a CPU, to speed-cpu.json), and says how long all of --train will take. --rates trains Transformers at
several learning rates on tuning seeds, a file for each; RATE is what the comparison uses. --train confirms one system
after the other, most valuable first, until the seconds of the budget are over; the same command goes on from there, and
several processes with the same folders share the work. `docs/update_attention.py` makes the page of the records.
"""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from tapehead import files
from tapehead.environment import environment
from tapehead.evaluation.summaries import quartiles
from tapehead.experiment import run
from tapehead.experiment.config import Experiment
from tapehead.experiment.cuda_graphs import Replaying, one_by_one
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import BLOCK
from tapehead.experiment.run import Observer, Status
from tapehead.lab import confirmation, records
from tapehead.models import SequenceModel
from tapehead.models.transformer.model import Transformer
from tapehead.paper.recipes import general_experiment, row_experiment
from tapehead.paper.tables import PAPER_TASKS

LAYERS = 4
FEW_HEADS = 2
"""Of the smaller Transformers: their widths come in steps of twice as many."""
POSITIONS = ("rotary", "alibi", "none")
SEEDS = tuple(range(1000, 1010))
BATCHES = {"copy": 4, "repeat-copy": 4, "associative-recall": 8, "ngrams": 6, "priority-sort": 64}
"""Sequences of an update of LSTMs and Transformers: about ten thousand updates of each task."""
RATE = {"128": 5e-4, "equal": 1e-3}
"""Learning rates of the Transformers of each size, on every task: for 128 the best of RATES on copy, for the other size
the general one (results/attention/rates)."""
RATES = (2e-3, 1e-3, 5e-4, 2.5e-4)
TUNING = tuple(range(10))
TASKS = tuple(PAPER_TASKS)
SHORT = ("copy", "repeat-copy", "associative-recall")
"""Tasks that take a GPU seconds; the others take a minute with 128 units."""
OVERHEAD = 4.0
"""Seconds of a confirmation beside its replayed updates: starting, capturing, scoring."""
TIMED_SYSTEMS = ("transformer-128-rotary", "transformer-equal-rotary", "lstm", "lstm-equal", "ntm")
CHECKED, TIMED = 4, 2
"""Blocks of the checks, of which the first is not replayed; blocks that are timed."""


def parameters(experiment: Experiment) -> int:
    return sum(parameter.numel() for parameter in experiment.build().parameters())


def transformer_parameters(width: int, inputs: int, outputs: int) -> int:
    """Of a Transformer of LAYERS layers, whose MLPs are four times as wide."""
    return LAYERS * (12 * width + 13) * width + (inputs + 3) * width + outputs * (width + 1)


def lstm_parameters(width: int, inputs: int, outputs: int) -> int:
    """Of the paper's LSTM of three layers."""
    return 4 * width * (3 * inputs + 5 * width + 3) + 6 * width + outputs * (3 * width + 1)


@functools.cache
def experiments(task: str) -> dict[str, Experiment]:
    """The experiments of a task by the name of the system."""
    ntm = row_experiment(f"{task}-ntm-lstm")
    episodes, target = ntm.training.episodes, parameters(ntm)
    channels = ntm.task.input_size, ntm.task.output_size
    widths = range(2 * FEW_HEADS, 513, 2 * FEW_HEADS)
    nearest = min(widths, key=lambda width: abs(transformer_parameters(width, *channels) - target))
    narrow = min(range(4, 513), key=lambda width: abs(lstm_parameters(width, *channels) - target))
    equal: dict[str, Any] = {"training.episodes": episodes, "training.batch_size": BATCHES[task]}
    found = {"ntm": ntm, "lstm": row_experiment(f"{task}-lstm", changes=equal)}
    small = {"model.hidden_size": narrow, "model.num_layers": 3}
    found["lstm-equal"] = row_experiment(f"{task}-lstm", changes=equal | small)
    for size, width, heads in (("128", 128, 4), ("equal", nearest, FEW_HEADS)):
        for positions in POSITIONS:
            settings: dict[str, Any] = {
                "model.hidden_size": width,
                "model.num_layers": LAYERS,
                "model.num_heads": heads,
            }
            settings |= {"model.positions": positions, "optimiser.learning_rate": RATE[size]} | equal
            found[f"transformer-{size}-{positions}"] = general_experiment(task, "transformer", settings)
    return found


def plan() -> list[tuple[str, str]]:
    """Tasks and systems, most valuable first."""
    long = tuple(task for task in TASKS if task not in SHORT)
    found = [(task, "transformer-128-rotary") for task in TASKS]
    found += [(task, "transformer-equal-rotary") for task in TASKS]
    others = [f"transformer-{size}-{positions}" for size in ("equal", "128") for positions in ("alibi", "none")]
    found += [(task, system) for system in others for task in SHORT]
    found += [(task, system) for system in ("lstm", "lstm-equal") for task in SHORT]
    found += [(task, system) for task in long for system in (*others[:2], "lstm", "lstm-equal", *others[2:])]
    return found


def prepared(task: str, system: str, device: str) -> Experiment:
    experiment = experiments(task)[system]
    return dataclasses.replace(experiment.with_values({"place.device": device, "seeds": SEEDS}), recipe="custom")


# --- what has to hold on a device, and how fast it is ----------------------------------------------------------------


def trained(experiment: Experiment, blocks: int, graphs: bool = True) -> Trainer:
    trainer = Trainer(experiment)
    if not graphs:
        trainer._step = one_by_one
    for _ in range(blocks):
        trainer.block()
    return trainer


def different(ours: Trainer, theirs: Trainer, rows: slice = slice(None)) -> list[str]:
    """Names of the tensors that differ; `rows` of ours are all of theirs."""
    other = theirs.population.tensors()
    return [name for name, tensor in ours.population.tensors().items() if not torch.equal(tensor[rows], other[name])]


def check(task: str, system: str, device: str) -> bool:
    experiment = prepared(task, system, device)
    with_graphs, without = (trained(experiment, CHECKED, graphs) for graphs in (True, False))
    captured = isinstance(with_graphs._step, Replaying) and with_graphs._step._graph is not None
    alone = trained(dataclasses.replace(experiment, seeds=SEEDS[7:8]), CHECKED)
    found = {
        "graphs and one by one": different(with_graphs, without),
        "a seed alone and among others": different(with_graphs, alone, slice(7, 8)),
        "metrics": [] if with_graphs.metrics == without.metrics else ["lines"],
    }
    wrong = {name: names for name, names in found.items() if names}
    print(f"{'ok ' if captured and not wrong else 'BAD'} {task}, {system}: captured {captured}, {wrong}", flush=True)
    return captured and not wrong


def measure(task: str, system: str, device: str) -> dict[str, Any]:
    """Complete updates of ten seeds, after what is compiled and captured."""
    experiment = prepared(task, system, device)
    trainer = Trainer(experiment)
    trainer.prepare()
    for _ in range(2):
        trainer.block()
    begin, first = time.perf_counter(), trainer.updates
    for _ in trainer.iter_blocks(first + TIMED * BLOCK):
        pass
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    each = (time.perf_counter() - begin) / (trainer.updates - first)
    batch = experiment.training.batch_size
    updates = experiment.training.episodes / batch
    return {
        "task": task,
        "system": system,
        "parameters": parameters(experiment),
        "seeds": len(SEEDS),
        "batch_size": batch,
        "sequences": experiment.training.episodes,
        "milliseconds_an_update": round(1e3 * each, 3),
        "sequences_a_second": round(len(SEEDS) * batch / each),
        "estimated_seconds": round(updates * each + OVERHEAD, 1),
    }


def check_all(device: str) -> bool:
    systems = [f"transformer-128-{positions}" for positions in POSITIONS] + ["transformer-equal-rotary"]
    checks = [("copy", system) for system in systems] + [("repeat-copy", "transformer-128-rotary")]  # odd parameters
    return all([check(task, system, device) for task, system in checks])


def measure_all(device: str, out: Path, systems: Sequence[str], tasks: Sequence[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    file = out / ("speed.json" if device.startswith("cuda") else f"speed-{device}.json")
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    rows = [row for row in rows if row["system"] not in systems or row["task"] not in tasks]
    record: dict[str, Any] = {"what": "ten seeds side by side, complete updates", "rows": rows}
    record["environment"] = environment(device, "auto")
    for system in systems:
        for task in tasks:
            rows.append(row := measure(task, system, device))
            print(json.dumps(row), flush=True)
            file.write_text(json.dumps(record, indent=1) + "\n")
    if (tuple(systems), tuple(tasks)) == (TIMED_SYSTEMS, TASKS):
        tell_total(record)


def tell_total(record: dict[str, Any]) -> None:
    """How long all of --train will take."""
    seconds = {(row["task"], row["system"]): row["estimated_seconds"] for row in record["rows"]}
    total = 0.0
    for task, system in plan():
        same = system.replace("alibi", "rotary").replace("none", "rotary")
        total += seconds[task, same]
        print(f"{total:7.0f} s  after {task}, {system}")


@contextlib.contextmanager
def claimed(work: Path, name: str) -> Iterator[bool]:
    """Whether no other process works at this now; none does as long as the block runs."""
    work.mkdir(parents=True, exist_ok=True)
    path = work / f"{name}.lock"
    descriptor = files.lock(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def compare_rates(device: str, work: Path, out: Path) -> None:
    """Ten tuning seeds at each rate: seeds solved, and the cost of the last window."""
    out.mkdir(parents=True, exist_ok=True)
    for task, size, rate in itertools.product(("copy", "associative-recall"), ("128", "equal"), RATES):
        name = f"rate-{task}-{size}-{rate:g}"
        with claimed(work, name) as ours:
            if not ours or (out / f"{name}.json").exists():
                continue
            changes = {"optimiser.learning_rate": rate, "seeds": TUNING}
            begin = time.perf_counter()
            result = run.train(prepared(task, f"transformer-{size}-rotary", device).with_values(changes))
            last = [math.inf if bits is None else bits for bits in result.last_window_bits]
            row: dict[str, Any] = {"task": task, "size": size, "rate": rate, "seeds": len(TUNING)}
            row["solved"] = sum(at is not None for at in result.solved_at)
            row["bits"] = [bits if math.isfinite(bits) else None for bits in quartiles(last)]
            row["seconds"] = round(time.perf_counter() - begin, 1)
            (out / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")
            print(json.dumps(row), flush=True)


# --- training --------------------------------------------------------------------------------------------------------


class OutOfTime(Exception):
    pass


class Deadline(Observer):
    """Stops a run between two blocks when the time is over; what it saved stays."""

    def __init__(self, at: float) -> None:
        self._at = at

    def block(self, status: Status) -> None:
        if time.monotonic() > self._at and not status.finished:
            raise OutOfTime


def train(device: str, budget: float, systems: Sequence[str], tasks: Sequence[str], work: Path, out: Path) -> None:
    begin = time.monotonic()
    for task, system in plan():
        if system not in systems or task not in tasks:
            continue
        name = f"{task}-{system}"
        left = begin + budget - time.monotonic()
        if left <= 0:
            break
        started = time.monotonic()
        with claimed(work, name) as ours:
            if not ours or (out / f"{name}.json").exists():
                continue
            try:
                experiment = prepared(task, system, device)
                record = confirmation.confirm(experiment, work / name, name=name, observer=Deadline(begin + budget))
            except OutOfTime:
                print(f"{name}: stopped after {time.monotonic() - started:.0f} s; the same command goes on", flush=True)
                break
            records.write_record(record, out)
        solved = sum(machine["solved_at"] is not None for machine in record["machines"])
        took = time.monotonic() - started
        print(
            f"{name}: {solved} of {len(SEEDS)} solved, {took:.0f} s, of {budget:.0f} s {left - took:.0f} are left",
            flush=True,
        )
    missing = [f"{task}-{system}" for task, system in plan() if not (out / f"{task}-{system}.json").exists()]
    print(f"{len(plan()) - len(missing)} of {len(plan())} records; missing: {', '.join(missing) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="print the experiments")
    what.add_argument("--check", action="store_true", help="compare on the device what has to be equal to the bit")
    what.add_argument("--speed", action="store_true", help="measure on a device that has no other work")
    what.add_argument("--rates", action="store_true", help="compare learning rates of Transformers on tuning seeds")
    what.add_argument("--train", action="store_true", help="train and score, most valuable first")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=float, default=360, help="seconds")
    every = tuple(experiments(TASKS[0]))
    parser.add_argument(
        "--systems", nargs="+", choices=every, metavar="NAME", help="only these, for --train and --speed"
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, metavar="TASK", help="only these")
    parser.add_argument("--work", type=Path, default=Path("runs/attention"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("results/attention"), help="folder of records and speed.json")
    parser.add_argument("--one-by-one", action="store_true", help="without CUDA graphs for Transformers")
    options = parser.parse_args()
    if options.one_by_one:
        Transformer.capturable = SequenceModel.capturable  # type: ignore[method-assign]
    if options.list:
        for task in TASKS:
            for system, experiment in experiments(task).items():
                size, episodes = parameters(experiment), experiment.training.episodes
                print(f"{task}, {system}: {size:,} parameters, {episodes:,} sequences")
    elif options.rates:
        compare_rates(options.device, options.work, options.out / "rates")
    elif options.check:
        raise SystemExit(not check_all(options.device))
    elif options.speed:
        measure_all(options.device, options.out, options.systems or TIMED_SYSTEMS, options.tasks)
    else:
        train(options.device, options.budget, options.systems or every, options.tasks, options.work, options.out)


if __name__ == "__main__":
    main()
