"""The claims of the paper with their verdicts, and the two tables that some of them rest on."""

from collections.abc import Iterator

from tapehead.paper import properties
from tapehead.paper.claims import CLAIMS, Claim, Tested
from tapehead.paper.evidence import FIRST_HELD_OUT, LEAST_SEEDS
from tapehead.paper.results import Results
from tapehead.paper.tables import ABLATIONS
from tapehead.report.blocks import Cell, Section, Table, Text, anchor_of
from tapehead.report.cells import VERDICTS, episodes_cell, solved_cell, under_one_bit_cell
from tapehead.report.provenance import record_cell

RULES = f"""Sentences of the paper in our own words. A claim is held, or not held, if the whole interval of 95 % is on
one side of its limit; otherwise, or without records, it could not be tested. Intervals of shares are exact here
(Clopper and Pearson), those of medians are bootstrap ones. At least {LEAST_SEEDS} held-out seeds (from
{FIRST_HELD_OUT:,} on) and half of the recipe's training are needed. Where a recipe selects attempts by their cost at
sizes beyond training, only first attempts count, and the cost of the others is unknown."""
MULTIPLE = """Each of the {count} claims that need records is tested at 95 % on its own, without correction for their
number, so about one verdict in twenty may be wrong by chance. Exploratory claims, whose test was chosen after its
result was known, are in no count."""
ABLATED = """Ablations of the copy machine: parts are switched off, everything else is the tuned recipe of the full
machine, trained once: without its validation and restarts. Machines that find slots by content alone begin with
distinct slots, as the control copy-distinct-slots does: with equal slots all heads are everywhere or stay at slot 0,
and the ablation would say nothing. In training, their tapes have 21 to 48 slots, so machines without shifts have seen
the slots of length 30, but not all of those of length 120."""
SEPARATION = "Separation of memory and computation: the parameters of a machine against the size of its memory."


COLUMNS = ("claim", "section", "the paper says", "the paper's number", "recipe", "ours", "verdict", "records")
TEST_COLUMNS = ("claim", "held if", "notes", "commands")
ABLATION_COLUMNS = ("row", "solved", "sequences to solve", *(f"length {n}" for n in (20, 30, 50, 120)), "record")


def claim_cell(*claims: Claim) -> Cell:
    """Links to the verdicts of claims."""
    links = tuple((claim.id, f"#{anchor_of('claim', claim.id)}") for claim in claims)
    return Cell(" ".join(claim.id for claim in claims), links=links)


def section(results: Results, tested: list[Tested]) -> Section:
    anchors = (anchor_of("claim", one.claim.id) if one.recipe == "tuned" else "" for one in tested)
    table = Table("Claims", COLUMNS, tuple(map(_claim_row, tested)), tuple(anchors))
    tests = Table("How claims were tested", TEST_COLUMNS, tuple(_test_row(claim) for claim in CLAIMS))
    rows = [row for name in ("copy-ntm-lstm", *ABLATIONS) if (row := _ablation_row(results, name))]
    growth = Table("Parameters and memory", ("memory", "size", "parameters"), tuple(_growth_rows()))
    ablations = Table("Ablations", ABLATION_COLUMNS, tuple(rows))
    several = MULTIPLE.format(count=sum(bool(claim.rows) and not claim.exploratory for claim in CLAIMS))
    words = Text(f"{RULES} {several}"), Text(ABLATED), Text(SEPARATION)
    return Section("claims", "Claims", (words[0], table, tests, words[1], ablations, words[2], growth))


def _claim_row(one: Tested) -> tuple[Cell, ...]:
    claim, finding = one.claim, one.finding
    return (
        Cell(claim.id),
        Cell(claim.section),
        Cell(claim.says),
        Cell(claim.paper),
        Cell(one.recipe if claim.rows else "-"),
        Cell(finding.words),
        Cell(finding.verdict + (" (exploratory)" if claim.exploratory else ""), kind=VERDICTS[finding.verdict]),
        record_cell(*finding.files),
    )


def _test_row(claim: Claim) -> tuple[Cell, ...]:
    commands = "\n".join(claim.commands("tuned"))
    return claim_cell(claim), Cell(claim.held_if), Cell(claim.note or "-"), Cell(commands, code=True)


def _ablation_row(results: Results, row: str) -> tuple[Cell, ...]:
    record = results.record(row)
    if record is None:
        return ()
    lengths = (under_one_bit_cell(record, f"Length {n}") for n in (20, 30, 50, 120))
    return Cell(row), solved_cell(record), episodes_cell(record), *lengths, record_cell(record["file"])


def _growth_rows() -> Iterator[tuple[Cell, ...]]:
    for one in properties.memory_growth():
        yield Cell(one.name), Cell(f"{one.capacity:,}", one.capacity), Cell(f"{one.parameters:,}", one.parameters)
