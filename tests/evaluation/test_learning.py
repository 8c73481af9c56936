"""Bands of learning curves, compared with sums by hand."""

import math
import statistics

import numpy as np
import pytest

from tapehead.evaluation.learning import band_of, costs_at

INFINITE = math.inf


def machine(curve, episodes=None):
    return {"curve": curve, "episodes": episodes if episodes is not None else curve[-1][0]}


def test_a_band_has_the_quartiles_of_all_machines():
    costs = [[80, 8, 4], [70, 6, 5], [90, 7, 3], [60, 9, 1]]
    found = band_of([machine([[100 * (k + 1), bits] for k, bits in enumerate(row)]) for row in costs])
    assert found is not None
    assert found.seeds == 4
    assert found.episodes.tolist() == [100, 200, 300]
    assert found.costs.tolist() == costs
    for k, column in enumerate(zip(*costs, strict=True)):
        expected = statistics.quantiles(column, n=4, method="inclusive")
        assert [found.low[k], found.median[k], found.high[k]] == pytest.approx(expected)


def test_machines_that_ended_at_different_times_share_one_axis():
    """A point is the mean since the point before; a machine that was retired keeps its last cost."""
    found = band_of([machine([[100, 8.0], [200, 4.0], [300, 2.0]]), machine([[150, 1.0]])])
    assert found is not None
    assert found.episodes.tolist() == [100, 150, 200, 300]
    assert found.costs.tolist() == [[8, 4, 4, 2], [1, 1, 1, 1]]


def test_costs_that_were_not_finite_are_infinite_in_the_band():
    points = np.array([100.0, 200, 300, 400, 500])
    whole = [[100, 5.0], [200, 4.0], [300, 3.0], [400, 2.0], [500, 1.0]]
    hole = [point for point in whole if point[0] != 300]
    assert costs_at(whole, points, 500).tolist() == [5, 4, 3, 2, 1]
    assert costs_at(hole, points, 500).tolist() == [5, 4, INFINITE, 2, 1]
    assert costs_at(whole[:3], points, 500).tolist() == [5, 4, 3, INFINITE, INFINITE]
    assert costs_at(whole[:3], points, 300).tolist() == [5, 4, 3, 3, 3]
    assert costs_at(whole[2:], points, 500).tolist() == [INFINITE, INFINITE, 3, 2, 1]
    assert costs_at([], points, 500).tolist() == [INFINITE] * 5


def test_a_machine_that_failed_is_in_the_band():
    curve = [[100, 4.0], [200, 2.0]]
    good, failed = machine(curve), machine([], 200)
    found = band_of([good, good, failed, failed, failed])
    assert found is not None
    assert found.seeds == 5
    assert np.isinf(found.median).all()
    assert found.low.tolist() == [4, 2]


def test_the_last_stretch_of_a_curve_may_be_shorter():
    curve = [[100, 3.0], [200, 2.0], [230, 1.0]]
    assert costs_at(curve, np.array([150.0, 210, 230]), 230).tolist() == [2, 1, 1]


def test_records_without_curves_have_no_band():
    assert band_of([{"episodes": 100}, {"episodes": 100}]) is None
