"""Which sub-layers of a Transformer are skipped.

A Transformer of L layers has 2L sub-layers, numbered from 1 in the order in which they run: the attention of layer i is
2i + 1, its MLP 2i + 2 (layers count from 0). A skipped sub-layer is the identity on the residual stream: neither its
norm nor its product is computed.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Self

from tapehead.typed import Typed


@dataclasses.dataclass(frozen=True, kw_only=True)
class SkipSet(Typed):
    """Layers whose attention, and layers whose MLP, is skipped: `{"attention": [i, ...], "mlp": [i, ...]}`."""

    attention: tuple[int, ...] = ()
    mlp: tuple[int, ...] = ()

    def check(self) -> None:
        for name in ("attention", "mlp"):
            layers = getattr(self, name)
            if any(layer < 0 for layer in layers) or len(set(layers)) < len(layers):
                raise ValueError(f"{name} is {list(layers)}, but it must be different layers, counted from 0.")
            object.__setattr__(self, name, tuple(sorted(layers)))

    @classmethod
    def of_numbers(cls, numbers: Iterable[int]) -> Self:
        """The set of these sub-layers: odd numbers are attention, even ones MLP."""
        chosen = list(numbers)
        if any(number < 1 for number in chosen):
            raise ValueError(f"the sub-layers are {chosen}, but they are numbered from 1.")
        return cls(
            attention=tuple((number - 1) // 2 for number in chosen if number % 2),
            mlp=tuple((number - 2) // 2 for number in chosen if not number % 2),
        )

    @classmethod
    def of_bits(cls, bits: Sequence[bool | int]) -> Self:
        """The set of those sub-layers whose bit is one; the first bit is that of sub-layer 1."""
        return cls.of_numbers(number for number, bit in enumerate(bits, start=1) if bit)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the skipped sub-layers, in order."""
        return tuple(sorted([2 * i + 1 for i in self.attention] + [2 * i + 2 for i in self.mlp]))

    def __len__(self) -> int:
        return len(self.attention) + len(self.mlp)

    def __or__(self, other: "SkipSet") -> Self:
        """The set of what either skips."""
        return type(self).of_numbers({*self.numbers, *other.numbers})

    def check_layers(self, layers: int) -> None:
        """Refuse sub-layers that a model of so many layers does not have."""
        for name in ("attention", "mlp"):
            beyond = [layer for layer in getattr(self, name) if layer >= layers]
            if beyond:
                raise ValueError(
                    f"{name} of layer {beyond[0]} is to be skipped, but the model's layers are 0 to {layers - 1}."
                )


NOTHING = SkipSet()
