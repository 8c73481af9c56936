"""Whether values read from JSON have the types that the code which uses them is annotated with."""

import types
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict


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
        required, hints = hint.__required_keys__, get_type_hints(hint)
        return type(value) is dict and all(
            fits(value[name], part) if name in value else name not in required for name, part in hints.items()
        )
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint
