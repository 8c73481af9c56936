"""Several runs in one picture: their learning curves, and what their machines cost at each size.

A run has one colour, one style of line and one mark, so that runs can be told apart in print without colours too.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from tapehead.evaluation.generalisation import Score
from tapehead.evaluation.summaries import quartiles, quartiles_of_rows
from tapehead.experiment.folder import read_config, read_metrics, read_result
from tapehead.experiment.metrics import Line
from tapehead.figures import page, style
from tapehead.figures.curves import Numbers, common_steps, curves
from tapehead.tasks import Task

LOOKS = (
    (style.BLUE, "-", "o"),
    (style.VERMILION, "--", "s"),
    (style.GREEN, "-.", "^"),
    (style.ORANGE, ":", "D"),
    ("#cc79a7", (0, (6, 1.5, 1, 1.5, 1, 1.5)), "v"),
    ("#56b4e9", (0, (9, 3)), "P"),
    (style.INK, (0, (1, 1)), "X"),
)
LEAST = 1e-6
"""Bits that a cost is drawn at that is 0, on a scale of powers of ten."""

# Inches.
LEFT, BETWEEN, HEIGHT, LEGEND_LINE, FOOT = 0.8, 0.85, 3.0, 0.19, 0.95


class RunCurves(NamedTuple):
    """What is drawn of a run."""

    label: str
    task: Task
    metrics: list[Line]
    scores: Sequence[Score]
    """Empty while it is not finished."""


def read_runs(folders: Sequence[Path]) -> list[RunCurves]:
    """Of runs' folders, under the shortest labels that tell them apart."""
    runs = []
    for folder, label in zip(folders, labels(folders), strict=True):
        result = read_result(folder)
        scores = () if result is None else result.generalisation
        runs.append(RunCurves(label, read_config(folder).task, read_metrics(folder), scores))
    return runs


def labels(folders: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as are needed."""
    parts = [folder.resolve().parts for folder in folders]
    for count in range(1, max(map(len, parts)) + 1):
        short = ["/".join(one[-count:]) for one in parts]
        if len(set(short)) == len(set(parts)):
            break
    return short


@style.look()
def draw_comparison(runs: Sequence[RunCurves]) -> Figure:
    """Learning curves on the left; costs by size on the right, if any run has been scored."""
    scored = any(run.scores for run in runs)
    top = 0.62 + LEGEND_LINE * len(runs)
    figure = Figure(figsize=(style.WIDTH, top + HEIGHT + FOOT))
    tasks = list(dict.fromkeys(style.task_title(run.task.name) for run in runs))
    page.text(figure, 0.15, 0.3, f"{', '.join(tasks)}: {len(runs)} runs", fontsize=12)
    room = style.WIDTH - LEFT - page.RIGHT
    across = (room - BETWEEN) * 0.6 if scored else room
    axes = page.axes(figure, LEFT, top, across, HEIGHT)
    _draw_curves(axes, runs)
    if scored:
        _draw_costs(page.axes(figure, LEFT + across + BETWEEN, top, (room - BETWEEN) * 0.4, HEIGHT), runs)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=1, fontsize=8.5, handlelength=3.2, borderpad=0.2)
    words = "Lines: median of the seeds, of the mean of every 1,000 training episodes; shaded and bars: quartiles."
    page.text(figure, 0.15, figure.get_figheight() - 0.22, words, fontsize=8, color=style.FAINT)
    return figure


def _draw_curves(axes: Axes, runs: Sequence[RunCurves]) -> None:
    drawn: list[Numbers] = []
    for run, (colour, line, _) in zip(runs, _looks(len(runs)), strict=True):
        by_seed = curves(run.metrics, run.task.solved_bits)
        edges, values = common_steps(list(by_seed.values()))
        low, median, high = quartiles_of_rows(values)
        drawn += [part[np.isfinite(part)] for part in (low, median, high)]
        if len(by_seed) > 1:
            axes.stairs(high, edges / 1000, baseline=low, fill=True, color=colour, alpha=0.15, linewidth=0)
        solved = sum(curve.solved is not None for curve in by_seed.values())
        label = f"{run.label} ({solved} of {len(by_seed)} solved)"
        axes.stairs(median, edges / 1000, baseline=None, color=colour, linewidth=1.8, linestyle=line, label=label)
    axes.update_datalim([(0, value) for part in drawn for value in part])
    axes.autoscale_view()
    _scale(axes, runs)
    axes.set_xlabel("Training episodes (thousands)")
    axes.set_xlim(left=0)
    levels = {run.task.solved_bits for run in runs}
    if len(levels) == 1:
        level = levels.pop()
        axes.axhline(level, color=style.FAINT, linewidth=0.9, linestyle=(0, (5, 4)), zorder=1)
        look: dict[str, Any] = {"color": style.FAINT, "fontsize": 8.5, "va": "bottom", "ha": "right"}
        axes.text(0.99, level * 1.06, f"solved: under {level:g}", transform=axes.get_yaxis_transform(), **look)


def _draw_costs(axes: Axes, runs: Sequence[RunCurves]) -> None:
    """Of each size the median over the seeds, with its quartiles."""
    sizes = list(dict.fromkeys(score.label for run in runs for score in run.scores))
    for k, (run, (colour, line, mark)) in enumerate(zip(runs, _looks(len(runs)), strict=True)):
        if not run.scores:
            continue
        aside = 0.12 * (k - (len(runs) - 1) / 2) / max(1, len(runs) / 4)  # so that bars do not cover each other
        places = np.array([sizes.index(score.label) for score in run.scores]) + aside
        low, median, high = (np.array(part) for part in zip(*(_spread(run, s) for s in run.scores), strict=True))
        axes.plot(places, median, color=colour, linestyle=line, marker=mark, markersize=4.5, linewidth=1.2)
        if len(run.scores[0].bits) > 1:
            axes.vlines(places, low, high, color=colour, linewidth=1.2)
    _scale(axes, runs)
    axes.set_xticks(range(len(sizes)), _short(sizes), rotation=30 if max(map(len, sizes)) > 10 else 0, ha="center")
    axes.set_xlabel(_common(sizes) or "Size")


def _spread(run: RunCurves, score: Score) -> tuple[float, float, float]:
    """Quartiles and median, as they can be drawn."""
    low, median, high = quartiles(score.costs)
    least = -math.inf if run.task.paired else LEAST
    return max(low, least), max(median, least), max(high, least)


def _common(sizes: Sequence[str]) -> str:
    """The word that all labels begin with: "Length" of "Length 10" and "Length 20"."""
    words = {size.partition(" ")[0] for size in sizes}
    return words.pop() if len(words) == 1 and not any("," in size for size in sizes) else ""


def _short(sizes: Sequence[str]) -> list[str]:
    common = _common(sizes)
    return [size.removeprefix(f"{common} ") for size in sizes]


def _scale(axes: Axes, runs: Sequence[RunCurves]) -> None:
    if any(run.task.paired for run in runs):  # by chance a machine can be below the optimum
        axes.set_yscale("symlog", linthresh=min(run.task.solved_bits for run in runs), linscale=0.6)
    else:
        axes.set_yscale("log", nonpositive="mask")
        low, high = axes.get_ylim()
        if high < 100 * low:  # powers of ten alone would be one tick or none
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    above = "above the optimum " if all(run.task.paired for run in runs) else ""
    axes.set_ylabel(f"Cost {above}per sequence (bits)")
    axes.grid(axis="y", color=style.UNSCORED, linewidth=0.6)
    axes.set_axisbelow(True)


def _looks(count: int) -> list[tuple[str, object, str]]:
    return [LOOKS[k % len(LOOKS)] for k in range(count)]
