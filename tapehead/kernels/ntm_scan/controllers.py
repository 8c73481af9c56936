"""Controllers: the part of a machine between its inputs and its heads, step by step in torch.

Legend as in contract.py. All functions work with any leading dimensions before B in state and inputs, as long as the
parameters have the same ones; the scan uses [S].

One of your own is a subclass of `Controller`, registered by `CONTROLLERS.register` or named as module:Class. It runs on
the reference; the fused backends know the two below.
"""

import abc

import torch
from torch import Tensor

from tapehead.kernels.machine_spec import CONTROLLER_PREFIX, MachineSpec
from tapehead.registry import CONTROLLERS

Shapes = dict[str, tuple[int, ...]]
Step = tuple[Tensor, Tensor, Tensor]


def linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """inputs [..., B, in] with weight [..., out, in] and bias [..., out], one weight for each leading index."""
    return inputs @ weight.transpose(-1, -2) + bias.unsqueeze(-2)


class Controller(abc.ABC):
    """A kind of controller. It has no state of its own: sizes come from a specification, parameters by name."""

    @abc.abstractmethod
    def parameter_shapes(self, spec: MachineSpec) -> Shapes:
        """Names, without dots, and shapes of the parameters, in the order in which they stand in the flat vector.

        Those of two or more dimensions are drawn uniformly from +- 1 / sqrt(fan-in), the rest is `initial_bias`.
        """

    @abc.abstractmethod
    def step(
        self, spec: MachineSpec, parameters: dict[str, Tensor], inputs: Tensor, hidden: Tensor, cell: Tensor
    ) -> Step:
        """One step: inputs [..., B, I + R M], the machine's input and the reads of the step before -> output
        [..., B, C], and the next hidden and cell, each [..., B, L, C] as given."""

    def recurrent_layers(self, spec: MachineSpec) -> int:
        """L, the layers that carry hidden and cell state from step to step."""
        return 0

    def initial_bias(self, spec: MachineSpec, name: str, bias: Tensor, forget_bias: float) -> None:
        """Set, in place, what is not to start at zero in a parameter of one dimension; by default nothing."""
        return


def _layer_inputs(spec: MachineSpec) -> list[int]:
    """Width of what each layer gets from below."""
    first = spec.input_size + spec.read_heads * spec.memory_width
    return [first, *[spec.controller_size] * (spec.controller_layers - 1)]


def _stacked(rows: int, columns: list[int]) -> Shapes:
    shapes: Shapes = {}
    for layer, width in enumerate(columns):
        shapes[f"weight_{layer}"] = (rows, width)
        shapes[f"bias_{layer}"] = (rows,)
    return shapes


class LSTMController(Controller):
    """Stacked LSTM layers. Weights act on [input; hidden] and stack the gates input, forget, candidate, output."""

    def parameter_shapes(self, spec: MachineSpec) -> Shapes:
        c = spec.controller_size
        return _stacked(4 * c, [below + c for below in _layer_inputs(spec)])

    def recurrent_layers(self, spec: MachineSpec) -> int:
        return spec.controller_layers

    def initial_bias(self, spec: MachineSpec, name: str, bias: Tensor, forget_bias: float) -> None:
        bias[spec.controller_size : 2 * spec.controller_size] = forget_bias

    def step(
        self, spec: MachineSpec, parameters: dict[str, Tensor], inputs: Tensor, hidden: Tensor, cell: Tensor
    ) -> Step:
        below, hiddens, cells = inputs, [], []
        for layer in range(spec.controller_layers):
            weight, bias = parameters[f"weight_{layer}"], parameters[f"bias_{layer}"]
            below, new_cell = _lstm_cell(below, hidden[..., layer, :], cell[..., layer, :], weight, bias)
            hiddens.append(below)
            cells.append(new_cell)
        return below, torch.stack(hiddens, dim=-2), torch.stack(cells, dim=-2)


def _lstm_cell(inputs: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    gates = linear(torch.cat([inputs, hidden], dim=-1), weight, bias)
    i, f, g, o = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


class FeedforwardController(Controller):
    """Layers of tanh units, without a state."""

    def parameter_shapes(self, spec: MachineSpec) -> Shapes:
        return _stacked(spec.controller_size, _layer_inputs(spec))

    def step(
        self, spec: MachineSpec, parameters: dict[str, Tensor], inputs: Tensor, hidden: Tensor, cell: Tensor
    ) -> Step:
        below = inputs
        for layer in range(spec.controller_layers):
            weight, bias = parameters[f"weight_{layer}"], parameters[f"bias_{layer}"]
            below = torch.tanh(linear(below, weight, bias))
        return below, hidden, cell


def control(
    spec: MachineSpec, parameters: dict[str, Tensor], inputs: Tensor, reads: Tensor, hidden: Tensor, cell: Tensor
) -> Step:
    """One step of a machine's controller: its output [..., B, C], and hidden and cell of all layers.

    parameters: those of the whole machine; inputs [..., B, I], reads [..., B, R, M] of the step before.
    """
    seen = torch.cat([inputs, reads.flatten(-2)], dim=-1)
    own = {
        name.removeprefix(CONTROLLER_PREFIX): value
        for name, value in parameters.items()
        if name.startswith(CONTROLLER_PREFIX)
    }
    output, new_hidden, new_cell = spec.controller_kind.step(spec, own, seen, hidden, cell)
    for name, value, shape in (
        ("an output", output, (*seen.shape[:-1], spec.controller_size)),
        ("a hidden state", new_hidden, hidden.shape),
        ("a cell state", new_cell, cell.shape),
    ):
        if value.shape != shape:
            raise ValueError(
                f"the controller {spec.controller!r} returned {name} of shape {tuple(value.shape)}, but it must be "
                f"{tuple(shape)}."
            )
    return output, new_hidden, new_cell


def controller_class(name: str) -> type[Controller]:
    """The class of that name, or at module:Class."""
    kind = CONTROLLERS.resolve(name)
    if not (isinstance(kind, type) and issubclass(kind, Controller)):
        raise ValueError(f"the controller {name!r} is none: a controller is a subclass of tapehead.Controller.")
    return kind
