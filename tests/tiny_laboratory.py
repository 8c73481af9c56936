"""A laboratory in which everything is small: machines that train in a second, points that are measured in another."""

import contextlib

import pytest

from tapehead import cli
from tapehead.lab import acceptance
from tapehead.paper import recipes
from tapehead.tasks.copy import Copy

ROW = "copy-ntm-lstm"
REAL_ACCEPTANCE = acceptance.ACCEPTANCE["copy"]
EPISODES = 1300  # more than a window, so that a machine can be solved
NEAR, FAR = acceptance.Point({"length": 2}), acceptance.Point({"length": 5}, slots=16, most=3)
TINY = acceptance.Acceptance(
    (NEAR, FAR), (acceptance.Criterion((NEAR,), under=3.0), acceptance.Criterion((FAR,))), headline=NEAR
)
RECIPE = {
    "task.length": (1, 3),
    "task.width": 2,
    "model.controller_size": 8,
    "model.memory_slots": 8,
    "model.memory_width": 4,
    "optimiser.learning_rate": 1e-3,
    "training.episodes": EPISODES,
    "training.average": 0.9,
    "training.early_stop": False,
}


@contextlib.contextmanager
def tiny_laboratory(solved_bits=100.0):
    """While inside, the row is tiny and solved as soon as a window is full, or, at 0 bits, never."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(recipes.TUNED, ROW, RECIPE)
        patch.setitem(acceptance.ACCEPTANCE, "copy", TINY)
        patch.setattr(Copy, "solved_bits", solved_bits)
        yield


def tapehead(*arguments):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return stop.value.code
