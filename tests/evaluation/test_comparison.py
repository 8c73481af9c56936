"""Two-sample tests against values by hand and against their definitions."""

import itertools
import math
import random

import numpy as np
import pytest

from tapehead.evaluation.comparison import fisher_test, mean_ranks, rank_test


def test_ranks_by_hand():
    assert mean_ranks(np.array([3.0, 1.0, 3.0, math.inf, math.inf])).tolist() == [2.5, 1.0, 2.5, 4.5, 4.5]


def every_permutation(values, others):
    """The same probability from all permutations."""
    ranks = mean_ranks(np.array([*values, *others]))
    expected, found = ranks.mean() * len(values), abs(ranks[: len(values)].sum() - ranks.mean() * len(values))
    sums = [ranks[list(chosen)].sum() for chosen in itertools.combinations(range(len(ranks)), len(values))]
    return sum(abs(one - expected) >= found - 1e-9 for one in sums) / len(sums)


@pytest.mark.parametrize(
    ("values", "others"),
    [
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]),
        ([1, 2, 3], [1, 2, 3]),
        ([1, 5, 5, math.inf], [2, 5, math.inf, math.inf, 9]),
        ([0.3], [1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_random_permutations_are_as_all_of_them(values, others):
    assert rank_test(values, others) == pytest.approx(every_permutation(values, others), abs=0.015)
    assert rank_test(values, others) == rank_test(values, others)  # the same permutations


def test_samples_of_one_distribution_are_rarely_called_different():
    source = random.Random(0)
    found = [rank_test(*([source.random() for _ in range(n)] for n in (6, 9)), permutations=499) for _ in range(400)]
    assert sum(p <= 0.05 for p in found) / 400 == pytest.approx(0.05, abs=0.03)  # seen: 0.05
    assert rank_test([0.0] * 8, [1.0] * 8) < 0.001


@pytest.mark.parametrize(
    ("table", "expected"),
    [((3, 3, 0, 3), 0.1), ((1, 10, 11, 14), 0.0027594561852200836), ((5, 5, 20, 20), 1.0), ((0, 4, 0, 9), 1.0)],
)
def test_fisher_by_hand(table, expected):
    """The second is Fisher's own kind of example: 1 of 10 and 11 of 14 (2 x 2 table 1, 9, 11, 3)."""
    assert fisher_test(*table) == pytest.approx(expected, rel=1e-9)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="0 and 2 values cannot be compared"):
        rank_test([], [1.0, 2.0])
    with pytest.raises(ValueError, match="3 of 2 and 0 of 1 are no two shares"):
        fisher_test(3, 2, 0, 1)
