"""Figures of benchmarks."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from tapehead.figures import style

APART = 0.18
"""Share of an axis that a label takes."""


@style.look()
def draw_growth(curves: Mapping[str, Sequence[tuple[int, float]]], backend: str) -> Figure:
    """Cost of one update by size, (size, seconds): a panel for each axis, log against log, with the slope of
    proportional growth for comparison."""
    figure = Figure(figsize=(style.WIDTH, 2.4), layout="constrained")
    panels = figure.subplots(1, len(curves))
    for panel, (axis, points) in zip(panels, curves.items(), strict=True):
        sizes = [size for size, _ in points]
        milliseconds = [1e3 * seconds for _, seconds in points]
        panel.loglog(sizes, milliseconds, "o-", color=style.BLUE, markersize=3.5)
        panel.loglog(sizes, [milliseconds[-1] * size / sizes[-1] for size in sizes], ":", color=style.FAINT)
        panel.set_xlabel(axis)
        shown = spread_apart(sizes)
        panel.set_xticks(shown, [f"{size // 1000}k" if size >= 1000 else str(size) for size in shown], minor=False)
        panel.xaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        panel.yaxis.set_minor_locator(NullLocator())
    panels[0].set_ylabel("one update, ms")
    figure.suptitle(f"Cost of one update, {backend} backend (dotted: proportional to the size)", fontsize=9.5)
    return figure


def spread_apart(sizes: Sequence[int]) -> list[int]:
    """Those of some sizes, the largest among them, whose labels do not touch on a logarithmic axis."""
    whole, shown = math.log(max(sizes) / min(sizes)), [max(sizes)]
    for size in sorted(sizes, reverse=True)[1:]:
        if math.log(shown[-1] / size) >= APART * whole:
            shown.append(size)
    return shown[::-1]
