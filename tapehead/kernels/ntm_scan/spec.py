"""What a backend must know about a Neural Turing Machine: its options and its interface. Legend in contract.py."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from tapehead.kernels.machine_spec import HeadParts, Interface, MachineSpec

Shift = Literal["softmax", "scalar"]
Order = Literal["write_then_read", "read_then_write"]
KeyActivation = Literal["linear", "tanh"]
AddActivation = Literal["linear", "tanh", "sigmoid"]
OutputFrom = Literal["hidden_and_reads", "hidden"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScanSpec(MachineSpec):
    """Everything about a machine that a backend must know, except numbers that change from call to call."""

    write_heads: int = 1
    shift: Shift = "softmax"
    shift_range: int = 1
    order: Order = "write_then_read"
    key_activation: KeyActivation = "tanh"
    add_activation: AddActivation = "tanh"
    output_from: OutputFrom = "hidden_and_reads"
    write_gate: bool = False
    interface_clip: float | None = None

    least: ClassVar[Mapping[str, int]] = {"shift_range": 0}

    __hash__ = MachineSpec.__hash__  # a dataclass would make another

    def check(self) -> None:
        super().check()
        if self.interface_clip is not None and not self.interface_clip > 0:
            raise ValueError(f"interface_clip is {self.interface_clip}, but it must be positive, or None for none.")

    @property
    def shift_inputs(self) -> int:
        """Interface entries that one head's shift takes."""
        return 2 * self.shift_range + 1 if self.shift == "softmax" else 1

    @functools.cached_property
    def interface(self) -> Interface:
        """All heads have key, strength, gate, shift and sharpening; write heads also have erase, add and write_gate,
        which is empty in a machine without one."""
        m = self.memory_width
        addressing = dict(key=m, strength=1, gate=1, shift=self.shift_inputs, sharpening=1)
        writing = addressing | dict(erase=m, add=m, write_gate=int(self.write_gate))
        return Interface(self.read_heads, HeadParts(addressing), self.write_heads, HeadParts(writing))

    @property
    def output_inputs(self) -> int:
        return self.controller_size if self.output_from == "hidden" else super().output_inputs


SIZES = frozenset({"input_size", "output_size", "controller_size", "controller_layers", "read_heads", "write_heads"})
SIZES |= {"memory_width", "shift_range", "interface_clip"}
"""Options of a specification that are numbers. All the others are choices."""


def unknown_option(backend: str, spec: MachineSpec, known: dict[str, tuple[Any, ...]]) -> str | None:
    """Why a backend that knows these choices, and no others, cannot run a machine; None if it knows them all."""
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name not in SIZES and value not in known.get(field.name, ()):
            choices = ", ".join(map(str, known.get(field.name, ()))) or "no value of it"
            return f"the {backend} kernel does not know {field.name} {value!r}, only {choices}."
    return None
