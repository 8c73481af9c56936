"""What a backend must know about a machine: its options, its flat parameters, its interface. Legend in contract.py."""

import dataclasses
import functools
import itertools
import json
import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from torch import Tensor

from tapehead import checks
from tapehead.kernels import memory
from tapehead.registry import CONTROLLERS
from tapehead.typed import Typed

if TYPE_CHECKING:
    from tapehead.kernels.ntm_scan.controllers import Controller

Shift = Literal["softmax", "scalar"]
Order = Literal["write_then_read", "read_then_write"]
KeyActivation = Literal["linear", "tanh"]
AddActivation = Literal["linear", "tanh", "sigmoid"]
OutputFrom = Literal["hidden_and_reads", "hidden"]

MOST_LAYERS = 1024
CONTROLLER_PREFIX = "controller."
"""Of the names of a controller's parameters among those of the machine."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScanSpec(Typed):
    """Everything about a machine that a backend must know, except numbers that change from call to call."""

    input_size: int
    output_size: int
    controller: str = "lstm"
    """A name in `registry.CONTROLLERS`, or module:Class."""
    controller_size: int = 100
    controller_layers: int = 1
    read_heads: int = 1
    write_heads: int = 1
    memory_width: int = 20
    shift: Shift = "softmax"
    shift_range: int = 1
    order: Order = "write_then_read"
    key_activation: KeyActivation = "tanh"
    add_activation: AddActivation = "tanh"
    output_from: OutputFrom = "hidden_and_reads"
    write_gate: bool = False
    interface_clip: float | None = None

    def check(self) -> None:
        checks.sizes(self, least={"shift_range": 0}, most={"controller_layers": MOST_LAYERS})
        object.__setattr__(self, "controller", controller_name(self.controller))
        if self.interface_clip is not None and not self.interface_clip > 0:
            raise ValueError(f"interface_clip is {self.interface_clip}, but it must be positive, or None for none.")

    @property
    def shift_inputs(self) -> int:
        """Interface entries that one head's shift takes."""
        return 2 * self.shift_range + 1 if self.shift == "softmax" else 1

    @functools.cached_property
    def interface(self) -> "Interface":
        """The interface vector, through which the controller drives the heads. The order of its parts is here alone."""
        m = self.memory_width
        addressing = dict(key=m, strength=1, gate=1, shift=self.shift_inputs, sharpening=1)
        writing = addressing | dict(erase=m, add=m, write_gate=int(self.write_gate))
        return Interface(self.read_heads, HeadParts(addressing), self.write_heads, HeadParts(writing))

    @functools.cached_property
    def recurrent_layers(self) -> int:
        """Layers that carry hidden and cell state from step to step."""
        return self.controller_kind.recurrent_layers(self)

    @functools.cached_property
    def controller_kind(self) -> "Controller":
        """The controller that `controller` names."""
        return _controller_class(self.controller)()

    @functools.cached_property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters, in the order in which they stand in the flat vector."""
        c, reads = self.controller_size, self.read_heads * self.memory_width
        own = self.controller_kind.parameter_shapes(self)
        shapes = {f"{CONTROLLER_PREFIX}{name}": shape for name, shape in own.items()}
        shapes["interface.weight"] = (self.interface.size, c)
        shapes["interface.bias"] = (self.interface.size,)
        shapes["output.weight"] = (self.output_size, c + (reads if self.output_from == "hidden_and_reads" else 0))
        shapes["output.bias"] = (self.output_size,)
        return shapes

    @functools.cached_property
    def parameter_count(self) -> int:
        return sum(math.prod(shape) for shape in self.parameter_shapes.values())

    @functools.cached_property
    def parameter_places(self) -> list[tuple[tuple[int, ...], tuple[int, ...], int]]:
        """Shape, strides and offset of each parameter in the flat vector."""
        places, offset = [], 0
        for shape in self.parameter_shapes.values():
            places.append((shape, tuple(math.prod(shape[k + 1 :]) for k in range(len(shape))), offset))
            offset += math.prod(shape)
        return places

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Asked for several times in every call: plans and refusals are kept by specification."""
        return hash(dataclasses.astuple(self))

    def split_parameters(self, flat: Tensor) -> dict[str, Tensor]:
        """Named views of flat parameters [..., P]."""
        return memory.split(flat, self.parameter_shapes)

    def to_json(self) -> str:
        """The form in which a specification travels through `torch.library` operators, which take strings only."""
        return self._json

    @functools.cached_property
    def _json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    @functools.cache
    def from_json(cls, text: str) -> Self:
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


def controller_name(name: str) -> str:
    """The one name of a controller, from any of its names; refuses what is no controller."""
    return CONTROLLERS.name_of(_controller_class(name))


def _controller_class(name: str) -> "type[Controller]":
    from tapehead.kernels.ntm_scan.controllers import controller_class  # which speaks of specifications

    return controller_class(name)


class HeadParts:
    """One head's entries of the interface vector, part by part.

    `parts["key"]` is the slice of them that holds the key. All heads have key, strength, gate, shift and sharpening;
    write heads also have erase, add and write_gate, which is empty in a machine without one.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes, self.size = sizes, sum(sizes.values())
        ends = itertools.accumulate(sizes.values())
        self._slices = {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}

    def __getitem__(self, name: str) -> slice:
        return self._slices[name]

    def split(self, entries: Tensor) -> dict[str, Tensor]:
        """[..., size] -> views [..., part] by name."""
        return dict(zip(self.sizes, entries.split(list(self.sizes.values()), dim=-1), strict=True))


class Interface(NamedTuple):
    """The interface vector: all read heads, then all write heads."""

    read_heads: int
    read: HeadParts
    write_heads: int
    write: HeadParts

    @property
    def size(self) -> int:
        return self.read_heads * self.read.size + self.write_heads * self.write.size

    def heads(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """[..., size] -> views of the read heads [..., R, read.size] and of the write heads [..., W, write.size]."""
        reading, writing = vector.split([self.read_heads * self.read.size, self.write_heads * self.write.size], dim=-1)
        return (
            reading.unflatten(-1, (self.read_heads, self.read.size)),
            writing.unflatten(-1, (self.write_heads, self.write.size)),
        )

    def part_names(self) -> list[str]:
        """The part that each entry belongs to."""
        counted = ((self.read_heads, self.read), (self.write_heads, self.write))
        of_heads = (parts.sizes.items() for heads, parts in counted for _ in range(heads))
        return [name for sizes in of_heads for name, size in sizes for _ in range(size)]


SIZES = frozenset({"input_size", "output_size", "controller_size", "controller_layers", "read_heads", "write_heads"})
SIZES |= {"memory_width", "shift_range", "interface_clip"}
"""Options of a specification that are numbers. All the others are choices."""


def unknown_option(backend: str, spec: ScanSpec, known: dict[str, tuple[Any, ...]]) -> str | None:
    """Why a backend that knows these choices, and no others, cannot run a machine; None if it knows them all."""
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name not in SIZES and value not in known.get(field.name, ()):
            choices = ", ".join(map(str, known.get(field.name, ()))) or "no value of it"
            return f"the {backend} kernel does not know {field.name} {value!r}, only {choices}."
    return None
