"""Numbers read off the paper's plots: each is of a row and a place that our records can have."""

import pytest
from made_up_records import made_up, results_of

from tapehead.lab.acceptance import acceptance_of
from tapehead.paper.readings import AXIS, READINGS, compare
from tapehead.paper.recipes import row_experiment
from tapehead.paper.tables import TABLES


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: f"{reading.row}, {reading.where}")
def test_a_reading_is_of_a_row_and_a_point(reading):
    assert reading.row in TABLES
    assert 3 <= reading.figure <= 18
    assert reading.label is not None or reading.episodes > 0
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
    assert one(results, "copy-lstm", "in training, after 1,000,000").ours.estimate == 0.25  # not of the last window
    shorter = one(results, "copy-ntm-lstm", "in training, after 100,000")
    assert (shorter.ours.estimate, shorter.trained) == (0.01, "40,000")


def test_below_a_line_on_the_axis_is_about_equal(tmp_path):
    results = results_of(tmp_path, made_up("associative-recall-ntm-lstm", Items_6=AXIS / 10))
    assert one(results, "associative-recall-ntm-lstm", "Items 6").words == "about equal"
    results = results_of(tmp_path, made_up("associative-recall-ntm-lstm", Items_6=AXIS * 2))
    assert one(results, "associative-recall-ntm-lstm", "Items 6").words == "worse"


def test_a_point_that_was_not_measured_is_not_compared(tmp_path):
    results = results_of(tmp_path, made_up("associative-recall-ntm-lstm", Items_6=0.0))
    found = one(results, "associative-recall-ntm-lstm", "Items 15")
    assert (found.words, found.file) == ("not tested", "associative-recall-ntm-lstm-tuned.json")


def test_the_sequences_of_a_cost_at_a_point_are_said(tmp_path):
    results = results_of(tmp_path, made_up("ngrams-ntm-lstm", Length_200=0.2))
    assert one(results, "ngrams-ntm-lstm", "Length 200, after 1,000,000").trained == "80,000"


def test_the_selection_of_machines_is_said(tmp_path):
    results = results_of(tmp_path, made_up("associative-recall-ntm-feedforward", Items_15=0.2))
    assert "by the cost at items 12" in one(results, "associative-recall-ntm-feedforward", "Items 15").selection
