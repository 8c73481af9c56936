"""Figure 16: an example of the priority sort task, and what a machine answers."""

import numpy as np
from matplotlib.figure import Figure

from tapehead.evaluation.learning import Numbers
from tapehead.figures import page, style
from tapehead.figures.run_model import run_model, source
from tapehead.paper.figures.figure import INTERVALS, PaperFigure, missing_machine, needed, paragraph
from tapehead.paper.figures.outputs import all_seeds
from tapehead.paper.figures.sorting import ROW
from tapehead.paper.results import Results
from tapehead.tasks.priority_sort import PrioritySort

TITLE = "Example input and target sequence for the priority sort task"

# Inches.
LEFT, CELL, BETWEEN, TALL, BARS, GAP = 0.85, 0.19, 1.0, 1.2, 0.85, 0.38


def missing(results: Results) -> str | None:
    return missing_machine(results, ROW)


@style.look()
def draw(results: Results) -> Figure:
    machine = needed(results, ROW)
    task = machine.task
    assert isinstance(task, PrioritySort)
    batch = task.sample(source(task), batch_size=1)
    scored = batch.mask[:, 0] > 0
    items = int(scored.int().argmax()) - 1
    inputs, priorities = (batch.inputs[:items, 0, part].double().numpy() for part in (slice(task.width), task.width))
    targets = batch.targets[scored, 0].double().numpy()
    outputs = run_model(machine.model, batch)[scored, 0].sigmoid().double().numpy()
    figure = Figure(figsize=(style.WIDTH, page.TOP + 0.2 + BARS + 2 * (TALL + GAP) + 0.7))
    page.text(figure, 0.15, 0.3, f"Figure 16. {TITLE}", fontsize=12)
    x, right = LEFT, LEFT + items * CELL + BETWEEN
    top = page.TOP + 0.2
    _bars(figure, x, top, priorities, "Inputs in the order of time")
    _bits(figure, x, top + BARS + GAP, inputs, "Input vectors")
    _bars(figure, right, top, np.sort(priorities)[::-1][: len(targets)], "Targets: highest priority first")
    _bits(figure, right, top + BARS + GAP, targets, "Target vectors")
    wrong = int(((outputs > 0.5) != (targets > 0.5)).sum())
    title = f"Outputs of the NTM ({wrong} of {targets.size} bits wrong)"
    _bits(figure, right, top + BARS + TALL + 2 * GAP, outputs, title)
    page.foot(figure, LEFT, "", style.BITS, "value")
    return figure


def _bars(figure: Figure, x: float, y: float, values: Numbers, title: str) -> None:
    axes = page.axes(figure, x, y, len(values) * CELL, BARS)
    axes.bar(np.arange(len(values)), values, color=style.BLUE, width=0.8)
    axes.axhline(0, color=style.FAINT, linewidth=0.6)
    axes.set(xlim=(-0.5, len(values) - 0.5), ylim=(-1, 1), xticks=[], yticks=(-1, 0, 1), title=title)
    axes.set_ylabel("Priority")


def _bits(figure: Figure, x: float, y: float, values: Numbers, title: str) -> None:
    axes = page.axes(figure, x, y, len(values) * CELL, TALL)
    axes.imshow(values.T, cmap=style.BITS, vmin=0, vmax=1)
    axes.set(title=title, ylabel="Channel", xticks=[], yticks=range(0, values.shape[1], 2))


def caption(results: Results) -> str:
    sentences = [
        "An example of the task: random vectors with random priorities, and those of the highest priorities in order.",
        INTERVALS,
    ]
    machine = results.machine(ROW)
    if machine is None:
        sentences.append(missing_machine(results, ROW) or "")
    else:
        sentences.append(f"Below the targets what one machine answers: {machine.origin}.")
    record = results.record(ROW)
    labels = [] if record is None else [point["label"] for point in record["points"]]
    sentences.append(all_seeds(results, ROW, labels))
    return paragraph([*sentences, "In the paper: the input and the target alone."])


FIGURE = PaperFigure(16, TITLE, draw, caption, missing)
