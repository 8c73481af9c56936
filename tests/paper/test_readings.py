"""Numbers read off the paper's plots: each is of a row and a place that our records can have."""

import math

import pytest
from made_up_records import made_up, results_of

from tapehead.lab.acceptance import acceptance_of
from tapehead.paper.readings import READINGS, compare, cost_after, last_cost
from tapehead.paper.recipes import row_experiment
from tapehead.paper.tables import TABLES


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: f"{reading.row}, {reading.where}")
def test_a_reading_is_of_a_row_and_a_point(reading):
    assert reading.row in TABLES
    assert 3 <= reading.figure <= 18
    assert (reading.label is None) == (reading.episodes > 0)
    if reading.label is not None:
        experiment = row_experiment(reading.row)
        points = acceptance_of(experiment.task, experiment.model.build(experiment.task)).points
        assert reading.label in [point.label(experiment.task) for point in points]


def one(results, row, where):
    return next(found for found in compare(results) if (found.reading.row, found.reading.where) == (row, where))


@pytest.mark.parametrize(("bits", "words"), [(0.2, "better"), (9.0, "worse"), ([0.2, 9.0] * 5, "about equal")])
def test_ours_is_better_or_worse_by_its_whole_interval(tmp_path, bits, words):
    results = results_of(
        tmp_path, made_up("associative-recall-ntm-lstm", Items_15=bits, Items_6=0, Items_10=0, Items_20=0)
    )
    found = one(results, "associative-recall-ntm-lstm", "Items 15")
    assert found.words == words
    assert (found.file, found.seeds) == ("associative-recall-ntm-lstm-tuned.json", 10)


def test_without_a_record_nothing_is_compared(tmp_path):
    assert {found.words for found in compare(results_of(tmp_path))} == {"not tested"}


def test_training_costs_are_those_of_the_curve_or_of_the_end(tmp_path):
    curve = [[50_000, 9.0], [100_000, 4.0], [1_000_000, 0.25]]
    results = results_of(tmp_path, made_up("copy-lstm", curve=curve), made_up("copy-ntm-lstm"))
    assert one(results, "copy-lstm", "in training, after 100,000").ours.estimate == 4.0
    assert one(results, "copy-lstm", "in training, after 1,000,000").ours.estimate == 0.01  # of the last window
    shorter = one(results, "copy-ntm-lstm", "in training, after 100,000")
    assert (shorter.ours.estimate, shorter.episodes) == (0.01, 40_000)


def test_costs_that_are_not_known_or_not_finite():
    machine = made_up("copy-lstm")["machines"][0]
    assert cost_after(machine, 1000) is None
    assert cost_after(machine | {"curve": [[500, 3.0]]}, 1000) == math.inf  # its later costs were not finite
    assert last_cost(machine | {"last_window_bits": None}) == math.inf
    assert last_cost(machine | {"last_window_bits": None, "curve": [[500, 3.0]]}) == 3.0
