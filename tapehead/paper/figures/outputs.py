"""Targets over outputs beyond the training sizes (Figures 4, 5 and 8)."""

import dataclasses

from matplotlib.figure import Figure

from tapehead.evaluation.summaries import median_interval
from tapehead.figures import style
from tapehead.figures.answers import draw_strips, make_strip
from tapehead.paper.evidence import costs_at
from tapehead.paper.figures.figure import INTERVALS, PaperFigure, estimate, fraction, missing_machine, paragraph
from tapehead.paper.results import Machine, Record, Results, command_of


@dataclasses.dataclass(frozen=True)
class Outputs:
    """One machine of each row on the same sequences, at some sizes."""

    number: int
    title: str
    rows: dict[str, str]
    """Headings, each with the row that it shows."""
    sizes: tuple[dict[str, int], ...]
    differs: str
    """How the paper's figure differs."""
    instead: dict[str, str] = dataclasses.field(default_factory=dict)
    """Headings and rows of machines that are shown where one of `rows` is not there."""

    def figure(self) -> PaperFigure:
        return PaperFigure(self.number, self.title, self.draw, self.caption, self.missing)

    def machines(self, results: Results) -> dict[str, Machine]:
        """Those that are there, by heading."""
        found = {heading: results.machine(row) for heading, row in self._shown(results).items()}
        return {heading: machine for heading, machine in found.items() if machine is not None}

    def _shown(self, results: Results) -> dict[str, str]:
        whole = all(results.machine(row) is not None for row in self.rows.values())
        return self.rows if whole else self.rows | self.instead

    def missing(self, results: Results) -> str | None:
        if self.machines(results):
            return None
        return paragraph(missing_machine(results, row) or "" for row in self.rows.values())

    @style.look()
    def draw(self, results: Results) -> Figure:
        machines = self.machines(results)
        if not machines:
            raise ValueError(self.missing(results))
        blocks = {
            heading: [make_strip(machine.model, machine.task, sizes) for sizes in self.sizes]
            for heading, machine in machines.items()
        }
        blocks |= {f"{heading}: no trained machine": [] for heading in self.rows if heading not in machines}
        return draw_strips(f"Figure {self.number}. {self.title}", blocks)

    def caption(self, results: Results) -> str:
        sentences = ["Targets and outputs on one sequence of each size, which was not trained on.", INTERVALS]
        for heading, row in self._shown(results).items():
            machine = results.machine(row)
            if machine is None:
                sentences.append(f"The row of {heading} is missing. {missing_machine(results, row)}")
            else:
                sentences.append(f"{heading}: {machine.origin}, trained on {trained_on(machine)}.")
            sentences.append(all_seeds(results, row, self._labels(results, row)))
        return paragraph([*sentences, f"In the paper: {self.differs}"])

    def _labels(self, results: Results, row: str) -> list[str]:
        record = results.record(row)
        points = [] if record is None else record["points"]
        return [point["label"] for point in points if point["sizes"] in self.sizes and point["slots"] is None]


def trained_on(machine: Machine) -> str:
    """ "length 1 to 20"."""
    ranges = {name: (low, high) for name, (low, high) in machine.task.ranges().items()}
    return ", ".join(f"{name} {low}" + (f" to {high}" if high > low else "") for name, (low, high) in ranges.items())


def all_seeds(results: Results, row: str, labels: list[str], recipe: str = "tuned", above_optimum: bool = False) -> str:
    """What the record of a row says of all its seeds at some points. Costs above the optimum have no sequences without
    an error."""
    record = results.record(row, recipe)
    if record is None:
        words = "" if recipe == "tuned" else f" --recipe {recipe}"
        return f"There is no record of {row}, {recipe} (`tapehead confirm {row}{words}`)."
    found = (_cost(record, label) + ("" if above_optimum else f", {_perfect(record, label)}") for label in labels)
    costs = "; ".join(f"{label}: {words}" for label, words in zip(labels, found, strict=True))
    kind = (
        "median cost above the optimum"
        if above_optimum
        else "median cost, and machines without an error in any sequence"
    )
    where = f"{len(record['machines'])} seeds, {record['file']}, `{command_of(record)}`"
    return f"All machines of {row}, {recipe} ({where}), {kind}: {costs}."


def _cost(record: Record, label: str) -> str:
    return estimate(median_interval(costs_at(record, label)), "bits")


def _perfect(record: Record, label: str) -> str:
    shares = [machine["scores"][label]["perfect"] for machine in record["machines"]]
    return fraction(sum(share == 1.0 for share in shares), len(shares))
