"""How a command ends: its exit code, and at most one sentence on standard error.

    0    done
    1    a check that failed, a reader of our output that has gone, or a bug of ours
    2    something that the user can mend: a value, a file, too little memory
    128 + N  stopped by signal N: 129 SIGHUP, 130 SIGINT (Ctrl-C), 143 SIGTERM

TAPEHEAD_DEBUG=1 shows the traceback as well.
"""

import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tapehead import signals, terminal
from tapehead.kernels.errors import CompilationError

SMALLER = {
    "train": "use a smaller --batch-size, fewer --seeds, or smaller sizes in --task-options and --model-options",
    "confirm": "use fewer --seeds or --sequences",
    "eval": "use fewer --episodes",
}
"""What to do about too little memory, by command."""

# MemoryError comes from Python, numpy and numba; torch, CUDA and C++ say it in a RuntimeError.
OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|out.of.memory|alloc_failed|bad_alloc|size calculation overflowed", re.I
)


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
            terminal.say("".join(traceback.format_exception(error)).rstrip())
        if is_out_of_memory(error):
            says, code = self._memory_sentence(error), 2
        elif isinstance(error, OSError):
            says, code = _file_sentence(error), 2
        elif isinstance(error, ValueError | CompilationError | NotImplementedError):
            says, code = str(error), 2
        elif (place := _outside(error)) is not None:
            says = f"{type(error).__name__}: {error} ({place}); set TAPEHEAD_DEBUG=1 for the traceback."
            code = 2
        else:
            what = f"{type(error).__name__}: {error}"[:200]
            says = f"internal error ({what}): please report it; set TAPEHEAD_DEBUG=1 for the traceback."
            code = 1
        terminal.say(f"tapehead: {' '.join(says.split())}")
        return code

    def _memory_sentence(self, error: BaseException) -> str:
        asked = re.search(r"(?:tried|unable) to allocate ([\d.]+) (\w+)", str(error), re.I)
        amount = f" ({_readable(*asked.groups())} more were asked for)" if asked else ""
        remedy = SMALLER.get(self.command, "use a machine with more of it")
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        return f"out of memory{amount}: {remedy}{notes}."


def _outside(error: BaseException) -> str | None:
    """The line of a user's own task, model or figure that an error came through, the innermost; None if there is
    none."""
    own = Path(__file__).parents[1]
    installed = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        known = frame.filename.startswith("<") or any(place in file.parents for place in (own, *installed))
        if not known and file.suffix == ".py" and frame.name != "<module>":
            return f"{file.name}, line {frame.lineno}"
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that something is too large for the memory, or for any."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(OUT_OF_MEMORY.search(str(error)))


def _readable(number: str, unit: str) -> str:
    return f"{float(number) / 1e9:,.1f} GB" if unit == "bytes" else f"{number} {unit}"


def _file_sentence(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    name = "a file" if error.filename is None else os.fsdecode(error.filename)
    return f"cannot read or write {name} ({reason}): check its path and permissions, and the room on the disk."
