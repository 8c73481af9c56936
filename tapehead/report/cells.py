"""Numbers of records as cells of tables, each with its interval."""

import math

from tapehead.evaluation.summaries import median_interval
from tapehead.paper.evidence import Unusable, costs_at, episodes_to_solve
from tapehead.paper.figures.figure import fraction
from tapehead.paper.measures import number, spread
from tapehead.paper.results import Record
from tapehead.report.blocks import Cell, Kind

VERDICTS: dict[str, Kind] = {"held": "good", "not held": "bad", "could not be tested": "open"}
NONE = Cell("-", math.inf)


def solved_cell(record: Record) -> Cell:
    solved, of = sum(machine["solved_at"] is not None for machine in record["machines"]), len(record["machines"])
    return fraction_cell(solved, of)


def fraction_cell(count: int, of: int) -> Cell:
    return Cell(fraction(count, of), count / of)


def episodes_cell(record: Record) -> Cell:
    """The median of all seeds; infinite if half of them were never solved."""
    interval = median_interval(episodes_to_solve(record))
    return Cell(spread(interval) if interval.estimate < math.inf else "half never", interval.estimate)


def headline_cell(record: Record) -> Cell:
    """The median cost at the point by which machines of the task are compared."""
    costs = known_costs(record, record["headline"])
    if costs is None:
        return NONE
    interval = median_interval(costs)
    return Cell(spread(interval), interval.estimate)


def under_one_bit_cell(record: Record, label: str) -> Cell:
    """How many machines cost less than 1 bit there, and the median cost."""
    costs = known_costs(record, label)
    if costs is None:
        return NONE
    share = fraction_cell(sum(bits < 1 for bits in costs), len(costs))
    return Cell(f"{share.text} under 1 bit; median {number(median_interval(costs).estimate)}", share.value)


def known_costs(record: Record, label: str) -> list[float] | None:
    """Costs of all machines at a point; None if the record was not measured there."""
    try:
        return costs_at(record, label)
    except Unusable:
        return None
