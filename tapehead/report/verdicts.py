"""The claims of the paper with their verdicts, and the two tables that some of them rest on."""

from collections.abc import Iterator

from tapehead.paper import properties
from tapehead.paper.claims import Claim, Tested
from tapehead.paper.measures import LEAST_SEEDS
from tapehead.paper.results import Results
from tapehead.paper.tables import ABLATIONS
from tapehead.report.blocks import Cell, Section, Table, Text, anchor_of
from tapehead.report.cells import VERDICTS, episodes_cell, solved_cell, under_one_bit_cell
from tapehead.report.provenance import record_cell, record_link

RULES = f"""Sentences of the paper in our own words. A claim is held, or not held, if the whole interval is on one side
of its limit; otherwise, or without records, it could not be tested. At least {LEAST_SEEDS} seeds and half of the
recipe's training are needed."""
ABLATED = """Ablations of the copy machine: parts are switched off, everything else is the tuned recipe of the full
machine. Machines that find slots by content alone begin with distinct slots, as the control copy-distinct-slots does:
with equal slots all heads are everywhere or stay at slot 0, and the ablation would say nothing. In training, tapes have
21 to 48 slots, so machines without shifts have seen the slots of length 30, but not all of those of length 120."""
SEPARATION = "Separation of memory and computation: the parameters of a machine against the size of its memory."


def claim_link(claim: Claim) -> str:
    return f"#{anchor_of('claim', claim.id)}"


COLUMNS = (
    "claim", "section", "the paper says", "its number", "held if", "recipe", "ours", "verdict", "why, notes", "records",
    "commands",
)  # fmt: skip
ABLATION_COLUMNS = ("row", "solved", "sequences to solve", *(f"length {n}" for n in (20, 30, 50, 120)), "record")


def section(results: Results, tested: list[Tested]) -> Section:
    anchors = (anchor_of("claim", one.claim.id) if one.recipe == "tuned" else "" for one in tested)
    table = Table("Claims", COLUMNS, tuple(_claim_row(one) for one in tested), tuple(anchors))
    rows = [row for name in ("copy-ntm-lstm", *ABLATIONS) if (row := _ablation_row(results, name))]
    growth = Table("Parameters and memory", ("memory", "size", "parameters"), tuple(_growth_rows()))
    ablations = Table("Ablations", ABLATION_COLUMNS, tuple(rows))
    return Section("claims", "Claims", (Text(RULES), table, Text(ABLATED), ablations, Text(SEPARATION), growth))


def _claim_row(one: Tested) -> tuple[Cell, ...]:
    claim, test = one.claim, one.test
    files = ", ".join(test.files) or "-"
    return (
        Cell(claim.id),
        Cell(claim.section),
        Cell(claim.says),
        Cell(claim.paper),
        Cell(claim.held_if),
        Cell(one.recipe if claim.rows else "-"),
        Cell(test.ours or "-"),
        Cell(test.verdict, kind=VERDICTS[test.verdict]),
        Cell(" ".join(f"{words[0].upper()}{words[1:].rstrip('.')}." for words in (test.why, claim.note) if words)),
        Cell(files, link=record_link(test.files[0]) if len(test.files) == 1 else "#records" if test.files else ""),
        Cell("; ".join(claim.commands(one.recipe)), code=True),
    )


def _ablation_row(results: Results, row: str) -> tuple[Cell, ...]:
    record = results.record(row)
    if record is None:
        return ()
    lengths = (under_one_bit_cell(record, f"Length {n}") for n in (20, 30, 50, 120))
    return Cell(row), solved_cell(record), episodes_cell(record), *lengths, record_cell(record)


def _growth_rows() -> Iterator[tuple[Cell, ...]]:
    for one in properties.memory_growth():
        yield Cell(one.name), Cell(f"{one.capacity:,}", one.capacity), Cell(f"{one.parameters:,}", one.parameters)
