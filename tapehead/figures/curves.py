"""The learning curve, in the manner of the paper's Figures 3, 7, 10, 13 and 18: cost per sequence against episodes."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tapehead.experiment.metrics import Line
from tapehead.experiment.parts import WINDOW
from tapehead.figures import page, style
from tapehead.figures.run_model import source
from tapehead.figures.view import RunView
from tapehead.tasks import Task

OPTIMUM_SAMPLE = 1000  # sequences behind the chance level of a paired task

Numbers = NDArray[np.float64]


class Curve(NamedTuple):
    """One seed's history, at the end of every block of updates."""

    episodes: Numbers
    bits: Numbers  # mean of the block
    mean: Numbers  # of the last WINDOW episodes, or of all while there are fewer
    edges: Numbers  # [W + 1], episodes: where windows that follow one another begin and end
    steps: Numbers  # [W], the mean of each
    solved: int | None  # the block at whose end the seed was solved
    restarted: list[int]  # the blocks after which it was restarted


class _Point(NamedTuple):
    """A line of the metrics for one seed."""

    episodes: float
    bits: float
    since: float  # where what its window may reach back to begins: its attempt, or the end of that one's curriculum
    judged: float  # 0 for a part of a curriculum that comes to an end
    attempt: float


def curves(metrics: Sequence[Line], threshold: float) -> dict[int, Curve]:
    """The lines of metrics.jsonl by seed. A line is a whole block, so a window is the fewest blocks that fill it."""
    points: dict[int, list[_Point]] = {}
    best: dict[int, tuple[float, int]] = {}  # the lowest validation cost of a seed, and its attempt
    since: dict[int, int] = {}
    before = 0
    for line in metrics:
        parts = (line.seeds, line.bits, line.validation, line.attempt, line.curriculum)
        for seed, bits, cost, attempt, taught in zip(*parts, strict=True):
            history = points.setdefault(seed, [])
            if history and history[-1].attempt < attempt:
                since[seed] = before
            value = np.nan if bits is None else bits
            history.append(_Point(line.episodes, value, since.get(seed, 0), not taught, attempt))
            if taught:
                since[seed] = line.episodes
            if cost is not None:
                best[seed] = min(best.get(seed, (np.inf, 0)), (cost, attempt))
        before = line.episodes
    return {
        seed: _curve(np.array(history, dtype=np.float64), threshold, best.get(seed, (0.0, None))[1])
        for seed, history in points.items()
    }


def curriculum_ends(metrics: Sequence[Line]) -> list[int]:
    """The episodes at which the curricula of all the seeds that were there ended."""
    pairs = itertools.pairwise(metrics)
    return [a.episodes for a, b in pairs if all(a.curriculum) and not any(b.curriculum)]


def _curve(history: Numbers, threshold: float, delivered: int | None) -> Curve:
    """delivered: the attempt whose machine was; None if there was no validation."""
    episodes, bits, since, judged, attempt = history.T
    counts = np.diff(episodes, prepend=0.0)
    begins = np.searchsorted(episodes, np.maximum(episodes - WINDOW, since), side="right")  # a window's first block
    mean = np.array([np.average(bits[a : b + 1], weights=counts[a : b + 1]) for b, a in enumerate(begins)])
    under = (mean < threshold) & (judged > 0) & (episodes >= since + WINDOW)
    places = np.flatnonzero(under if delivered is None else under & (attempt == delivered))
    restarted = np.flatnonzero(np.diff(attempt)).tolist()
    edges, steps = _steps(episodes, bits, counts, since)
    return Curve(episodes, bits, mean, edges, steps, int(places[0]) if len(places) else None, restarted)


def _steps(episodes: Numbers, bits: Numbers, counts: Numbers, since: Numbers) -> tuple[Numbers, Numbers]:
    """Means of windows that do not overlap, each of the fewest blocks that fill it; a window ends with its attempt, or
    with that one's curriculum. A high cost is then in one of them alone, as wide as what it was averaged over."""
    edges, steps, begin = [0.0], [], 0
    for k, at in enumerate(episodes):
        full = at - edges[-1] >= WINDOW
        if full or k + 1 == len(episodes) or since[k + 1] != since[k]:
            edges.append(at)
            steps.append(np.average(bits[begin : k + 1], weights=counts[begin : k + 1]))
            begin = k + 1
    return np.array(edges), np.array(steps)


def learning_curve(view: RunView) -> Figure | None:
    """The learning curves of all seeds of a run; None for a machine without a run."""
    return draw_curves(view.task, view.metrics) if view.metrics else None


@style.look()
def draw_curves(task: Task, metrics: Sequence[Line]) -> Figure:
    """All seeds of a run. A seed that was solved and retired keeps its last value in the median."""
    figure = Figure(figsize=(style.WIDTH, 4.4))
    axes = page.axes(figure, 0.8, 0.82, style.WIDTH - 0.8 - page.RIGHT, 3.0)
    by_seed = curves(metrics, task.solved_bits)
    _lines(axes, list(by_seed.values()), task.solved_bits)
    _levels(axes, task, list(by_seed.values()))
    for i, at in enumerate(curriculum_ends(metrics)):
        label = "the curriculum ends" if i == 0 else None
        axes.axvline(at / 1000, color=style.ORANGE, linewidth=0.9, zorder=1, label=label)
    page.text(figure, 0.15, 0.3, f"{style.task_title(task.name)}: learning curve", fontsize=12)
    axes.set_xlabel("Training episodes (thousands)")
    axes.set_ylabel(f"Cost {'above the optimum ' if task.paired else ''}per sequence (bits)")
    axes.grid(axis="y", color=style.UNSCORED, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=4, fontsize=8.5, handlelength=1.6, borderpad=0.2)
    return figure


def _lines(axes: Axes, by_seed: list[Curve], threshold: float) -> None:
    """Solved seeds are marked on the level that they fell below."""
    alone = len(by_seed) == 1
    for i, curve in enumerate(by_seed):
        look: dict[str, Any] = {"color": style.BLUE, "linewidth": 0.8, "alpha": 0.45}
        if alone:
            axes.plot(curve.episodes / 1000, curve.bits, label="mean of 100 updates", **look)
        else:
            label = f"each seed, mean of every {WINDOW:,} episodes" if i == 0 else None
            axes.stairs(curve.steps, curve.edges / 1000, baseline=None, label=label, **look)
    edges, median = median_steps(by_seed)
    label = f"mean of every {WINDOW:,} episodes" if alone else f"median of {len(by_seed)} seeds"
    axes.stairs(median, edges / 1000, baseline=None, color=style.BLUE, linewidth=2.2, label=label)
    again = [(c.episodes[place] / 1000, c.mean[place]) for c in by_seed for place in c.restarted]
    if again:
        x, y = zip(*again, strict=True)
        label = f"restarted ({len(again)} {'time' if len(again) == 1 else 'times'})"
        axes.plot(x, y, "x", color=style.ORANGE, markersize=5.5, markeredgewidth=1.6, zorder=3, label=label)
    ends = [c.episodes[c.solved] / 1000 for c in by_seed if c.solved is not None]
    if ends:
        label = f"solved, after {ends[0] * 1000:,.0f}" if alone else f"solved ({len(ends)} of {len(by_seed)})"
        axes.plot(
            ends,
            np.full(len(ends), threshold),
            "o",
            color=style.VERMILION,
            markersize=6.5,
            markeredgecolor=style.PAPER,
            zorder=3,
            label=label,
        )


def median_steps(by_seed: Sequence[Curve]) -> tuple[Numbers, Numbers]:
    """The median over seeds of their windows' means, between common edges [W + 1], as [W]."""
    edges, values = common_steps(by_seed)
    return edges, np.median(values, axis=0)


def common_steps(by_seed: Sequence[Curve]) -> tuple[Numbers, Numbers]:
    """Windows' means between common edges [W + 1], as [S, W]; behind a seed's end, its last value; infinite where they
    are not a number."""
    edges = np.unique(np.concatenate([curve.edges for curve in by_seed]))
    places = (np.minimum(np.searchsorted(c.edges, edges[1:]), len(c.steps)) - 1 for c in by_seed)
    values = np.array([c.steps[place] for c, place in zip(by_seed, places, strict=True)])
    return edges, np.where(np.isnan(values), np.inf, values)


def _levels(axes: Axes, task: Task, by_seed: list[Curve]) -> None:
    """The scale, and the two levels to compare with."""
    chance = chance_level(task)
    known = [] if chance is None else [chance]
    values = np.concatenate([np.concatenate([curve.bits, curve.mean]) for curve in by_seed])
    top = 1.8 * float(np.nanmax([*known, *values], initial=task.solved_bits))
    if task.paired:  # by chance a machine can be below the optimum
        axes.set_yscale("symlog", linthresh=task.solved_bits, linscale=0.6)
        axes.set_ylim(min(-0.3 * task.solved_bits, 1.3 * np.nanmin(values, initial=0.0)), top)
    else:
        axes.set_yscale("log", nonpositive="mask")
        lowest = np.nanmin(np.where(values > 0, values, np.nan), initial=task.solved_bits)
        axes.set_ylim(min(lowest / 1.5, task.solved_bits / 3), top)
    axes.set_xlim(0, max(curve.episodes[-1] for curve in by_seed) * 1.02 / 1000)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    places = axes.get_yaxis_transform()
    look: dict[str, Any] = {
        "color": style.FAINT,
        "fontsize": 8.5,
        "va": "bottom",
        "transform": places,
        "bbox": {"facecolor": style.PAPER, "edgecolor": "none", "pad": 1},
    }
    for level in (*known, task.solved_bits):
        axes.axhline(level, color=style.FAINT, linewidth=0.9, linestyle=(0, (5, 4)), zorder=1)
    for level in known:
        axes.text(0.995, level * 1.1, f"chance: {level:.3g} bits", ha="right", **look)
    unit = "bit" if task.solved_bits <= 1 else "bits"
    axes.text(0.008, task.solved_bits * 1.1, f"solved: under {task.solved_bits:g} {unit}", ha="left", **look)


def chance_level(task: Task) -> float | None:
    """The mean cost of knowing nothing, on the scale of the metrics: for a paired task, above the optimum."""
    if task.chance_bits is None or not task.paired:
        return task.chance_bits
    batch = task.sample(source(task), batch_size=OPTIMUM_SAMPLE)
    return task.chance_bits - float(task.optimal_bits(batch).mean())
