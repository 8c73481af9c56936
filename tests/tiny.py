"""Experiments that train in a fraction of a second, and what tests ask about them."""

import json
import os
import signal

import torch

import tapehead
from tapehead.experiment import checkpoint
from tapehead.experiment.loop import Trainer
from tapehead.experiment.run import Observer
from tapehead.tasks.copy import Copy

SMALL = {"controller_size": 8, "memory_slots": 8, "memory_width": 4}
SOLVED_BITS = 2.2
"""A threshold that small machines are below after some thousand episodes, each at its own time."""

BASE = tapehead.Experiment(
    task=Copy(length=(1, 3), width=2),
    model=tapehead.Model(options=SMALL),
    optimiser=tapehead.Graves(learning_rate=1e-3),
    training=tapehead.Training(episodes=600, early_stop=False),
    evaluation=tapehead.Evaluation(sizes=({"length": 2}, {"length": 5}), sequences=20),
)

PATHS = {
    "model": "model.name",
    "optimiser": "optimiser.name",
    "learning_rate": "optimiser.learning_rate",
    "schedule": "schedule.name",
    "final": "schedule.final",
    "clip": "clipping.kind",
    "limit": "clipping.limit",
    "curriculum": "curriculum.options",
    "share": "curriculum.share",
    "validation": "validation.sizes",
    "below_bits": "validation.below_bits",
    "device": "place.device",
    "backend": "place.backend",
}
PATHS |= {name: f"training.{name}" for name in ("episodes", "batch_size", "slots", "average", "early_stop")}
PATHS |= {name: f"restarts.{name}" for name in ("attempts", "after", "above_bits")}


def tiny(**changes):
    """Six blocks of one small machine on copy, with some values changed: by path, or by the short names of PATHS."""
    return BASE.with_values({PATHS.get(name, name): value for name, value in changes.items()})


# Between them: both optimisers, both clips, schedule, average, varying slots, a population that thins out.
EXPERIMENTS = {
    "plain": tiny(),
    "long": tiny(episodes=4000),
    "rich": tiny(
        seeds=(3, 7, 9), batch_size=8, episodes=6400, optimiser="adam", clip="norm", limit=1.0, schedule="cosine",
        average=0.9, slots=(3, 8), learning_rate=3e-3, early_stop=True,
    ),
}  # fmt: skip


def trained(experiment, blocks=None):
    """A trainer after so many blocks, or at its end."""
    trainer = Trainer(experiment)
    while not trainer.finished and (blocks is None or blocks > 0):
        trainer.block()
        blocks = None if blocks is None else blocks - 1
    return trainer


def lines_of(trainer):
    return [json.loads(line, parse_constant=refuse_constant) for line in trainer.metrics]


def refuse_constant(text):
    raise AssertionError(f"{text} is not JSON")


def differences(one, other):
    """The names of the tensors in which two trainers differ."""
    ours, theirs = one.tensors(), other.tensors()
    assert ours.keys() == theirs.keys()
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]


def outcome(folder):
    """Everything of a finished run that must not depend on its interruptions."""
    result = json.loads((folder / "result.json").read_text())
    del result["seconds"], result["seal"]
    newest = checkpoint.folders(folder / "checkpoints")[0]
    return (
        result,
        (folder / "metrics.jsonl").read_bytes(),
        {path.name: path.read_bytes() for path in newest.iterdir()},
    )


def contents(folder):
    """Every path below a folder: where a link leads, the bytes of a file."""
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }


class Recorded(Observer):
    """An observer that keeps every status, and can ask the process to stop after a block."""

    def __init__(self, stop_after=None, number=signal.SIGTERM):
        self.began, self.blocks = [], []
        self._stop_after, self._number = stop_after, number

    def begin(self, status):
        self.began.append(status)

    def block(self, status):
        self.blocks.append(status)
        if len(self.blocks) == self._stop_after:
            os.kill(os.getpid(), self._number)


def train_some_blocks(experiment, folder, blocks):
    """Train into a folder, and stop with a checkpoint after so many blocks of this call."""
    try:
        tapehead.train(experiment, folder, observer=Recorded(stop_after=blocks))
    except tapehead.Interrupted:
        return
    raise AssertionError(f"the run was over before {blocks} blocks")
