"""Numbers that were read off the paper's plots, and ours for the same thing.

A reading is approximate; a line that lies on the axis is read as `AXIS` bits. Costs of N-grams are over the optimum of
133 bits.
"""

import dataclasses
import math

from tapehead.evaluation.summaries import Interval, median_interval
from tapehead.paper.measures import Unusable, costs_at, usable
from tapehead.paper.results import Record, Results

AXIS = 0.1


@dataclasses.dataclass(frozen=True)
class Reading:
    figure: int
    row: str
    bits: float
    label: str | None = None
    """A point beyond training; None: the training cost after `episodes` sequences."""
    episodes: int = 0

    @property
    def where(self) -> str:
        return self.label or f"in training, after {self.episodes:,}"


@dataclasses.dataclass(frozen=True)
class Compared:
    reading: Reading
    ours: Interval | None
    """The median of all machines with its bootstrap interval; None if there is no record to tell it."""
    file: str | None = None
    seeds: int = 0
    episodes: int = 0
    """Training sequences of ours, where they are fewer than the reading's; otherwise 0."""

    @property
    def words(self) -> str:
        """Ours against the paper's, by the interval."""
        if self.ours is None:
            return "not tested"
        if self.ours.low > self.reading.bits:
            return "worse"
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
    Reading(13, "ngrams-ntm-feedforward", 1.0, "Length 200"),
    Reading(13, "ngrams-ntm-lstm", 0.5, "Length 200"),
    Reading(13, "ngrams-lstm", 3.5, "Length 200"),
    Reading(18, "priority-sort-ntm-feedforward", 15.0, "Items 20, Outputs 16"),
    Reading(18, "priority-sort-ntm-lstm", 15.0, "Items 20, Outputs 16"),
    Reading(18, "priority-sort-lstm", 54.0, "Items 20, Outputs 16"),
)


def compare(results: Results, recipe: str = "tuned") -> list[Compared]:
    """Every reading with ours, of the recipe asked for."""
    return [_compared(reading, results, recipe) for reading in READINGS]


def _compared(reading: Reading, results: Results, recipe: str) -> Compared:
    try:
        record = usable(results, reading.row, recipe)
    except Unusable:
        return Compared(reading, None)
    seeds, trained = len(record["machines"]), int(record["experiment"]["training"]["episodes"])
    if reading.label is not None:
        return Compared(reading, median_interval(costs_at(record, reading.label)), record["file"], seeds)
    costs = [cost_after(machine, reading.episodes) for machine in record["machines"]]
    if any(cost is None for cost in costs):  # a record without learning curves, trained for longer than that
        return Compared(reading, None, record["file"], seeds)
    known = [cost for cost in costs if cost is not None]
    shorter = trained if trained < reading.episodes else 0
    return Compared(reading, median_interval(known), record["file"], seeds, shorter)


def cost_after(machine: Record, episodes: int) -> float | None:
    """The training cost of a machine after so many sequences, or at its end if that is earlier; None if unknown."""
    if machine["episodes"] <= episodes:
        return last_cost(machine)
    if not machine.get("curve"):
        return None
    return next((float(bits) for end, bits in machine["curve"] if end >= 0.99 * episodes), math.inf)


def last_cost(machine: Record) -> float:
    """The training cost of a machine at its end: of the last window or, if it had none, of the last point of its
    curve; infinite if neither was finite."""
    last = machine["last_window_bits"]
    if last is None and machine.get("curve"):
        last = machine["curve"][-1][1]
    return math.inf if last is None else float(last)
