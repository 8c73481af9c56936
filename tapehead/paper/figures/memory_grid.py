"""How the size of the memory affects learning and generalisation: heat maps over slots N and width M. Not in the paper,
which uses 128 x 20 for all tasks."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from tapehead.evaluation.learning import Numbers
from tapehead.figures import page, style

# Inches.
TOP, LEFT, ACROSS, BETWEEN, CELL, HEADING, BELOW = 0.5, 0.8, 2.3, 0.5, 0.3, 0.55, 0.6
LEAST_COST = 1e-4  # bits; what is lower has the same colour
DARK = 0.5  # of a cell's brightness, under which its text is white
FAILED = "#8c8c8c"


class GridRow(NamedTuple):
    """All seeds of one task with a memory of one size."""

    slots: int
    width: int
    task: str
    solved: int
    n: int
    """Seeds, the failed ones too."""
    median_episodes: float | None
    """Sequences to solve, the median over all seeds; None where it is infinite, because most seeds failed."""
    median_cost: float | None
    """Bits per sequence at `point`, the median over all seeds; None where it is infinite."""
    point: str
    """The size of the task, beyond those of training, at which the cost is."""


Cells = dict[tuple[int, int], GridRow]  # by slots and width


class Map(NamedTuple):
    """A quantity over the grid, [N, M] each."""

    title: str
    values: Numbers  # NaN where there is no run, infinite where most seeds failed
    words: list[list[str]]
    norm: Normalize
    colours: str


@style.look()
def draw_grid(rows: Sequence[GridRow]) -> Figure:
    """For each task: seeds solved, sequences to solve, and cost beyond the training sizes."""
    if not rows:
        raise ValueError("there are no rows to draw: give at least one cell of the grid.")
    tasks: dict[str, Cells] = {}
    for row in rows:
        tasks.setdefault(row.task, {})[row.slots, row.width] = row
    heights = [HEADING + CELL * len({n for n, _ in cells}) + BELOW for cells in tasks.values()]
    figure = Figure(figsize=(style.WIDTH, TOP + sum(heights)))
    page.text(figure, 0.15, 0.3, "Memory size: slots N against width M", fontsize=12)
    words = "grey: most seeds failed; light grey: not run"
    page.text(figure, style.WIDTH - page.RIGHT, 0.3, words, ha="right", fontsize=8.5, color=style.FAINT)
    y = TOP
    for (task, cells), height in zip(tasks.items(), heights, strict=True):
        seeds = sorted({row.n for row in cells.values()})
        count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        page.text(figure, LEFT, y + 0.12, f"{style.task_title(task)}, {count} seeds a cell", fontweight="bold")
        _draw_task(figure, cells, y + HEADING)
        y += height
    return figure


def _draw_task(figure: Figure, cells: Cells, y: float) -> None:
    slots, widths = (sorted({size[part] for size in cells}) for part in (0, 1))
    for column, one in enumerate(maps(cells, slots, widths)):
        axes = page.axes(figure, LEFT + column * (ACROSS + BETWEEN), y, ACROSS, CELL * len(slots))
        _draw_map(axes, one)
        axes.set(title=one.title, xlabel="Width M", ylabel="Slots N" if column == 0 else "")
        axes.set_xticks(range(len(widths)), [str(width) for width in widths])
        axes.set_yticks(range(len(slots)), [f"{count:,}" for count in slots])


def maps(cells: Cells, slots: Sequence[int], widths: Sequence[int]) -> list[Map]:
    """The three quantities of one task."""
    grid = [[cells.get((n, m)) for m in widths] for n in slots]

    def values(of: Callable[[GridRow], float | None]) -> Numbers:
        found = [[math.nan if row is None else of(row) for row in line] for line in grid]
        return np.array([[math.inf if value is None else value for value in line] for line in found], dtype=np.float64)

    def words(of: Callable[[GridRow], str]) -> list[list[str]]:
        return [["" if row is None else of(row) for row in line] for line in grid]

    (point,) = {row.point.lower() for row in cells.values()}
    solved = values(lambda row: row.solved / row.n)
    episodes, costs = values(lambda row: row.median_episodes), values(lambda row: row.median_cost)
    return [
        Map("Seeds solved", solved, words(lambda row: f"{row.solved}/{row.n}"), Normalize(0, 1), "viridis"),
        Map(
            "Sequences to solve (median)",
            episodes,
            words(lambda row: _said(row.median_episodes, _thousands)),
            _logarithmic(episodes),
            "viridis_r",
        ),
        Map(
            f"Bits at {point} (median)",
            np.maximum(costs, LEAST_COST),
            words(lambda row: _said(row.median_cost, _short)),
            _logarithmic(np.maximum(costs, LEAST_COST)),
            "viridis_r",
        ),
    ]


def _logarithmic(values: Numbers) -> Normalize:
    """From the least to the greatest of the values that are known and finite."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (1.0, 1.0)
    return LogNorm(low, max(high, 1.01 * low))


def _draw_map(axes: Axes, one: Map) -> None:
    colours = colormaps[one.colours].with_extremes(bad=style.UNSCORED, over=FAILED)
    over = 10 * float(one.norm.vmax or 1.0)
    shown = np.ma.masked_invalid(np.where(np.isinf(one.values), over, one.values))
    shades = axes.imshow(shown, colours, one.norm).to_rgba(shown)
    for i, j in np.ndindex(one.values.shape):
        red, green, blue, _ = shades[i, j]
        dark = 0.3 * red + 0.59 * green + 0.11 * blue < DARK
        colour = style.PAPER if dark else style.INK
        axes.text(j, i, one.words[i][j], ha="center", va="center", fontsize=7, color=colour)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _said(value: float | None, words: Callable[[float], str]) -> str:
    return "failed" if value is None or math.isinf(value) else words(value)


def _thousands(value: float) -> str:
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.0f}"


def _short(value: float) -> str:
    """At most five characters."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}" if value >= LEAST_COST else f"<{LEAST_COST:g}"
