"""The five tasks of the paper, made by name with `make_task`."""

from dataclasses import fields
from importlib import import_module
from typing import Any

from tapehead import checks
from tapehead.registry import TASKS
from tapehead.tasks.task import Batch, Size, Task
from tapehead.words import unknown

__all__ = ["Batch", "Size", "Task", "make_task"]


def make_task(name: str, **options: Any) -> Task:
    """The task of that name; options are the fields of its class (training sizes, widths and so on)."""
    checks.one_of("task", name, tuple(TASKS))
    module, _, attribute = TASKS[name].partition(":")
    kind: type[Task] = getattr(import_module(module), attribute)
    known = {field.name for field in fields(kind)}
    for option in options.keys() - known:
        raise ValueError(unknown(f"option of {name}", option, known))
    return kind(**options)
