"""Figures 3 to 18 of the paper, drawn from a folder of results. Importing any module in here imports matplotlib."""

from matplotlib.figure import Figure

from tapehead.paper.figures.figure import PaperFigure

TITLES = {
    3: "Copy learning curves",
    4: "NTM generalisation on the copy task",
    5: "LSTM generalisation on the copy task",
    6: "NTM memory use during the copy task",
    7: "Repeat copy learning curves",
    8: "NTM and LSTM generalisation for the repeat copy task",
    9: "NTM memory use during the repeat copy task",
    10: "Associative recall learning curves",
    11: "Generalisation performance on associative recall for longer item sequences",
    12: "NTM memory use during the associative recall task",
    13: "Dynamic N-gram learning curves",
    14: "Dynamic N-gram inference",
    15: "NTM memory use during the dynamic N-gram task",
    16: "Example input and target sequence for the priority sort task",
    17: "NTM memory use during the priority sort task",
    18: "Priority sort learning curves",
}

# The figures are being written; until then, each is an empty one.
FIGURES: dict[int, PaperFigure] = {
    number: PaperFigure(number, title, lambda results: Figure(), lambda results: "", lambda results: None)
    for number, title in TITLES.items()
}

__all__ = ["FIGURES", "PaperFigure"]
