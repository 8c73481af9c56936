"""All records in one figure: a strip for each criterion, in it a dot for every machine."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tapehead.figures import page, style

LEAST, MOST = 1e-5, 1e4  # bits; what lies outside is drawn at the edge
STRIP, LEFT, RIGHT, TOP = 0.27, 3.8, 0.85, 0.95  # inches
MACHINES = {"ntm-feedforward": "NTM, feedforward", "ntm-lstm": "NTM, LSTM", "lstm": "LSTM"}

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
    name = style.task_title(record["row"])
    for machine, words in MACHINES.items():  # longest first
        if record["row"].endswith(f"-{machine}"):
            name = f"{style.task_title(record['row'].removesuffix(f'-{machine}'))}: {words}"
            break
    episodes = record["experiment"]["training"]["episodes"]
    return name if record["recipe"] == "tuned" else f"{name} ({record['recipe']}, {episodes:,})"


def _places(criterion: dict[str, Any]) -> str:
    points = criterion["points"]
    return str(points[0]) if len(points) == 1 else f"{len(points)} sizes"
