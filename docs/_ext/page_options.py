"""Tables of an experiment's values, from the typed classes themselves."""

import dataclasses
import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sphinx.pycode import ModuleAnalyzer

from tapehead.experiment.config import Experiment
from tapehead.experiment.parts import NAMED, PARTS
from tapehead.registry import MODELS
from tapehead.typed import describe, hints, plain

HEAD = "| name | what it may be | default | meaning |\n|---|---|---|---|\n"


def tables(part: str, page: Path) -> str:
    """The table of a part; for a part of several classes, one for each."""
    if part == "experiment":
        loose = {name: hint for name, hint in hints(Experiment).items() if name not in PARTS}
        return table(loose, defaults(Experiment), texts(Experiment))
    if part == "model":
        return "\n".join(of_model(name) for name in MODELS)
    if part in NAMED:
        return "\n".join(of_class(name, NAMED[part].resolve(name)) for name in NAMED[part])
    return f"{said(PARTS[part])}\n\n{table(hints(PARTS[part]), defaults(PARTS[part]), texts(PARTS[part]))}"


def of_class(name: str, kind: type) -> str:
    return f"### {name}\n\n{said(kind)}\n\n{table(hints(kind), defaults(kind), texts(kind))}"


def of_model(name: str) -> str:
    """A model's options are keywords of its class; their texts are in the dataclass that has the same fields."""
    kind = MODELS.resolve(name)
    known = kind.options()
    homes = [value for value in vars(sys.modules[kind.__module__]).values() if dataclasses.is_dataclass(value)]
    home = next((value for value in homes if isinstance(value, type) and known.keys() <= hints(value).keys()), None)
    return f"### {name}\n\n{said(kind)}\n\n{table(known, kind.canonical_options({}), texts(home) if home else {})}"


def said(kind: type) -> str:
    """The docstring of a class, as it stands: it may hold a diagram."""
    text = inspect.getdoc(kind) or ""
    return f"```text\n{text}\n```" if "\n" in text else text


def defaults(kind: type) -> dict[str, Any]:
    """Defaults by name, of the fields that have one."""
    found = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


def texts(kind: type) -> dict[str, str]:
    """What the source says below each field."""
    found: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if parent.__module__.startswith("tapehead"):
            for (owner, name), lines in ModuleAnalyzer.for_module(parent.__module__).find_attr_docs().items():
                if owner == parent.__qualname__:
                    found[name] = " ".join(line.strip() for line in lines).strip()
    return found


def table(known: Mapping[str, Any], default: Mapping[str, Any], text: Mapping[str, str]) -> str:
    rows = [[f"`{name}`", describe(hint), shown(name, default), text.get(name, "")] for name, hint in known.items()]
    return HEAD + "".join(line(row) for row in rows) if known else "No values of its own.\n"


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(part.replace("|", "\\|").replace("*", "\\*") for part in cells) + " |\n"


def shown(name: str, default: Mapping[str, Any]) -> str:
    if name not in default:
        return "(needed)"
    value = plain(default[name])
    return "none" if value is None else f"`{json.dumps(value)}`"
