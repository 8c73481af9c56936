"""What tests of validation and restarts share; their fixtures are in conftest.py."""

import torch
from tiny import differences, tiny, train_some_blocks

import tapehead
from tapehead.experiment.parts import WINDOW

ATTEMPT = WINDOW + 200
"""Episodes of an attempt: when they are over, a machine that is solved at once was validated three times."""

AFTER = WINDOW + 100


def validated(**changes):
    """Three attempts, each of which is validated."""
    settings = {
        "episodes": ATTEMPT,
        "schedule": "cosine",
        "average": 0.9,
        "validation": {"length": 5},
        "validation.sequences": 20,
        "attempts": 3,
    }
    return tiny(**settings | changes)


def restarted(**changes):
    """Three seeds with four attempts, restarted also by `after`; whatever is validated passes."""
    return validated(**{"seeds": (1, 2, 3), "attempts": 4, "after": AFTER, "below_bits": 1e9} | changes)


def assert_same(ours, theirs):
    """Two trainers, to the bit."""
    assert differences(ours, theirs) == []
    assert ours.metrics == theirs.metrics


def assert_same_seed(alone, everyone, row):
    """What a trainer of one seed has, and one of several has of the same."""
    ours, theirs = alone.tensors(), everyone.tensors()
    for name in ("kept", "kept_cost", "solved_at", "attempts", "begun_at", "recent", "update.parameters"):
        assert torch.equal(ours[name][0], theirs[name][row]), name


def resumes_to_the_bit(experiment, folder, *stops):
    """A run that is stopped after so many blocks and run again is the run that was not, for each of the stops."""
    whole = tapehead.train(experiment, scored=False)
    for blocks in stops:
        train_some_blocks(experiment, folder / str(blocks), blocks)
        resumed = tapehead.train(experiment, folder / str(blocks), scored=False)
        assert resumed.sha256 == whole.sha256, blocks
        assert (resumed.attempts, resumed.kept_bits) == (whole.attempts, whole.kept_bits), blocks
