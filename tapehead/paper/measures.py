"""What can be measured in records to test a sentence of the paper, and when it counts as held.

A measure is decided by an interval, not by an estimate: a share of machines by the exact interval of Clopper and
Pearson; a median, or a difference or ratio of medians, by its bootstrap interval; all of 95 %. Where the interval
includes the limit, or the record is not there or may not decide (`evidence.py`), the sentence could not be tested, and
the reason is given. A machine that failed costs infinity and takes part in everything.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from tapehead.evaluation.summaries import Interval, clopper_pearson, median_difference, median_interval
from tapehead.paper.evidence import (
    Unusable,
    budget,
    cost_bounds,
    costs_after,
    costs_at,
    episodes_to_solve,
    point_beyond_training,
    selection,
    trained_on,
    usable,
)
from tapehead.paper.results import Record, Results

Verdict = Literal["held", "not held", "could not be tested"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a measure found, or several together."""

    ours: str
    """In words, a line for each measure."""
    verdict: Verdict
    why: str = ""
    """Why it could not be tested."""
    files: tuple[str, ...] = ()
    """The records that were used, relative to the folder of results."""

    @property
    def words(self) -> str:
        """What was found and, as a sentence, why it could not be tested."""
        reason = f"{self.why[0].upper()}{self.why[1:]}." if self.why else ""
        return f"{self.ours}\n{reason}".strip()


class Measure(Protocol):
    @property
    def rows(self) -> tuple[str, ...]:
        """The rows whose records are needed."""

    def test(self, results: Results, recipe: str) -> Finding: ...


@dataclasses.dataclass(frozen=True)
class Share:
    """Most machines of a row, or few of them, cost less than a limit at a point. The limit is one half of them."""

    row: str
    label: str
    expect: Literal["most", "few"] = "most"
    under: float = 1.0

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.row,)

    def test(self, results: Results, recipe: str) -> Finding:
        record = usable(results, self.row, recipe)
        of, count = len(record["machines"]), self._count(costs_at(record, self.label))
        known, possible = (self._count(costs) for costs in reversed(cost_bounds(record, self.label)))
        shown = Interval(count / of, *clopper_pearson(count, of))
        bounds = Interval(count / of, clopper_pearson(known, of)[0], clopper_pearson(possible, of)[1])
        ours = f"{self.row}: {count} of {of} ({100 * shown.low:.0f}-{100 * shown.high:.0f} %)"
        ours += f" under {self.under:g} bit{'' if self.under <= 1 else 's'} at {self.label}"
        return _decided(ours, shown, 0.5, above=self.expect == "most", records=[record], bounds=bounds)

    def _count(self, costs: list[float]) -> int:
        return sum(bits < self.under for bits in costs)


@dataclasses.dataclass(frozen=True)
class Median:
    """The median cost of a row at a point is below a limit, or above it."""

    row: str
    label: str
    bits: float
    expect: Literal["below", "above"] = "below"

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.row,)

    def test(self, results: Results, recipe: str) -> Finding:
        record = usable(results, self.row, recipe)
        shown = median_interval(costs_at(record, self.label))
        least, most = (median_interval(costs) for costs in cost_bounds(record, self.label))
        bounds = Interval(shown.estimate, least.low, most.high)
        ours = f"{self.row}: median {spread(shown)} bits at {self.label}, {len(record['machines'])} seeds"
        return _decided(ours, shown, self.bits, above=self.expect == "above", records=[record], bounds=bounds)


@dataclasses.dataclass(frozen=True)
class Faster:
    """A row is solved after fewer training sequences than another one, by a factor of at least so much.

    A machine that was not solved needs some number of sequences between those that it had and infinity: the ends of
    the interval are those of the least and the greatest ratio.
    """

    row: str
    than: str
    factor: float = 1.0

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.row, self.than)

    def test(self, results: Results, recipe: str) -> Finding:
        one, other = usable(results, self.row, recipe), usable(results, self.than, recipe)
        fast, slow = episodes_to_solve(one), episodes_to_solve(other)
        low = _ratio(_least_to_solve(other), fast).low
        ratio = Interval(_ratio(slow, fast).estimate, low, _ratio(slow, _least_to_solve(one)).high)
        medians = [median_interval(values).estimate for values in (fast, slow)]
        ours = f"{self.row} solved after {number(medians[0])} sequences, {self.than} after {number(medians[1])}"
        return _decided(f"{ours}: {spread(ratio)} times", ratio, self.factor, above=True, records=[one, other])


def _least_to_solve(record: Record) -> list[float]:
    pairs = zip(episodes_to_solve(record), record["machines"], strict=True)
    return [min(solved, float(machine["episodes"])) for solved, machine in pairs]


def _ratio(values: list[float], others: list[float]) -> Interval:
    """The ratio of two medians with its bootstrap interval."""
    logs = median_difference([math.log(value) for value in values], [math.log(value) for value in others])
    return Interval(*(math.exp(end) if end < math.inf else math.inf for end in logs))


@dataclasses.dataclass(frozen=True)
class Cheaper:
    """A row costs less than another one at a point.

    Where one of them had more training sequences, the cost at the end favours that one. The training cost after equal
    numbers of sequences favours the other one, whose schedule has ended there. Only if both agree is it decided.
    """

    row: str
    than: str
    label: str

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.row, self.than)

    def test(self, results: Results, recipe: str) -> Finding:
        one, other = usable(results, self.row, recipe), usable(results, self.than, recipe)
        end, sequences = self._at_the_end(one, other), sorted({budget(one), budget(other)})
        if len(sequences) == 1:
            return end
        try:
            equal = self._after(sequences[0], one, other)
        except Unusable as reason:
            return dataclasses.replace(end, verdict="could not be tested", why=f"unequal training: {reason}")
        ours = f"{end.ours}\n{equal.ours}"
        if equal.verdict == end.verdict:
            return Finding(ours, end.verdict, end.why, end.files)
        why = f"unequal training: {equal.verdict} by costs after equal numbers of sequences, {end.verdict} by those at "
        return Finding(ours, "could not be tested", f"{why}the end", end.files)

    def _at_the_end(self, one: Record, other: Record) -> Finding:
        mine, theirs = costs_at(one, self.label), costs_at(other, self.label)
        shown = median_difference(mine, theirs)
        low, high = (
            median_difference(a, b)
            for a, b in zip(cost_bounds(one, self.label), reversed(cost_bounds(other, self.label)), strict=True)
        )
        medians = [number(median_interval(costs).estimate) for costs in (mine, theirs)]
        ours = f"At {self.label}: {self.row} {medians[0]} bits after {trained_on(one)} sequences, {self.than} "
        ours += f"{medians[1]} after {trained_on(other)}: difference {spread(shown)}"
        bounds = Interval(shown.estimate, low.low, high.high)
        return _decided(ours, shown, 0.0, above=False, records=[one, other], bounds=bounds)

    def _after(self, episodes: int, one: Record, other: Record) -> Finding:
        if point_beyond_training(one, self.label):
            raise Unusable(f"costs at {self.label} after {episodes:,} sequences are not known")
        mine, theirs = costs_after(one, episodes), costs_after(other, episodes)
        interval = median_difference(mine, theirs)
        medians = [number(median_interval(costs).estimate) for costs in (mine, theirs)]
        ours = f"In training, after {episodes:,} sequences: {self.row} {medians[0]}, {self.than} {medians[1]} bits: "
        return _decided(f"{ours}difference {spread(interval)}", interval, 0.0, above=False, records=[])


@dataclasses.dataclass(frozen=True)
class Computed:
    """Something that needs no record: a property of the machines themselves, computed when it is asked for."""

    function: Callable[[], tuple[str, bool]]
    """What was found, and whether the sentence held."""
    rows: tuple[str, ...] = ()

    def test(self, results: Results, recipe: str) -> Finding:
        ours, held = self.function()
        return Finding(ours, "held" if held else "not held")


def combined(measures: Sequence[Measure], results: Results, recipe: str) -> Finding:
    """Several measures as one: held if all are, not held if one is not."""
    findings = [_guarded(measure, results, recipe) for measure in measures]
    verdicts = {finding.verdict for finding in findings}
    untested: Verdict = "could not be tested" if "could not be tested" in verdicts else "held"
    lines = [line for finding in findings for line in finding.ours.splitlines()]
    return Finding(
        "\n".join(dict.fromkeys(lines)),
        "not held" if "not held" in verdicts else untested,
        "; ".join(dict.fromkeys(finding.why for finding in findings if finding.why)),
        tuple(dict.fromkeys(file for finding in findings for file in finding.files)),
    )


def _guarded(measure: Measure, results: Results, recipe: str) -> Finding:
    try:
        return measure.test(results, recipe)
    except Unusable as reason:
        return Finding("", "could not be tested", str(reason))


def _decided(
    ours: str, shown: Interval, limit: float, *, above: bool, records: list[Record], bounds: Interval | None = None
) -> Finding:
    """Held if the whole interval is on the right side of the limit, not held if it is on the other. Bounds: the
    interval that decides instead, where what is shown includes machines that were selected."""
    ours = "\n".join([ours, *(sentence for record in records if (sentence := selection(record)))])
    files, interval = tuple(record["file"] for record in records), bounds or shown
    if interval.low > limit or interval.high < limit:
        return Finding(ours, "held" if (interval.low > limit) == above else "not held", files=files)
    first = "" if interval == shown else "by first attempts alone, the others being unknown, "
    return Finding(ours, "could not be tested", f"{first}the interval {span(interval)} includes {number(limit)}", files)


def spread(interval: Interval) -> str:
    """ "59.5 (45.8 to 70.1)"."""
    return f"{number(interval.estimate)} ({span(interval)})"


def span(interval: Interval) -> str:
    return f"{number(interval.low)} to {number(interval.high)}"


def number(value: float) -> str:
    """Three digits, or all of a large whole number; an infinite one is "infinite"."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
