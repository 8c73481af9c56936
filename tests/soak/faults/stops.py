"""15: Ctrl-C and SIGTERM at any moment of a training."""

import os
import signal
import time
from pathlib import Path

from tiny import outcome

from soak import children, commands
from soak.fault import Case, Fault
from tapehead.experiment import checkpoint

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def wait_for_a_block(child: int, metrics: Path) -> int | None:
    """Until a block has been recorded; the exit code if the program ended before."""
    while (code := children.has_ended(child)) is None:
        if metrics.exists() and metrics.stat().st_size:
            return None
        time.sleep(0.001)
    return code


def check(case: Case) -> None:
    source, folder = case.random, case.folder
    number, name = SIGNALS[case.number % 2], source.choice(("curriculum", "cosine", "average, adam"))
    expected, usual = commands.whole(name)
    commands.write_config(folder, name)
    while True:  # a run that is over before the signal comes is no case
        child = children.start(lambda: commands.train("experiment.toml", "run", 5.0), folder, folder / "said")
        code = wait_for_a_block(child, folder / "run" / "metrics.jsonl")
        time.sleep(source.uniform(0, usual / 4))
        if code is None and (code := children.has_ended(child)) is None:
            os.kill(child, number)
            code = children.wait(child)
        if code != 0:
            break
        commands.assert_equal(outcome(folder / "run"), expected)
        (folder / "run").rename(folder / f"over-{time.monotonic_ns()}")
    said = (folder / "said").read_text()
    assert code == 128 + number, f"exit code {code}: {said[-500:]}"
    episodes = f"{commands.VARIANTS[name].training.episodes:,}"
    over = f"{episodes} of {episodes} episodes" in said  # and saved: it was being scored or drawn
    assert over or f"stopped by {number.name}; saved in run" in said, said[-500:]
    assert checkpoint.load_newest(folder / "run" / "checkpoints") is not None
    code = children.run(lambda: commands.train("experiment.toml", "run", 5.0), folder, folder / "said")
    assert code == 0, (folder / "said").read_text()[-500:]
    commands.assert_equal(outcome(folder / "run"), expected)


FAULT = Fault(
    number=15,
    title="Ctrl-C and SIGTERM at random moments",
    promise="a checkpoint is saved, exit code 130 or 143, and the same command ends in the same bits",
    counted="signals",
    full=20,
    quick=2,
    chunk=10,
    check=check,
    needs=("numba", "tyro", "rich"),
)
