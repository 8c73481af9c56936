"""Figure 17: memory use during the priority sort task, with the paper's fit from priorities to write locations."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tapehead.evaluation.learning import Numbers
from tapehead.figures import page, style
from tapehead.figures.memory import label_slots
from tapehead.figures.memory_trace import MemoryTrace, make_memory_trace, used_slots
from tapehead.paper.figures.figure import PaperFigure, missing_machine, needed, paragraph
from tapehead.paper.figures.memory import SEQUENCES, percent
from tapehead.paper.figures.sorting import ROW, Fit, Sorting, sorting
from tapehead.paper.results import Results

TITLE = "NTM memory use during the priority sort task"
DIFFERS = (
    "one sequence; the write locations look like the fitted linear function of the priorities, and the reads then run "
    "along the tape, so that its machine sorts as it writes."
)

# Inches.
LEFT, ACROSS, BETWEEN, TALL, GAP = 0.75, 2.25, 0.68, 2.2, 0.95


def missing(results: Results) -> str | None:
    return missing_machine(results, ROW)


@style.look()
def draw(results: Results) -> Figure:
    machine = needed(results, ROW)
    trace, found = make_memory_trace(machine.model, machine.task), sorting(machine)
    assert trace is not None
    figure = Figure(figsize=(style.WIDTH, page.TOP + 0.25 + 2 * TALL + GAP + 0.6))
    page.text(figure, 0.15, 0.3, f"Figure 17. {TITLE}", fontsize=12)
    rows = (page.TOP + 0.25, page.TOP + 0.25 + TALL + GAP)
    upper, lower = (
        [page.axes(figure, LEFT + column * (ACROSS + BETWEEN), y, ACROSS, TALL) for column in range(3)] for y in rows
    )
    _as_in_the_paper(upper, trace, found, machine.task.input_size - 2)
    _on_many_sequences(lower, found)
    return figure


def _as_in_the_paper(panels: list[Axes], trace: MemoryTrace, found: Sorting, channel: int) -> None:
    """One sequence: fitted write locations, observed ones, and read locations."""
    items, answer = found.items, trace.answer
    priorities = trace.inputs[channel, :items]
    writing = trace.writing[[found.writer]] * (np.arange(trace.writing.shape[-1]) < items)
    reading = trace.reading[[found.reader]] * (np.arange(trace.reading.shape[-1]) >= answer)
    slots = used_slots(trace._replace(writing=writing, reading=reading))
    expected = np.zeros((trace.writing.shape[1], items))
    expected[np.round(found.by_priority(priorities)).astype(int) % len(expected), np.arange(items)] = 1
    shown: dict[str, Numbers] = {
        "Write locations, fitted": expected[slots],
        f"Write locations, head {found.writer + 1}": writing[0][slots][:, :items],
        f"Read locations, head {found.reader + 1}": reading[0][slots][:, answer:],
    }
    for axes, (title, values) in zip(panels, shown.items(), strict=True):
        axes.imshow(values, cmap=style.GREYS, vmin=0, vmax=1)
        axes.set(title=title, xlabel="Time (answers)" if title.startswith("Read") else "Time (items)")
        label_slots(axes, slots, 8)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panels[0].set_ylabel("Location (slot)")


def _on_many_sequences(panels: list[Axes], found: Sorting) -> None:
    """What explains the locations of all sequences together."""
    places = found.written.double().numpy()
    position = np.broadcast_to(np.arange(found.items, dtype=np.float64)[:, None], places.shape)
    _scatter(panels[0], found.priorities.double().numpy(), places, found.by_priority, "Priority")
    _scatter(panels[1], position, places, found.by_position, "Position in the list")
    panels[0].set_ylabel("Write location (slot)")
    for axes in panels:
        axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    ranks = found.ranks_read()
    count, answers = ranks.shape
    edges = (0.5, answers + 0.5, count + 0.5, 0.5)
    panels[2].imshow(ranks, cmap=style.GREYS, vmin=0, vmax=1, extent=edges)
    panels[2].set(title="Items read (white: always)", xlabel="Time (answers)", ylabel="Rank by priority")


def _scatter(axes: Axes, x: Numbers, y: Numbers, fit: Fit, label: str) -> None:
    ends = np.array([x.min(), x.max()])
    axes.scatter(x, y, s=5, color=style.BLUE, alpha=0.4, linewidth=0)
    axes.plot(ends, fit(ends), color=style.VERMILION, linewidth=1.4)
    axes.set(title=f"Fitted line: $R^2$ = {fit.r2:.3f}", xlabel=label)


def caption(results: Results) -> str:
    machine = results.machine(ROW)
    if machine is None:
        return paragraph([missing_machine(results, ROW) or "", f"In the paper: {DIFFERS}"])
    found = sorting(machine)
    return paragraph(
        [
            f"Above, one sequence through one machine: {machine.origin}: write locations that a linear function of the "
            "priorities would give, observed write locations, and read locations.",
            f"Below, the same on {SEQUENCES} sequences: write locations against the priority of an item and against "
            "its position in the list, and which items are read when.",
            f"Of the write head that the priorities explain best, they explain R2 = {found.by_priority.r2:.3f} of the "
            f"variance, and the position in the list R2 = {found.by_position.r2:.3f}; the line from priority p to "
            f"location is {found.by_priority.slope:+.2f} p {found.by_priority.intercept:+.1f}.",
            f"Read head {found.reader + 1} is at the item that comes next in {percent(found.reads_next)} of the "
            f"answers, and write head {found.eraser + 1} is where it was one step later in {percent(found.follows)}.",
            method(found.by_priority, found.by_position),
            f"Command: `tapehead zoo show {ROW}` prints the line that trains it.",
            f"In the paper: {DIFFERS}",
        ]
    )


def method(by_priority: Fit, by_position: Fit) -> str:
    """What the locations of the written items say about how the machine sorts."""
    if by_priority.r2 > 0.5:
        return "It sorts as it writes, as in the paper."
    if by_position.r2 > 0.5:
        return "So it does not sort as it writes: items are written in the order in which they come."
    return "Neither the priorities nor the positions explain where items are written."


FIGURE = PaperFigure(17, TITLE, draw, caption, missing)
