"""A record, checked: its seeds are trained again, and the machines are compared with those of the record.

On the same machine with the same versions they are equal to the bit. Elsewhere rounding differs, which grows during
training into other weights: then the machines can only be the same in distribution, and three measures of them are
compared by two-sample tests. Both samples have the same seeds, and with that the same data and first weights: what they
have in common makes them more alike than independent samples, so that a difference that is reported is one.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

from tapehead.evaluation.comparison import fisher_test, rank_test
from tapehead.experiment.config import Experiment
from tapehead.experiment.run import Observer
from tapehead.lab.confirmation import confirm

LEVEL = 0.01
"""The probability, for all measures together, of calling samples of one distribution different."""
EQUAL, ALIKE, DIFFERENT = "equal to the bit", "the same in distribution", "different"
ALTERED = "the same weights, but other numbers"
UNDECIDED = "not equal to the bit, and too few machines to compare distributions"
FEW = 5
"""Altered numbers that are named."""
AGREES = (EQUAL, ALIKE)
"""Verdicts that bear a record out."""
CLOSE = 1e-6
"""Relative: scores of the same weights, by the same code or a later one."""
PLACE = ("device", "backend", "python", "torch", "numba", "tapehead", "commit")
"""What of the environment may change bits."""

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Measure:
    """One comparison of the machines of a record with those trained now."""

    name: str
    then: str
    now: str
    probability: float
    """Of a difference as large, if there is none but chance."""


@dataclasses.dataclass(frozen=True)
class Verification:
    """What came of training a record's seeds again."""

    machines: int
    equal: int
    """Machines whose weights are those of the record, or, of a record without hashes, all of whose scores are."""
    by: str
    """What was compared for that: weights or scores."""
    changes: tuple[str, ...]
    """What of the environment is not that of the record."""
    measures: tuple[Measure, ...]
    """Empty if all machines are equal."""
    least: float
    """The least probability that a test of ranks can give for so many machines."""
    altered: tuple[str, ...] = ()
    """Numbers of machines whose weights are those of the record, and they are not, as in "seed 7: scores"."""
    whole: bool = False
    """Whether all machines of the record were trained."""

    @property
    def verdict(self) -> str:
        if self.altered:
            return ALTERED
        if self.equal == self.machines:
            return EQUAL
        if self.differing:
            return DIFFERENT
        return ALIKE if self.least <= LEVEL / len(self.measures) else UNDECIDED

    @property
    def differing(self) -> tuple[Measure, ...]:
        """Measures that differ at LEVEL, by Holm's method for several tests."""
        ordered = sorted(self.measures, key=lambda measure: measure.probability)
        found: list[Measure] = []
        for left, measure in zip(range(len(ordered), 0, -1), ordered, strict=True):
            if measure.probability > LEVEL / left:
                break
            found.append(measure)
        return tuple(found)


def experiment_of(record: Record, seeds: int | None = None, changes: dict[str, Any] | None = None) -> Experiment:
    """What a record's machines were trained by, for its first `seeds` seeds. changes: of the place, by path."""
    known = list(record["seeds"])
    if seeds is not None and not 1 <= seeds <= len(known):
        raise ValueError(f"--seeds is {seeds}, but the record has {len(known)} machines: give 1 to {len(known)}.")
    experiment = Experiment.from_plain(record["experiment"], "the record's experiment")
    return experiment.with_values({"seeds": tuple(known[:seeds]), **(changes or {})})


def verify(record: Record, experiment: Experiment, folder: Path, *, observer: Observer | None = None) -> Verification:
    """Train an experiment of `experiment_of` in a folder, score it as the record was, and compare."""
    sequences = max(point["sequences"] for point in record["points"])
    return compare(record, confirm(experiment, folder, name=record["name"], sequences=sequences, observer=observer))


def compare(record: Record, again: Record) -> Verification:
    """Two records: one that is checked, and one of all or some of its seeds."""
    then = {machine["seed"]: machine for machine in record["machines"]}
    hashed = all("weights_sha256" in machine for machine in record["machines"])
    name = "weights_sha256" if hashed else "scores"
    equal = sum(machine[name] == then[machine["seed"]][name] for machine in again["machines"])
    there, here = record["environment"], again["environment"]
    changes = tuple(
        f"{field} {there.get(field)} -> {here.get(field)}" for field in PLACE if there.get(field) != here.get(field)
    )
    measures = () if equal == len(again["machines"]) else _measures(record, again)
    machines, known = len(again["machines"]), len(record["machines"])
    least = 2 / math.comb(machines + known, machines)
    altered = tuple(
        f"seed {machine['seed']}: {field}"
        for machine in again["machines"]
        if machine[name] == (before := then[machine["seed"]])[name]
        for field in before
        if field in machine and not _same(before[field], machine[field])
    )
    by = "weights" if hashed else "scores"
    return Verification(machines, equal, by, changes, measures, least, altered, machines == known)


def _same(then: Any, now: Any) -> bool:
    """Of what two records say of one machine; a table may have got more entries since."""
    if isinstance(then, dict) and isinstance(now, dict):
        return all(_same(then[key], now[key]) for key in then.keys() & now.keys())
    if isinstance(then, list) and isinstance(now, list):
        return len(then) == len(now) and all(map(_same, then, now))
    if isinstance(then, float) and isinstance(now, (int, float)):
        return math.isclose(then, now, rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(then == now)


def _measures(record: Record, again: Record) -> tuple[Measure, ...]:
    """Machines solved, episodes until then, and the cost at the headline point, if both records have it."""
    found = [_solved(record, again), _ranked("episodes to solve", _episodes(record), _episodes(again), ",.0f")]
    headline = record["headline"]
    costs, costs_now = _costs(record, headline), _costs(again, headline)
    if costs and costs_now:
        found.append(_ranked(f"bits at {headline}", costs, costs_now, ".3g"))
    return tuple(found)


def _solved(record: Record, again: Record) -> Measure:
    counts = [
        (sum(machine["solved_at"] is not None for machine in one["machines"]), len(one["machines"]))
        for one in (record, again)
    ]
    words = [f"{solved} of {machines}" for solved, machines in counts]
    return Measure("solved", words[0], words[1], fisher_test(*counts[0], *counts[1]))


def _ranked(name: str, then: list[float], now: list[float], layout: str) -> Measure:
    words = [f"median {_median(values):{layout}}" for values in (then, now)]
    return Measure(name, words[0], words[1], rank_test(then, now))


def _median(values: list[float]) -> float:
    """The lower one of an even number, which is one of the values, also where they are infinite."""
    return sorted(values)[(len(values) - 1) // 2]


def _episodes(record: Record) -> list[float]:
    return [math.inf if machine["solved_at"] is None else machine["solved_at"] for machine in record["machines"]]


def _costs(record: Record, label: str) -> list[float]:
    scores = [machine["scores"][label]["bits"] for machine in record["machines"] if label in machine["scores"]]
    return [math.inf if bits is None else bits for bits in scores]


def describe(found: Verification) -> str:
    """The verdict with its reasons, in lines."""
    lines = [f"{found.equal} of {found.machines} machines have the {found.by} of the record, to the bit."]
    if found.changes:
        lines.append(f"Not as in the record: {'; '.join(found.changes)}.")
    lines += [f"  {one.name}: {one.then} then, {one.now} now (p = {one.probability:.3f})" for one in found.measures]
    reason = {
        EQUAL: "",
        ALTERED: f": {', '.join(found.altered[:FEW])}{' and more' if len(found.altered) > FEW else ''}",
        UNDECIDED: ": the record has no more" if found.whole else ": take more with --seeds",
        ALIKE: f": no measure differs at the level of {LEVEL}",
        DIFFERENT: f": {', '.join(measure.name for measure in found.differing)}, at the level of {LEVEL}",
    }[found.verdict]
    return "\n".join([*lines, f"Verdict: {found.verdict}{reason}."])
