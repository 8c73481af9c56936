"""All records in one figure: a strip for each criterion, in it a dot for every machine; and their learning curves."""

import itertools
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from tapehead.evaluation.learning import Band, band_of
from tapehead.figures import page, style

LEAST, MOST = 1e-5, 1e4  # bits; what lies outside is drawn at the edge
STRIP, LEFT, RIGHT, TOP = 0.27, 4.5, 0.85, 0.95  # inches
MACHINES = {
    "ntm-feedforward": "NTM, feedforward",
    "ntm-lstm": "NTM, LSTM",
    "lstm": "LSTM",
    "dnc": "DNC",
    "transformer": "Transformer",
}

DOTS = "A dot is a machine, blue if it meets what is asked (the tick; without one, no wrong bit), otherwise orange."
BRACKETS = "In brackets the recipe and its training sequences, where it is not `tuned`."


@style.look()
def draw_costs(records: list[dict[str, Any]]) -> Figure:
    strips = [(record, c) for record in records for c in range(len(record["criteria"]))]
    rows = max(1, len(strips))
    height = STRIP * rows
    figure = Figure(figsize=(style.WIDTH, height + TOP + 0.65))
    axes = page.axes(figure, LEFT, TOP, style.WIDTH - LEFT - RIGHT, height)
    axes.set(xscale="log", xlim=(LEAST / 2, MOST * 2), ylim=(rows - 0.5, -0.5), yticks=[])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=style.UNSCORED, linewidth=0.6)
    axes.set_axisbelow(True)
    for y, (record, c) in enumerate(strips):
        _strip(axes, y, record, c)
        top = TOP + STRIP * (y + 0.5)
        if c == 0:
            page.text(figure, 0.15, top, _name(record), fontsize=8.5)
        page.text(figure, LEFT - 0.1, top, _places(record["criteria"][c]), fontsize=8, color=style.FAINT, ha="right")
        met = sum(machine["met"][c] for machine in record["machines"])
        page.text(figure, style.WIDTH - RIGHT + 0.1, top, f"{met} of {len(record['machines'])}", fontsize=8.5)
    page.text(figure, 0.15, 0.3, "Every machine of every confirmation", fontsize=12)
    for down, words in ((0.53, DOTS), (0.71, BRACKETS)):
        page.text(figure, 0.15, down, words, fontsize=8.5, color=style.FAINT)
    axes.set_xlabel("Bits per sequence (N-grams: over the best possible; of several sizes the worst)")
    return figure


def _strip(axes: Axes, y: int, record: dict[str, Any], c: int) -> None:
    criterion, machines = record["criteria"][c], record["machines"]
    found = [[machine["scores"][label]["bits"] for label in criterion["points"]] for machine in machines]
    worst = [max(MOST if bits is None else bits for bits in costs) for costs in found]
    order = np.argsort(worst, kind="stable")
    spread = np.zeros(len(order))
    spread[order] = (np.arange(len(order)) % 5 - 2) * 0.13  # so that equal costs can be told apart
    colours = [style.BLUE if machine["met"][c] else style.VERMILION for machine in machines]
    axes.scatter(np.clip(worst, LEAST, MOST), y + spread, s=11, c=colours, linewidths=0, alpha=0.85)
    if criterion["under"] is not None:
        axes.plot([criterion["under"]] * 2, [y - 0.42, y + 0.42], color=style.INK, linewidth=1.3)


def _name(record: dict[str, Any]) -> str:
    """ "Copy: NTM, LSTM"; with its training, if that is not the recipe `tuned`."""
    task, machine = task_and_machine(record["row"])
    name = style.task_title(task) + (f": {MACHINES[machine]}" if machine else "")
    episodes = record["experiment"]["training"]["episodes"]
    return name if record["recipe"] == "tuned" else f"{name} ({record['recipe']}, {episodes:,})"


def _places(criterion: dict[str, Any]) -> str:
    points = criterion["points"]
    return str(points[0]) if len(points) == 1 else f"{len(points)} sizes"


PANEL, GAP, LINE = 2.1, 0.95, 0.155  # inches
COLUMNS = 2
LINES = {"ntm-lstm": style.BLUE, "ntm-feedforward": style.GREEN, "lstm": style.VERMILION, "dnc": style.PURPLE}
BEST = 1e-4  # bits; what is lower is drawn at the edge


@style.look()
def draw_learning(records: list[dict[str, Any]]) -> Figure:
    """Training cost over training sequences, a panel for each task: median and quartiles of all machines of a row."""
    panels: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if any(machine.get("curve") for machine in record["machines"]):
            panels.setdefault(task_and_machine(record["row"])[0], []).append(record)
    every = list(panels.items())
    in_rows = [every[first : first + COLUMNS] for first in range(0, len(every), COLUMNS)]
    heights = [PANEL + GAP + LINE * max(len(some) for _, some in row) for row in in_rows]
    figure = Figure(figsize=(style.WIDTH, 0.8 + (sum(heights) or PANEL)))
    page.text(figure, 0.15, 0.3, "Learning, at equal numbers of training sequences", fontsize=12)
    words = "Lines are medians of all machines, bands their quartiles; a line ends where training ended."
    page.text(figure, 0.15, 0.53, words if panels else "No record has learning curves yet.", color=style.FAINT)
    width = (style.WIDTH - 0.3) / COLUMNS - 0.75
    for row, above in zip(in_rows, itertools.accumulate(heights, initial=0.95), strict=False):
        for column, (task, some) in enumerate(row):
            axes = page.axes(figure, 0.7 + column * (width + 0.75), above, width, PANEL)
            for record in some:
                _learned(axes, record)
            axes.set(xscale="log", yscale="log", title=style.task_title(task), xlabel="Training sequences of a machine")
            axes.set_ylabel("Bits per sequence" + (" over the best possible" if task == "ngrams" else ""))
            axes.xaxis.set_minor_formatter(NullFormatter())  # over less than a decade matplotlib labels them all
            below = -0.5 / PANEL  # ticks and the name of the axis are between: curves fill the panel
            axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0, below), borderaxespad=0, labelspacing=0.25)
    return figure


def _learned(axes: Axes, record: dict[str, Any]) -> None:
    found = band_of(record["machines"])
    assert found is not None
    machine = MACHINES.get(task_and_machine(record["row"])[1], record["row"])
    label = f"{machine}, {record['recipe']}, {found.seeds} seed{'s' if found.seeds > 1 else ''}"
    draw_band(axes, found, record, label, least=BEST)


def draw_band(
    axes: Axes,
    band: Band,
    record: dict[str, Any],
    label: str,
    *,
    unit: float = 1.0,
    base: float = 0.0,
    least: float = 0.0,
) -> None:
    """Median and quartiles of a record's machines.

    unit: episodes of one step on the axis; base: added to all costs; least: lower costs are drawn as this. Where
    machines failed, the band ends above all costs; where most did, the line ends.
    """
    colour = LINES.get(task_and_machine(record["row"])[1], style.INK)
    most = 2 * float(np.max(band.costs, where=np.isfinite(band.costs), initial=least))
    low, median, high = (np.maximum(part + base, least) for part in (band.low, band.median, band.high))
    dashes = {"tuned": "-", "paper": "--"}.get(record["recipe"], ":")
    x = band.episodes / unit
    axes.plot(x, median, color=colour, linewidth=1.3, linestyle=dashes, label=label)
    top = np.where(np.isinf(high), most + base, high)
    axes.fill_between(x, low, top, where=np.isfinite(low), color=colour, alpha=0.2, linewidth=0)


def task_and_machine(row: str) -> tuple[str, str]:
    """ "copy-ntm-lstm" as copy and ntm-lstm; the second is empty for a record that is no row of the paper."""
    for machine in MACHINES:  # longest first
        if row.endswith(f"-{machine}"):
            return row.removesuffix(f"-{machine}"), machine
    return row, ""
