"""Placing things on a picture in inches from its top left corner, so that all have the same margins."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from tapehead.figures import style

RIGHT, TOP, FOOT = 0.2, 0.5, 0.5  # margins


def point(figure: Figure, x: float, y: float) -> tuple[float, float]:
    """Inches from the top left corner, as matplotlib's fractions from the bottom left."""
    width, height = figure.get_size_inches()
    return x / width, 1 - y / height


def text(figure: Figure, x: float, y: float, words: str, **look: Any) -> None:
    figure.text(*point(figure, x, y), words, **{"va": "center_baseline"} | look)


def axes(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a place, y being their upper edge."""
    left, bottom = point(figure, x, y + height)
    across, up = figure.get_size_inches()
    return figure.add_axes((left, bottom, width / across, height / up))


def bare_axes(figure: Figure, x: float, y: float, width: float, height: float, *, frame: bool = False) -> Axes:
    """The same, without ticks and, unless asked for, without a frame."""
    made = axes(figure, x, y, width, height)
    made.set(xticks=[], yticks=[])
    made.spines[:].set_visible(frame)
    made.patch.set_visible(frame)
    return made


def foot(figure: Figure, left: float, words: str, colours: Colormap, key: str) -> None:
    """Under the strips: the arrow of time, a note, and the key of colours from 0 to 1."""
    y = figure.get_figheight() - 0.25
    text(figure, left, y, "Time")
    ends = point(figure, left + 0.4, y), point(figure, left + 1.1, y)
    arrow = FancyArrowPatch(
        *ends, arrowstyle="-|>", mutation_scale=9, color=style.INK, linewidth=0.9, shrinkA=0, shrinkB=0
    )
    arrow.set_transform(figure.transFigure)
    figure.add_artist(arrow)
    text(figure, left + 1.35, y, words, fontsize=8, color=style.FAINT)
    x = style.WIDTH - RIGHT - 1.3
    bar = figure.colorbar(
        ScalarMappable(cmap=colours),
        cax=bare_axes(figure, x, y - 0.055, 1.15, 0.11),
        orientation="horizontal",
        ticks=[],
    )
    bar.outline.set_linewidth(0.4)
    text(figure, x - 0.07, y, f"{key}  0", ha="right", fontsize=8)
    text(figure, x + 1.22, y, "1", fontsize=8)
