"""Options of tasks and models from the command line, checked by name and type before anything is made of them."""

import dataclasses
import inspect
import json
import math
import re
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch

from tapehead.models.config import NTMConfig
from tapehead.registry import MODELS, TASKS, resolve
from tapehead.training.config import MOST, RunConfig
from tapehead.words import unknown

# What a run decides by itself.
DECIDED = {"input_size", "output_size", "batch_first", "backend", "device", "dtype"}
WORDS = {int: "a whole number under 2^31", float: "a number", bool: "true or false", str: "a word", type(None): "none"}


def task_fields(task: str) -> dict[str, Any]:
    """The options of a task with their types."""
    kind = resolve(TASKS[task])
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def size_fields(task: str) -> dict[str, Any]:
    """Those of them that are sizes."""
    limits = resolve(TASKS[task]).limits
    return {name: hint for name, hint in task_fields(task).items() if name in limits}


def model_fields(model: str) -> dict[str, Any]:
    """The options of a model with their types."""
    if model == "ntm":
        hints = get_type_hints(NTMConfig)
    else:
        build = resolve(MODELS[model]).__init__
        hints = {name: get_type_hints(build)[name] for name in inspect.signature(build).parameters if name != "self"}
    return {name: hint for name, hint in hints.items() if name not in DECIDED}


def setting_fields() -> dict[str, Any]:
    """The settings of a run that have no flag of their own, with their types."""
    names = (
        *("optimiser", "schedule", "final_rate", "clip", "clip_at", "slots", "average", "curriculum_share"),
        *("validation_sequences", "passing_bits", "attempts", "patience", "hopeful_bits"),
    )
    hints = get_type_hints(RunConfig)
    return {name: hints[name] for name in names}


def check_options(flag: str, fields: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """The values of the options given with a flag, each read as its type."""
    values = {}
    for name, text in given.items():
        if name not in fields:
            raise ValueError(unknown(f"name in {flag}", name, fields))
        values[name] = value = _value(text, fields[name])
        if not _fits(value, fields[name]):
            raise ValueError(f"{flag} {name} is {value!r}, but it must be {_describe(fields[name])}.")
    return values


def _value(text: str, hint: Any) -> Any:
    """A word where the type has that word; else numbers, true, false, none and lists as JSON; else the text."""
    if _fits(text, hint):
        return text
    lower = text.lower()
    try:
        value = json.loads("null" if lower == "none" else lower)
    except (ValueError, RecursionError):
        return text
    return tuple(value) if isinstance(value, list) else value


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return type(value) is int and abs(value) < 2**31
    return type(value) is hint


def _describe(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_describe(part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)[:-1])) + f" or {get_args(hint)[-1]}"
    if get_origin(hint) is tuple:
        return f"a list of {len(get_args(hint))} such as {'[0.2,0.8]' if float in get_args(hint) else '[1,20]'}"
    return WORDS.get(hint, str(hint))


def check_count(flag: str, count: int) -> None:
    """Refuse a count that is not positive, or that tensors cannot have."""
    if not 1 <= count <= MOST:
        raise ValueError(f"{flag} is {count}, but it must be at least 1 and under 2^31.")


def make_folder(folder: Path) -> None:
    """Make the folder that results go to, before the work that makes them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error.strerror}): choose another folder with --out.") from error


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,2})?", device):
        raise ValueError(f"--device is {device!r}, but it must be cpu, cuda or cuda:NUMBER.")
    found = torch.cuda.device_count()
    if device != "cpu" and int(device.partition(":")[2] or 0) >= found:
        there = f"only {found} CUDA devices" if found else "no CUDA device"
        raise ValueError(f"--device is {device!r}, but torch finds {there} here: use --device cpu.")
