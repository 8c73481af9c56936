"""Numbers of records as cells of tables, each with its interval."""

import math

from tapehead.evaluation.summaries import median_interval, wilson
from tapehead.paper.measures import costs_at, episodes_to_solve, number, spread
from tapehead.paper.results import Record
from tapehead.report.blocks import Cell, Kind

VERDICTS: dict[str, Kind] = {"held": "good", "not held": "bad", "could not be tested": "open"}
NONE = Cell("-", math.inf)


def solved_cell(record: Record) -> Cell:
    solved, of = sum(machine["solved_at"] is not None for machine in record["machines"]), len(record["machines"])
    return fraction_cell(solved, of)


def fraction_cell(count: int, of: int) -> Cell:
    low, high = (100 * end for end in wilson(count, of))
    return Cell(f"{count} of {of} ({low:.0f}-{high:.0f} %)", count / of)


def episodes_cell(record: Record) -> Cell:
    """The median of all seeds; infinite if half of them were never solved."""
    interval = median_interval(episodes_to_solve(record))
    return Cell(spread(interval) if interval.estimate < math.inf else "half never", interval.estimate)


def headline_cell(record: Record) -> Cell:
    """The median cost at the point by which machines of the task are compared."""
    interval = median_interval(costs_at(record, record["headline"]))
    return Cell(spread(interval), interval.estimate)


def under_one_bit_cell(record: Record, label: str) -> Cell:
    """How many machines cost less than 1 bit there, and the median cost."""
    costs = costs_at(record, label)
    share = fraction_cell(sum(bits < 1 for bits in costs), len(costs))
    return Cell(f"{share.text} under 1 bit; median {number(median_interval(costs).estimate)}", share.value)
