"""Types of arguments, with how they are written, shown and completed.

Where a default is decided later, or is "off", the help text says so and the parser adds nothing. A help text of several
lines is given as `help=`, since the parser keeps the line breaks of a docstring.
"""

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, arg
from tyro.constructors import PrimitiveConstructorSpec

RESULTS = Path("tapehead-results")
"""Where results go that belong to no run, unless --out says another folder."""


def whole_number(words: list[str]) -> int:
    """Of one word: 10000, 10_000 or 1e4."""
    text = words[0]
    if re.fullmatch(r"[+-]?[0-9]+(_[0-9]+)*", text):
        return int(text)
    if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?[eE]\+?[0-9]{1,2}", text) and float(text).is_integer():
        return int(float(text))
    raise ValueError(f"{text!r} is no whole number, such as 10000 or 1e4")


def _is_whole(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def real_number(words: list[str]) -> float:
    """Of one word."""
    try:
        return float(words[0])
    except ValueError:
        raise ValueError(f"{words[0]!r} is no number, such as 0.001 or 1e-3") from None


def _is_real(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


_WHOLE: Any = PrimitiveConstructorSpec(
    nargs=1,
    metavar="N",
    instance_from_str=whole_number,
    is_instance=_is_whole,
    str_from_instance=lambda value: [str(value)],
)
_REAL: Any = PrimitiveConstructorSpec(
    nargs=1,
    metavar="X",
    instance_from_str=real_number,
    is_instance=_is_real,
    str_from_instance=lambda value: [str(value)],
)

Flag = Annotated[FlagCreatePairsOff[bool], arg(help_behavior_hint="")]
Count = Annotated[int, _WHOLE]
Number = Annotated[int | None, _WHOLE, arg(help_behavior_hint="")]
Share = Annotated[float, _REAL]
Real = Annotated[float | None, _REAL, arg(help_behavior_hint="")]
Name = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")]
Names = Annotated[tuple[str, ...], arg(metavar="NAME ...", help_behavior_hint="")]
Word = Annotated[str, arg(metavar="NAME")]
File = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
Folder = Annotated[Path, arg(metavar="PATH")]
Pairs = Annotated[dict[str, str], arg(metavar="NAME VALUE ...", help_behavior_hint="")]
Recipe = Annotated[Literal["tuned", "once", "paper", "sure"] | None, arg(metavar="NAME", help_behavior_hint="")]
Engine = Annotated[Literal["local", "ray", "slurm"], arg(metavar="NAME")]


@dataclasses.dataclass(frozen=True)
class Common:
    """What every command takes."""

    quiet: Annotated[Flag, arg(aliases=("-q",))] = dataclasses.field(default=False, kw_only=True)
    """Show no progress and no remarks; results and errors are still printed."""
