"""Weights of other implementations as machines of this one.

`from_pytorch_ntm` takes the state dict of an `EncapsulatedNTM` of github.com/loudinthecloud/pytorch-ntm, in the version
whose heads use softplus (2018 and later; a state dict does not say which version made it). What differs there:

- an LSTM layer has two matrices and two biases: here the matrices stand side by side, and the biases are added;
- its convolution runs the other way: the three shift weights are turned around;
- heads take turns, each read head before its write head. With one of each that is `order="read_then_write"`. Of two or
  more, later heads address what earlier ones wrote in the same step, which no order here does: they are refused;
- weightings start at zero, memory and reads at fixed random numbers, which it keeps as buffers;
- its outputs are probabilities: here they are `sigmoid(logits)`.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from tapehead import checks
from tapehead.models.ntm import NTM


def from_pytorch_ntm(state_dict: Mapping[str, Tensor]) -> NTM:
    """The machine with one read head and one write head that a state dict of pytorch-ntm holds.

    It computes what the original does, up to rounding. The start that the original does not train, of memory and reads,
    has `requires_grad` False.
    """
    given = {name.removeprefix("ntm."): value for name, value in state_dict.items()}
    heads = sorted({int(found[1]) for name in given if (found := re.match(r"heads\.(\d+)\.fc_", name))})
    if len(heads) > 2:
        raise ValueError(
            f"the state dict has {len(heads)} heads, but only one read head and one write head can be converted: "
            "further heads would address what the first ones wrote in the same step."
        )
    layers = sum(name.startswith("controller.lstm.weight_ih_l") for name in given)
    memory, read = _part(given, "memory.mem_bias", 2), _part(given, "heads.0.fc_read.weight", 2)
    (slots, width), size = memory.shape, read.shape[1]
    output = _part(given, "fc.weight", 2)
    inputs = _part(given, "controller.lstm.weight_ih_l0", 2).shape[1] - width
    ntm = NTM(
        inputs,
        output.shape[0],
        controller_size=size,
        controller_layers=layers,
        memory_slots=slots,
        memory_width=width,
        order="read_then_write",
        initial_memory="given",
        initial_weightings="zeros",
        initial_reads="learned",
        initial_controller="learned",
        dtype=output.dtype if output.dtype in checks.FLOATS else None,
    )
    values = _parameters(given, layers, width)
    with torch.no_grad():
        for name, parameter in ntm.named_parameters():
            if values[name].shape != parameter.shape:
                raise ValueError(
                    f"the state dict gives {name} the shape {tuple(values[name].shape)}, but its machine has "
                    f"{tuple(parameter.shape)}: its parts are not those of one machine."
                )
            parameter.copy_(values[name])
    for name in ("initial.memory", "initial.reads"):
        ntm.get_parameter(name).requires_grad_(False)
    return ntm


def _parameters(given: Mapping[str, Tensor], layers: int, width: int) -> dict[str, Tensor]:
    """All parameters of the machine by the names that they have here."""
    values = {
        "initial.memory": _part(given, "memory.mem_bias", 2),
        "initial.reads": _part(given, "read0_bias", 2),
        "initial.hidden": _part(given, "controller.lstm_h_bias", 3).squeeze(1),
        "initial.cell": _part(given, "controller.lstm_c_bias", 3).squeeze(1),
    }
    for layer in range(layers):
        parts = [_part(given, f"controller.lstm.weight_{kind}_l{layer}", 2) for kind in ("ih", "hh")]
        values[f"controller.weight_{layer}"] = torch.cat(parts, dim=1)
        one, other = (_part(given, f"controller.lstm.bias_{kind}_l{layer}", 1) for kind in ("ih", "hh"))
        values[f"controller.bias_{layer}"] = one + other
    for name, dimensions in (("weight", 2), ("bias", 1)):
        read = _part(given, f"heads.0.fc_read.{name}", dimensions)
        write = _part(given, f"heads.1.fc_write.{name}", dimensions)
        values[f"interface.{name}"] = torch.cat([_turned(read, width), _turned(write, width)])
        values[f"output.{name}"] = _part(given, f"fc.{name}", dimensions)
    return values


def _turned(head: Tensor, width: int) -> Tensor:
    """A head's rows (key, strength, gate, three shifts, the rest) with the shifts turned around."""
    first = width + 2
    return torch.cat([head[:first], head[first : first + 3].flip(0), head[first + 3 :]])


def _part(given: Mapping[str, Tensor], name: str, dimensions: int) -> Tensor:
    if name not in given:
        raise ValueError(f"the state dict has no {name!r}: it is not that of an EncapsulatedNTM of pytorch-ntm.")
    value = checks.tensor(name, given[name]).detach()
    if value.ndim != dimensions:
        raise ValueError(f"{name} has shape {tuple(value.shape)}, but pytorch-ntm gives it {dimensions} dimensions.")
    return value
