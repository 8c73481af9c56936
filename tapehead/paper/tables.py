"""The fifteen rows of Tables 1 to 3 of the paper, and variants of them that are not in it. Data only."""

import dataclasses
from typing import Any, Literal

Machine = Literal["ntm-lstm", "ntm-feedforward", "lstm"]

MACHINES: tuple[Machine, ...] = ("ntm-feedforward", "ntm-lstm", "lstm")

# Options of the tasks that make the channel counts of Table 3 (docs/architecture.md says how they were decoded).
PAPER_TASKS: dict[str, dict[str, Any]] = {
    "copy": {"paper_channels": True},
    "repeat-copy": {"width": 6},
    "associative-recall": {},
    "ngrams": {},
    "priority-sort": {},
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the paper's tables."""

    task: str
    machine: Machine
    size: int
    layers: int
    heads: int
    learning_rate: float
    printed: int
    """Number of parameters as printed."""

    @property
    def name(self) -> str:
        return f"{self.task}-{self.machine}"

    @property
    def cell(self) -> str:
        """Where it stands in the paper."""
        return f"Table {MACHINES.index(self.machine) + 1}, {self.task}"

    @property
    def model(self) -> dict[str, Any]:
        """Name and options of its model."""
        if self.machine == "lstm":
            return {"name": "lstm", "hidden_size": self.size, "num_layers": self.layers}
        return {
            "name": "ntm",
            "controller": self.machine.removeprefix("ntm-"),
            "controller_size": self.size,
            "controller_layers": self.layers,
            "num_heads": self.heads,
        }


ROWS = (
    # Table 1: NTM with feedforward controller
    Row("copy", "ntm-feedforward", 100, 1, 1, 1e-4, 17_162),
    Row("repeat-copy", "ntm-feedforward", 100, 1, 1, 1e-4, 16_712),
    Row("associative-recall", "ntm-feedforward", 256, 1, 4, 1e-4, 146_845),
    Row("ngrams", "ntm-feedforward", 100, 1, 1, 3e-5, 14_656),
    Row("priority-sort", "ntm-feedforward", 512, 1, 8, 3e-5, 508_305),
    # Table 2: NTM with LSTM controller
    Row("copy", "ntm-lstm", 100, 1, 1, 1e-4, 67_561),
    Row("repeat-copy", "ntm-lstm", 100, 1, 1, 1e-4, 66_111),
    Row("associative-recall", "ntm-lstm", 100, 1, 1, 1e-4, 70_330),
    Row("ngrams", "ntm-lstm", 100, 1, 1, 3e-5, 61_749),
    Row("priority-sort", "ntm-lstm", 100, 2, 5, 3e-5, 269_038),
    # Table 3: LSTM
    Row("copy", "lstm", 256, 3, 0, 3e-5, 1_352_969),
    Row("repeat-copy", "lstm", 512, 3, 0, 3e-5, 5_312_007),
    Row("associative-recall", "lstm", 256, 3, 0, 1e-4, 1_344_518),
    Row("ngrams", "lstm", 128, 3, 0, 1e-4, 331_905),
    Row("priority-sort", "lstm", 128, 3, 0, 3e-5, 384_424),
)

MISPRINTS = {"priority-sort-lstm": "two digits swapped in print: the architecture of the other four rows has 348,424"}


@dataclasses.dataclass(frozen=True)
class Variant:
    """A row on another form of its task; not in the paper."""

    name: str
    row: Row
    task: dict[str, Any]
    """The options that make the other form."""


TABLES: dict[str, Row] = {row.name: row for row in ROWS}

VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("repeat-copy-pulses-ntm-feedforward", TABLES["repeat-copy-ntm-feedforward"], {"count": "pulses"}),
        Variant("repeat-copy-pulses-ntm-lstm", TABLES["repeat-copy-ntm-lstm"], {"count": "pulses"}),
    )
}


def row_name(task: str, machine: str, options: dict[str, Any]) -> str | None:
    """The row of a machine on a task: a variant if these options of the task make it one; None if there is no such
    row."""
    for variant in VARIANTS.values():
        wanted = variant.task.items() <= options.items()
        if (variant.row.task, variant.row.machine) == (task, machine) and wanted:
            return variant.name
    name = f"{task}-{machine}"
    return name if name in TABLES else None
