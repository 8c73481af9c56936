"""The paper's numbers beside ours: the summary, Tables 1 to 3, and what was read off the plots."""

from tapehead.paper import claims, properties, readings
from tapehead.paper.claims import Tested
from tapehead.paper.evidence import selection
from tapehead.paper.measures import spread
from tapehead.paper.readings import Compared
from tapehead.paper.recipes import RECIPES
from tapehead.paper.results import Record, Results
from tapehead.paper.tables import MISPRINTS, ROWS, Row
from tapehead.report.blocks import Cell, Kind, Section, Table, Text
from tapehead.report.cells import NONE, VERDICTS, episodes_cell, headline_cell, solved_cell
from tapehead.report.provenance import record_cell, seeds_of
from tapehead.report.verdicts import claim_cell

COMPARED: dict[str, Kind] = {"better": "good", "worse": "bad", "about equal": "", "not tested": "open"}

INTERVALS = """Shares of machines come with Wilson's 95 % interval (claims with the exact one), medians with a
bootstrap interval of 95 %. Every machine is in every count and every median: one that was not solved as infinitely
slow, one without a finite cost as infinitely costly."""


def summary(tested: list[Tested], compared: list[Compared]) -> Section:
    tuned = [one for one in tested if one.recipe == "tuned" and not one.claim.exploratory]
    counts = {verdict: sum(one.finding.verdict == verdict for one in tuned) for verdict in VERDICTS}
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    key = Table(
        "The five key claims",
        ("claim", "the paper says", "verdict", "decided by", "ours"),
        tuple(_key_row(name, parts) for name, parts in claims.key_verdicts(tested).items()),
    )
    failed = [one for one in tuned if one.finding.verdict == "not held"]
    worse = [one for one in compared if one.words == "worse"]
    return Section(
        "summary",
        "Summary",
        (
            Text(f"{len(tuned)} claims of the paper, with our tuned recipes: {words}. {INTERVALS}"),
            key,
            Text("" if failed else "No claim that could be tested failed."),
            Table("Did not hold", ("claim", "the paper says", "ours"), tuple(map(_failed_row, failed))),
            Text(_compared_words(compared)),
            Table("Worse than the paper", READING_COLUMNS, tuple(_reading_row(one) for one in worse)),
        ),
    )


def _failed_row(one: Tested) -> tuple[Cell, ...]:
    return claim_cell(one.claim), Cell(one.claim.says), Cell(one.finding.ours)


def _key_row(name: str, parts: list[Tested]) -> tuple[Cell, ...]:
    verdict = parts[0].finding.verdict
    return (
        Cell(name),
        Cell(claims.KEY_CLAIMS[name]),
        Cell(verdict, kind=VERDICTS[verdict]),
        claim_cell(*(one.claim for one in parts)),
        Cell("\n".join(one.finding.words for one in parts)),
    )


def _compared_words(compared: list[Compared]) -> str:
    counts = {words: sum(one.words == words for one in compared) for words in COMPARED}
    said = ", ".join(f"{words} in {count}" for words, count in counts.items() if words != "not tested")
    known = len(compared) - counts["not tested"]
    return (
        f"Of {len(compared)} numbers read off the paper's plots {known} could be compared: ours is {said}. Worse or "
        "better: our median, with its whole interval, is above or below the paper's number."
    )


PAPER_COLUMNS = (
    "row", "table", "heads", "size", "rate", "parameters printed", "parameters ours", "recipe", "solved",
    "sequences to solve", "cost at", "median bits", "seeds", "record",
)  # fmt: skip


def paper_tables(results: Results, compared: list[Compared]) -> Section:
    lines, selected = [], []
    for row in ROWS:
        records = [results.record(row.name, recipe) for recipe in RECIPES]
        known = [record for record in records if record is not None]
        lines += [_paper_row(row, record) for record in known or records[:1]]
        selected += [selection(record) for record in known]
    notes = " ".join(f"{name}: {why}." for name, why in MISPRINTS.items())
    return Section(
        "tables",
        "Tables 1 to 3, and ours",
        (
            Text(
                "The machines of the paper with its numbers of parameters beside ours, and what came of each on "
                f"held-out seeds. {notes} No architecture that we tried gives the counts of Tables 1 and 2. "
                f"{' '.join(filter(None, selected))}"
            ),
            Table("Tables 1 to 3", PAPER_COLUMNS, tuple(lines)),
            Text(
                "Numbers read off the paper's plots, and our medians for the same thing. Readings are approximate; a "
                f"line on the axis is read as {readings.AXIS:g} bits, and what is below that is about equal. Where a "
                "number of sequences is given with ours, our cost is that of the end of training, after so many. Costs "
                "of N-grams are over the optimum."
            ),
            Table("Numbers of the paper's plots", READING_COLUMNS, tuple(_reading_row(one) for one in compared)),
        ),
    )


def _paper_row(row: Row, record: Record | None) -> tuple[Cell, ...]:
    ours = properties.parameter_count(row)
    difference = "exact" if ours == row.printed else f"{ours - row.printed:+,}"
    size = f"{row.layers} x {row.size}" if row.layers > 1 else str(row.size)
    machine = (
        Cell(row.name),
        Cell(row.cell.partition(",")[0]),
        Cell(str(row.heads or "-"), row.heads),
        Cell(size, row.layers * row.size),
        Cell(f"{row.learning_rate:g}", row.learning_rate),
        Cell(f"{row.printed:,}", row.printed),
        Cell(f"{ours:,} ({difference})", ours),
    )
    if record is None:
        return (*machine, Cell("no record", kind="open"), *[NONE] * (len(PAPER_COLUMNS) - len(machine) - 1))
    return (
        *machine,
        Cell(record["recipe"]),
        solved_cell(record),
        episodes_cell(record),
        Cell(record["headline"]),
        headline_cell(record),
        Cell(seeds_of(record), len(record["seeds"])),
        record_cell(record["file"]),
    )


READING_COLUMNS = ("figure", "row", "where", "paper, bits", "ours, bits", "ours is", "record")


def _reading_row(one: Compared) -> tuple[Cell, ...]:
    reading = one.reading
    shorter = f" after {one.trained}" if one.trained else ""
    selected = f"\n{one.selection}" if one.selection else ""
    ours = NONE if one.ours is None else Cell(spread(one.ours) + shorter + selected, one.ours.estimate)
    return (
        Cell(str(reading.figure), reading.figure),
        Cell(reading.row),
        Cell(reading.where),
        Cell(f"{reading.bits:g}", reading.bits),
        ours,
        Cell(one.words, kind=COMPARED[one.words]),
        record_cell(*[one.file] if one.file else []),
    )
