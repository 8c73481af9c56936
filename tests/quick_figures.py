"""Figures of the paper that take no time to draw, for tests of the page that they are on."""

import contextlib

import pytest
from matplotlib.figure import Figure

from tapehead.paper.figures import FIGURES, PaperFigure


def quick_figure(results):
    figure = Figure(figsize=(4, 2))
    figure.add_axes((0.1, 0.1, 0.8, 0.8)).plot([0, 1])
    return figure


@contextlib.contextmanager
def quick():
    """While inside, figures are drawn at once; one of them is missing."""
    with pytest.MonkeyPatch.context() as patch:
        for number, figure in FIGURES.items():
            missing = "There is no machine: make one with `tapehead train copy`." if number == 5 else None
            made = PaperFigure(number, figure.title, quick_figure, lambda _: "10 seeds. <b>&", lambda _, m=missing: m)
            patch.setitem(FIGURES, number, made)
        yield
