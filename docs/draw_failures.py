"""How the machines of a record fail that do not meet what is asked: kinds, and pictures of the heads.

    python docs/draw_failures.py kinds results/*.json       a table of all kinds, from the records alone

    tapehead confirm ROW --seed 30000 --seeds 100 --work runs/confirm
    python docs/draw_failures.py keep results/ROW.json --work runs/confirm --out runs/failing
    python docs/draw_failures.py draw results/ROW.json --weights runs/failing

`keep` takes the weights of the machines that fail out of the run's folder, and those of the median machine; `draw`
prints a table of kinds and draws the heads of some of them, on a sequence that they get wrong, beside the median
machine's. Sequences are not those of the record.
"""

import argparse
import dataclasses
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file, save_file
from torch import Tensor

from tapehead.commands.experiments import default_folder
from tapehead.experiment.config import Experiment
from tapehead.experiment.folder import delivered
from tapehead.figures import style
from tapehead.figures.run_model import run_with_trace
from tapehead.lab import records
from tapehead.lab.acceptance import Point, acceptance_of
from tapehead.lab.adoption import median_machine
from tapehead.models.sequence import SequenceModel
from tapehead.report.failures import RARE, failures_of
from tapehead.streams import stream
from tapehead.tasks import Batch, Task
from tapehead.tasks.ngrams import NGrams

SEQUENCES = 100
MOST = 3  # machines in a picture, beside the median one
SHARED, SEVERAL = 0.05, 0.2  # of the steps; 0 and up to 0.09 in good machines

KINDS = {
    "not learned": "not solved in any attempt, and over half of chance at the training sizes",
    "slow": "not solved in any attempt, but on the way",
    "rare": f"wrong in at most {RARE:.0%} of the sequences",
    "late": "the first mistake is in the second half of the answer (median of the wrong sequences)",
    "early": "the first mistake is in the first half of the answer",
    "imprecise": "no wrong bit, but a cost above what is asked",
    "shared rows": f"N-grams: in over {SHARED:.0%} of the steps the row that is read is that of another context",
    "several rows": f"N-grams: in over {SEVERAL:.0%} of the steps the context is at a row that is not its usual one",
    "weak use": "N-grams: every context has a row of its own, and the predictions are not the best possible",
}


@dataclasses.dataclass(frozen=True)
class Failing:
    """A machine at the point where it costs most, of a criterion that it does not meet."""

    seed: int
    kind: str
    point: Point
    bits: float
    said: str
    """What was seen, in words."""
    worst: int = 0
    """A sequence that is wrong, as many are: the one whose first mistake is the median."""


def keep(record: dict[str, Any], work: Path, out: Path) -> Path:
    experiment = Experiment.from_plain(record["experiment"])
    weights = delivered(default_folder(experiment, work), experiment)
    seeds = [*failing_seeds(record), median_machine(record)[0]["seed"]]
    chosen = {str(seed): weights[experiment.seeds.index(seed)].contiguous() for seed in dict.fromkeys(seeds)}
    out.mkdir(parents=True, exist_ok=True)
    save_file(chosen, path := out / f"{record['name']}.safetensors")
    return path


def failing_seeds(record: dict[str, Any]) -> list[int]:
    return [machine["seed"] for machine in record["machines"] if not all(machine["met"])]


def model_of(experiment: Experiment, flat: Tensor, point: Point) -> SequenceModel:
    model = experiment.model.build(experiment.task)
    model.load_flat(flat)
    return (model if point.slots is None else model.with_memory(point.slots)).eval()


def sample(task: Task, point: Point, sequences: int = SEQUENCES) -> Batch:
    return task.sample(stream(0, "failures", 0), batch_size=sequences, **point.sizes)


def wrong_steps(task: Task, logits: Tensor, batch: Batch) -> Tensor:
    """Bools [T, B]: a scored step with a wrong answer."""
    return task.loss.errors(logits, batch.targets).any(dim=-1) & (batch.mask != 0)


def examine(record: dict[str, Any], machine: dict[str, Any], flat: Tensor) -> Failing:
    experiment = Experiment.from_plain(record["experiment"])
    task = experiment.task
    asked = acceptance_of(task, experiment.model.build(task))
    missed = next(c for c, met in zip(asked.criteria, machine["met"], strict=True) if not met)
    point = max(missed.points, key=lambda p: bits_at(machine, p.label(task)))
    if isinstance(task, NGrams):
        return examine_ngrams(experiment, machine, flat, point)
    batch = sample(task, point, min(SEQUENCES, point.most or SEQUENCES))
    logits, _ = run_with_trace(model_of(experiment, flat, point), batch)
    wrong = wrong_steps(task, logits, batch)
    places = wrong.any(dim=0).nonzero().squeeze(-1)
    begins = batch.mask.argmax(dim=0)
    firsts = ((wrong.int().argmax(dim=0) - begins) / batch.mask.sum(dim=0))[places]
    share, first = len(places) / wrong.shape[1], float(firsts.median()) if len(places) else 0.0
    worst = int(places[firsts.argsort()[(len(places) - 1) // 2]]) if len(places) else 0
    kind, bits = kind_of(task, machine, share, first), bits_at(machine, point.label(task))
    said = f"{share:.0%} of the sequences wrong, first mistake at {first:.0%} of the answer"
    return Failing(machine["seed"], kind, point, bits, said, worst)


def bits_at(machine: dict[str, Any], label: str) -> float:
    bits: float | None = machine["scores"][label]["bits"]
    return float("inf") if bits is None else bits


def examine_ngrams(experiment: Experiment, machine: dict[str, Any], flat: Tensor, point: Point) -> Failing:
    """By the rows that are read with each context."""
    task = experiment.task
    assert isinstance(task, NGrams)
    batch = sample(task, point, 20)
    counts = rows_of_contexts(model_of(experiment, flat, point), task, batch)
    shared = 1 - float(counts.amax(dim=1).sum() / counts.sum())
    several = 1 - float(counts.amax(dim=2).sum() / counts.sum())
    kind = "shared rows" if shared > SHARED else "several rows" if several > SEVERAL else "weak use"
    said = f"{shared:.0%} of the steps at a row of another context, {several:.0%} at one that is not the usual one"
    return Failing(machine["seed"], kind, point, bits_at(machine, point.label(task)), said)


def rows_of_contexts(model: SequenceModel, task: NGrams, batch: Batch) -> Tensor:
    """Counts [B, contexts, slots] of steps with a context in which a row is read, in the second half of a sequence,
    where most contexts were seen before."""
    _, trace = run_with_trace(model, batch)
    weightings = trace.read.weightings[:, :, 0].cpu()  # [T, B, N]
    rows, bits = weightings.argmax(dim=-1), batch.targets[..., 0].long()
    contexts = sum((bits.roll(k, 0) << (k - 1) for k in range(1, task.order)), torch.zeros_like(bits))
    half = len(bits) // 2
    counts = torch.zeros(bits.shape[1], 2 ** (task.order - 1), weightings.shape[-1])
    for b, of_one in enumerate(counts):
        of_one.index_put_((contexts[half:, b], rows[half:, b]), torch.ones(len(bits) - half), accumulate=True)
    return counts


@style.look()
def draw_ngrams(record: dict[str, Any], found: Sequence[Failing], weights: dict[str, Tensor]) -> Figure:
    """Which row is read with which context: of machines that fail, and of the median one."""
    experiment = Experiment.from_plain(record["experiment"])
    assert isinstance(experiment.task, NGrams)
    median = median_machine(record)[0]["seed"]
    shown = [*found[:MOST], median]
    figure = Figure(figsize=(style.WIDTH, 3.2), layout="constrained")
    axes = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axis, one in zip(axes, shown, strict=True):
        seed, title = (
            (one, f"{one} (median)") if isinstance(one, int) else (one.seed, f"{one.seed}: {one.bits:.2g} bits")
        )
        point = found[0].point
        model = model_of(experiment, weights[str(seed)], point)
        counts = rows_of_contexts(model, experiment.task, sample(experiment.task, point, 20)).sum(dim=0)
        used = counts.sum(dim=0).argsort(descending=True)[:48].sort().values  # the rows that are read most
        share = counts[:, used] / counts.sum(dim=1, keepdim=True)
        axis.imshow(share.numpy(), cmap=style.GREYS, vmin=0, vmax=1)
        axis.set_title(title, fontsize=8)
        axis.set_xlabel("row that is read, of 48")
    axes[0].set_ylabel("context: the last five bits")
    return figure


def kind_of(task: Task, machine: dict[str, Any], share: float, first: float) -> str:
    if machine["solved_at"] is None and task.solved_bits < 1:
        half = task.chance_bits / 2
        last = machine["last_window_bits"]
        return "not learned" if last is None or last > half else "slow"
    if not share:
        return "imprecise"
    if share <= RARE:
        return "rare"
    return "late" if first > 0.5 else "early"


@style.look()
def draw(record: dict[str, Any], found: Sequence[Failing], weights: dict[str, Tensor]) -> Figure:
    experiment = Experiment.from_plain(record["experiment"])
    task = experiment.task
    median = median_machine(record)[0]["seed"]
    shown = list(found[:MOST])
    figure = Figure(figsize=(style.WIDTH, 2.2 * len(shown) * 1.3), layout="constrained")
    axes = figure.subplots(len(shown), 4, squeeze=False, sharey="row")
    for row, failing in zip(axes, shown, strict=True):
        batch = sample(task, failing.point, min(SEQUENCES, failing.point.most or SEQUENCES))
        one = Batch(*(part[..., failing.worst : failing.worst + 1, :] for part in batch[:2]), *(
            part[..., failing.worst : failing.worst + 1] for part in batch[2:]
        ))  # fmt: skip
        for pair, seed in ((row[:2], failing.seed), (row[2:], median)):
            logits, trace = run_with_trace(model_of(experiment, weights[str(seed)], failing.point), one)
            steps = wrong_steps(task, logits, one)[:, 0]
            for axis, heads, name in zip(pair, (trace.write, trace.read), ("write", "read"), strict=True):
                weightings = heads.weightings[:, 0].amax(dim=1).T.cpu().numpy()
                slots = weightings.shape[0]
                axis.imshow(weightings, cmap=style.GREYS, vmin=0, vmax=1, extent=(0, len(steps), slots, 0))
                axis.axvline(int(one.mask[:, 0].argmax()), color=style.ORANGE, linewidth=0.8)
                if steps.any():
                    axis.axvline(int(steps.int().argmax()), color=style.VERMILION, linewidth=0.8, linestyle=":")
                axis.set_title(f"{seed}{' (median)' if seed == median else ''}: {name}", fontsize=8)
        row[0].set_ylabel(f"{failing.kind}: {failing.point.label(task)}\nslot", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("time step")
    return figure


def table(record: dict[str, Any], found: Sequence[Failing]) -> str:
    """In Markdown: a line for each kind."""
    lines = ["| row | kind | machines | bits, median |", "|---|---|---|---|"]
    for kind, count in Counter(failing.kind for failing in found).most_common():
        of = [failing for failing in found if failing.kind == kind]
        lines.append(
            f"| {record['name']} | {kind} | {count} of {len(record['machines'])} | "
            f"{statistics.median(f.bits for f in of):,.3g} |"
        )
    return "\n".join(lines)


def kinds(paths: Sequence[Path]) -> str:
    """Of tuned NTMs: failures by kind (as the report has them), without relapses and machines that did not pass, which
    meet what is asked; in Markdown."""
    lines = ["| record | machines | does not meet what is asked | kinds |", "|---|---|---|---|"]
    for path in paths:
        record = records.read(path)
        missing = set(failing_seeds(record))
        of_seed = {failure.seed: failure.kind for failure in reversed(failures_of(record))}  # the gravest of each
        found = Counter(kind for seed, kind in of_seed.items() if seed in missing)
        if record["recipe"] == "tuned" and record["experiment"]["model"]["name"] == "ntm":
            said = ", ".join(f"{count} {kind}" for kind, count in found.most_common()) or "-"
            lines.append(f"| {record['name']} | {len(record['machines'])} | {len(missing)} | {said} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("kinds").add_argument("records", type=Path, nargs="+")
    keeps = commands.add_parser("keep")
    draws = commands.add_parser("draw")
    for command in (keeps, draws):
        command.add_argument("record", type=Path)
    keeps.add_argument("--work", type=Path, required=True)
    keeps.add_argument("--out", type=Path, required=True)
    draws.add_argument("--weights", type=Path, required=True)
    draws.add_argument("--out", type=Path, default=Path(__file__).with_name("images"))
    given = parser.parse_args()
    if given.command == "kinds":
        print(kinds(given.records))
        return
    record = records.read(given.record)
    if given.command == "keep":
        print(keep(record, given.work, given.out))
        return
    weights = load_file(given.weights / f"{record['name']}.safetensors")
    failing = set(failing_seeds(record))
    machines = [machine for machine in record["machines"] if machine["seed"] in failing]
    found = [examine(record, machine, weights[str(machine["seed"])]) for machine in machines]
    print(table(record, found))
    for one in found:
        print(f"  {one.seed}: {one.kind}, {one.bits:,.3g} bits, {one.said}")
    if found:
        of_each_kind = {one.kind: one for one in reversed(found)}
        ngrams = isinstance(Experiment.from_plain(record["experiment"]).task, NGrams)
        drawing = draw_ngrams if ngrams else draw
        svg, png = style.save(
            drawing(record, list(of_each_kind.values()), weights), given.out, f"failing-{record['name']}"
        )
        svg.unlink()
        print(png)


if __name__ == "__main__":
    main()
