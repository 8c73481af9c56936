"""How the cost of one update grows with time steps, slots, width, heads and batch; as numbers and as a picture."""

import dataclasses
import statistics
from collections.abc import Callable
from pathlib import Path
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


def draw(curves: dict[str, list[Point]], backend: str, folder: Path, name: str) -> list[Path]:
    """One panel for each axis, log against log, with the slope of proportional growth for comparison."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

    from tapehead.figures import style

    with style.look():
        figure = Figure(figsize=(style.WIDTH, 2.4), layout="constrained")
        panels = figure.subplots(1, len(curves))
        for panel, (axis, points) in zip(panels, curves.items(), strict=True):
            sizes = [point.size for point in points]
            milliseconds = [1e3 * point.seconds for point in points]
            panel.loglog(sizes, milliseconds, "o-", color=style.BLUE, markersize=3.5)
            panel.loglog(sizes, [milliseconds[-1] * size / sizes[-1] for size in sizes], ":", color=style.FAINT)
            panel.set_xlabel(axis)
            shown = sizes if len(sizes) < 6 else sizes[::2]
            panel.set_xticks(shown, [f"{size // 1000}k" if size >= 1000 else str(size) for size in shown], minor=False)
            panel.xaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            panel.yaxis.set_minor_locator(NullLocator())
        panels[0].set_ylabel("one update, ms")
        figure.suptitle(f"Cost of one update, {backend} backend (dotted: proportional to the size)", fontsize=9.5)
        return style.save(figure, folder, name)


def as_dict(curves: dict[str, list[Point]]) -> dict[str, Any]:
    return {axis: [dataclasses.asdict(point) for point in points] for axis, points in curves.items()}
