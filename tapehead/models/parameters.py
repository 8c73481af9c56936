"""The parameters of a machine with a controller and a memory as a torch module, whatever the machine."""

import abc
import dataclasses
import math
import operator
import textwrap
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from tapehead import checks
from tapehead.kernels.machine_spec import CONTROLLER_PREFIX, MachineSpec
from tapehead.kernels.memory import PlainTensors, in_one_piece, is_plain
from tapehead.suggest import unknown
from tapehead.typed import Typed

ELSEWHERE = {
    "hidden_size": "here it is controller_size",
    "num_layers": "here it is controller_layers",
    "memory_size": "here it is memory_slots and memory_width",
    "N": "here it is memory_slots",
    "M": "here it is memory_width",
    "num_read_heads": "here it is read_heads",
    "num_write_heads": "here it is write_heads",
    "write_heads": "there is one write head",
    "controller_type": "here it is controller",
    "bidirectional": "a machine runs forwards only",
    "dropout": "a machine has none; put torch.nn.Dropout around it",
}
"""What to use instead of options of other libraries."""

SHOWN = (
    *("input_size", "output_size", "controller", "controller_size", "controller_layers"),
    *("memory_slots", "memory_width"),
)
"""Options that a printed machine always shows, beside those that are not at their defaults."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineConfig(Typed, abc.ABC):
    """The options of a machine: what a kernel must know, `spec`, how long the memory is, and where everything
    starts."""

    input_size: int
    output_size: int

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """A config from keyword options; a misspelt one is refused with the nearest valid name."""
        names = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name in names:
                continue
            if name in ELSEWHERE:
                raise TypeError(f"unknown option {name!r}: {ELSEWHERE[name]}.")
            raise TypeError(unknown("option", name, names))
        return cls(**options)

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any], others: Mapping[str, Any]) -> Self:
        """A config from the arguments of a constructor that has every option by name, and others that it has not."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls.from_options({name: arguments[name] for name in names} | dict(others))

    @property
    @abc.abstractmethod
    def spec(self) -> MachineSpec:
        """The part that a kernel must know."""


class Part(nn.Module):
    """A part of a machine: parameters by name, and nothing that is called."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={list(value.shape)}" for name, value in self.named_parameters())


class Parameters(nn.Module):
    """The parameters that a specification names, and those of a learned start."""

    config: MachineConfig

    def __init__(
        self,
        config: MachineConfig,
        start: dict[str, tuple[int, ...]],
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        """start: names, each "initial.", and shapes of what is learned of the start."""
        super().__init__()
        device, dtype = checks.device(device), checks.floating(dtype, checks.FLOATS)
        self.config = config
        self.input_size, self.output_size = config.input_size, config.output_size
        shapes = config.spec.compute_all().parameter_shapes | start
        for name, shape in shapes.items():
            part, _, leaf = name.partition(".")
            if part not in self._modules:
                self.add_module(part, Part())
            getattr(self, part).register_parameter(leaf, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self._learned_start = tuple(start)
        self._places = tuple(name.split(".") for name in config.spec.parameter_shapes)
        self._known: PlainTensors | None = None
        self.reset_parameters()
        self._join_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Weights uniform in +- 1 / sqrt(fan-in), biases zero but for those that the config sets."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.ndim < 2 or name.startswith("initial."):
                    parameter.copy_(self._initial_value(name, torch.zeros_like(parameter)))
                    continue
                bound = math.prod(parameter.shape[1:]) ** -0.5
                drawn = torch.empty(parameter.shape, dtype=parameter.dtype)
                parameter.copy_(drawn.uniform_(-bound, bound, generator=generator))

    def _initial_value(self, name: str, zeros: Tensor) -> Tensor:
        """What a bias, or a part of a learned start, begins at; `zeros` has its shape."""
        raise NotImplementedError

    def _set_controller_bias(self, name: str, bias: Tensor, forget_bias: float) -> None:
        """Set, in place, a bias of the controller, if the name is one's."""
        if name.startswith(CONTROLLER_PREFIX):
            spec = self.config.spec
            spec.controller_kind.initial_bias(spec, name.removeprefix(CONTROLLER_PREFIX), bias, forget_bias)

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
            shapes = self.config.spec.parameter_shapes.values()
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
        config, heads = self.config, self.config.spec.interface
        shown = {name: getattr(config, name) for name in SHOWN}
        own = [name for name in ("read_heads", "write_heads") if hasattr(config, name)]
        shown |= {name: getattr(heads, name) for name in own}
        for field in dataclasses.fields(config):
            if field.name not in (*shown, "num_heads") and getattr(config, field.name) != field.default:
                shown[field.name] = getattr(config, field.name)
        options = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        count = sum(parameter.numel() for parameter in self.parameters())
        return "\n".join([*textwrap.wrap(options, 100), f"{count:,} parameters"])


def _alike(parameters: list[Tensor]) -> bool:
    """Whether parameters are plain tensors of one type on one device."""
    dtype, device = parameters[0].dtype, parameters[0].device
    for parameter in parameters:
        if not is_plain(parameter) or parameter.dtype != dtype or parameter.device != device:
            return False
    return device.type in ("cpu", "cuda")
