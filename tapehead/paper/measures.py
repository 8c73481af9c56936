"""What can be measured in records to test a sentence of the paper, and when it counts as held.

A measure is decided by an interval, not by an estimate: a share of machines by Wilson's interval; a median, or a
difference or ratio of medians, by its bootstrap interval; all of 95 %. Where the interval includes the limit, or the
record is not there or too small, the sentence could not be tested, and the reason is given. A machine that failed costs
infinity and takes part in everything.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from tapehead.evaluation.summaries import Interval, median_difference, median_interval, wilson
from tapehead.paper.recipes import row_experiment
from tapehead.paper.results import Record, Results

Verdict = Literal["held", "not held", "could not be tested"]

LEAST_SEEDS = 5
"""Fewer machines than this decide nothing."""
LEAST_SHARE = 0.5
"""Of the recipe's training sequences; a record of shorter training decides nothing."""


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


class Measure(Protocol):
    @property
    def rows(self) -> tuple[str, ...]:
        """The rows whose records are needed."""

    def test(self, results: Results, recipe: str) -> Finding: ...


class Unusable(Exception):
    """A record that decides nothing, with the reason."""


def usable(results: Results, row: str, recipe: str) -> Record:
    """The record of a row, or the reason why there is none to decide by."""
    record = results.record(row, recipe)
    if record is None:
        raise Unusable(f"no record of {row} with the recipe {recipe}")
    if len(record["machines"]) < LEAST_SEEDS:
        raise Unusable(f"{record['file']} has {len(record['machines'])} seeds, fewer than {LEAST_SEEDS}")
    trained, whole = record["experiment"]["training"]["episodes"], row_experiment(row, recipe).training.episodes
    if trained < LEAST_SHARE * whole:
        raise Unusable(f"{record['file']} trained on {trained:,} of the recipe's {whole:,} sequences")
    return record


def costs_at(record: Record, label: str) -> list[float]:
    """Costs in bits of all machines at a point; infinite where not finite."""
    scores = [machine["scores"].get(label) for machine in record["machines"]]
    if any(score is None for score in scores):
        raise Unusable(f"{record['file']} was not measured at {label}")
    return [math.inf if score["bits"] is None else float(score["bits"]) for score in scores if score]


def episodes_to_solve(record: Record) -> list[float]:
    """Training sequences of all machines until they were solved; infinite for those that were not."""
    return [math.inf if m["solved_at"] is None else float(m["solved_at"]) for m in record["machines"]]


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
        count = sum(bits < self.under for bits in costs_at(record, self.label))
        low, high = wilson(count, len(record["machines"]))
        what = f"{self.row}: {count} of {len(record['machines'])} ({100 * low:.0f}-{100 * high:.0f} %)"
        ours = f"{what} under {self.under:g} bit{'' if self.under <= 1 else 's'} at {self.label}"
        interval = Interval(count / len(record["machines"]), low, high)
        return _decided(ours, interval, 0.5, above=self.expect == "most", files=(record["file"],))


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
        interval = median_interval(costs_at(record, self.label))
        ours = f"{self.row}: median {spread(interval)} bits at {self.label}, {len(record['machines'])} seeds"
        return _decided(ours, interval, self.bits, above=self.expect == "above", files=(record["file"],))


@dataclasses.dataclass(frozen=True)
class Faster:
    """A row is solved after fewer training sequences than another one, by a factor of at least so much."""

    row: str
    than: str
    factor: float = 1.0

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.row, self.than)

    def test(self, results: Results, recipe: str) -> Finding:
        one, other = usable(results, self.row, recipe), usable(results, self.than, recipe)
        fast, slow = episodes_to_solve(one), episodes_to_solve(other)
        logs = median_difference([math.log(value) for value in slow], [math.log(value) for value in fast])
        ratio = Interval(*(math.exp(end) if end < math.inf else math.inf for end in logs))
        medians = [median_interval(values).estimate for values in (fast, slow)]
        ours = f"{self.row} solved after {number(medians[0])} sequences, {self.than} after {number(medians[1])}"
        return _decided(
            f"{ours}: {spread(ratio)} times", ratio, self.factor, above=True, files=(one["file"], other["file"])
        )


@dataclasses.dataclass(frozen=True)
class Cheaper:
    """A row costs less than another one at a point."""

    row: str
    than: str
    label: str

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.row, self.than)

    def test(self, results: Results, recipe: str) -> Finding:
        one, other = usable(results, self.row, recipe), usable(results, self.than, recipe)
        mine, theirs = costs_at(one, self.label), costs_at(other, self.label)
        interval = median_difference(mine, theirs)
        medians = [number(median_interval(costs).estimate) for costs in (mine, theirs)]
        ours = f"{self.row} {medians[0]}, {self.than} {medians[1]} bits at {self.label}: difference {spread(interval)}"
        return _decided(ours, interval, 0.0, above=False, files=(one["file"], other["file"]))


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
    return Finding(
        "\n".join(finding.ours for finding in findings if finding.ours),
        "not held" if "not held" in verdicts else untested,
        "; ".join(dict.fromkeys(finding.why for finding in findings if finding.why)),
        tuple(dict.fromkeys(file for finding in findings for file in finding.files)),
    )


def _guarded(measure: Measure, results: Results, recipe: str) -> Finding:
    try:
        return measure.test(results, recipe)
    except Unusable as reason:
        return Finding("", "could not be tested", str(reason))


def _decided(ours: str, interval: Interval, limit: float, *, above: bool, files: tuple[str, ...]) -> Finding:
    """Held if the whole interval is on the right side of the limit, not held if it is on the other."""
    if interval.low > limit or interval.high < limit:
        return Finding(ours, "held" if (interval.low > limit) == above else "not held", files=files)
    return Finding(ours, "could not be tested", f"the interval {span(interval)} includes {number(limit)}", files)


def spread(interval: Interval) -> str:
    """ "59.5 (45.8 to 70.1)"."""
    return f"{number(interval.estimate)} ({span(interval)})"


def span(interval: Interval) -> str:
    return f"{number(interval.low)} to {number(interval.high)}"


def number(value: float) -> str:
    """Three digits, or all of a large whole number; a quantity that never came to be is "never"."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
