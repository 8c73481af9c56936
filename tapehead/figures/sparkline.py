"""A curve in one line of text."""

import math
from collections.abc import Sequence

BLOCKS = "".join(chr(0x2581 + eighth) for eighth in range(8))
RAMP = "_.-~=+*#"


def sparkline(values: Sequence[float], width: int = 60, *, ascii_only: bool = False) -> str:
    """Positive values from left to right, the heights logarithmic from the least to the greatest."""
    if not values:
        return ""
    letters = RAMP if ascii_only else BLOCKS
    each = -(-len(values) // width)
    logs = [math.log(max(max(values[i : i + each]), 1e-12)) for i in range(0, len(values), each)]
    low, span = min(logs), (max(logs) - min(logs)) or 1.0
    return "".join(letters[min(7, int(8 * (value - low) / span))] for value in logs)
