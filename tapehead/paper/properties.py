"""Sentences of the paper about the machine itself, which no training decides: gradients and parameter counts."""

import functools
from typing import Any, NamedTuple

import torch

from tapehead.models.lstm import PaperLSTM
from tapehead.models.ntm import NTM
from tapehead.paper.recipes import row_experiment
from tapehead.paper.tables import MISPRINTS, ROWS, TABLES, Row
from tapehead.streams import stream

SLOTS = (16, 32, 64, 128, 256, 512, 1024)
HIDDEN = (64, 128, 256, 512, 1024)
STEP = 1e-6
WORST_ERROR = 1e-6
"""Relative, between the gradient and central differences of this step in double precision."""


class Growth(NamedTuple):
    """The capacity of a memory, and the parameters of the machine that has it."""

    name: str
    capacity: int
    parameters: int


@functools.cache
def parameter_count(row: Row, recipe: str = "paper") -> int:
    """Parameters of the machine that a recipe of a row trains."""
    experiment = row_experiment(row.name, recipe)
    return sum(parameter.numel() for parameter in experiment.model.build(experiment.task).parameters())


@functools.cache
def memory_growth() -> tuple[Growth, ...]:
    """The copy machine of Table 2 on tapes of several lengths, and the LSTM of Table 3 with several hidden sizes."""
    options = {name: value for name, value in TABLES["copy-ntm-lstm"].model.items() if name != "name"}
    ntms = ((slots, NTM(10, 9, memory_slots=slots, **options)) for slots in SLOTS)
    lstms = ((size, PaperLSTM(10, 9, hidden_size=size, num_layers=3)) for size in HIDDEN)
    return (
        *(Growth("slots of the NTM", slots, _count(model)) for slots, model in ntms),
        *(Growth("hidden units of a layer of the LSTM", size, _count(model)) for size, model in lstms),
    )


def separation() -> tuple[str, bool]:
    """Section 4.6: an NTM has the same parameters on every tape, an LSTM's grow with the square of its size."""
    ntm = {one.parameters for one in memory_growth() if "NTM" in one.name}
    lstm = [one for one in memory_growth() if "LSTM" in one.name]
    doubled = lstm[-1].parameters / lstm[-2].parameters
    ours = f"NTM: {_thousands(ntm)} parameters with {SLOTS[0]} to {SLOTS[-1]:,} slots; LSTM: doubling the hidden units "
    ours += f"from {lstm[-2].capacity} to {lstm[-1].capacity:,} multiplies its parameters by {doubled:.2f}"
    return ours, len(ntm) == 1 and 3.5 < doubled <= 4


def table_3() -> tuple[str, bool]:
    """Table 3: the numbers of parameters of the five LSTMs."""
    rows = [row for row in ROWS if row.machine == "lstm"]
    exact = [row for row in rows if parameter_count(row) == row.printed]
    wrong = [f"{row.name} {parameter_count(row):,} for {row.printed:,}" for row in rows if row not in exact]
    explained = all(row in exact or row.name in MISPRINTS for row in rows)
    return f"{len(exact)} of {len(rows)} exact" + (f"; {', '.join(wrong)}" if wrong else ""), explained


@functools.cache
def gradient_errors() -> dict[str, float]:
    """The relative error of the gradient of a whole sequence, by controller: autograd against central differences along
    a random direction in the space of all parameters, in double precision."""
    return {controller: _gradient_error(controller) for controller in ("lstm", "feedforward")}


def differentiable() -> tuple[str, bool]:
    """Sections 1 and 3: the whole machine is differentiable."""
    errors = gradient_errors()
    said = ", ".join(f"{controller} controller {error:.1e}" for controller, error in errors.items())
    ours = f"relative error of the gradient of a whole sequence against finite differences: {said}"
    return ours, all(error < WORST_ERROR for error in errors.values())


def _gradient_error(controller: str) -> float:
    sizes: dict[str, Any] = {"controller_size": 8, "memory_slots": 6, "memory_width": 5}
    model = NTM(4, 3, controller=controller, **sizes, backend="reference", dtype=torch.float64)
    names, shapes = zip(*((name, value.shape) for name, value in model.named_parameters()), strict=True)
    draw = stream(0, "claims/gradient", 0)
    inputs = 2 * draw.uniform(7, 4).unsqueeze(1) - 1  # 7 steps, a batch of 1
    count = sum(shape.numel() for shape in shapes)
    flat, direction = (2 * draw.uniform(1, count).squeeze(0) - 1 for _ in range(2))

    def cost(values: torch.Tensor) -> torch.Tensor:
        parameters = dict(zip(names, _split(values, shapes), strict=True))
        outputs: torch.Tensor = torch.func.functional_call(model, parameters, (inputs,))[0]
        return outputs.square().sum()

    flat.requires_grad_()
    (gradient,) = torch.autograd.grad(cost(flat), flat)
    with torch.no_grad():
        differences = float((cost(flat + STEP * direction) - cost(flat - STEP * direction)) / (2 * STEP))
    return abs(float(gradient @ direction) - differences) / abs(differences)


def _split(flat: torch.Tensor, shapes: tuple[torch.Size, ...]) -> list[torch.Tensor]:
    parts = flat.split([shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _thousands(numbers: set[int]) -> str:
    return " and ".join(f"{number:,}" for number in sorted(numbers))
