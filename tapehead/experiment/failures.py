"""Why something failed, in one sentence: for the last line of a command, and for the record of a sweep's job."""

import os
import re
import sysconfig
import traceback
from pathlib import Path
from typing import NamedTuple

from tapehead.kernels.errors import CompilationError

# MemoryError comes from Python, numpy and numba; torch, CUDA and C++ say it in a RuntimeError.
OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|out.of.memory|alloc_failed|bad_alloc|size calculation overflowed", re.I
)


class Reason(NamedTuple):
    says: str
    line: str = ""
    """The line of a user's own class that the error came through, if it did."""
    ours: bool = False
    """Whether it is a bug of the package."""


def explain(error: BaseException, remedy: str = "use smaller sizes, batches or populations") -> Reason:
    """What happened. remedy: what to do about too little memory."""
    if is_out_of_memory(error):
        return Reason(_memory_sentence(error, remedy))
    if isinstance(error, OSError):
        return Reason(_file_sentence(error))
    if isinstance(error, ValueError | CompilationError | NotImplementedError):
        return Reason(str(error))
    what = f"{type(error).__name__}: {error}"
    if (place := _outside(error)) is not None:
        return Reason(f"{what} ({place})", line=place)
    return Reason(what[:200], ours=True)


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


def _memory_sentence(error: BaseException, remedy: str) -> str:
    asked = re.search(r"(?:tried|unable) to allocate ([\d.]+) (\w+)", str(error), re.I)
    amount = f" ({_readable(*asked.groups())} more were asked for)" if asked else ""
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    return f"out of memory{amount}: {remedy}{notes}."


def _readable(number: str, unit: str) -> str:
    return f"{float(number) / 1e9:,.1f} GB" if unit == "bytes" else f"{number} {unit}"


def _file_sentence(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    name = "a file" if error.filename is None else os.fsdecode(error.filename)
    return f"cannot read or write {name} ({reason}): check its path and permissions, and the room on the disk."
