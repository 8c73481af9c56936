"""Tasks, made by name with `make_task`: the five of the paper, three more, and those from outside."""

from typing import Any

from tapehead.registry import TASKS
from tapehead.suggest import unknown
from tapehead.tasks.task import Batch, Size, Task
from tapehead.typed import hints

__all__ = ["Batch", "Size", "Task", "make_task"]


def make_task(name: str, **options: Any) -> Task:
    """The task of that name, or at "module:Class"; options are the fields of its class (training sizes and so on)."""
    if not isinstance(name, str):
        raise TypeError(f"task is of type {type(name).__name__}, but it must be a name, such as 'copy'.")
    kind = TASKS.resolve(name)
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        raise ValueError(f"{name} is no task: a task is a subclass of tapehead.Task.")
    known = hints(kind)
    for option in options.keys() - known.keys():
        raise ValueError(unknown(f"option of {name}", option, known))
    return kind(**options)
