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
    """A row with another form of its task or of its machine; not in the paper. What is not given is the row's."""

    name: str
    row: Row
    task: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The options that make the other form of the task."""
    model: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The options that make the other form of the machine."""


TABLES: dict[str, Row] = {row.name: row for row in ROWS}

# Ablations: a bias of -30 or +30 saturates softplus and sigmoid in float32, and their gradients with them, so that a
# part stays off in training: gamma = 1 + softplus(-30 + ...) is 1, a gate sigmoid(+-30 + ...) is 0 or 1.
OFF, ON = -30.0, 30.0
DISTINCT_SLOTS: dict[str, Any] = {"initial_memory": "addresses", "initial_memory_scale": 1.0}
"""Slots that differ by content from the start. Without them a machine that finds slots by content alone has no chance
whatever it learns: all rows are equal, so every head is everywhere or stays at slot 0."""

ABLATIONS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("copy-no-shift-ntm-lstm", TABLES["copy-ntm-lstm"], model=DISTINCT_SLOTS | {"shift_range": 0}),
        Variant("copy-no-sharpening-ntm-lstm", TABLES["copy-ntm-lstm"], model={"sharpen_bias": OFF}),
        Variant(
            "copy-no-content-ntm-lstm",
            TABLES["copy-ntm-lstm"],
            model={"read_gate_bias": OFF, "write_gate_bias": OFF},
        ),
        Variant(
            "copy-no-interpolation-ntm-lstm",
            TABLES["copy-ntm-lstm"],
            model=DISTINCT_SLOTS | {"read_gate_bias": ON, "write_gate_bias": ON},
        ),
        Variant("copy-distinct-slots-ntm-lstm", TABLES["copy-ntm-lstm"], model=DISTINCT_SLOTS),
    )
}
"""The copy machine of Table 2 without relative shifts (Eq. 8), without sharpening (Eq. 9), without content addressing
(the gate of Eq. 7 at 0), without interpolation (the gate at 1: by content in every step), and the control of those that
begin with distinct slots."""

VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("repeat-copy-pulses-ntm-feedforward", TABLES["repeat-copy-ntm-feedforward"], {"count": "pulses"}),
        Variant("repeat-copy-pulses-ntm-lstm", TABLES["repeat-copy-ntm-lstm"], {"count": "pulses"}),
        Variant("copy-half-width-lstm", TABLES["copy-lstm"], model={"hidden_size": 128}),
        *ABLATIONS.values(),
    )
}
"""The LSTM of half the width is small enough for the package (1.4 MB, against 5.4 MB of Table 3): it is the rival of
the copy machines in the viewer's race."""


def row_name(task: str, machine: str, options: dict[str, Any]) -> str | None:
    """The row of a machine on a task: a variant if these options of the task make it one; None if there is no such
    row. A variant of the machine is its row with other options of the model."""
    for variant in VARIANTS.values():
        wanted = bool(variant.task) and not variant.model and variant.task.items() <= options.items()
        if (variant.row.task, variant.row.machine) == (task, machine) and wanted:
            return variant.name
    name = f"{task}-{machine}"
    return name if name in TABLES else None
