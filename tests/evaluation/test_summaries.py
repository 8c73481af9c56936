"""Quartiles and intervals, against cases that are known exactly."""

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest

from tapehead.evaluation.summaries import (
    Interval,
    clopper_pearson,
    median_difference,
    median_interval,
    quantile,
    quartiles,
    quartiles_of_rows,
)

INFINITE = math.inf


@pytest.mark.parametrize("count", [2, 3, 4, 5, 10, 21])
def test_quartiles_are_those_of_the_standard_library(count):
    values = [((7 * i) % count) ** 1.5 for i in range(count)]
    assert quartiles(values) == pytest.approx(statistics.quantiles(values, n=4, method="inclusive"), rel=1e-15)
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    assert [quantile(values, share) for share in (0.1, 0.9)] == pytest.approx([tenths[0], tenths[-1]], rel=1e-15)


def test_an_infinite_value_is_in_its_place_and_nowhere_else():
    """Of five values the quartiles are members of the sample: one that failed must not make its neighbour NaN."""
    assert quartiles([1.0, 2.0, 3.0, 4.0, INFINITE]) == (2, 3, 4)
    assert quartiles([1.0, 2.0, 3.0, INFINITE, INFINITE]) == (2, 3, INFINITE)
    assert quartiles([1.0, INFINITE, INFINITE, INFINITE]) == (INFINITE, INFINITE, INFINITE)
    assert quartiles([1.0, 2.0, 3.0, INFINITE]).median == 2.5


def test_no_values_have_no_quartiles():
    with pytest.raises(ValueError, match="give at least 1"):
        quartiles([])


def test_quartiles_of_rows_are_those_of_each_column():
    values = np.array([[3.0, 1.0], [1.0, INFINITE], [2.0, 5.0]])
    columns = [quartiles(column) for column in values.T.tolist()]
    assert quartiles_of_rows(values).T.tolist() == [list(column) for column in columns]


def exact_median_distribution(count):
    """P(median of a resample <= k-th of `count` distinct values), k = 1..count, for an odd count: at least half of the
    draws are among the first k."""
    half = (count + 1) // 2
    return [
        sum(math.comb(count, n) * (k / count) ** n * (1 - k / count) ** (count - n) for n in range(half, count + 1))
        for k in range(1, count + 1)
    ]


@pytest.mark.parametrize(("count", "level"), [(5, 0.95), (9, 0.8), (15, 0.5), (21, 0.95)])
def test_the_interval_of_a_median_is_the_exact_one(count, level):
    """With distinct values 1 to n the distribution of a resample's median is known, and so are its quantiles."""
    below = exact_median_distribution(count)
    tail = (1 - level) / 2
    assert min(abs(share - edge) for share in below for edge in (tail, 1 - tail)) > 0.004  # no tie for chance to decide
    low = next(k for k, share in enumerate(below, 1) if share > tail)
    high = next(k for k, share in enumerate(below, 1) if share >= 1 - tail)
    found = median_interval(range(1, count + 1), level=level, resamples=20_000)
    assert found == ((count + 1) / 2, low, high)


def test_an_interval_is_the_same_twice_and_moves_with_its_sample():
    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    first = median_interval(values)
    assert first == median_interval(values)
    assert median_interval([value + 10 for value in values]) == pytest.approx([end + 10 for end in first])


def test_one_value_is_its_own_interval():
    assert median_interval([3.0]) == Interval(3.0, 3.0, 3.0)


def test_failed_seeds_open_the_interval_of_a_median():
    assert median_interval([1.0] * 6 + [INFINITE] * 5) == (1.0, 1.0, INFINITE)
    assert median_interval([1.0] * 20 + [INFINITE]) == (1.0, 1.0, 1.0)


def test_differences_of_samples_that_are_constant_are_exact():
    assert median_difference([5.0] * 4, [2.0] * 7) == (3.0, 3.0, 3.0)


def test_a_difference_has_the_variance_of_both_samples():
    """The medians of resamples of three values are each of the three with known probability, and so is every pair."""
    a, b = [0.0, 1.0, 2.0], [10.0, 20.0, 30.0]
    shares = np.diff([0.0, *exact_median_distribution(3)])
    pairs = sorted((x - y, p * q) for x, p in zip(a, shares, strict=True) for y, q in zip(b, shares, strict=True))
    below = np.cumsum([share for _, share in pairs])
    low = next(value for (value, _), share in zip(pairs, below, strict=True) if share > 0.1)
    high = next(value for (value, _), share in zip(pairs, below, strict=True) if share >= 0.9)
    assert median_difference(a, b, level=0.8, resamples=20_000) == (1.0 - 20.0, low, high)


def test_two_samples_are_resampled_apart():
    """The difference of a sample with itself is not zero in every resample."""
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    found = median_difference(values, values)
    assert found.estimate == 0
    assert found.low < 0 < found.high


def test_the_difference_of_two_failures_is_unknown():
    found = median_difference([INFINITE] * 5, [INFINITE] * 5)
    assert math.isnan(found.estimate)
    assert found[1:] == (-INFINITE, INFINITE)
    assert median_difference([1.0] * 5, [INFINITE] * 5) == (-INFINITE, -INFINITE, -INFINITE)


@pytest.mark.parametrize(("successes", "trials"), [(1, 5), (13, 20), (19, 20), (80, 100)])
def test_the_ends_of_the_exact_interval_leave_a_fortieth_on_each_side(successes, trials):
    low, high = (Fraction(end) for end in clopper_pearson(successes, trials))

    def chance(p, counts):
        return float(sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in counts))

    assert chance(low, range(successes, trials + 1)) == pytest.approx(0.025, rel=1e-9)
    assert chance(high, range(successes + 1)) == pytest.approx(0.025, rel=1e-9)


def test_the_exact_interval_of_none_and_of_all():
    assert clopper_pearson(0, 5) == pytest.approx((0.0, 1 - 0.025 ** (1 / 5)), rel=1e-12)
    assert clopper_pearson(5, 5) == pytest.approx((0.025 ** (1 / 5), 1.0), rel=1e-12)


def test_the_exact_interval_of_many_trials():
    """The number of choices of 2,000 of 4,000 is too large for a double."""
    low, high = clopper_pearson(2000, 4000)
    assert low == pytest.approx(1 - high, rel=1e-9)
    assert high - 0.5 == pytest.approx(1.96 * 0.5 / math.sqrt(4000), rel=0.01)  # seen: 0.8 % more
