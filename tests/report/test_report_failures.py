"""What failed: every machine under its gravest failure."""

import math

from made_up_records import made_up

from tapehead.report.failures import KINDS, failures_of


def found(record):
    return [(one.seed, one.kind, one.what) for one in failures_of(record)]


def test_machines_without_a_failure_are_not_listed():
    assert found(made_up("copy-ntm-lstm", Length_120=0.5)) == []


def test_a_machine_is_listed_under_its_gravest_failure():
    record = made_up("copy-ntm-lstm", solved=[None, *[500] * 5], Length_120=[9.0, 7.0, math.inf, 0.1, 0.1, 7.0])
    record["machines"][3]["passed"] = False
    record["machines"][4]["worst_window_after_solving_bits"] = 30.0
    record["machines"][4]["skipped_updates"] = 3
    record["machines"][1]["scores"]["Length 120"]["perfect"] = 0.89
    record["machines"][5]["scores"]["Length 120"]["perfect"] = 0.9
    assert found(record) == [
        (1000, "not solved", "0.01 bits at the end of training"),
        (1001, "criterion missed", "7 bits at Length 120"),
        (1002, "criterion missed", "no finite cost at Length 120"),
        (1003, "not passed", "above the validation's limit"),
        (1004, "relapse", "30 bits in the worst window after solving"),
        (1004, "skipped updates", "3 of its updates"),
        (1005, "rare sequences", "7 bits at Length 120"),
    ]
    assert {kind for _, kind, _ in found(record)} == set(KINDS)
