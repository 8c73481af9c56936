"""What all machines with a controller and a memory have in common for a backend: sizes, flat parameters, the interface
vector. Legend in ntm_scan/contract.py."""

import abc
import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from torch import Tensor

from tapehead import checks
from tapehead.kernels import memory
from tapehead.registry import CONTROLLERS
from tapehead.typed import Typed

if TYPE_CHECKING:
    from tapehead.kernels.ntm_scan.controllers import Controller

MOST_LAYERS = 1024
CONTROLLER_PREFIX = "controller."
"""Of the names of a controller's parameters among those of the machine."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineSpec(Typed, abc.ABC):
    """Everything about a machine that a backend must know, except numbers that change from call to call.

    Of each kind of machine there is a subclass, which adds its options and says what its interface is.
    """

    input_size: int
    output_size: int
    controller: str = "lstm"
    """A name in `registry.CONTROLLERS`, or module:Class."""
    controller_size: int = 100
    controller_layers: int = 1
    read_heads: int = 1
    memory_width: int = 20

    least: ClassVar[Mapping[str, int]] = {}
    """Of sizes that may be less than 1."""

    def check(self) -> None:
        checks.sizes(self, least=self.least, most={"controller_layers": MOST_LAYERS})
        object.__setattr__(self, "controller", controller_name(self.controller))

    @property
    @abc.abstractmethod
    def interface(self) -> "Interface":
        """The interface vector, through which the controller drives the heads. The order of its parts is here alone."""

    @property
    def output_inputs(self) -> int:
        """What the output layer sees: the controller's output and all reads."""
        return self.controller_size + self.read_heads * self.memory_width

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
        own = self.controller_kind.parameter_shapes(self)
        shapes = {f"{CONTROLLER_PREFIX}{name}": shape for name, shape in own.items()}
        shapes["interface.weight"] = (self.interface.size, self.controller_size)
        shapes["interface.bias"] = (self.interface.size,)
        shapes["output.weight"] = (self.output_size, self.output_inputs)
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

    def compute_all(self) -> Self:
        """Compute all that is kept: torch.compile cannot, since Python 3.11 locks a `cached_property` meanwhile."""
        for name, value in (pair for kind in type(self).__mro__ for pair in vars(kind).items()):
            if isinstance(value, functools.cached_property):
                getattr(self, name)
        return self

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

    `parts["key"]` is the slice of them that holds the key; a specification's `interface` says which parts there are.
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
