"""One look for all figures: sizes, fonts, colours, and how a figure becomes files.

Figures are made without pyplot and inside `look()`, so neither a window system nor the user's own settings matter, and
nothing is left behind. The colours of `BITS` have the order of those of the paper's Figures 4, 5 and 8: blue for 0, red
for 1, and what is uncertain is green or yellow; each is lighter than the one before, so that a print without colours
shows 0 dark and 1 light. `GREYS` are those of its Figures 6 and 14: black for 0, white for 1.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib.style
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure

from tapehead import files

WIDTH = 9.0  # inches; at the 900 pixels of a page, 9 points are then 12.5 pixels
DPI = 160

INK = "#222222"
FAINT = "#6b6b6b"
PAPER = "#ffffff"
UNSCORED = "#ececec"
BLUE, ORANGE, GREEN, VERMILION, PURPLE = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
)  # Okabe and Ito's, safe for colour-blind eyes

BITS = LinearSegmentedColormap.from_list(
    "bits", ["#101a6e", "#1b4aa8", "#1c7c9c", "#4f9a55", "#a79a33", "#e8943c", "#ff8a70"]
).with_extremes(bad=PAPER)
MARKS = ListedColormap([UNSCORED, INK]).with_extremes(bad=PAPER)  # faint where nothing is marked
GREYS = LinearSegmentedColormap.from_list("greys", ["#000000", "#ffffff"])
SIGNED = LinearSegmentedColormap.from_list(
    "signed", ["#053b6e", "#3f8fc5", "#cfe3f0", "#ffffff", "#fbdcc8", "#e0794b", "#7a1a12"]
)

_SETTINGS = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 5.0,
    "axes.labelsize": 9.0,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": PAPER,
    "image.interpolation": "none",
    "image.aspect": "auto",
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "tapehead",
}


@contextmanager
def look() -> Iterator[None]:
    """The look, for as long as the context or the decorated function lasts."""
    with matplotlib.style.context(["default", _SETTINGS]):
        yield


@look()
def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write `name`.svg and `name`.png into the folder, the same bytes for the same picture.

    There is nothing to close: without pyplot, no global state refers to the figure.
    """
    svg, png = io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": "tapehead"})
    figure.savefig(png, format="png", metadata={"Software": "tapehead"}, dpi=DPI)
    pictures = {folder / f"{name}.svg": svg.getvalue(), folder / f"{name}.png": png.getvalue()}
    for path in pictures:
        files.expect_file(path)
    with files.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in pictures.items():
            files.replace(path, data)
    return list(pictures)


def task_title(name: str) -> str:
    """A task's name as the beginning of a title."""
    return "Dynamic N-grams" if name == "ngrams" else name.replace("-", " ").capitalize()


def number(value: float) -> str:
    """A cost in few characters: three digits, nothing smaller than a thousandth."""
    if 0 < value < 0.0005:
        return "<0.001"
    return f"{value:.3f}" if value < 1 else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
