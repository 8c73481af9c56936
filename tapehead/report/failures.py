"""What failed: every machine of every record that did not do what was asked, by kind."""

import dataclasses
import math
from typing import Any

from tapehead.paper.evidence import last_cost
from tapehead.paper.results import Record

KINDS = {
    "not solved": "The mean cost of 1,000 consecutive training sequences never fell below the task's threshold.",
    "not passed": "Solved, but above the limit of its recipe's validation in every attempt.",
    "criterion missed": "Solved, but an acceptance criterion of its task is not met on held-out sequences.",
    "rare sequences": "Solved, but an acceptance criterion is not met because of a few sequences: nine in ten are "
    "without a wrong answer.",
    "relapse": "Solved, and every criterion met; but later in training a window cost more than 1 bit. Delivered are "
    "the weights at the lowest cost.",
    "skipped updates": "A cost or gradient was not finite, and the update was not applied.",
}
RELAPSE_BITS = 1.0
RARE = 0.1
"""Of the sequences at most."""


@dataclasses.dataclass(frozen=True)
class Failure:
    record: Record
    seed: int
    kind: str
    what: str
    bits: float
    """The cost that shows it, for sorting."""


def failures_of(record: Record) -> list[Failure]:
    """At most one for each machine, the gravest; and one more if it skipped updates."""
    found = []
    for machine in record["machines"]:
        if (failure := _gravest(record, machine)) is not None:
            found.append(failure)
        if machine["skipped_updates"]:
            said = f"{machine['skipped_updates']:,} of its updates"
            found.append(Failure(record, machine["seed"], "skipped updates", said, float(machine["skipped_updates"])))
    return found


def _gravest(record: Record, machine: dict[str, Any]) -> Failure | None:
    seed = machine["seed"]
    if machine["solved_at"] is None:
        last = last_cost(machine)
        return Failure(record, seed, "not solved", f"{_said(last)} at the end of training", last)
    missed = [c for c, met in zip(record["criteria"], machine["met"], strict=True) if not met]
    if missed:
        labels = dict.fromkeys(label for criterion in missed for label in criterion["points"])
        costs = {label: _finite(machine["scores"][label]["bits"]) for label in labels}
        said = ", ".join(f"{_said(bits)} at {label}" for label, bits in costs.items())
        right = [machine["scores"][label].get("perfect") for label in labels]
        rare = all(share is not None and share >= 1 - RARE for share in right)
        kind = "rare sequences" if rare else "criterion missed"
        return Failure(record, seed, kind, said, max(costs.values()))
    if not machine["passed"]:
        return Failure(record, seed, "not passed", "above the validation's limit", last_cost(machine))
    worst = _finite(machine["worst_window_after_solving_bits"])
    if worst > RELAPSE_BITS:
        return Failure(record, seed, "relapse", f"{_said(worst)} in the worst window after solving", worst)
    return None


def _finite(bits: float | None) -> float:
    return math.inf if bits is None else float(bits)


def _said(bits: float) -> str:
    return "no finite cost" if math.isinf(bits) else f"{bits:,.3g} bits"
