"""A row of two panels for each recipe: the axes of the paper, and logarithmic ones."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tapehead.figures import page, style

# Inches.
TOP, LEFT, BETWEEN, TALL, HEADING, BELOW = 0.55, 0.75, 0.85, 2.5, 0.55, 0.75
ACROSS = (style.WIDTH - LEFT - BETWEEN - page.RIGHT) / 2


def recipe_panels(title: str, notes: Mapping[str, str]) -> tuple[Figure, dict[str, tuple[Axes, Axes]]]:
    """A figure, and the two panels of each recipe. notes: what to say beside the name of each."""
    height = HEADING + TALL + BELOW
    figure = Figure(figsize=(style.WIDTH, TOP + len(notes) * height))
    page.text(figure, 0.15, 0.3, title, fontsize=12)
    panels = {}
    for place, (recipe, note) in enumerate(notes.items()):
        top = TOP + place * height
        page.text(figure, LEFT, top + 0.1, f"Recipe: {recipe}", fontweight="bold")
        page.text(figure, LEFT + 1.4, top + 0.1, note, fontsize=8.5, color=style.FAINT)
        left, right = (
            page.axes(figure, LEFT + column * (ACROSS + BETWEEN), top + HEADING, ACROSS, TALL) for column in (0, 1)
        )
        for axes in (left, right):
            axes.grid(axis="y", color=style.UNSCORED, linewidth=0.6)
            axes.set_axisbelow(True)
        panels[recipe] = left, right
    return figure, panels


def plain_numbers(axes: Axes) -> None:
    """Tick labels 0.01, 1 and 100 on logarithmic axes."""
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(lambda value, _: f"{value:g}")


def add_legend(axes: Axes) -> None:
    """Where it hides least; what it hides shows through."""
    axes.legend(loc="best", fontsize=8, frameon=True, framealpha=0.75, edgecolor="none")


def add_level(axes: Axes, bits: float, words: str) -> None:
    """A dashed line at a cost, with words on it at the left edge."""
    axes.axhline(bits, color=style.FAINT, linewidth=0.8, linestyle=(0, (5, 4)))
    across = axes.get_yaxis_transform()
    axes.annotate(words, (0.01, bits), (0, 2), across, "offset points", color=style.FAINT, fontsize=8, va="bottom")
