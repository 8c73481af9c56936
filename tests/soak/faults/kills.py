"""1: `kill -9` at random moments, and the same command again."""

import os
import shutil
import signal
import time

from tiny import outcome

from soak import children, commands
from soak.fault import Case, Fault


def check(case: Case) -> None:
    source, folder = case.random, case.folder
    name = list(commands.VARIANTS)[case.number % len(commands.VARIANTS)]
    expected, usual = commands.whole(name)
    commands.write_config(folder, name)
    kills = 0
    while kills < case.size:
        save_seconds = source.choice((0.0, 0.0, usual / 10))
        child = children.start(lambda: commands.train("experiment.toml", "run", save_seconds), folder, folder / "said")
        time.sleep(source.choice((source.uniform(0, usual), source.uniform(0, usual / 4))))
        code = children.has_ended(child)
        if code is None:
            os.kill(child, signal.SIGKILL)
            code = children.wait(child)
        if code == -signal.SIGKILL:  # and not 0: it may have ended in the moment before
            kills += 1
            continue
        assert code == 0, (folder / "said").read_text()[-1000:]
        commands.assert_equal(outcome(folder / "run"), expected)
        shutil.rmtree(folder / "run")  # it came to its end: the next kill is one of another run
    code = children.run(lambda: commands.train("experiment.toml", "run"), folder, folder / "said")
    assert code == 0, (folder / "said").read_text()[-1000:]
    commands.assert_equal(outcome(folder / "run"), expected)
    left = [path.name for path in (folder / "run").rglob(".*")]
    assert not left, f"{left} were left behind"


FAULT = Fault(
    number=1,
    title="`kill -9` at random moments, the same command again",
    promise="weights, optimiser and metrics equal those of the uninterrupted run to the bit",
    counted="kills",
    full=200,
    quick=10,
    each=10,
    check=check,
    needs=("numba", "tyro", "rich"),
)
