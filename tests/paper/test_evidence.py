"""Which records may decide a claim, and what is read from them."""

import math

import pytest
from made_up_records import made_up, results_of

from tapehead.paper.evidence import (
    Unusable,
    budget,
    cost_after,
    costs_after,
    last_cost,
    point_beyond_training,
    selected_beyond_training,
    selection,
    trained_on,
    usable,
)

NTM, LSTM = "copy-ntm-lstm", "copy-lstm"


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (made_up(LSTM), f"no record of {NTM} with the recipe tuned"),
        (made_up(NTM, recipe="paper"), f"no record of {NTM} with the recipe tuned"),
        (made_up(NTM, seeds=4), "has 4 seeds, fewer than 5"),
        (made_up(NTM) | {"seeds": list(range(995, 1005))}, "has tuning seeds, those below 1,000"),
        (made_up(NTM, episodes=19_999), "trained on 19,999 of the recipe's 40,000 sequences"),
    ],
)
def test_a_record_that_decides_nothing_says_why(tmp_path, record, says):
    with pytest.raises(Unusable, match=says):
        usable(results_of(tmp_path, record), NTM, "tuned")


def test_half_of_the_training_and_five_seeds_are_enough(tmp_path):
    assert usable(results_of(tmp_path, made_up(NTM, seeds=5, episodes=20_000)), NTM, "tuned")["row"] == NTM


@pytest.mark.parametrize(
    "large", [{"seeds": list(range(400))}, {"experiment": made_up(NTM, episodes=1000)["experiment"]}]
)
def test_a_record_that_may_not_decide_does_not_hide_one_that_may(tmp_path, large):
    """Of tuning seeds, or of short training."""
    results = results_of(tmp_path, made_up(NTM, seeds=400) | large, made_up(NTM, seeds=20, file="small.json"))
    assert results.record(NTM)["file"] == f"{NTM}-tuned.json"
    assert usable(results, NTM, "tuned")["file"] == "small.json"


def test_sizes_beyond_training():
    assert not selected_beyond_training(made_up("ngrams-ntm-lstm"))
    assert selected_beyond_training(made_up("repeat-copy-ntm-lstm"))
    assert selected_beyond_training(made_up("associative-recall-ntm-feedforward"))
    record = made_up(NTM, Length_20=0.0, Length_30=0.0)
    for point, length in zip(record["points"], (20, 30), strict=True):
        point["sizes"] = {"length": length}
    assert [point_beyond_training(record, f"Length {length}") for length in (20, 30)] == [False, True]


def test_a_selection_is_a_sentence():
    assert selection(made_up(NTM)) == ""
    assert selection(made_up("repeat-copy-pulses-ntm-lstm")) == (
        "repeat-copy-pulses-ntm-lstm: weights and attempts were selected by the cost at length 20, repeats 20; 0 of 10 "
        "machines are not first attempts."
    )


def test_sequences_of_all_attempts_count():
    record = made_up(NTM)
    assert (budget(record), trained_on(record)) == (40_000, "40,000")
    record["machines"][3]["episodes"] = 90_000
    assert (budget(record), trained_on(record)) == (90_000, "up to 90,000")


def test_costs_that_are_not_known_or_not_finite():
    record = made_up(LSTM)
    machine = record["machines"][0]
    assert cost_after(machine, 1000) is None
    with pytest.raises(Unusable, match="has no learning curves"):
        costs_after(record, 1000)
    assert costs_after(record, 1_000_000) == [0.01] * 10
    assert cost_after(machine | {"curve": [[500, 3.0]]}, 1000) == math.inf  # its later costs were not finite
    assert last_cost(machine | {"last_window_bits": None}) == math.inf
    assert last_cost(machine | {"last_window_bits": None, "curve": [[500, 3.0]]}) == 3.0


def test_the_cost_at_the_end_is_that_of_the_curve():
    machine = made_up(LSTM, curve=[[1000, 3.0], [1_000_000, 0.25]])["machines"][0]
    assert cost_after(machine, 1_000_000) == cost_after(machine, 2_000_000) == 0.25
