"""Learning curves of the three systems (Figures 3, 7, 10, 13 and 18): median and quartiles of all seeds.

Each recipe has a row: on the left the axes of the paper, on the right logarithmic ones, which show how far costs fall.
"""

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tapehead.evaluation.learning import Band, band_of
from tapehead.evaluation.summaries import median_difference, median_interval
from tapehead.experiment.config import Experiment
from tapehead.figures import style
from tapehead.figures.records import draw_band
from tapehead.paper.evidence import episodes_to_solve
from tapehead.paper.figures.figure import INTERVALS, SYSTEMS, PaperFigure, estimate, fraction, paragraph
from tapehead.paper.figures.panels import add_legend, add_level, plain_numbers, recipe_panels
from tapehead.paper.recipes import RECIPES
from tapehead.paper.results import Record, Results, command_of
from tapehead.streams import stream
from tapehead.tasks import make_task

OPTIMUM_SAMPLE = 10_000  # sequences behind the mean of the least possible costs
LEAST = 1e-4  # bits on logarithmic axes; what is lower is drawn at the edge
INFINITE = float("inf")


class System(NamedTuple):
    """A record with learning curves."""

    label: str
    record: Record
    band: Band


@dataclasses.dataclass(frozen=True)
class LearningCurves:
    """The learning curves of one task."""

    number: int
    title: str
    task: str
    thousands: float
    """Sequences on the paper's axis."""
    bits: tuple[float, float]
    """The paper's axis of costs."""
    differs: str
    """How the paper's figure differs."""

    def figure(self) -> PaperFigure:
        return PaperFigure(self.number, self.title, self.draw, self.caption, self.missing)

    def systems(self, results: Results, recipe: str) -> list[System]:
        """The systems that have learning curves."""
        found = []
        for ending, label in SYSTEMS.items():
            record = results.record(f"{self.task}-{ending}", recipe, with_curves=True)
            band = None if record is None else band_of(record["machines"])
            if record is not None and band is not None:
                found.append(System(label, record, band))
        return found

    def absent(self, results: Results, recipe: str) -> Iterator[tuple[str, str]]:
        """Rows without learning curves: their labels and the commands that make them."""
        there = {system.label for system in self.systems(results, recipe)}
        for ending, label in SYSTEMS.items():
            if label not in there:
                words = "" if recipe == "tuned" else f" --recipe {recipe}"
                yield label, f"tapehead confirm {self.task}-{ending}{words}"

    def missing(self, results: Results) -> str | None:
        if any(self.systems(results, recipe) for recipe in RECIPES):
            return None
        commands = "; ".join(f"`{command}`" for _, command in self.absent(results, "tuned"))
        task = style.task_title(self.task)
        return f"No record of {task} in {results.folder} has learning curves: make them with {commands}."

    @style.look()
    def draw(self, results: Results) -> Figure:
        rows = {recipe: found for recipe in RECIPES if (found := self.systems(results, recipe))}
        if not rows:
            raise ValueError(self.missing(results))
        absent = {recipe: [label for label, _ in self.absent(results, recipe)] for recipe in rows}
        notes = {recipe: f"No learning curves: {', '.join(names)}" if names else "" for recipe, names in absent.items()}
        figure, panels = recipe_panels(f"Figure {self.number}. {self.title}", notes)
        for recipe, (left, right) in panels.items():
            self._as_in_the_paper(left, rows[recipe])
            self._logarithmic(right, rows[recipe])
        return figure

    def _as_in_the_paper(self, axes: Axes, systems: list[System]) -> None:
        base = optimum(self.task)
        for system in systems:
            label = f"{system.label} ({system.band.seeds} seeds)"
            draw_band(axes, system.band, system.record, label, unit=1000, base=base or 0.0)
        if base is not None:
            axes.axhline(base, color=style.INK, linewidth=1.0, linestyle=":", label=f"Optimal ({base:.1f} bits)")
        axes.set(xlim=(0, self.thousands), ylim=self.bits, title="The axes of the paper")
        axes.set(xlabel="Sequence number (thousands)", ylabel="Cost per sequence (bits)")
        add_legend(axes)

    def _logarithmic(self, axes: Axes, systems: list[System]) -> None:
        for system in systems:
            draw_band(axes, system.band, system.record, system.label, unit=1000, least=LEAST)
        solved = systems[0].record["solved_bits"]
        add_level(axes, solved, f"solved: under {solved:g}")
        cost = "Cost per sequence" if optimum(self.task) is None else "Cost above the optimum"
        axes.set(xscale="log", yscale="log", title="Logarithmic axes")
        axes.set(xlabel="Sequence number (thousands)", ylabel=f"{cost} (bits)")
        plain_numbers(axes)

    def caption(self, results: Results) -> str:
        sentences = [
            f"{style.task_title(self.task)}: training cost per sequence against the number of training sequences.",
            "Lines are medians over all seeds and bands their quartiles; seeds that failed are in both.",
            INTERVALS,
        ]
        if (base := optimum(self.task)) is not None:
            sentences.append(
                f"Costs are measured above the Bayes optimum of the same sequences (Eq. 10); its mean over "
                f"{OPTIMUM_SAMPLE:,} sequences, {base:.2f} bits, is added on the paper's axes."
            )
        for recipe in RECIPES:
            found = self.systems(results, recipe)
            sentences += [_describe(system, recipe) for system in found]
            sentences += _compare(found, recipe)
            sentences.append(self._missing_systems(results, recipe))
        return paragraph([*sentences, f"In the paper: {self.differs}"])

    def _missing_systems(self, results: Results, recipe: str) -> str:
        absent = [f"{label} (`{command}`)" for label, command in self.absent(results, recipe)]
        return f"Missing, because no record of recipe {recipe} has their curves: {', '.join(absent)}." if absent else ""


@cache
def optimum(name: str) -> float | None:
    """The mean of the least possible cost in bits, where a task knows it."""
    task = make_task(name)
    if not task.paired:
        return None
    batch = task.sample(stream(0, "optimum", 0, device="cpu"), batch_size=OPTIMUM_SAMPLE)
    return float(task.optimal_bits(batch).mean())


def _describe(system: System, recipe: str) -> str:
    """One system in a sentence or two."""
    record, band = system.record, system.band
    episodes = episodes_to_solve(record)
    solved = sum(value < INFINITE for value in episodes)
    parts = [f"{fraction(solved, len(episodes))} solved"]
    if solved:
        parts.append(f"median {estimate(median_interval(episodes), 'sequences')} to solve")
    last = f"median cost {estimate(median_interval(band.costs[:, -1].tolist()), 'bits')}"
    parts.append(f"{last} after {band.episodes[-1]:,.0f} sequences")
    words = f"{system.label}, {recipe}, {band.seeds} seeds: {', '.join(parts)}"
    return f"{words} ({record['file']}; `{command_of(record)}`).{_curriculum(record)}"


def _curriculum(record: Record) -> str:
    curriculum = Experiment.from_plain(record["experiment"]).curriculum
    if not curriculum.options:
        return ""
    options = ", ".join(f"{name} {value}" for name, value in curriculum.options.items())
    part = "" if curriculum.share >= 1 else f" in the first {curriculum.share:.0%} of training"
    return f" Its training costs are those of a curriculum ({options}){part}."


def _compare(systems: list[System], recipe: str) -> Iterator[str]:
    """How many sequences more the LSTM needs than each NTM."""
    by_label = {system.label: episodes_to_solve(system.record) for system in systems}
    baseline = by_label.pop(SYSTEMS["lstm"], None)
    for label, episodes in by_label.items():
        if baseline is not None and min(episodes) < INFINITE and min(baseline) < INFINITE:
            found = estimate(median_difference(baseline, episodes), "sequences")
            yield f"Difference of the medians, LSTM minus {label}, {recipe}: {found} to solve."
