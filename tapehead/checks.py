"""Arguments from outside: what they may be, and one sentence for those that are something else."""

import functools
import math
from collections.abc import Callable, Mapping
from numbers import Real
from operator import index
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor

from tapehead.suggest import unknown
from tapehead.typed import LARGEST_FLOAT, Typed, hints

MOST = 2**24
"""The largest size. Above it a call could only fail for lack of memory, in torch's words."""

MOST_NUMBERS = 2**31
"""In the parameters, or in one sequence's memory."""

FLOATS = (torch.float32, torch.float64)
"""What machines compute in. The epsilons of equations.py vanish in half precision, and zero rows divide by zero."""

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
        raise ValueError(f"{name} is {shown(value)}, but it must be a whole number of at least {least}.")
    if number > most:
        raise ValueError(f"{name} is {shown(number)}, but it must be at most {most}.")
    return number


def real(name: str, value: Any) -> float:
    """A finite number that float32 can hold, as a float."""
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an int of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} is {shown(value)}, but it must be a finite number.")
    if abs(number) > LARGEST_FLOAT:
        raise ValueError(f"{name} is {number}, but float32 ends at {LARGEST_FLOAT:.2e}: give a smaller number.")
    return number


def affordable(what: str, count: int) -> None:
    """Refuse sizes that together make more numbers than a model of this kind can have."""
    if count > MOST_NUMBERS:
        raise ValueError(f"the sizes given make {count} {what}, but at most {MOST_NUMBERS} are possible: give less.")


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {shown(value)}, but it must be True or False.")
    return value


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(unknown(name, value if isinstance(value, str) else shown(value), choices))
    return value


def sizes(options: Typed, least: Mapping[str, int], most: Mapping[str, int]) -> None:
    """Refuse whole numbers among fields that are under 1 or over `MOST`, unless `least` or `most` say otherwise."""
    for name, hint in hints(type(options)).items():
        value = getattr(options, name)
        if value is not None and int in (hint, *get_args(hint)):
            whole(name, value, least.get(name, 1), most.get(name, MOST))


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


def same_device(**tensors: Tensor) -> None:
    (first, there), *rest = ((name, value.device) for name, value in tensors.items())
    for name, here in rest:
        if here != there:
            raise ValueError(f"{name} is on {here}, but {first} is on {there}: move one.")


Function = TypeVar("Function", bound=Callable[..., Tensor])


def shapes(**patterns: str) -> Callable[[Function], Function]:
    """A decorator that checks tensors: `memory="N M"` names the last dimensions, and equal names are equal sizes.

    Dimensions before the named ones broadcast. All are of one type, float32 or float64, on one device.
    """
    endings = {name: tuple(pattern.split()) for name, pattern in patterns.items()}

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def checked(*arguments: Any, **named: Any) -> Tensor:
            given = dict(zip(endings, arguments, strict=False)) | named
            _check_shapes(endings, {name: tensor(name, value) for name, value in given.items()})
            return function(*arguments, **named)

        return checked  # type: ignore[return-value]

    return decorate


def _check_shapes(endings: Mapping[str, tuple[str, ...]], tensors: dict[str, Tensor]) -> None:
    sizes: dict[str, int] = {}
    lead: tuple[int, ...] | None = None
    for name, value in tensors.items():
        ending, shape = endings.get(name, ()), tuple(value.shape)
        split = len(shape) - len(ending)
        wanted = tuple(sizes.setdefault(letter, size) for letter, size in zip(ending, shape[split:], strict=False))
        if split < 0 or wanted != shape[split:] or 0 in wanted:
            known = ", ".join(f"{letter} = {sizes[letter]}" for letter in ending if letter in sizes)
            raise ValueError(f"{name} has shape {shape}, but it must be [..., {', '.join(ending)}] with {known}.")
        if lead is not None and shape[:split] != lead:
            broadcast(name, shape[:split], lead)
        lead = shape[:split]
        if value.dtype not in FLOATS or value.dtype != next(iter(tensors.values())).dtype:
            raise ValueError(f"{name} is {value.dtype}, but all must be float32, or all float64.")
    same_device(**tensors)


def broadcast(name: str, lead: tuple[int, ...], other: tuple[int, ...]) -> None:
    """Refuse leading dimensions that do not go with others."""
    try:
        torch.broadcast_shapes(lead, other)
    except RuntimeError:
        raise ValueError(f"{name} has leading dimensions {lead}, which do not broadcast with {other}.") from None


def device(value: Any) -> torch.device | None:
    """What a constructor takes as `device`."""
    if value is None:
        return None
    try:
        place = torch.device(value)
        torch.empty(0, device=place)
    except (RuntimeError, TypeError, ValueError, AssertionError, ImportError):  # torch raises them all
        raise ValueError(f"device is {shown(value)}, which torch does not have here: give 'cpu' or another.") from None
    return place


def floating(value: Any, valid: tuple[torch.dtype, ...]) -> torch.dtype | None:
    """What a constructor takes as `dtype`."""
    if value is not None and not (isinstance(value, torch.dtype) and value in valid):
        names = ", ".join(str(dtype) for dtype in valid)
        raise ValueError(f"dtype is {shown(value)}, but it must be one of {names}, or None for torch's default.")
    return value


def shown(value: Any) -> str:
    """A value as it stands in a sentence: short, and on one line."""
    text = "" if isinstance(value, Tensor) else repr(value)
    return text if text and len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"
