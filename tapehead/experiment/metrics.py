"""metrics.jsonl: one line for each block of updates, one schema, one reader. docs/run-folder.md describes it for users.

All lists have one entry for each seed of the line, in the order of `seeds`: the seeds that took part in the block. A
line holds no clock, so that a resumed run writes the same bytes. It is JSON: what is not finite is null.
"""

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import Any, Self

from tapehead.typed import canonical, hints


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """A block of updates."""

    updates: int
    """Updates of the run when the block ended."""
    episodes: int
    """The same in training sequences of one seed."""
    seeds: tuple[int, ...]
    bits: tuple[float | None, ...]
    """Mean cost of the block's sequences in bits, over the best possible where the task knows it; over the finite
    ones."""
    skipped: tuple[int, ...]
    """Updates of the block that were skipped because a cost or gradient was not finite."""
    rate: tuple[float, ...]
    """Learning rate of the block's last update."""
    attempt: tuple[int, ...]
    """The attempt of the seed, from 1."""
    curriculum: tuple[bool, ...]
    """Whether the block was trained on a curriculum that ends, so that no seed is judged by it."""
    validation: tuple[float | None, ...]
    """Cost in bits of the machines that were validated at the end of the block; null for the others."""

    def to_json(self) -> str:
        return json.dumps(self.__dict__, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """A line, every field of it there and of its type."""
        try:
            values: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"a line of metrics.jsonl is not JSON ({error}).") from None
        if not isinstance(values, dict) or values.keys() != hints(cls).keys():
            raise ValueError("a line of metrics.jsonl has other fields than this version of tapehead writes.")
        line = cls(
            **{name: canonical(values[name], hint, f"metrics.jsonl: {name}") for name, hint in hints(cls).items()}
        )
        counts = {len(getattr(line, name)) for name in values if name not in ("updates", "episodes")}
        if counts != {len(line.seeds)}:
            raise ValueError("a line of metrics.jsonl has lists of different lengths.")
        return line


def read(lines: Iterable[str | bytes]) -> list[Line]:
    """The lines of a metrics file."""
    return [Line.from_json(line) for line in lines]


def finite(value: float) -> float | None:
    """JSON has no infinity and no NaN: null stands for them."""
    return value if math.isfinite(value) else None
