"""How a command ends: its exit code, and at most one sentence on standard error.

    0    done
    1    a check that failed, a reader of our output that has gone, or a bug of ours
    2    something that the user can mend: a value, a file, too little memory
    128 + N  stopped by signal N: 129 SIGHUP, 130 SIGINT (Ctrl-C), 143 SIGTERM

TAPEHEAD_DEBUG=1 shows the traceback as well.
"""

import os
import sys
import traceback
from collections.abc import Callable
from types import FrameType

from tapehead import signals, terminal
from tapehead.experiment.failures import explain

SMALLER = {
    "train": "use a smaller --batch-size, fewer --seeds, or smaller sizes in --task-options and --model-options",
    "confirm": "use fewer --seeds or --sequences",
    "eval": "use fewer --episodes",
}
"""What to do about too little memory, by command."""


class Ending:
    """From the first line of the program to its last: signals, errors, exit code."""

    def __init__(self, *, own_process: bool) -> None:
        """own_process: signals may end the process on the spot while there is nothing to clean up."""
        self.command = ""
        self._own_process = own_process
        self._working = False
        self._stopped: list[int] = []

    def of(self, start: Callable[[], Callable[[], int]]) -> int:
        """The exit code of the work that `start` prepares: it parses and imports, and returns what is to be done."""
        with signals.handled_by(self._stop):
            try:
                code = self._code(start)
                sys.stdout.flush()
            except BaseException as error:
                self._working = False
                code = 1 if self._stopped else self._explain(error)
            self._working = False
            terminal.give_up_broken()
        # Libraries turn the exception of a signal into one of their own, or swallow it: the signal decides.
        return 128 + self._stopped[0] if self._stopped else code

    def _code(self, start: Callable[[], Callable[[], int]]) -> int:
        try:
            work = start()
            self._working = True
            return work()
        except SystemExit as stop:  # the parser's, after help
            return stop.code if isinstance(stop.code, int) else 0

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._stopped or (self._own_process and not self._working):
            os._exit(128 + number)
        self._stopped.append(number)
        raise KeyboardInterrupt

    def _explain(self, error: BaseException) -> int:
        """Say what happened; the exit code."""
        if isinstance(error, KeyboardInterrupt):
            return 130
        if isinstance(error, BrokenPipeError):
            return 1
        if os.environ.get("TAPEHEAD_DEBUG"):
            terminal.complain("".join(traceback.format_exception(error)).rstrip())
        reason = explain(error, SMALLER.get(self.command, "use a machine with more of it"))
        if reason.ours:
            says = f"internal error ({reason.says}): please report it; set TAPEHEAD_DEBUG=1 for the traceback."
        else:
            says = f"{reason.says}; set TAPEHEAD_DEBUG=1 for the traceback." if reason.line else reason.says
        terminal.complain(f"tapehead: {' '.join(says.split())}")
        return 1 if reason.ours else 2
