"""Figure 11: associative recall of longer lists than those of training, by the three systems."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tapehead.evaluation.learning import Numbers
from tapehead.evaluation.summaries import quartiles_of_rows
from tapehead.figures import style
from tapehead.figures.records import LINES
from tapehead.paper.figures.figure import INTERVALS, SYSTEMS, PaperFigure, paragraph
from tapehead.paper.figures.outputs import all_seeds
from tapehead.paper.figures.panels import plain_numbers, recipe_panels
from tapehead.paper.recipes import RECIPES
from tapehead.paper.results import Record, Results

TASK = "associative-recall"
TITLE = "Generalisation performance on associative recall for longer item sequences"
PAPER_BITS = 40.0  # the top of the paper's axis
LEAST = 1e-5  # bits on the logarithmic axis; what is lower is drawn at the edge


class Costs(NamedTuple):
    """Of all machines of a record, by the number of items."""

    items: list[int]
    bits: Numbers  # [S, C], infinite where a machine failed
    quartiles: Numbers  # [3, C]


def costs_of(record: Record) -> Costs:
    points = sorted((point["sizes"]["items"], point["label"]) for point in record["points"])
    found = [[machine["scores"][label]["bits"] for _, label in points] for machine in record["machines"]]
    bits = np.array([[np.inf if value is None else value for value in row] for row in found], dtype=np.float64)
    return Costs([items for items, _ in points], bits, quartiles_of_rows(bits))


def records(results: Results) -> dict[str, dict[str, Record]]:
    """By recipe, and by the ending of the row."""
    found = {
        recipe: {
            ending: record for ending in SYSTEMS if (record := results.record(f"{TASK}-{ending}", recipe)) is not None
        }
        for recipe in RECIPES
    }
    return {recipe: systems for recipe, systems in found.items() if systems}


def missing(results: Results) -> str | None:
    if records(results):
        return None
    commands = ", ".join(f"`tapehead confirm {TASK}-{ending}`" for ending in SYSTEMS)
    return f"{results.folder} has no record of associative recall: make them with {commands}."


@style.look()
def draw(results: Results) -> Figure:
    rows = records(results)
    if not rows:
        raise ValueError(missing(results))
    absent = {recipe: [SYSTEMS[ending] for ending in SYSTEMS if ending not in rows[recipe]] for recipe in rows}
    notes = {recipe: f"No record: {', '.join(names)}" if names else "" for recipe, names in absent.items()}
    figure, panels = recipe_panels(f"Figure 11. {TITLE}", notes)
    for recipe, pair in panels.items():
        for axes, scale in zip(pair, ("linear", "log"), strict=True):
            _panel(axes, rows[recipe], scale)
    return figure


def _panel(axes: Axes, systems: dict[str, Record], scale: str) -> None:
    least, most = (LEAST if scale == "log" else 0.0), PAPER_BITS
    for ending, record in systems.items():
        costs = costs_of(record)
        low, median, high = np.maximum(costs.quartiles, least)
        most = max(most, float(np.max(high, where=np.isfinite(high), initial=0.0)))
        label = f"{SYSTEMS[ending]} ({len(costs.bits)} seeds)"
        axes.plot(costs.items, median, "o-", color=LINES[ending], linewidth=1.3, markersize=4, label=label)
        axes.fill_between(costs.items, low, np.where(np.isinf(high), 1e9, high), color=LINES[ending], alpha=0.2, lw=0)
    axes.set(yscale=scale, xlabel="Number of items per sequence", ylabel="Cost per sequence (bits)")
    axes.set_ylim(least or -0.02 * most, 1.5 * most)  # room for the legend
    axes.set_title("Linear axes, as in the paper" if scale == "linear" else "Logarithmic axis of costs")
    axes.set_xticks(range(6, 21, 2))
    plain_numbers(axes)
    if scale == "linear":
        axes.legend(loc="upper left", fontsize=8)


def caption(results: Results) -> str:
    sentences = [
        "Cost per sequence of lists longer than those of training (2 to 6 items): medians of all seeds, failed ones "
        "included, with their quartiles as bands.",
        INTERVALS,
    ]
    found = records(results)
    for recipe in RECIPES:
        for ending in SYSTEMS:
            record = found.get(recipe, {}).get(ending)
            labels = [] if record is None else [point["label"] for point in record["points"]]
            if record is not None or recipe == "tuned":
                sentences.append(all_seeds(results, f"{TASK}-{ending}", labels, recipe))
    differs = (
        "one machine of each system; at 6, 10, 15 and 20 items LSTM about 2, 36, 40 and 38 bits, NTM with LSTM "
        "controller 0, 2, 5 and 7, NTM with feedforward controller 0, 0, 1.5 and 8 (read off its plot)."
    )
    return paragraph([*sentences, f"In the paper: {differs}"])


FIGURE = PaperFigure(11, TITLE, draw, caption, missing)
