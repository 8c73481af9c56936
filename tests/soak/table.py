"""What was measured: a dated file, a line for each fault, and the table of docs/reliability.md made of the newest."""

import dataclasses
import importlib.util
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from soak.fault import Fault
from soak.runner import Outcome

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- made by: python tests/soak --table -->", "<!-- end of the table -->"
COLUMNS = ("fault", "count", "asked", "failures", "seconds", "of a processor", "date", "machine", "commit")


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of a dated file."""

    number: int
    title: str
    count: int
    asked: int
    failures: int
    seconds: float
    processor_seconds: float
    date: str
    machine: str
    commit: str

    def text(self) -> str:
        numbers = (self.count, self.asked, self.failures, round(self.seconds), round(self.processor_seconds))
        values = (f"{self.number} {self.title}", *map(str, numbers), self.date, self.machine, self.commit)
        return " | ".join(values)

    @classmethod
    def parse(cls, line: str) -> "Row":
        fault, count, asked, failures, seconds, used, *where = line.split(" | ")
        number, _, title = fault.partition(" ")
        return cls(int(number), title, int(count), int(asked), int(failures), float(seconds), float(used), *where)


def place_of() -> dict[str, Any]:
    """Machine, versions, commit and date, as in run folders."""
    from tapehead.environment import environment

    found = environment("cpu", "")
    numba = f", numba {found['numba']}" if importlib.util.find_spec("numba") is not None else ", no numba"
    machine = f"{found['device']}, {found['cpus']} cores, Python {found['python']}, torch {found['torch']}{numba}"
    return {"machine": machine, "commit": found["commit"] or "unknown", "date": found["date"]}


def row_of(outcome: Outcome) -> Row:
    def joined(name: str) -> str:
        return " and ".join(sorted({place[name] for place in outcome.places}))

    fault, failures = outcome.fault, len(outcome.failures)
    times = (outcome.seconds, outcome.processor_seconds)
    where = map(joined, ("date", "machine", "commit"))
    return Row(fault.number, fault.title, outcome.done, fault.full, failures, *times, *where)


def write_results(path: Path, outcomes: Iterable[Outcome], reasons: dict[str, str]) -> None:
    """reasons: of faults that were not run, by title."""
    lines = [" | ".join(COLUMNS), *(row_of(outcome).text() for outcome in outcomes if outcome.places)]
    lines += [f"not run: {title}, because {reason}" for title, reason in reasons.items()]
    path.write_text("\n".join(lines) + "\n")


def rows_in(folder: Path) -> dict[int, Row]:
    """For each fault the newest row at the full count; where there is none, the one of the highest count."""
    found: dict[int, Row] = {}
    for path in sorted(folder.glob("*-soak.txt")):
        lines = [line for line in path.read_text().splitlines() if re.match(r"\d+ ", line)]
        for row in map(Row.parse, lines):
            before = found.get(row.number)
            if before is None or min(row.count, row.asked) >= min(before.count, before.asked):
                found[row.number] = row
    return found


def table(faults: Sequence[Fault], rows: dict[int, Row]) -> str:
    lines = ["| | fault | promise | cases | failures | seconds | of a processor | measured |"]
    lines.append("|--:|---|---|--:|--:|--:|--:|---|")
    notes: dict[str, int] = {}
    for fault in faults:
        head = f"| {fault.number} | {fault.title} | {fault.promise} |"
        row = rows.get(fault.number)
        if row is None:
            lines.append(f"{head} {fault.full:,} {fault.counted} asked, not run | | | | |")
            continue
        count = f"{row.count:,}" if row.count == fault.full else f"{row.count:,} of {fault.full:,}"
        commit = " and ".join(one[:9] for one in row.commit.split(" and "))
        note = notes.setdefault(f"{row.machine}; commit {commit}", len(notes) + 1)
        numbers = f"{row.failures} | {row.seconds:,.0f} | {row.processor_seconds:,.0f}"
        lines.append(f"{head} {count} {fault.counted} | {numbers} | {row.date} ({note}) |")
    lines += ["", *(f"({note}) {where}." for where, note in notes.items())]
    return "\n\n".join(["\n".join(lines[: len(faults) + 2]), *lines[len(faults) + 3 :]])


def page_with(text: str, made: str) -> str:
    """A page with another table in the place of the one between the marks."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}"
