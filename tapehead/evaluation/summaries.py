"""Summaries: quartiles of a sample, and a confidence interval of a fraction."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

Z95 = 1.959963984540054
"""The normal distribution has 95 % of its weight within this many standard deviations."""


class Quartiles(NamedTuple):
    low: float
    median: float
    high: float


def quartiles(values: Sequence[float]) -> Quartiles:
    """Quartiles of a sample, interpolated between its members (its least is the 0 % point, its greatest the 100 %)."""
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a probability, from `successes` of `trials`: two numbers in 0 to 1."""
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} of {trials} is no fraction: give 0 <= successes <= trials and at least 1 trial.")
    share, z2 = successes / trials, Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)
