"""Whether two samples may come from one distribution: a permutation test of ranks, and Fisher's exact test.

Values may be infinite: a machine that was not solved took infinitely long, and it takes part.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tapehead.streams import stream

PERMUTATIONS = 9999


def rank_test(values: Sequence[float], others: Sequence[float], permutations: int = PERMUTATIONS) -> float:
    """The two-sided probability, if both samples come from one distribution, of rank sums as far apart as these.

    Ties share the mean of their ranks. The permutations are random, and the same at every call.
    """
    if not len(values) or not len(others):
        raise ValueError(
            f"samples of {len(values)} and {len(others)} values cannot be compared: each needs at least 1."
        )
    ranks = mean_ranks(np.asarray([*values, *others], dtype=np.float64))
    expected = ranks.mean() * len(values)
    found = abs(ranks[: len(values)].sum() - expected)
    source = stream(0, "permutations", 0, device="cpu")
    keys = source.uniform(permutations, len(ranks)).numpy()  # sorting them permutes
    chosen = np.argsort(keys, axis=1, kind="stable")[:, : len(values)]
    as_far = np.abs(ranks[chosen].sum(axis=1) - expected) >= found - 1e-9
    return float((1 + as_far.sum()) / (1 + permutations))


def mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1 on; equal values have the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: NDArray[np.float64] = (last - (counts - 1) / 2)[place]
    return means


def fisher_test(successes: int, trials: int, other_successes: int, other_trials: int) -> float:
    """The two-sided probability, if both shares are one, of a table as unlikely as this one (Fisher's exact test)."""
    total, all_trials = successes + other_successes, trials + other_trials
    if not (0 <= successes <= trials and 0 <= other_successes <= other_trials and all_trials):
        raise ValueError(
            f"{successes} of {trials} and {other_successes} of {other_trials} are no two shares: give at most as many "
            "successes as trials, and at least 1 trial."
        )

    def probability(k: int) -> float:
        return math.comb(trials, k) * math.comb(other_trials, total - k) / math.comb(all_trials, total)

    possible = range(max(0, total - other_trials), min(trials, total) + 1)
    limit = probability(successes) * (1 + 1e-9)
    return min(1.0, math.fsum(p for p in map(probability, possible) if p <= limit))
