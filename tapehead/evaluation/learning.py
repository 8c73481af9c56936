"""Learning curves of many machines as one: median and quartiles of all of them at every number of sequences.

A machine's curve is a list of points (end, bits): the mean cost of the sequences between the point before and `end`.
A machine that was retired keeps its last cost. One whose costs were not finite costs infinity where they were not, so
it is in every band.

Legend: S machines, C points.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapehead.evaluation.summaries import quartiles_of_rows

Numbers = NDArray[np.float64]
Curve = Sequence[Sequence[float]]


class Band(NamedTuple):
    """The training cost of S machines."""

    episodes: Numbers  # [C]
    costs: Numbers  # [S, C], bits
    low: Numbers  # [C], the quartiles over machines
    median: Numbers
    high: Numbers

    @property
    def seeds(self) -> int:
        return len(self.costs)


def band_of(machines: Sequence[dict[str, Any]]) -> Band | None:
    """The band of a record's machines; None if no machine has a learning curve."""
    curves = [machine.get("curve") or [] for machine in machines]
    if not any(curves):
        return None
    episodes = np.unique([end for curve in curves for end, _ in curve]).astype(np.float64)
    trained = [machine["episodes"] for machine in machines]
    costs = np.array([costs_at(curve, episodes, until) for curve, until in zip(curves, trained, strict=True)])
    low, median, high = quartiles_of_rows(costs)
    return Band(episodes, costs, low, median, high)


def costs_at(curve: Curve, episodes: Numbers, trained: float) -> Numbers:
    """The cost of one machine at each number of episodes. trained: its own number of them.

    Records leave out points whose cost is not finite: they show as gaps, or as an end before `trained`.
    """
    if not curve:
        return np.full(len(episodes), np.inf)
    ends, bits = np.array(curve, dtype=np.float64).T
    lengths = np.diff(ends, prepend=0.0)  # of the stretches that points are means of
    usual = float(np.median(lengths))
    begins = ends - np.where(lengths > 1.5 * usual, usual, lengths)
    place = np.searchsorted(ends, episodes)
    behind = place == len(ends)
    place = np.minimum(place, len(ends) - 1)
    lost = np.where(behind, ends[-1] < trained - 1.5 * usual, episodes <= begins[place])
    return np.where(lost, np.inf, bits[place])
