"""Numbers that were read off the paper's plots, and ours for the same thing.

A reading is approximate; a line that lies on the axis is read as `AXIS` bits. Costs of N-grams are over the optimum of
133 bits.
"""

import dataclasses

from tapehead.evaluation.summaries import Interval, median_interval
from tapehead.paper.evidence import Unusable, budget, costs_after, costs_at, selection, trained_on, usable
from tapehead.paper.results import Results

AXIS = 0.1
MILLION = 1_000_000


@dataclasses.dataclass(frozen=True)
class Reading:
    figure: int
    row: str
    bits: float
    label: str | None = None
    """A point; None: the training cost after `episodes` sequences."""
    episodes: int = 0
    """Training sequences of the paper's machine; 0 if it does not say."""

    @property
    def where(self) -> str:
        after = f", after {self.episodes:,}" if self.episodes else ""
        return f"{self.label or 'in training'}{after}"


@dataclasses.dataclass(frozen=True)
class Compared:
    reading: Reading
    ours: Interval | None
    """The median of all machines with its bootstrap interval; None if there is no record to tell it."""
    file: str | None = None
    seeds: int = 0
    trained: str = ""
    """Training sequences of ours, at a point or where they are fewer than the reading's; otherwise empty."""
    selection: str = ""
    """How attempts and weights of ours were selected, if by more than the training cost of one attempt."""

    @property
    def words(self) -> str:
        """Ours against the paper's, by the interval. Nothing that a plot shows is better than a line on the axis."""
        if self.ours is None:
            return "not tested"
        if self.ours.low > self.reading.bits:
            return "worse"
        if self.reading.bits == AXIS:
            return "about equal"
        return "better" if self.ours.high < self.reading.bits else "about equal"


def _trained(figure: int, row: str, *costs: tuple[int, float]) -> tuple[Reading, ...]:
    return tuple(Reading(figure, row, bits, episodes=episodes) for episodes, bits in costs)


def _items(row: str, *bits: float) -> tuple[Reading, ...]:
    places = zip((6, 10, 15, 20), bits, strict=True)
    return tuple(Reading(11, f"associative-recall-{row}", cost, f"Items {items}") for items, cost in places)


READINGS: tuple[Reading, ...] = (
    *_trained(3, "copy-ntm-feedforward", (100_000, AXIS)),
    *_trained(3, "copy-ntm-lstm", (100_000, AXIS)),
    *_trained(3, "copy-lstm", (100_000, 4.8), (1_000_000, 0.5)),
    *_trained(7, "repeat-copy-ntm-feedforward", (50_000, 45.0)),
    *_trained(7, "repeat-copy-ntm-lstm", (50_000, 5.0)),
    *_trained(7, "repeat-copy-lstm", (50_000, 105.0)),
    *_trained(10, "associative-recall-ntm-feedforward", (30_000, AXIS)),
    *_trained(10, "associative-recall-ntm-lstm", (100_000, AXIS)),
    *_trained(10, "associative-recall-lstm", (1_000_000, 0.5)),
    *_items("ntm-feedforward", AXIS, AXIS, 1.5, 8.0),
    *_items("ntm-lstm", AXIS, 1.8, 4.8, 7.0),
    *_items("lstm", 2.0, 36.5, 40.0, 38.5),
    Reading(13, "ngrams-ntm-feedforward", 1.0, "Length 200", MILLION),
    Reading(13, "ngrams-ntm-lstm", 0.5, "Length 200", MILLION),
    Reading(13, "ngrams-lstm", 3.5, "Length 200", MILLION),
    Reading(18, "priority-sort-ntm-feedforward", 15.0, "Items 20, Outputs 16", MILLION),
    Reading(18, "priority-sort-ntm-lstm", 15.0, "Items 20, Outputs 16", MILLION),
    Reading(18, "priority-sort-lstm", 54.0, "Items 20, Outputs 16", MILLION),
)


def compare(results: Results, recipe: str = "tuned") -> list[Compared]:
    """Every reading with ours, of the recipe asked for."""
    return [_compared(reading, results, recipe) for reading in READINGS]


def _compared(reading: Reading, results: Results, recipe: str) -> Compared:
    try:
        record = usable(results, reading.row, recipe)
    except Unusable:
        return Compared(reading, None)
    seeds = len(record["machines"])
    try:
        costs = costs_at(record, reading.label) if reading.label else costs_after(record, reading.episodes)
    except Unusable:
        return Compared(reading, None, record["file"], seeds)
    trained = trained_on(record) if reading.label or budget(record) < reading.episodes else ""
    return Compared(reading, median_interval(costs), record["file"], seeds, trained, selection(record))
