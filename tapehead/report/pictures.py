"""Figures inside the page: as SVG where that is small, otherwise as PNG, within a limit on all of them together."""

import base64
import io
from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure

from tapehead.figures import style
from tapehead.paper.figures import FIGURES
from tapehead.paper.results import Results
from tapehead.report.blocks import Picture

LIMIT = 2_400_000
"""Bytes of all figures of a page together, encoded; the page with its tables then stays below 3 MB."""
SMALL = 120_000
"""An SVG of at most so many bytes is taken as it is."""
RESOLUTIONS = (144, 110, 84, 64)
"""Dots per inch; the next one is tried where the figures before have left too little."""


def draw_all(results: Results, limit: int = LIMIT) -> Iterator[Picture]:
    """Figures 3 to 18; of one that cannot be drawn, what is missing."""
    left = limit
    for place, figure in enumerate(FIGURES.values()):
        title = f"Figure {figure.number}: {figure.title}"
        if (missing := figure.missing(results)) is not None:
            yield Picture(title, missing)
            continue
        made = picture(title, figure.caption(results), figure.draw(results), left // (len(FIGURES) - place))
        left -= len(made.source)
        yield made


def picture(title: str, caption: str, figure: Figure, limit: int) -> Picture:
    """A figure for the page, of at most so many bytes, encoded."""
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return Picture(title, caption, encoded(figure, limit), width, height)


@style.look()
def encoded(figure: Figure, limit: int) -> str:
    """A figure as a data address of at most so many bytes, if one of the resolutions is that small."""
    svg = _address("svg+xml", _saved(figure, format="svg", metadata={"Date": None, "Creator": "tapehead"}))
    if len(svg) <= min(limit, SMALL):
        return svg
    png = ""
    for dpi in RESOLUTIONS:
        png = _address("png", _saved(figure, format="png", metadata={"Software": "tapehead"}, dpi=dpi))
        if len(png) <= limit:
            break
    return png


def _saved(figure: Figure, **options: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, **options)
    return file.getvalue()


def _address(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
