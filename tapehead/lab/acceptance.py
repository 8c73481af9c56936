"""What a confirmation asks of the machines of each task: the points at which they are measured, and what must hold
there.

It is fixed before the held-out seeds are trained. Records made before a change do not compare with those made after.
The sentences of the paper are in `tapehead.paper.claims`.
"""

import dataclasses
from typing import Any

from tapehead.models import SequenceModel
from tapehead.tasks import Task


@dataclasses.dataclass(frozen=True)
class Point:
    """Sizes of a task; by default on the machine's own tape."""

    sizes: dict[str, int]
    slots: int | None = None
    """Memory slots, if not the machine's own; only machines with a memory are measured there."""
    most: int | None = None
    """Sequences that are enough, where each takes long."""

    def label(self, task: Task) -> str:
        """ "Length 500 on 1,024 slots"."""
        return task.label(self.sizes) + (f" on {self.slots:,} slots" if self.slots else "")


@dataclasses.dataclass(frozen=True)
class Criterion:
    """What must hold for one machine, at every one of these points."""

    points: tuple[Point, ...]
    under: float | None = None
    """The mean cost in bits is less than this; None: no bit of any sequence is wrong."""

    def says(self, task: Task) -> str:
        what = "no wrong bit" if self.under is None else f"under {self.under:g} bit{'' if self.under <= 1 else 's'}"
        return f"{what} at {'; '.join(point.label(task) for point in self.points)}"

    def met(self, task: Task, scores: dict[str, dict[str, Any]]) -> bool:
        """Whether a machine's scores, by label, fulfil it."""
        there = [scores[point.label(task)] for point in self.points]
        if self.under is None:
            return all(score["perfect"] == 1.0 for score in there)
        return all(score["bits"] is not None and score["bits"] < self.under for score in there)


@dataclasses.dataclass(frozen=True)
class Acceptance:
    """The points of a task, and the criteria that count as success there."""

    points: tuple[Point, ...]
    criteria: tuple[Criterion, ...]
    headline: Point
    """The point by which machines are compared."""
    sequences: int = 200
    """Sequences at each point."""


COPY = {length: Point({"length": length}) for length in (10, 20, 30, 50, 120)}
LONG_COPY = Point({"length": 500}, slots=1024, most=20)
RECALL = {items: Point({"items": items}) for items in (6, 10, 15, 20)}
REPEAT = {
    (length, repeats): Point({"length": length, "repeats": repeats})
    for length, repeats in ((10, 10), (10, 20), (20, 10), (20, 20))
}
NGRAMS = Point({})
SORT = Point({"items": 20, "outputs": 16})
LONG_SORT = Point({"items": 30, "outputs": 24})

ACCEPTANCE: dict[str, Acceptance] = {
    "copy": Acceptance(
        (*COPY.values(), LONG_COPY),
        (Criterion((COPY[120],), under=1.0), Criterion((LONG_COPY,), under=1.0)),
        headline=COPY[120],
    ),
    "repeat-copy": Acceptance(
        tuple(REPEAT.values()),
        (Criterion((REPEAT[20, 10],), under=1.0),),
        headline=REPEAT[20, 10],
    ),
    "repeat-copy-pulses": Acceptance(
        tuple(REPEAT.values()),
        (
            Criterion((REPEAT[20, 10],), under=1.0),
            Criterion((REPEAT[20, 10], REPEAT[10, 20], REPEAT[20, 20])),  # the end marker is one of the bits
        ),
        headline=REPEAT[20, 20],
    ),
    "associative-recall": Acceptance(
        tuple(RECALL.values()),
        (Criterion((RECALL[15],), under=0.1), Criterion((RECALL[20],), under=1.0)),
        headline=RECALL[15],
    ),
    "ngrams": Acceptance((NGRAMS,), (Criterion((NGRAMS,), under=1.0),), headline=NGRAMS, sequences=1000),
    "priority-sort": Acceptance((SORT, LONG_SORT), (Criterion((SORT,), under=5.0),), headline=SORT),
}


def acceptance_of(task: Task, model: SequenceModel) -> Acceptance:
    """What is asked of a machine on a task. A machine without a memory is not measured on other tapes."""
    asked = ACCEPTANCE.get(task.variety) or _general(task)
    if model.memory_slots is not None:
        return asked
    return dataclasses.replace(
        asked,
        points=tuple(point for point in asked.points if point.slots is None),
        criteria=tuple(c for c in asked.criteria if all(point.slots is None for point in c.points)),
    )


def _general(task: Task) -> Acceptance:
    """Of a task that is not listed: solved at its training sizes, and measured at those that it names."""
    trained = Point({})
    points = [trained, *(Point(dict(sizes)) for sizes in task.generalisation if sizes)]
    return Acceptance(tuple(points), (Criterion((trained,), under=task.solved_bits),), headline=points[-1])
