"""What stands for trained machines on the command line: a run's folder, or a name of the zoo."""

from pathlib import Path

from tapehead import zoo
from tapehead.suggest import unknown


def is_run(what: str) -> bool:
    """Whether it is a folder; if it is neither, one sentence says so."""
    if Path(what).exists():
        return True
    if what in zoo.names():
        return False
    raise ValueError(f"{what} holds no run, and the zoo has none of that name: {unknown('machine', what, zoo.names())}")
