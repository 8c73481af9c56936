"""All records in tables: learning at equal budgets, acceptance criteria, failures, and where they were made."""

from typing import Any

from tapehead.environment import environment
from tapehead.lab.summary import BUDGETS, costs_after, summarise
from tapehead.paper.measures import number
from tapehead.paper.results import Results
from tapehead.report.blocks import Cell, Section, Table, Text
from tapehead.report.cells import NONE, fraction_cell
from tapehead.report.failures import KINDS, failures_of
from tapehead.report.memory_sizes import grids
from tapehead.report.provenance import record_cell, seeds_of

LEARNING = """Training cost in bits per sequence after so many sequences of one machine: the median of all machines,
solved or not, and in brackets the quartiles. A dash: the recipe ends before. Records that were made before records had
learning curves are left out. While a curriculum lasts, its sequences are not those of the task."""
FAILED = """Every machine of every record, {:,} in all; a machine is listed under its gravest failure. The memory sizes
have a table of their own, which says how many failed: their machines are counted here and not listed."""
ENVIRONMENT = ("device", "cpus", "threads", "backend", "python", "torch", "numba", "tapehead")


def learning(results: Results) -> Section:
    columns = ("row", "recipe", "seeds", *(f"after {budget:,}" for budget in BUDGETS), "record")
    rows = []
    for record in results.records:
        costs = [costs_after(record, budget) for budget in BUDGETS]
        if any(costs):
            cells = (Cell(_quartiles(cost), cost["median"]) if cost else NONE for cost in costs)
            seeds = Cell(seeds_of(record), len(record["seeds"]))
            rows.append((Cell(record["row"]), Cell(record["recipe"]), seeds, *cells, record_cell(record["file"])))
    return Section(
        "learning",
        "Learning at equal budgets",
        (
            Text(LEARNING),
            Table("Training cost, bits", columns, tuple(rows)),
        ),
    )


def _quartiles(cost: dict[str, float]) -> str:
    return f"{number(cost['median'])} ({number(cost['low'])}-{number(cost['high'])})"


def failed(results: Results) -> Section:
    found = [failure for record in results.records for failure in failures_of(record)]
    in_grids = {record["file"] for record in grids(results)}
    machines = sum(len(record["machines"]) for record in results.records)
    kinds = tuple(
        (Cell(kind), Cell(str(count), count), Cell(words))
        for kind, words in KINDS.items()
        if (count := sum(failure.kind == kind for failure in found))
    )
    rows = tuple(
        (
            Cell(failure.record["row"]),
            Cell(failure.record["recipe"]),
            Cell(str(failure.seed), failure.seed),
            Cell(failure.kind, kind="" if failure.kind in ("relapse", "skipped updates") else "bad"),
            Cell(failure.what, failure.bits),
            record_cell(failure.record["file"]),
        )
        for failure in found
        if failure.record["file"] not in in_grids
    )
    return Section(
        "failures",
        "What failed",
        (
            Text(FAILED.format(machines)),
            Table("Failures by kind", ("kind", "machines", "what it means"), kinds),
            Table("Failures", ("row", "recipe", "seed", "kind", "what happened", "record"), rows),
        ),
    )


def criteria(results: Results) -> Section:
    rows = tuple(
        (
            Cell(record["row"]),
            Cell(record["recipe"]),
            Cell(part["says"]),
            fraction_cell(part["count"], part["of"]),
            record_cell(record["file"]),
        )
        for record in results.records
        for part in summarise(record)["criteria"]
    )
    words = "What each confirmation asked of its machines, fixed before the held-out seeds were trained."
    table = Table("Acceptance criteria", ("row", "recipe", "criterion", "machines", "record"), rows)
    return Section("criteria", "Acceptance criteria", (Text(words), table))


def surroundings(results: Results) -> Section:
    """This computer, and those that made the records."""
    here: dict[str, Any] = environment("cpu", "none, nothing was trained")
    words = ", ".join(f"{name} {value}" for name, value in here.items() if name in ("python", "torch", "tapehead"))
    made = f"This page was made on {here['date']} with {words}, commit {here['commit'] or 'unknown'}."
    counts: dict[tuple[str, ...], int] = {}
    for record in results.records:
        key = tuple(str(record["environment"].get(name)) for name in ENVIRONMENT)
        counts[key] = counts.get(key, 0) + 1
    rows = tuple((*map(Cell, key), Cell(str(count), count)) for key, count in counts.items())
    table = Table("Machines that made the records", (*ENVIRONMENT, "records"), rows)
    return Section("environment", "Environment", (Text(made), table))
