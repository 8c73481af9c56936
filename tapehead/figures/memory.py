"""Memory use, in the manner of the paper's Figure 6 (and 9, 12, 15 and 17).

On the left what goes into the memory: inputs, add vectors, write weightings. On the right what comes out: outputs, read
vectors, read weightings. Time runs to the right, alike in all panels; black is a weighting of 0, white of 1. Each head
has its own panel of weightings, and its own band of add or read vectors.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from tapehead.figures import page, style
from tapehead.figures.memory_trace import (
    USED,
    MemoryTrace,
    Numbers,
    into_range,
    longest_sizes,
    make_memory_trace,
    used_slots,
)
from tapehead.figures.view import RunView
from tapehead.tasks import Task

MOST_HEADS = 8  # of a kind; more would be too small to see

# Inches.
LEFT, BETWEEN, KEY = 0.9, 0.65, 0.8
ACROSS = (style.WIDTH - LEFT - BETWEEN - KEY) / 2
HEADING, APART, CLOSE, FOOT = 0.3, 0.18, 0.09, 1.12
WORDS = 0.95  # the height of inputs and outputs

Row = list[tuple[float, float]]  # upper edges and heights of the panels of a column


def memory_use(view: RunView) -> Figure | None:
    """The memory of one sequence of the largest training sizes; None for a model without one."""
    trace = make_memory_trace(view.model, view.task)
    return None if trace is None else draw_memory(trace, view.task, view.seed)


@style.look()
def draw_memory(trace: MemoryTrace, task: Task, seed: int, title: str = "") -> Figure:
    """title: instead of one made of the task, its sizes and the seed."""
    heads = min(MOST_HEADS, max(len(trace.writing), len(trace.reading)))
    words, vectors, *weightings = rows = arrange(heads)
    figure = Figure(figsize=(style.WIDTH, rows[-1][0] + rows[-1][1] + FOOT))
    usual = f"{style.task_title(task.name)}: memory use ({task.label(longest_sizes(task)).lower()}, seed {seed})"
    page.text(figure, 0.15, 0.3, title or usual, fontsize=12)
    slots = used_slots(trace)
    _draw_words(figure, trace, task, words)
    _draw_vectors(figure, trace, vectors)
    _draw_weightings(figure, trace, slots, weightings)
    for line, caption in enumerate(reversed(_caption(trace, slots))):
        y = figure.get_figheight() - 0.22 - 0.17 * line
        page.text(figure, 0.15, y, caption, fontsize=8, color=style.FAINT)
    return figure


def arrange(heads: int) -> Row:
    """Where the rows of panels go: inputs and outputs, vectors, and the weightings of each head."""
    vectors = 1.2 if heads == 1 else min(0.38 * heads, 2.4)
    weightings = 2.1 if heads == 1 else 0.9 if heads <= 4 else 0.65
    y, rows = page.TOP + HEADING, []
    for height, below in [(WORDS, APART + HEADING), (vectors, APART + HEADING), *[(weightings, CLOSE)] * heads]:
        rows.append((y, height))
        y += height + below
    return rows


def _caption(trace: MemoryTrace, slots: list[int]) -> tuple[str, str]:
    """Two lines: what is drawn how, and which slots."""
    total, heads = trace.writing.shape[1], max(len(trace.writing), len(trace.reading))
    words = ["Dashed: the answer begins."] if trace.answer else []
    words.append("Weightings: where a head is, from 0 (black) to 1 (white).")
    ring = f"The tape is a ring: slot 0 follows slot {total - 1}."
    there = f"all {total} slots"
    if len(slots) < total:
        there = f"slots {slots[0]} to {slots[-1]} of {total}; elsewhere no weighting exceeds {USED:g}"
    if heads > MOST_HEADS:
        words.append(f"The first {MOST_HEADS} of {heads} heads.")
    return " ".join(words), f"{ring} Shown: {there}."


def _draw_words(figure: Figure, trace: MemoryTrace, task: Task, place: tuple[float, float]) -> None:
    inputs, note = into_range(trace.inputs, task.named_inputs)
    unscored = style.BITS.with_extremes(bad=style.UNSCORED)
    left = _panel(figure, 0, place, inputs, style.BITS, (0, 1), trace.answer)
    right = _panel(figure, 1, place, trace.outputs, unscored, (0, 1), trace.answer)
    left.axes.set_title(f"Inputs{note}")
    right.axes.set_title("Outputs (grey: not scored)" if np.isnan(trace.outputs).any() else "Outputs")
    left.axes.set_ylabel("Channel")
    for image, names in ((left, task.named_inputs), (right, task.named_outputs)):
        label_channels(image.axes, image.get_size()[0], names)
    _key(figure, place, right, "Value", (0, 0.5, 1))


def _draw_vectors(figure: Figure, trace: MemoryTrace, place: tuple[float, float]) -> None:
    """Add and read vectors, the heads one below the other; each panel has its own scale, since reads can be faint."""
    for column, (title, vectors) in enumerate((("Adds", trace.adds), ("Reads", trace.reads))):
        shown = vectors[:MOST_HEADS]
        heads, width, steps = shown.shape
        largest = float(np.abs(shown).max())
        stacked = shown.reshape(heads * width, steps) / (largest or 1.0)
        image = _panel(figure, column, place, stacked, style.SIGNED, (-1, 1), trace.answer)
        image.axes.set_title(f"{title} (vectors of {width}, largest value {largest:.2g})")
        if heads > 1:
            image.axes.set_yticks((np.arange(heads) + 0.5) * width - 0.5, [str(head + 1) for head in range(heads)])
            for edge in range(1, heads):
                image.axes.axhline(edge * width - 0.5, color=style.FAINT, linewidth=0.5)
        if column == 0:
            image.axes.set_ylabel("Head" if heads > 1 else "Element")
    _key(figure, place, image, "Value / largest", (-1, 0, 1))


def _draw_weightings(figure: Figure, trace: MemoryTrace, slots: list[int], rows: Row) -> None:
    for column, (title, weightings) in enumerate(
        (("Write weightings", trace.writing), ("Read weightings", trace.reading))
    ):
        heads = weightings[:MOST_HEADS, slots]
        for head, place in zip(range(len(heads)), rows, strict=False):
            last = head == len(heads) - 1
            image = _panel(figure, column, place, heads[head], style.GREYS, (0, 1), trace.answer, times=last)
            label_slots(image.axes, slots, 8 if len(rows) == 1 else 4)
            if column == 0 or head >= len(trace.writing):  # at the left end of its row
                image.axes.set_ylabel("Location (slot)" if len(rows) == 1 else f"Head {head + 1}")
            if head == 0:
                image.axes.set_title(title if len(rows) == 1 else f"{title} (location against time)")
    _key(figure, rows[0], image, "Weighting", (0, 0.5, 1))


def label_channels(axes: Axes, channels: int, names: Mapping[int, str]) -> None:
    """The names of channels that have one, and the numbers of some of the others, not next to a name."""
    step = 1 + channels // 6
    numbers = {k: str(k) for k in range(0, channels, step) if step == 1 or not {k - 1, k, k + 1} & names.keys()}
    labels = numbers | dict(names)
    axes.set_yticks(list(labels), list(labels.values()))
    if any(len(name) > 3 for name in names.values()):
        axes.tick_params(axis="y", labelsize=6.5)  # longer ones would touch their neighbours or the axis's label


def label_slots(axes: Axes, slots: list[int], most: int) -> None:
    """Ticks at round slot numbers, at most so many. Where the ring of slots begins again at 0, the last ones before it
    have none if their labels would touch."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, len(slots)) if len(slots) / s <= most)
    ticks = [i for i, slot in enumerate(slots) if slot % step == 0]
    start = slots.index(0) if 0 in slots else -step
    ticks = [i for i in ticks if i == start or not 0 < start - i < step]
    axes.set_yticks(ticks, [str(slots[i]) for i in ticks])


def _panel(
    figure: Figure,
    column: int,
    place: tuple[float, float],
    values: Numbers,
    colours: Colormap,
    limits: tuple[float, float],
    answer: int,
    times: bool = False,
) -> AxesImage:
    """One quantity over time, with the beginning of the answer; `times` labels the axis of time."""
    y, height = place
    axes = page.axes(figure, LEFT + column * (ACROSS + BETWEEN), y, ACROSS, height)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.tick_params(labelbottom=times)
    axes.yaxis.set_label_coords(-0.6 / ACROSS, 0.5)  # aligned in all rows
    axes.spines[:].set_visible(True)  # a weighting of 1 in the first slot is as white as the page
    if times:
        axes.set_xlabel("Time (steps)")
    if answer:
        axes.axvline(answer - 0.5, color=style.ORANGE, linewidth=1.1, linestyle=(0, (4, 3)))
    return axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1])


def _key(figure: Figure, place: tuple[float, float], image: AxesImage, label: str, ticks: Sequence[float]) -> None:
    """The colours of a row, at its right."""
    y, height = place
    bar = figure.colorbar(
        image, cax=page.axes(figure, style.WIDTH - KEY + 0.15, y, 0.1, height), ticks=ticks, format="%.2g"
    )
    bar.set_label(label, fontsize=8, labelpad=2)
    bar.outline.set_linewidth(0.4)
