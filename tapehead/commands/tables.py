"""Tables for people."""

import statistics
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table

from tapehead.evaluation.summaries import quartiles


def show(what: RenderableType, width: int | None = None) -> None:
    """Print a table, or a text wrapped to its width. Square brackets in it are no markup: names may have them."""
    Console(highlight=False, markup=False, emoji=False, width=width).print(what)


def score_table(result: dict[str, Any]) -> Table:
    """Scores by size: of one machine, or the median, quartiles and worst of a population."""
    many = len(result["seeds"]) > 1
    table = Table(
        box=SIMPLE_HEAD, title="Beyond the training sizes, on sequences never trained on", title_justify="left"
    )
    table.add_column("size")
    headings = ("median bits", "quartiles", "worst") if many else ("bits per sequence",)
    for heading in (*headings, "wrong bits", "sequences without error"):
        table.add_column(heading, justify="right")
    for score in result["generalisation"]:
        bits = sorted(score["bits"])
        cells = [f"{statistics.median(bits):.3g}"]
        if many:
            low, _, high = quartiles(bits)
            cells += [f"{low:.3g} - {high:.3g}", f"{bits[-1]:.3g}"]
        wrong = statistics.median(score["wrong_bits"])
        perfect = statistics.median(score["perfect"])
        table.add_row(score["label"], *cells, f"{wrong:.3g}", f"{100 * perfect:.1f} %")
    return table
