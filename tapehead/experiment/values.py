"""Values of an experiment by their path, "part.name", each with the type that it must have."""

from collections.abc import Mapping
from typing import Any

from tapehead.experiment.config import changed
from tapehead.experiment.parts import DEFAULT_NAMES, NAMED, PARTS, part_class
from tapehead.models import check_model
from tapehead.registry import MODELS
from tapehead.suggest import unknown
from tapehead.typed import canonical, hints, parse


def typed_values(base: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Values from the command line, by path, as the types that they must have. base: plain values with all names."""
    values = {}
    for path, text in texts.items():
        hint = _hint(base, path, f"--{path}")
        values[path] = canonical(parse(text, hint), hint, f"--{path}")
    return values


def checked_values(base: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values from a file, by path, as the types that they must have; "none" is what TOML cannot say.

    base: plain values of the experiment that they change. where: the part of the file, for messages.
    """
    named = changed(base, {path: value for path, value in changes.items() if path.endswith(".name")})
    values = {}
    for path, value in changes.items():
        says = f"{where}: {path}"
        hint = _hint(named, path, says)
        values[path] = canonical(parse(value, hint) if value == "none" else value, hint, says)
    return values


def paths(name: str) -> list[str]:
    """The paths "part.name" of all values of that name, whichever task, model, optimiser or schedule has it."""
    found = []
    for part in PARTS:
        kinds = MODELS if part == "model" else NAMED.get(part, ("",))
        if any(name in _fields(part, kind) for kind in kinds):
            found.append(f"{part}.{name}")
    return found


def _hint(base: Mapping[str, Any], path: str, says: str) -> Any:
    """The annotation of the value at a path."""
    part, _, name = path.partition(".")
    if part not in PARTS:
        raise ValueError(f"{says}: {unknown('part of an experiment', part, PARTS)}")
    kind = base.get(part, {}).get("name", DEFAULT_NAMES.get(part, ""))
    fields = _fields(part, kind)
    if name not in fields:
        raise ValueError(f"{says}: {unknown(f'setting of {part}', name, fields)}")
    return fields[name]


def _fields(part: str, name: str) -> dict[str, Any]:
    """The values of a part with their types."""
    if part == "model":
        return {"name": str} | check_model(MODELS.resolve(name), name).options()
    named = {"name": str} if part in NAMED else {}
    return named | hints(part_class(part, name))
