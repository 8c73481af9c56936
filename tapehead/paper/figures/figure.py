"""What a figure of the paper is made of: how it is drawn, its caption, and what to do if its data is not there."""

import dataclasses
from collections.abc import Callable

from matplotlib.figure import Figure

from tapehead.paper.results import Results


@dataclasses.dataclass(frozen=True)
class PaperFigure:
    number: int
    """In the paper."""
    title: str
    draw: Callable[[Results], Figure]
    caption: Callable[[Results], str]
    """How many seeds, which command, what it shows, how it differs from the paper's figure."""
    missing: Callable[[Results], str | None]
    """One sentence on the data that is not there and the command that makes it; None if the figure can be drawn."""
