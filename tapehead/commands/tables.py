"""Tables and sentences for people, on any terminal."""

import statistics
import sys
from collections.abc import Sequence

from rich.box import ASCII2, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tapehead.evaluation.generalisation import Score
from tapehead.evaluation.summaries import quartiles

WIDEST = 1000


def new_table(title: str, left: Sequence[str] = (), right: Sequence[str] = ()) -> Table:
    """A table with columns of words, then of numbers; in ASCII where the output takes nothing else."""
    box = SIMPLE_HEAD if speaks_unicode() else ASCII2
    table = Table(box=box, title=title, title_justify="left")
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_table(table: Table, width: int | None = 115) -> None:
    """On standard output, wide enough that nothing is cut. width: None for a table that may have long names."""
    console = Console(highlight=False, markup=False, emoji=False, width=width or WIDEST)
    if width is None:
        console.width = max(80, console.measure(table).maximum)
    console.print(table)


def speaks_unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")


def score_table(seeds: Sequence[int], scores: Sequence[Score]) -> Table:
    """Scores by size: of one machine, or the median, quartiles and worst of a population."""
    many = len(seeds) > 1
    headings = ("median bits", "quartiles", "worst") if many else ("bits per sequence",)
    title = "Scores by size, on sequences never trained on"
    table = new_table(title, ("size",), (*headings, "wrong answers", "sequences without error"))
    for score in scores:
        bits = sorted(score.costs)
        cells = [f"{statistics.median(bits):.3g}"]
        if many:
            low, _, high = quartiles(bits)
            cells += [f"{low:.3g} - {high:.3g}", f"{bits[-1]:.3g}"]
        perfect = 100 * statistics.median(score.perfect)
        table.add_row(score.label, *cells, f"{statistics.median(score.wrong):.3g}", f"{perfect:.1f} %")
    return table
