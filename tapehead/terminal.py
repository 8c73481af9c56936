"""The standard streams of the command line, whatever they are: closed, full, gone, or without Unicode."""

import io
import os
import sys
from contextlib import suppress


def prepare() -> None:
    """Replace closed streams by the null device, and what a stream cannot encode by question marks or escapes.

    A closed stream leaves its number free, and the next file that is opened takes it: a checkpoint would then be the
    standard output of every library. The null device takes the number first.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
    for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


_quiet = False


def be_quiet(quiet: bool) -> None:
    """Whether progress and remarks are left out from here on; what went wrong is still said."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    return _quiet


def say(text: str) -> None:
    """Print progress or a remark on standard error, unless that is to be quiet."""
    if not _quiet:
        complain(text)


def complain(text: str) -> None:
    """Print a line on standard error, whatever was asked for: what went wrong, or what stops the work. A terminal or
    pipe that is gone does not end the work that is reported."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def say_ours(sentence: str) -> None:
    """Print a sentence of the library or of the command line itself, on standard error."""
    say(f"tapehead: {sentence}")


def give_up_broken() -> None:
    """Point the streams that cannot be written to the null device, or Python fails when it flushes them at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
