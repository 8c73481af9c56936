"""Allocation, links and read modes of a Differentiable Neural Computer, in the style of the memory figure.

On the left what decides where is written: gates, usage, allocation, and the write weighting that comes of it. On the
right, for each read head, how much it went backward along the links, by content, and forward, and where it was. Below
are the links when the answer begins, as arcs from one slot to the slot that was written next. Time runs to the right.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Arc, Patch
from matplotlib.ticker import MaxNLocator

from tapehead.figures import page, style
from tapehead.figures.dnc_trace import USED, LinkTrace, count_written, make_link_trace, slots_in_use, strongest_links
from tapehead.figures.memory import ACROSS, BETWEEN, LEFT
from tapehead.figures.memory_trace import Numbers, longest_sizes
from tapehead.figures.view import RunView
from tapehead.kernels.dnc_scan.spec import MODES
from tapehead.tasks import Task

MOST_HEADS = 4
MODE_COLOURS = (style.BLUE, style.UNSCORED, style.ORANGE)
LEAST_LINK = 0.1
LABELS = 6
"""Most slots whose numbers stand beside a panel."""
FEW = 8
"""Slots that are shown of a machine whose heads have been nowhere in particular."""

# Inches.
HEADING, APART, CLOSE, FOOT = 0.3, 0.18, 0.07, 0.45
GATE, SLOTS, ARCS = 0.14, 1.15, 2.1
"""Heights: of a row of gates, of a panel of slots, of the arcs."""
MODES_PART = 0.35
"""Of the height that a read head has."""


def link_use(view: RunView) -> Figure | None:
    """One sequence of the largest training sizes; None for a model that is no DNC."""
    trace = make_link_trace(view.model, view.task)
    return None if trace is None else draw_links(trace, view.task, view.seed)


@style.look()
def draw_links(trace: LinkTrace, task: Task, seed: int) -> Figure:
    heads = min(MOST_HEADS, len(trace.modes))
    gates = _gate_rows(trace, heads)
    tops, y = [], page.TOP + HEADING
    for height in (GATE * len(gates), SLOTS, SLOTS, SLOTS):
        tops.append((y, height))
        y += height + APART + HEADING
    arcs = y + 0.35  # below the axis of time
    figure = Figure(figsize=(style.WIDTH, arcs + ARCS + 0.45 + FOOT))
    sizes = task.label(longest_sizes(task)).lower()
    title = f"{style.task_title(task.name)}: allocation and links ({sizes}, seed {seed})"
    page.text(figure, 0.15, 0.3, title, fontsize=12)
    slots = slots_in_use(trace) or list(range(min(len(trace.usage), FEW)))
    _draw_writing(figure, trace, gates, slots, tops)
    bottom = tops[-1][0] + tops[-1][1]
    _draw_reading(figure, trace, heads, slots, tops[0][0], bottom)
    _draw_arcs(figure, trace, slots, arcs)
    page.text(figure, 0.15, figure.get_figheight() - 0.22, _caption(trace, slots), fontsize=8, color=style.FAINT)
    return figure


def _gate_rows(trace: LinkTrace, heads: int) -> dict[str, Numbers]:
    free = {f"free {head + 1}" if heads > 1 else "free": trace.free_gates[head] for head in range(heads)}
    return {"write": trace.write_gate, "allocation": trace.allocation_gate} | free


def _caption(trace: LinkTrace, slots: list[int]) -> str:
    words = ["Dashed: the answer begins."] if trace.answer else []
    only_read = len(slots) - count_written(trace)
    order = "by their first write" + (f", the last {only_read} only read" if 0 < only_read < len(slots) else "")
    words.append(f"Shown: {len(slots)} of {len(trace.usage)} slots (a weighting over {USED:g}), {order}.")
    if len(trace.modes) > MOST_HEADS:
        words.append(f"The first {MOST_HEADS} of {len(trace.modes)} read heads.")
    return " ".join(words)


def _label_slots(axes: Axes, slots: list[int]) -> None:
    """The number of every slot, or of every second, and so on; the same ones in every panel."""
    step = -(-len(slots) // LABELS)
    axes.set_yticks(range(0, len(slots), step), [str(slot) for slot in slots[::step]])


def _draw_writing(
    figure: Figure, trace: LinkTrace, gates: dict[str, Numbers], slots: list[int], places: list[tuple[float, float]]
) -> None:
    """The left column, with the key of its greys beside the arcs."""
    first, *rest = places
    image = _panel(figure, 0, *first, np.stack(list(gates.values())), trace.answer)
    image.axes.set_title("Gates")
    image.axes.set_yticks(range(len(gates)), list(gates))
    panels = (("Usage", trace.usage), ("Allocation", trace.allocation), ("Write weighting", trace.writing))
    for (title, values), place in zip(panels, rest, strict=True):
        image = _panel(figure, 0, *place, values[slots], trace.answer)
        image.axes.set_title(title)
        image.axes.set_ylabel("Slot")
        image.axes.yaxis.set_label_coords(-0.42 / ACROSS, 0.5)
        _label_slots(image.axes, slots)
    image.axes.tick_params(labelbottom=True)
    image.axes.set_xlabel("Time (steps)")
    y, _ = first
    x = LEFT + ACROSS - 1.15
    bar = figure.colorbar(
        image, cax=page.axes(figure, x, y - 0.17, 0.9, 0.09), orientation="horizontal", ticks=[], format="%g"
    )
    bar.outline.set_linewidth(0.4)
    page.text(figure, x - 0.07, y - 0.125, "0", ha="right", fontsize=8)
    page.text(figure, x + 0.97, y - 0.125, "1", fontsize=8)


def _draw_reading(figure: Figure, trace: LinkTrace, heads: int, slots: list[int], top: float, bottom: float) -> None:
    """The right column: of each read head the shares of its modes, and the weighting that comes of them."""
    height = (bottom - top - (heads - 1) * APART) / heads
    for head in range(heads):
        y, last = top + head * (height + APART), head == heads - 1
        modes = page.axes(figure, LEFT + ACROSS + BETWEEN, y, ACROSS, (height - CLOSE) * MODES_PART)
        _draw_modes(modes, trace.modes[head])
        _time(modes, trace.answer, labels=False)
        rest = (height - CLOSE) * (1 - MODES_PART)
        image = _panel(figure, 1, y + height - rest, rest, trace.reading[head, slots], trace.answer)
        _label_slots(image.axes, slots)
        image.axes.tick_params(labelbottom=last)
        if last:
            image.axes.set_xlabel("Time (steps)")
        if head == 0:
            modes.set_title("Reading")
            keys = [Patch(facecolor=colour, label=mode) for mode, colour in zip(MODES, MODE_COLOURS, strict=True)]
            modes.legend(
                handles=keys, loc="lower right", bbox_to_anchor=(1.01, 1.0), ncols=3, fontsize=8, handlelength=1.0,
                columnspacing=1.0, borderpad=0.2,
            )  # fmt: skip
        x = LEFT + 2 * ACROSS + BETWEEN + 0.08
        page.text(figure, x, y + (height - CLOSE) * MODES_PART / 2, "Modes", fontsize=8)
        page.text(figure, x, y + height - rest / 2, "Weighting" if heads == 1 else f"Head {head + 1}", fontsize=8)


def _draw_modes(axes: Axes, shares: Numbers) -> None:
    """Shares [3, T], one on the other."""
    time, below = np.arange(shares.shape[-1]), np.zeros(shares.shape[-1])
    for share, colour in zip(shares, MODE_COLOURS, strict=True):
        axes.bar(time, share, 1.0, below, color=colour, linewidth=0)
        below = below + share
    axes.set(xlim=(-0.5, len(time) - 0.5), ylim=(0, 1), yticks=(0.5, 1))


def _draw_arcs(figure: Figure, trace: LinkTrace, slots: list[int], top: float) -> None:
    """The links of one step: above the line to a slot further right, below it to one further left."""
    axes = page.axes(figure, LEFT, top, style.WIDTH - LEFT - page.RIGHT, ARCS)
    links = strongest_links(trace.links, slots, LEAST_LINK)
    for since, to, strength in links:
        up = to > since
        axes.add_patch(
            Arc(
                ((since + to) / 2, 0), abs(to - since), _rise(abs(to - since)), theta1=0 if up else 180,
                theta2=180 if up else 360, color=style.BLUE if up else style.VERMILION, linewidth=0.4 + 2 * strength,
                alpha=min(1.0, 0.25 + strength),
            )
        )  # fmt: skip
    usage = trace.usage[slots, min(trace.linked + 1, trace.usage.shape[1] - 1)]  # with what that step wrote
    axes.scatter(range(len(slots)), np.zeros(len(slots)), 6 + 34 * usage, color=style.INK, zorder=3)
    above = [_rise(to - since) / 2 for since, to, _ in links if to > since]
    below = [_rise(since - to) / 2 for since, to, _ in links if to < since]
    axes.set(xlim=(-0.6, len(slots) - 0.4), ylim=(-max(below, default=0) - 0.35, max(above, default=0) + 0.35))
    title = f"Links after step {trace.linked}, from a slot to the one written next ({LEAST_LINK:g} and stronger)"
    axes.set_title(title if links else f"Links after step {trace.linked}: none is as strong as {LEAST_LINK:g}")
    order, written = "in the order of first writes", count_written(trace)
    if 0 < written < len(slots):
        axes.axvline(written - 0.5, color=style.FAINT, linewidth=0.8, linestyle=":")
        order += ", then those only read"
    axes.set(yticks=[], xlabel=f"Slot, {order} (dots: usage; arcs below the line lead back)")
    axes.spines["left"].set_visible(False)
    step = -(-len(slots) // 32)
    axes.set_xticks(range(0, len(slots), step), [str(slot) for slot in slots[::step]])


def _rise(distance: int) -> float:
    """The height of an arc; less than in proportion, so that links of neighbours are seen beside far ones."""
    return float(2 * np.sqrt(distance))


def _panel(figure: Figure, column: int, y: float, height: float, values: Numbers, answer: int) -> AxesImage:
    axes = page.axes(figure, LEFT + column * (ACROSS + BETWEEN), y, ACROSS, height)
    image = axes.imshow(values, cmap=style.GREYS, vmin=0, vmax=1)
    _time(axes, answer, labels=False)
    return image


def _time(axes: Axes, answer: int, labels: bool) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.tick_params(labelbottom=labels)
    if answer:
        axes.axvline(answer - 0.5, color=style.VERMILION, linewidth=1.1, linestyle=(0, (4, 3)))
