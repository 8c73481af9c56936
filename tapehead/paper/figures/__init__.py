"""Figures 3 to 18 of the paper, drawn from a folder of results. Importing any module in here imports matplotlib."""

from tapehead.paper.figures import (
    figure03,
    figure04,
    figure05,
    figure06,
    figure07,
    figure08,
    figure09,
    figure10,
    figure11,
    figure12,
    figure13,
    figure14,
    figure15,
    figure16,
    figure17,
    figure18,
)
from tapehead.paper.figures.figure import PaperFigure

__all__ = ["FIGURES", "PaperFigure"]

FIGURES: dict[int, PaperFigure] = {
    module.FIGURE.number: module.FIGURE
    for module in (
        figure03,
        figure04,
        figure05,
        figure06,
        figure07,
        figure08,
        figure09,
        figure10,
        figure11,
        figure12,
        figure13,
        figure14,
        figure15,
        figure16,
        figure17,
        figure18,
    )
}
"""By their numbers in the paper."""
