"""Measures decide by intervals, say why they cannot, and count every machine that failed."""

import math

import pytest
from made_up_records import made_up, results_of

from tapehead.evaluation.summaries import wilson
from tapehead.paper.measures import Cheaper, Computed, Faster, Median, Share, Unusable, combined, number, usable

NTM, LSTM = "copy-ntm-lstm", "copy-lstm"


@pytest.mark.parametrize(
    ("good", "expect", "verdict"),
    [
        (19, "most", "held"),
        (19, "few", "not held"),
        (1, "most", "not held"),
        (1, "few", "held"),
        (11, "most", "could not be tested"),
        (11, "few", "could not be tested"),
    ],
)
def test_a_share_is_decided_by_wilsons_interval(tmp_path, good, expect, verdict):
    results = results_of(tmp_path, made_up(NTM, seeds=20, Length_120=[0.5] * good + [math.inf] * (20 - good)))
    found = Share(NTM, "Length 120", expect).test(results, "tuned")
    low, high = wilson(good, 20)
    assert found.verdict == verdict
    assert found.ours == f"{NTM}: {good} of 20 ({100 * low:.0f}-{100 * high:.0f} %) under 1 bit at Length 120"
    assert (found.why != "") == (low < 0.5 < high)
    assert found.files == (f"{NTM}-tuned.json",)


def test_a_cost_at_the_limit_is_not_under_it(tmp_path):
    results = results_of(tmp_path, made_up(NTM, Length_120=1.0))
    assert Share(NTM, "Length 120").test(results, "tuned").verdict == "not held"


def test_faster_is_a_ratio_of_medians_of_all_seeds(tmp_path):
    results = results_of(tmp_path, made_up(NTM, solved=[100] * 10), made_up(LSTM, solved=[700] * 10))
    found = Faster(NTM, LSTM, 5).test(results, "tuned")
    assert found.verdict == "held"
    assert found.ours == f"{NTM} solved after 100 sequences, {LSTM} after 700: 7 (7 to 7) times"
    assert Faster(NTM, LSTM, 8).test(results, "tuned").verdict == "not held"
    assert Faster(LSTM, NTM).test(results, "tuned").verdict == "not held"


def test_machines_that_were_never_solved_take_forever(tmp_path):
    results = results_of(tmp_path, made_up(NTM, solved=[100] * 10), made_up(LSTM, solved=[None] * 10))
    found = Faster(NTM, LSTM, 5).test(results, "tuned")
    assert found.verdict == "held"
    assert "after infinite" in found.ours
    turned = Faster(LSTM, NTM, 5).test(results, "tuned")
    assert turned.verdict == "not held"
    mixed = results_of(tmp_path, made_up(NTM, solved=[100] * 5 + [None] * 5), made_up(LSTM, solved=[100] * 10))
    assert Faster(NTM, LSTM).test(mixed, "tuned").verdict == "could not be tested"


def test_two_rows_of_which_neither_was_solved_decide_nothing(tmp_path):
    results = results_of(tmp_path, made_up(NTM, solved=[None] * 10), made_up(LSTM, solved=[None] * 10))
    assert Faster(NTM, LSTM).test(results, "tuned").verdict == "could not be tested"


def test_cheaper_is_a_difference_of_medians(tmp_path):
    results = results_of(tmp_path, made_up(NTM, Length_20=0.25), made_up(LSTM, Length_20=0.75))
    found = Cheaper(NTM, LSTM, "Length 20").test(results, "tuned")
    assert found.verdict == "held"
    assert found.ours == f"{NTM} 0.25, {LSTM} 0.75 bits at Length 20: difference -0.5 (-0.5 to -0.5)"
    assert found.files == (f"{NTM}-tuned.json", f"{LSTM}-tuned.json")
    assert Cheaper(LSTM, NTM, "Length 20").test(results, "tuned").verdict == "not held"
    assert Cheaper(NTM, NTM, "Length 20").test(results, "tuned").verdict == "could not be tested"


def test_a_median_is_below_or_above_a_limit(tmp_path):
    results = results_of(tmp_path, made_up(NTM, Length_20=[1.0, 2.0, 3.0, 4.0, 5.0]))
    assert Median(NTM, "Length 20", 6.0).test(results, "tuned").verdict == "held"
    assert Median(NTM, "Length 20", 0.5).test(results, "tuned").verdict == "not held"
    assert Median(NTM, "Length 20", 0.5, "above").test(results, "tuned").verdict == "held"
    assert Median(NTM, "Length 20", 3.0).test(results, "tuned").verdict == "could not be tested"


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (made_up(LSTM), f"no record of {NTM} with the recipe tuned"),
        (made_up(NTM, recipe="paper"), f"no record of {NTM} with the recipe tuned"),
        (made_up(NTM, seeds=4), "has 4 seeds, fewer than 5"),
        (made_up(NTM, episodes=19_999), "trained on 19,999 of the recipe's 40,000 sequences"),
    ],
)
def test_a_record_that_decides_nothing_says_why(tmp_path, record, says):
    with pytest.raises(Unusable, match=says):
        usable(results_of(tmp_path, record), NTM, "tuned")


def test_half_of_the_training_and_five_seeds_are_enough(tmp_path):
    assert usable(results_of(tmp_path, made_up(NTM, seeds=5, episodes=20_000)), NTM, "tuned")["row"] == NTM


def test_several_measures_are_held_if_all_are(tmp_path):
    results = results_of(tmp_path, made_up(NTM, Length_120=0.0, Length_20=5.0))
    held, not_held = Share(NTM, "Length 120"), Share(NTM, "Length 20")
    absent, unmeasured = Share(LSTM, "Length 120"), Share(NTM, "Length 7")
    assert combined((held, held), results, "tuned").verdict == "held"
    assert combined((held, not_held, absent), results, "tuned").verdict == "not held"
    found = combined((held, absent, unmeasured), results, "tuned")
    assert found.verdict == "could not be tested"
    assert found.why == f"no record of {LSTM} with the recipe tuned; {NTM}-tuned.json was not measured at Length 7"
    assert found.ours.splitlines() == [held.test(results, "tuned").ours]
    assert combined((held, held), results, "tuned").files == (f"{NTM}-tuned.json",)


def test_what_is_computed_needs_no_record(tmp_path):
    results = results_of(tmp_path)
    assert Computed(lambda: ("seen", True)).test(results, "tuned").verdict == "held"
    assert Computed(lambda: ("seen", False)).test(results, "tuned").verdict == "not held"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00012345, "0.000123"), (12.34, "12.3"), (1234.5, "1,234"), (-250.0, "-250"), (math.inf, "infinite"),
     (-math.inf, "-infinite"), (math.nan, "unknown")],
)  # fmt: skip
def test_numbers_in_words(value, text):
    assert number(value) == text
