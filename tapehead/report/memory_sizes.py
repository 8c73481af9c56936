"""Open question 4: how the size of the memory, N slots by M numbers each, affects learning and generalisation.

A grid is a folder of records below the folder of results in which memories of several sizes were trained.
"""

import math

from tapehead.evaluation.summaries import median_interval
from tapehead.models.config import NTMConfig
from tapehead.paper.evidence import episodes_to_solve
from tapehead.paper.figures.memory_grid import GridRow, draw_grid
from tapehead.paper.results import Record, Results
from tapehead.report import pictures
from tapehead.report.blocks import Cell, Section, Table, Text
from tapehead.report.cells import episodes_cell, headline_cell, known_costs, solved_cell
from tapehead.report.provenance import record_cell, seeds_of

WORDS = """The paper has one size of memory, 128 slots of 20 numbers, and leaves open how it affects learning speed and
generalisation. Each line is one size, trained with the same settings otherwise; the cost is at the headline point of
the task, on the machine's own tape, which has to be long enough for it."""
CAPTION = "Seeds that were solved, sequences to solve and cost at the headline point, over slots N and width M."
LIMIT = 200_000
"""Bytes of the picture, encoded."""
COLUMNS = ("task", "slots", "width", "seeds", "solved", "sequences to solve", "cost at", "median bits", "record")


def grids(results: Results) -> list[Record]:
    """The records of all folders that hold several sizes of memory, in order of task and size."""
    folders: dict[str, list[Record]] = {}
    for record in results.records:
        if record["experiment"]["model"]["name"] == "ntm":
            folders.setdefault(record["file"].rpartition("/")[0], []).append(record)
    found = [record for some in folders.values() if len({_size(one) for one in some}) > 1 for record in some]
    return sorted(found, key=lambda record: (record["experiment"]["task"]["name"], *_size(record)))


def section(results: Results) -> Section | None:
    """None where there is no grid."""
    records = grids(results)
    if not records:
        return None
    table = Table("Sizes of memory", COLUMNS, tuple(map(_row, records)))
    picture = pictures.picture("Memory size", CAPTION, draw_grid([cell_of(record) for record in records]), LIMIT)
    return Section("memory", "Open question 4: the size of the memory", (Text(WORDS), picture, table))


def _size(record: Record) -> tuple[int, int]:
    model = record["experiment"]["model"]
    return model.get("memory_slots", NTMConfig.memory_slots), model.get("memory_width", NTMConfig.memory_width)


def cell_of(record: Record) -> GridRow:
    slots, width = _size(record)
    solved = sum(machine["solved_at"] is not None for machine in record["machines"])
    episodes = median_interval(episodes_to_solve(record)).estimate
    costs = known_costs(record, record["headline"])
    cost = median_interval(costs).estimate if costs else math.inf
    return GridRow(
        slots,
        width,
        record["experiment"]["task"]["name"],
        solved,
        len(record["machines"]),
        episodes if math.isfinite(episodes) else None,
        cost if math.isfinite(cost) else None,
        record["headline"],
    )


def _row(record: Record) -> tuple[Cell, ...]:
    slots, width = _size(record)
    return (
        Cell(record["experiment"]["task"]["name"]),
        Cell(f"{slots:,}", slots),
        Cell(str(width), width),
        Cell(seeds_of(record), len(record["seeds"])),
        solved_cell(record),
        episodes_cell(record),
        Cell(record["headline"]),
        headline_cell(record),
        record_cell(record["file"]),
    )
