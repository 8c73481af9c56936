"""What a backend must know about a Differentiable Neural Computer: its options and its interface. Legend in
contract.py."""

import dataclasses
import functools
from typing import Literal

from tapehead.kernels.machine_spec import HeadParts, Interface, MachineSpec

Strength = Literal["oneplus", "softplus"]
MODES = ("backward", "content", "forward")
"""The read modes, in the order in which they stand in the interface and in a trace."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DNCSpec(MachineSpec):
    """Everything about a machine that a backend must know, except numbers that change from call to call."""

    read_heads: int = 4
    strength: Strength = "oneplus"
    detached_usage: bool = False
    masked_content: bool = False
    deallocation: bool = False
    link_sharpness: bool = False

    __hash__ = MachineSpec.__hash__  # a dataclass would make another

    @functools.cached_property
    def interface(self) -> Interface:
        """R (M + 5) + 3 M + 3 entries without the options: all read heads, then the write head.

        mask is empty without `masked_content`, sharpness (forward, backward) without `link_sharpness`.
        """
        m = self.memory_width
        mask = m if self.masked_content else 0
        reading = dict(key=m, strength=1, free_gate=1, modes=len(MODES), mask=mask)
        reading |= dict(sharpness=2 if self.link_sharpness else 0)
        writing = dict(key=m, strength=1, erase=m, add=m, allocation_gate=1, write_gate=1, mask=mask)
        return Interface(self.read_heads, HeadParts(reading), 1, HeadParts(writing))
