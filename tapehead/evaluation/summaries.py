"""Summaries of samples: quartiles, bootstrap intervals of medians and of their differences, and confidence
intervals of a fraction.

Values may be infinite: the cost of a machine that failed is, and it takes part in every summary.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapehead.streams import stream

Z95 = 1.959963984540054
"""The normal distribution has 95 % of its weight within this many standard deviations."""
LEVEL = 0.95
RESAMPLES = 4000

Numbers = NDArray[np.float64]


class Quartiles(NamedTuple):
    low: float
    median: float
    high: float


class Interval(NamedTuple):
    """An estimate, and the ends of its confidence interval."""

    estimate: float
    low: float
    high: float


def quartiles(values: Sequence[float]) -> Quartiles:
    """Quartiles of a sample, interpolated between its members (its least is the 0 % point, its greatest the 100 %)."""
    if not len(values):
        raise ValueError("a sample of no values has no quartiles: give at least 1.")
    low, median, high = quartiles_of_rows(np.asarray(values, dtype=np.float64)).tolist()
    return Quartiles(low, median, high)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of a sample is, interpolated between its members."""
    if not len(values):
        raise ValueError("a sample of no values has no quantiles: give at least 1.")
    return float(_quantile(np.sort(np.asarray(values, dtype=np.float64)), share))


def quartiles_of_rows(values: Numbers) -> Numbers:
    """Quartiles of a sample over the first dimension of [S, ...], as [3, ...]."""
    return np.stack([_quantile(np.sort(values, axis=0), share) for share in (0.25, 0.5, 0.75)])


def _quantile(ordered: Numbers, share: float) -> Numbers:
    """Interpolated between two neighbours of [S, ...], sorted; infinite if one of the two that count is."""
    place = share * (len(ordered) - 1)
    below, part = int(place), place - int(place)
    if part == 0:
        return np.asarray(ordered[below])
    a, b = ordered[below], ordered[below + 1]
    with np.errstate(invalid="ignore"):  # the difference of two infinities
        between = a + part * (b - a)
    found: Numbers = np.where(np.isinf(a) | np.isinf(b), np.where(np.isinf(a), a, b), between)
    return found


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a probability, from `successes` of `trials`: two numbers in 0 to 1."""
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} of {trials} is no fraction: give 0 <= successes <= trials and at least 1 trial.")
    share, z2 = successes / trials, Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def clopper_pearson(successes: int, trials: int, *, level: float = LEVEL) -> tuple[float, float]:
    """The exact interval for a probability, from `successes` of `trials`: it covers it in at least `level` of cases,
    however few trials there are."""
    low = 0.0 if successes == 0 else 1 - _exceeded(trials - successes, trials, (1 - level) / 2)
    return low, 1.0 if successes == trials else _exceeded(successes, trials, (1 - level) / 2)


def _exceeded(successes: int, trials: int, tail: float) -> float:
    """The probability of a success at which at most `successes` of `trials` happen with probability `tail`."""
    low, high = 0.0, 1.0
    for _ in range(60):  # halvings: more than the digits of a double
        p = (low + high) / 2
        at_most = math.fsum(
            math.exp(_log_choices(trials, k) + k * math.log(p) + (trials - k) * math.log1p(-p))
            for k in range(successes + 1)
        )
        low, high = (p, high) if at_most > tail else (low, p)
    return low


def _log_choices(trials: int, successes: int) -> float:
    """The logarithm of the binomial coefficient, which itself may be too large for a double."""
    return math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)


def median_interval(values: Sequence[float], *, level: float = LEVEL, resamples: int = RESAMPLES) -> Interval:
    """The median of a sample with its bootstrap interval (percentile method), the same at every call."""
    return _interval(quartiles(values).median, _medians(values, "a", resamples), level)


def median_difference(
    values: Sequence[float], others: Sequence[float], *, level: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """The median of a sample less that of another, independent one, with its bootstrap interval.

    A difference of two infinite medians is unknown: the estimate is then NaN, and a resample of that kind is below the
    low end and above the high one.
    """
    with np.errstate(invalid="ignore"):
        found = np.float64(quartiles(values).median) - np.float64(quartiles(others).median)
        differences = _medians(values, "a", resamples) - _medians(others, "b", resamples)
    return _interval(float(found), differences, level)


def _medians(values: Sequence[float], name: str, resamples: int) -> Numbers:
    """The medians of so many samples drawn from a sample with replacement."""
    sample = np.asarray(values, dtype=np.float64)
    return _quantile(np.sort(sample[_places(len(values), name, resamples)], axis=0), 0.5)


@lru_cache(maxsize=32)
def _places(count: int, name: str, resamples: int) -> NDArray[np.int64]:
    """Which members of a sample are drawn, [count, resamples]: the same for all samples of a size."""
    source = stream(0, f"bootstrap/{name}", 0, device="cpu")
    places: NDArray[np.int64] = source.integers(resamples, count, 0, count - 1).numpy().T
    return places


def _interval(estimate: float, resampled: Numbers, level: float) -> Interval:
    """The least interval between members of a resampled distribution that leaves at most half of 1 - level outside
    each end."""
    outside = math.floor((1 - level) / 2 * len(resampled))
    low = np.sort(np.where(np.isnan(resampled), -math.inf, resampled))[outside]
    high = np.sort(np.where(np.isnan(resampled), math.inf, resampled))[-1 - outside]
    return Interval(estimate, float(low), float(high))
