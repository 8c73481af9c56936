"""How the cost of one update grows with time steps, slots, width, heads and batch. figures/benchmarks.py draws it."""

import dataclasses
import statistics
from collections.abc import Callable
from typing import Any

from tapehead.bench.measure import ntm_subject, synchronise

AXES: dict[str, tuple[int, ...]] = {
    "time steps": (11, 101, 1001, 10001),
    "slots": (128, 512, 2048, 8192, 16384),
    "width": (5, 10, 20, 40, 80),
    "heads": (1, 2, 4, 8),
    "batch": (1, 2, 4, 8, 16, 32),
}


@dataclasses.dataclass(frozen=True)
class Point:
    size: int
    seconds: float


def _subject(axis: str, size: int, backend: str, device: str) -> Callable[[], float]:
    """A function that does one timed update at a size of an axis; all else is at its default."""
    task: dict[str, Any] = {"length": (size - 1) // 2 if axis == "time steps" else 20}
    options: dict[str, Any] = {
        "slots": {"memory_slots": size},
        "width": {"memory_width": size},
        "heads": {"num_heads": size},
    }.get(axis, {})
    subject = ntm_subject(
        backend,
        "lstm",
        size if axis == "batch" else 1,
        1,
        task_options=task,
        model_options=options,
        device=device,
        updates=max(1, min(50, 20_000 // size)),  # what a block costs beside its updates should not show
    )

    def once() -> float:
        subject.round()
        synchronise()
        return subject.seconds[-1]

    return once


def growth(backend: str, device: str, rounds: int, tell: Callable[[str], None]) -> dict[str, list[Point]]:
    """Seconds of one update at every size of every axis: the median of rounds that visit all of them in turn."""
    runs = {(axis, size): _subject(axis, size, backend, device) for axis, sizes in AXES.items() for size in sizes}
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in runs}
    for k in range(rounds + 1):
        for (axis, size), once in runs.items():
            tell(f"growth, round {k} of {rounds}: {axis} {size}")
            took = once()
            if k:  # the first is for warming up
                seconds[axis, size].append(took)
    return {
        axis: [Point(size, statistics.median(seconds[axis, size])) for size in sizes] for axis, sizes in AXES.items()
    }


def as_dict(curves: dict[str, list[Point]]) -> dict[str, Any]:
    return {axis: [dataclasses.asdict(point) for point in points] for axis, points in curves.items()}
