"""Plans: which jobs a scale has, what fits the time, and what is there already."""

import pytest
from made_up_records import made_up, results_of

from tapehead.paper.claims import CLAIMS
from tapehead.paper.evidence import LEAST_SEEDS
from tapehead.paper.recipes import row_experiment, rows
from tapehead.paper.tables import TABLES
from tapehead.reproduce.plan import duration, is_there, measured_rate, plan
from tapehead.reproduce.scales import FIRST_SEED, LAPTOP_ROWS, WARNINGS, Job, jobs_of, sequences_of

QUICK, SLOW = "copy-ntm-lstm", "copy-lstm"


def test_the_scales_cover_the_paper():
    smoke, laptop, paper = (jobs_of(scale) for scale in ("smoke", "laptop", "paper"))
    assert [some[0].row for some in smoke] == rows()
    assert {(some[0].row, some[0].recipe) for some in paper} == {
        *((row, "tuned") for row in rows()),
        *((row, "paper") for row in TABLES),
    }
    assert {job.seeds for some in paper for job in some} == {100}
    assert min(job.seeds for some in laptop for job in some) >= LEAST_SEEDS
    assert "says anything" in WARNINGS["smoke"]


def test_the_laptop_has_every_row_that_a_key_claim_needs():
    assert {row for claim in CLAIMS if claim.key for row in claim.rows} <= set(LAPTOP_ROWS)


def test_a_job_is_the_row_on_held_out_seeds():
    experiment = Job(QUICK, 3).experiment({"place.backend": "reference"})
    assert experiment.seeds == (FIRST_SEED, FIRST_SEED + 1, FIRST_SEED + 2)
    assert experiment.place.backend == "reference"
    assert experiment.training == row_experiment(QUICK).training
    assert Job(SLOW, 3, updates=7).experiment().training.episodes == 7 * 16
    assert Job(QUICK, 3, "paper").name == f"{QUICK}-paper"


def by_row(**seconds):
    """Rates at which a row with five seeds takes so many seconds, by its name with underscores."""

    def rate(experiment):
        row = experiment.recipe.partition("/")[0]
        return 5 * sequences_of(experiment) / seconds[row.replace("-", "_")]

    return rate


def test_a_job_that_does_not_fit_is_made_smaller_or_left_out(tmp_path):
    some = [tuple(Job(row, seeds) for seeds in (10, 5)) for row in (QUICK, SLOW, "ngrams-lstm")]
    rate = by_row(copy_ntm_lstm=100, copy_lstm=1000, ngrams_lstm=50)
    steps = plan(some, results_of(tmp_path), limit=450.0, rate=rate)
    assert [(step.job.row, step.job.seeds, step.is_taken) for step in steps] == [
        (QUICK, 10, True),
        (SLOW, 5, False),
        ("ngrams-lstm", 10, True),
    ]
    assert [round(step.seconds) for step in steps] == [200, 1000, 100]
    assert steps[1].state == "left out, 4 min left"
    assert [step.job.seeds for step in plan(some, results_of(tmp_path), limit=150.0, rate=rate)] == [5, 5, 5]
    assert all(step.to_do for step in plan(some, results_of(tmp_path), limit=None, rate=rate))


def test_without_rates_nothing_is_estimated(tmp_path):
    steps = plan([(Job(QUICK, 2),)], results_of(tmp_path), rate=None)
    assert [(step.to_do, step.seconds) for step in steps] == [(True, None)]


def test_a_record_of_the_same_experiment_is_not_made_again(tmp_path):
    job = Job(QUICK, 10)
    record = made_up(QUICK)
    assert not is_there(job, results_of(tmp_path, record))  # of other seeds
    record["experiment"] = job.experiment().to_plain()
    results = results_of(tmp_path, record)
    assert is_there(job, results)
    assert not is_there(Job(QUICK, 5), results)
    assert not is_there(Job(QUICK, 10, "paper"), results)
    steps = plan([(Job(QUICK, 20), job)], results, limit=1.0, rate=lambda _: pytest.fail("it is there"))
    assert [(step.job, step.state, step.is_taken) for step in steps] == [(job, "there", True)]


@pytest.mark.parametrize(
    ("row", "sequences"),
    [
        ("ngrams-ntm-lstm", 80_000 + 36_000),  # four, restarted after 24,000
        ("repeat-copy-ntm-lstm", 50_000 + 75_000),  # four attempts
        ("copy-ntm-lstm", 40_000 + 16_000),  # five, restarted after 8,000
        ("repeat-copy-pulses-ntm-lstm", 80_000 + 80_000),  # three attempts
        ("associative-recall-ntm-feedforward", 80_000 + 55_000),  # twelve, restarted after 10,000
    ],
)
def test_half_of_the_restarts_are_reckoned_with(row, sequences):
    assert sequences_of(row_experiment(row)) == sequences


def test_a_rate_is_measured_on_the_experiment_itself():
    changes = {"model.controller_size": 8, "model.memory_slots": 24, "training.slots": (21, 24), "seeds": (1, 2)}
    assert measured_rate(row_experiment(QUICK, changes=changes)) > 1


@pytest.mark.parametrize(
    ("seconds", "words"), [(8, "8 s"), (720, "12 min"), (18_720, "5.2 h"), (267_840, "3.1 days"), (86_400, "24.0 h")]
)
def test_durations_in_words(seconds, words):
    assert duration(seconds) == words
