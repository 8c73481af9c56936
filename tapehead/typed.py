"""Typed data: frozen dataclasses whose fields have one canonical form, to and from plain values and TOML.

Plain values are what JSON and TOML hold. A field's annotation says what it may be: int, float, bool, str, None,
Literal, tuples, unions of these, dict, or another `Typed`. Canonical means that 1 and 1.0 are one value where a float
is meant, and that lists are tuples; so equal settings are equal data, whatever they were written as.
"""

import ast
import contextlib
import dataclasses
import functools
import inspect
import json
import math
import numbers
import textwrap
import types
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from tapehead.suggest import unknown

EXACT = 2**53
"""Up to this a float that is a whole number is that number."""

LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
"""Numbers end up in float32 tensors."""

REFUSALS = (ValueError, TypeError, OverflowError, RuntimeError)
"""What a value that does not fit raises; the last by tensors of unusual kinds."""

WORDS = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a word", type(None): "none"}


class TooLarge(ValueError):
    """A number that float32 does not hold."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Typed:
    """Base of settings: checks the type of every field, then `check`."""

    def __post_init__(self) -> None:
        kind = type(self)
        fields = [name for name, hint in inspect.get_annotations(kind).items() if "ClassVar" not in str(hint)]
        if fields and "__dataclass_fields__" not in kind.__dict__:
            raise ValueError(
                f"{kind.__name__} has the field {fields[0]!r}, but it is no dataclass: write "
                "@dataclass(frozen=True, kw_only=True) above the class."
            )
        for name, hint in hints(type(self)).items():
            object.__setattr__(self, name, canonical(getattr(self, name), hint, name))
        self.check()

    def check(self) -> None:
        """Refuse values that do not fit together; by default there are none."""

    def to_plain(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {name: plain(getattr(self, name)) for name in hints(type(self))}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any], where: str = "") -> Self:
        """The data that these plain values stand for; a field that is not there has its default."""
        known = hints(cls)
        for name in values:
            if name not in known:
                raise ValueError(unknown(f"setting{f' of {where}' if where else ''}", str(name), known))
        try:
            return cls(**values)
        except TypeError as error:  # a field without a default is missing
            reason = str(error).partition("() ")[2] or str(error)
            raise ValueError(f"{where or cls.__name__}: {reason}.") from None


Kind = TypeVar("Kind", bound=type)


def with_field_texts(kind: Kind) -> Kind:
    """A decorator that adds the text under each field of a dataclass to the class's own, for `help` and editors."""
    texts: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        texts |= _field_texts(one) if dataclasses.is_dataclass(one) else {}
    lines = [f"    {name}: {words}" for name, words in texts.items()]
    if lines and kind.__doc__:
        kind.__doc__ = "\n".join([inspect.cleandoc(kind.__doc__), "", "Fields:", *lines])
    return kind


def _field_texts(kind: type) -> dict[str, str]:
    """The fields of a class with their types, defaults and texts; none where there is no source to read them from."""
    try:
        (tree,) = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body
    except (OSError, SyntaxError):
        return {}
    assert isinstance(tree, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        words = ast.unparse(statement.annotation)
        words += f" = {ast.unparse(statement.value)}" if statement.value is not None else ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = " ".join(str(following.value.value).split())
            words += "\n" + textwrap.fill(text, 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
        texts[statement.target.id] = words
    return texts


def hints(kind: type) -> dict[str, Any]:
    """The fields of a dataclass with their annotations."""
    return _hints(kind)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    annotations = get_type_hints(kind)
    return {field.name: annotations[field.name] for field in dataclasses.fields(kind) if field.init}


def canonical(value: Any, hint: Any, where: str) -> Any:
    """A value in the one form that its annotation has for it, or a sentence that names the field."""
    try:
        return _canonical(value, hint)
    except TooLarge:
        raise ValueError(
            f"{where} is {value}, but float32 ends at {LARGEST_FLOAT:.2e}: give a smaller number."
        ) from None
    except REFUSALS:
        raise ValueError(f"{where} is {_short(value)}, but it must be {describe(hint)}.") from None


def _canonical(value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if hint is Any:
        return _frozen(value)
    if origin is ClassVar:
        raise TypeError
    if origin in (Union, types.UnionType):
        return _first_that_fits(value, get_args(hint))
    if origin is Literal:
        if any(value == choice and type(value) is type(choice) for choice in get_args(hint)):
            return value
        raise ValueError
    if origin is tuple:
        return _tuple(value, get_args(hint))
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise TypeError
        return {key: _canonical(part, get_args(hint)[1]) for key, part in value.items()}
    return _simple(value, hint)


def _first_that_fits(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        try:
            return _canonical(value, choice)
        except REFUSALS:
            continue
    raise ValueError


def _tuple(value: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError
    if parts[-1:] == (...,):
        return tuple(_canonical(part, parts[0]) for part in value)
    return tuple(_canonical(part, hint) for part, hint in zip(value, parts, strict=True))


def _simple(value: Any, hint: Any) -> Any:
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
        if abs(number) > LARGEST_FLOAT:
            raise TooLarge
        return number
    if hint is int:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError
        if isinstance(value, numbers.Integral):
            return int(value)
        whole = int(float(value))
        if whole != value or abs(whole) > EXACT:
            raise ValueError
        return whole
    if hint is type(None):
        if value is not None:
            raise TypeError
        return None
    if not isinstance(value, hint):
        raise TypeError
    return value


def _frozen(value: Any) -> Any:
    """Any plain value, with tuples for lists."""
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return {str(key): _frozen(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def plain(value: Any) -> Any:
    """A canonical value as JSON and TOML hold it."""
    if isinstance(value, Typed):
        return value.to_plain()
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return {key: plain(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def describe(hint: Any) -> str:
    """An annotation in words."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe(part) for part in get_args(hint)))
    if origin is Literal:
        *rest, last = map(str, get_args(hint))
        return f"{', '.join(rest)} or {last}" if rest else last
    if origin is tuple:
        parts = get_args(hint)
        if parts[-1:] == (...,):
            return f"a list, each of it {describe(parts[0])}"
        return f"a list of {len(parts)} such as {'[0.2,0.8]' if float in parts else '[1,20]'}"
    if origin in (dict, Mapping):
        return "a table of names and values"
    return WORDS.get(hint) or (f"a {hint.__name__}" if isinstance(hint, type) else str(hint))


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())  # a tensor has several lines
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse(text: str, hint: Any) -> Any:
    """A value as typed on a command line: a word where the annotation takes that word, otherwise JSON; "none" is None.

    What is neither stays text, and is refused by `canonical`.
    """
    if _takes_word(text, hint):
        return text
    for form in (text, "null" if text.lower() == "none" else text.lower()):  # True and TRUE are true
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(form)
    return text


def _takes_word(text: str, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_takes_word(text, part) for part in get_args(hint) if part is not type(None))
    return text in get_args(hint) if get_origin(hint) is Literal else hint is str


# --- values of JSON, as they are
# ---------------------------------------------------------------------------------------


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type: plain types, unions, lists, tuples, dicts and typed dicts.

    A whole number is a float too, a bool is not a number, and a typed dict may have more keys than it names.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is list:
        return type(value) is list and all(fits(item, parts[0]) for item in value)
    if origin is tuple:
        return type(value) is tuple and len(value) == len(parts) and all(map(fits, value, parts))
    if origin is dict:
        return type(value) is dict and all(fits(key, parts[0]) and fits(item, parts[1]) for key, item in value.items())
    if is_typeddict(hint):
        required, known = hint.__required_keys__, get_type_hints(hint)
        return type(value) is dict and all(
            fits(value[name], part) if name in value else name not in required for name, part in known.items()
        )
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint


# --- TOML ------------------------------------------------------------------------------------------------------------


def to_toml(values: Mapping[str, Any]) -> str:
    """Plain values as TOML: first what is not a table, then the tables. None, which TOML does not have, is left out."""
    loose = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    parts = ["".join(f"{_key(key)} = {_toml(value)}\n" for key, value in loose.items() if value is not None)]
    for name, table in tables.items():
        body = "".join(f"{_key(key)} = {_toml(value)}\n" for key, value in table.items() if value is not None)
        parts.append(f"[{_key(name)}]\n{body}")
    return "\n".join(part for part in parts if part)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _toml_text(name)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_toml(part)}" for key, part in value.items() if part is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return json.dumps(value)
    return _toml_text(value) if isinstance(value, str) else repr(value)


def _toml_text(text: str) -> str:
    """A string as JSON has it, but for what TOML refuses: pairs of surrogates as escapes, and a bare DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
