"""Arguments from outside: what they may be, and one sentence for those that are something else."""

import functools
import math
import types
from collections.abc import Mapping
from numbers import Real
from operator import index
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from tapehead.suggest import unknown

MOST = 2**24
"""The largest size. Above it a call could only fail for lack of memory, in torch's words."""

MOST_NUMBERS = 2**31
"""In the parameters, or in one sequence's memory."""

LARGEST_FLOAT = torch.finfo(torch.float32).max

NUMBERS = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    | {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
)
"""Types of tensors whose entries are plain real numbers."""


def whole(name: str, value: Any, least: int, most: int = MOST) -> int:
    """A whole number from `least` to `most` as an int; numpy's integers are numbers, too, but bools are not."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise ValueError(f"{name} is {_short(value)}, but it must be a whole number of at least {least}.")
    if number > most:
        raise ValueError(f"{name} is {number}, but it must be at most {most}.")
    return number


def real(name: str, value: Any) -> float:
    """A finite number that float32 can hold, as a float."""
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an int of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} is {_short(value)}, but it must be a finite number.")
    if abs(number) > LARGEST_FLOAT:
        raise ValueError(f"{name} is {number}, but float32 ends at {LARGEST_FLOAT:.2e}: give a smaller number.")
    return number


def affordable(what: str, count: int) -> None:
    """Refuse sizes that together make more numbers than a model of this kind can have."""
    if count > MOST_NUMBERS:
        raise ValueError(f"the sizes given make {count} {what}, but at most {MOST_NUMBERS} are possible: give less.")


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {_short(value)}, but it must be True or False.")
    return value


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(unknown(name, value if isinstance(value, str) else _short(value), choices))
    return value


def canonical_fields(options: Any, least: Mapping[str, int], most: Mapping[str, int]) -> None:
    """Check every field of a frozen dataclass by its type, and make it of that type: 1 and 1.0 are one option.

    Whole numbers are at least 1 and at most `MOST`, unless `least` or `most` say otherwise.
    """
    kind: Any = type(options)
    for name, hint in _hints(kind).items():
        value = getattr(options, name)
        kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if value is None and type(None) in kinds:
            continue
        if get_origin(hint) is Literal:
            value = one_of(name, value, get_args(hint))
        elif bool in kinds:
            value = flag(name, value)
        elif float in kinds:
            value = real(name, value)
        else:
            value = whole(name, value, least.get(name, 1), most.get(name, MOST))
        object.__setattr__(options, name, value)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def tensor(name: str, value: Any) -> Tensor:
    """A dense tensor of real numbers that are there."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is of type {type(value).__name__}, but it must be a torch.Tensor.")
    if value.is_nested or value.layout != torch.strided:
        layout = "nested" if value.is_nested else value.layout
        raise ValueError(f"{name} is {layout}, but it must be a dense tensor.")
    if value.dtype not in NUMBERS:
        raise ValueError(f"{name} is {value.dtype}, but it must hold real numbers.")
    if value.device.type == "meta":
        raise ValueError(f"{name} is on meta, a device that holds no numbers: give it values.")
    return value


def device(value: Any) -> torch.device | None:
    """What a constructor takes as `device`."""
    if value is None:
        return None
    try:
        place = torch.device(value)
        torch.empty(0, device=place)
    except (RuntimeError, TypeError, ValueError, AssertionError, ImportError):  # torch raises them all
        raise ValueError(f"device is {_short(value)}, which torch does not have here: give 'cpu' or another.") from None
    return place


def floating(value: Any, valid: tuple[torch.dtype, ...]) -> torch.dtype | None:
    """What a constructor takes as `dtype`."""
    if value is not None and value not in valid:
        names = ", ".join(str(dtype) for dtype in valid)
        raise ValueError(f"dtype is {_short(value)}, but it must be one of {names}, or None for torch's default.")
    return value  # type: ignore[no-any-return]


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, Tensor) else f"a tensor of shape {tuple(value.shape)}"
    return text if len(text) <= 60 else f"a {type(value).__name__}"
