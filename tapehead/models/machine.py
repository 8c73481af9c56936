"""The parameters of a Neural Turing Machine as a torch module, and its start."""

import dataclasses
import math
import operator
from typing import Any, Self

import torch
from torch import Tensor, nn

from tapehead import checks
from tapehead.kernels.memory import PlainTensors, in_one_piece, is_plain
from tapehead.kernels.ntm_scan.contract import ScanState
from tapehead.kernels.ntm_scan.spec import CONTROLLER_PREFIX
from tapehead.models.config import NTMConfig
from tapehead.models.initial import initial_shapes, initial_state

NTMState = ScanState


class Machine(nn.Module):
    """The parameters of a machine and their start; shared by `NTM` and `NTMCell`."""

    def __init__(self, config: NTMConfig, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        super().__init__()
        device, dtype = checks.device(device), checks.floating(dtype, checks.FLOATS)
        self.config = config
        self.input_size, self.output_size = config.input_size, config.output_size
        self._spec = config.spec
        shapes = self._spec.parameter_shapes | initial_shapes(config)
        for name, shape in shapes.items():
            part, _, leaf = name.partition(".")
            if part not in self._modules:
                self.add_module(part, nn.Module())
            getattr(self, part).register_parameter(leaf, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self._learned_start = tuple(initial_shapes(config))
        self._places = tuple(name.split(".") for name in self._spec.parameter_shapes)
        self._known: PlainTensors | None = None
        self.reset_parameters()
        self._join_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Weights uniform in +- 1 / sqrt(fan-in), biases zero but for those that the config sets."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.startswith("initial."):
                    parameter.fill_(self.config.initial_memory_value if name == "initial.memory" else 0.0)
                    if name.endswith("_rates"):
                        parameter.fill_(1.0)
                elif parameter.ndim >= 2:
                    bound = math.prod(parameter.shape[1:]) ** -0.5
                    drawn = torch.empty(parameter.shape, dtype=parameter.dtype)
                    parameter.copy_(drawn.uniform_(-bound, bound, generator=generator))
                else:
                    parameter.copy_(self._initial_bias(name, parameter))

    def _initial_bias(self, name: str, like: Tensor) -> Tensor:
        config, spec = self.config, self._spec
        bias = torch.zeros_like(like)
        if name.startswith(CONTROLLER_PREFIX):
            spec.controller_kind.initial_bias(spec, name.removeprefix(CONTROLLER_PREFIX), bias, config.forget_bias)
        elif name == "interface.bias":
            reading, writing = spec.interface.heads(bias)
            read, write = spec.interface.read, spec.interface.write
            for heads, parts, gate_bias in (
                (reading, read, config.read_gate_bias),
                (writing, write, config.write_gate_bias),
            ):
                heads[:, parts["strength"]] = config.strength_bias
                heads[:, parts["gate"]] = gate_bias
                heads[:, parts["sharpening"]] = config.sharpen_bias
        return bias

    def initial_state(self, batch_size: int = 1) -> NTMState:
        """The state at the start of every sequence: memory, weightings, reads and controller at their bias values."""
        batch_size = checks.whole("batch_size", batch_size, 0)
        return ScanState(*(part.squeeze(0) for part in self._start(batch_size, None)))

    def _start(self, batch_size: int, slots: Tensor | None) -> ScanState:
        """The initial state with a leading seed axis of one."""
        learned = {name: self._value(name).unsqueeze(0) for name in self._learned_start}
        weight = self._value("output.weight")
        return initial_state(self.config, learned, (1, batch_size), slots, device=weight.device, dtype=weight.dtype)

    def _join_parameters(self) -> None:
        """Make the parameters neighbours in memory, in the order of the scan's flat vector.

        As `nn.LSTM.flatten_parameters` does: they stay separate parameters, but a scan need not gather them, and an
        optimiser can update them together. If they are moved (`functional_call`, an assigned `.data`), that
        is lost and nothing else.
        """
        parameters = self._registered()
        if parameters is None or not _alike(parameters) or in_one_piece(parameters) is not None:
            return
        if any(parameter.is_inference() for parameter in parameters):
            return
        if parameters[0].device.type == "cpu" and any(parameter.is_shared() for parameter in parameters):
            return  # other processes work on them where they are
        joined = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        parts = joined.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data = part.view(parameter.shape)

    def _plain_parameters(self) -> "PlainTensors | None":
        """The scan's parameters, if a kernel may read them where they are; asked in every call."""
        parameters = self._registered()
        if parameters is None:
            return None
        if self._known is None or not self._known.are(parameters):
            shapes = self._spec.parameter_shapes.values()
            fit = _alike(parameters) and all(map(operator.eq, (one.shape for one in parameters), shapes))
            self._known = PlainTensors(parameters) if fit else None
        return self._known

    def _registered(self) -> list[Tensor] | None:
        """The tensors in the places of the scan's parameters; None if one is missing, as under a parametrisation."""
        found: list[Tensor] = []
        for part, leaf in self._places:
            module = self._modules[part]
            value = None if module is None else module._parameters.get(leaf)
            if value is None:
                return None
            found.append(value)
        return found

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._known = None  # which would hold the memory that they were in
        self._join_parameters()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._join_parameters()

    def _value(self, name: str) -> Tensor:
        """A parameter by name; under `functional_call` it is a plain tensor, which `get_parameter` would refuse."""
        part, _, leaf = name.partition(".")
        value = getattr(getattr(self, part), leaf)
        assert isinstance(value, Tensor)
        return value

    def extra_repr(self) -> str:
        changed = {
            field.name: getattr(self.config, field.name)
            for field in dataclasses.fields(self.config)
            if getattr(self.config, field.name) != field.default
        }
        return ", ".join(f"{name}={value!r}" for name, value in changed.items())


def _alike(parameters: list[Tensor]) -> bool:
    """Whether parameters are plain tensors of one type on one device."""
    dtype, device = parameters[0].dtype, parameters[0].device
    for parameter in parameters:
        if not is_plain(parameter) or parameter.dtype != dtype or parameter.device != device:
            return False
    return device.type in ("cpu", "cuda")
