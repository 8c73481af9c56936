"""Child processes that run a piece of this program, and can be killed without harm: forks, which need no start-up."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path


def start(work: Callable[[], int | None], here: Path, said: Path) -> int:
    """Do `work` in a process of its own, in a folder; all that it prints goes to the file `said`. Its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.chdir(here)
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(out, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = work() or 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def wait(child: int) -> int:
    """The exit code of a child; the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def has_ended(child: int) -> int | None:
    """The exit code of a child that has ended."""
    found, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def run(work: Callable[[], int | None], here: Path, said: Path) -> int:
    return wait(start(work, here, said))
