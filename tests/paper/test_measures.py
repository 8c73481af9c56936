"""Measures decide by intervals, say why they cannot, and count every machine that failed."""

import math

import pytest
from made_up_records import made_up, results_of

from tapehead.evaluation.summaries import clopper_pearson
from tapehead.paper.measures import Cheaper, Computed, Faster, Median, Share, combined, number

NTM, LSTM = "copy-ntm-lstm", "copy-lstm"
OTHER = "copy-ntm-feedforward"
SELECTED = "associative-recall-ntm-feedforward"
"""Its recipe selects attempts by the cost at 12 items; training has at most 6."""


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
def test_a_share_is_decided_by_the_exact_interval(tmp_path, good, expect, verdict):
    results = results_of(tmp_path, made_up(NTM, seeds=20, Length_120=[0.5] * good + [math.inf] * (20 - good)))
    found = Share(NTM, "Length 120", expect).test(results, "tuned")
    low, high = clopper_pearson(good, 20)
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


def test_what_was_never_solved_needed_at_least_the_sequences_that_it_had(tmp_path):
    results = results_of(
        tmp_path, made_up(NTM, solved=[30_000] * 10), made_up(LSTM, solved=[None] * 10, episodes=10**6)
    )
    found = Faster(NTM, LSTM, 50).test(results, "tuned")
    assert found.verdict == "could not be tested"
    assert "infinite (33.3 to infinite) times" in found.ours
    assert Faster(NTM, LSTM, 33).test(results, "tuned").verdict == "held"
    results = results_of(tmp_path, made_up(NTM, solved=[None] * 10), made_up(LSTM, solved=[50_000] * 10))
    assert Faster(NTM, LSTM, 1.2).test(results, "tuned").verdict == "could not be tested"  # 50,000 to over 40,000
    assert Faster(NTM, LSTM, 1.3).test(results, "tuned").verdict == "not held"


def test_five_of_five_are_not_yet_most(tmp_path):
    for seeds, verdict in ((5, "could not be tested"), (6, "held")):
        results = results_of(tmp_path, made_up(NTM, seeds=seeds, Length_120=0.5))
        assert Share(NTM, "Length 120").test(results, "tuned").verdict == verdict


def test_cheaper_is_a_difference_of_medians(tmp_path):
    results = results_of(tmp_path, made_up(NTM, Length_20=0.25), made_up(OTHER, Length_20=0.75))
    found = Cheaper(NTM, OTHER, "Length 20").test(results, "tuned")
    assert found.verdict == "held"
    assert found.ours == (
        f"At Length 20: {NTM} 0.25 bits after 40,000 sequences, {OTHER} 0.75 after 40,000: "
        "difference -0.5 (-0.5 to -0.5)"
    )
    assert found.files == (f"{NTM}-tuned.json", f"{OTHER}-tuned.json")
    assert Cheaper(OTHER, NTM, "Length 20").test(results, "tuned").verdict == "not held"
    assert Cheaper(NTM, NTM, "Length 20").test(results, "tuned").verdict == "could not be tested"


@pytest.mark.parametrize(
    ("curve", "at_the_end", "verdict", "why"),
    [
        ([[40_000, 8.0], [1_000_000, 0.5]], 0.5, "held", ""),
        ([[40_000, 8.0], [1_000_000, 0.1]], 0.1, "could not be tested", "held by costs after equal numbers"),
        ([[40_000, 0.001], [1_000_000, 0.0005]], 0.1, "not held", ""),
        (None, 0.1, "could not be tested", "has no learning curves, so its costs after 40,000 are not known"),
    ],
)
def test_after_unequal_training_both_comparisons_have_to_agree(tmp_path, curve, at_the_end, verdict, why):
    lstm = made_up(LSTM, curve=curve, Length_20=at_the_end)
    found = Cheaper(NTM, LSTM, "Length 20").test(results_of(tmp_path, made_up(NTM, Length_20=0.25), lstm), "tuned")
    assert found.verdict == verdict
    assert why in found.why
    assert "after 40,000 sequences" in found.ours
    assert "after 1,000,000" in found.ours
    assert ("In training, after 40,000 sequences" in found.ours) == (curve is not None)


def test_the_cost_beyond_training_after_equal_sequences_is_not_known(tmp_path):
    records = [made_up(NTM, Length_30=0.25), made_up(LSTM, curve=[[40_000, 8.0], [1_000_000, 0.5]], Length_30=0.5)]
    for record in records:
        record["points"][0]["sizes"] = {"length": 30}
    found = Cheaper(NTM, LSTM, "Length 30").test(results_of(tmp_path, *records), "tuned")
    assert found.verdict == "could not be tested"
    assert found.why == "unequal training: costs at Length 30 after 40,000 sequences are not known"


def restarted(row, again, **costs):
    """A record of twenty machines, some of which are second attempts."""
    record = made_up(row, seeds=20, **costs)
    for machine in record["machines"][:again]:
        machine["attempts"] = 2
    return record


@pytest.mark.parametrize(("again", "verdict"), [(7, "could not be tested"), (4, "held")])
def test_machines_selected_beyond_training_count_by_their_first_attempts(tmp_path, again, verdict):
    """13 of 20 first attempts do not decide, though all machines that were delivered are good."""
    found = Share(SELECTED, "Items 15").test(results_of(tmp_path, restarted(SELECTED, again, Items_15=0.1)), "tuned")
    assert found.verdict == verdict
    first, second = found.ours.splitlines()
    assert first.startswith(f"{SELECTED}: 20 of 20")
    assert second == (
        f"{SELECTED}: weights and attempts were selected by the cost at items 12; {again} of 20 machines are not first "
        "attempts."
    )
    assert ("first attempts alone" in found.why) == (verdict != "held")


def test_medians_of_selected_machines_are_bounded_by_first_attempts(tmp_path):
    for again, verdict in ((3, "held"), (12, "could not be tested")):
        results = results_of(tmp_path, restarted(SELECTED, again, Items_15=0.1))
        assert Median(SELECTED, "Items 15", 1.0).test(results, "tuned").verdict == verdict
        results = results_of(tmp_path, made_up("associative-recall-ntm-lstm", Items_15=0.5))
        assert Cheaper(SELECTED, "associative-recall-ntm-lstm", "Items 15").test(results, "tuned").verdict == verdict


def test_restarts_by_the_training_cost_are_said_and_count(tmp_path):
    label, row = "Items 20, Outputs 16", "priority-sort-ntm-lstm"
    found = Median(row, label, 2.0).test(results_of(tmp_path, restarted(row, 15, Items_20_and_Outputs_16=1.0)), "tuned")
    assert found.verdict == "held"
    assert found.ours.endswith(f"{row}: 15 of 20 machines are not first attempts; restarts go by the training cost.")


def test_a_median_is_below_or_above_a_limit(tmp_path):
    results = results_of(tmp_path, made_up(NTM, Length_20=[1.0, 2.0, 3.0, 4.0, 5.0]))
    assert Median(NTM, "Length 20", 6.0).test(results, "tuned").verdict == "held"
    assert Median(NTM, "Length 20", 0.5).test(results, "tuned").verdict == "not held"
    assert Median(NTM, "Length 20", 0.5, "above").test(results, "tuned").verdict == "held"
    assert Median(NTM, "Length 20", 3.0).test(results, "tuned").verdict == "could not be tested"


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
