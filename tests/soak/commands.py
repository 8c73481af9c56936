"""`tapehead train` of tiny experiments, as commands in child processes."""

import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from tiny import EXPERIMENTS, SOLVED_BITS, outcome, tiny

from soak import children

VARIANTS: dict[str, Any] = {
    "plain": EXPERIMENTS["plain"],
    "rich population": EXPERIMENTS["rich"],
    "feedforward": tiny(episodes=1500, **{"model.controller": "feedforward"}),
    "two heads, read first": tiny(
        episodes=1000, **{"model.read_heads": 2, "model.write_heads": 2, "model.order": "read_then_write"}
    ),
    "validated and restarted": tiny(
        seeds=(1, 2), episodes=1200, validation={"length": 4}, attempts=2, below_bits=1e-6,
        **{"validation.sequences": 5},
    ),
    "curriculum": tiny(curriculum={"density": (0.0, 0.3)}, share=0.5, episodes=900),
    "average, adam": tiny(seeds=(5, 6), average=0.95, optimiser="adam", episodes=800),
    "varying slots": tiny(slots=(3, 8), batch_size=4, episodes=4000),
    "long": EXPERIMENTS["long"],
    "cosine": tiny(schedule="cosine", final=0.1, clip="norm", limit=1.0, episodes=1000),
}  # fmt: skip


def train(config: str, out: str, save_seconds: float = 0.0, before: Callable[[], None] | None = None) -> int:
    """`tapehead train CONFIG --out OUT` in this process, which is a child, without pictures. before: called first."""
    from tapehead import cli
    from tapehead.experiment import run
    from tapehead.figures import draw
    from tapehead.tasks.copy import Copy

    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (Copy, "solved_bits", SOLVED_BITS),
            (run, "SAVE_SECONDS", save_seconds),
            (draw, "draw_run", lambda folder: []),
            (os, "fsync", lambda descriptor: None),  # a killed process loses nothing that the system has
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        if before is not None:
            before()
        try:
            cli.main(["train", config, "--out", out])
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else 0
    return 0


def write_config(folder: Path, name: str) -> str:
    """A variant's experiment as a TOML file of a folder; its name there."""
    path = folder / "experiment.toml"
    path.write_text(VARIANTS[name].to_toml())
    return path.name


@functools.cache
def whole(name: str) -> tuple[tuple[Any, ...], float]:
    """The outcome of a variant that nothing interrupts, and its seconds; made once in a process."""
    with tempfile.TemporaryDirectory(prefix="soak-whole-") as place:
        folder, began = Path(place), time.monotonic()
        config = write_config(folder, name)
        code = children.run(lambda: train(config, "whole", 5.0), folder, folder / "said")
        assert code == 0, (folder / "said").read_text()[-1000:]
        return outcome(folder / "whole"), time.monotonic() - began


def assert_equal(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """All that must not depend on interruptions: result, metrics, and every byte of the checkpoint."""
    for what, one, other in zip(("result", "metrics", "checkpoint"), found, expected, strict=True):
        assert one == other, f"the {what} is not that of the uninterrupted run"
