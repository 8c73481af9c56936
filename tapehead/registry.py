"""What can be asked for by name: the only lists of tasks, models, controllers, optimisers, schedules and figures.

An entry is "module:object", so that reading this page imports nothing. A class or function from outside the package is
added by a decorator, or named in the same form wherever a name is taken (Python, command line, TOML):

    from tapehead import TASKS

    @TASKS.register("reverse")
    class Reverse(tapehead.Task): ...

    tapehead train mytasks:Reverse
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tapehead.suggest import unknown

Object = TypeVar("Object", bound=Callable[..., Any])

SEARCH: list[Path] = []
"""Folders that are searched, after everything installed, for a module of the form "module:object". The command line
puts the working directory here."""


class Registry(Mapping[str, str]):
    """Names and where their objects are. `registry[name]` is "module:object"; `resolve` imports it."""

    def __init__(self, kind: str, entries: dict[str, str]) -> None:
        self.kind = kind
        self._entries = entries
        self._registered: dict[str, Any] = {}

    def __getitem__(self, name: str) -> str:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def register(self, name: str) -> Callable[[Object], Object]:
        """A decorator that adds a class or function under a name. A name is given once; the same object may repeat
        it."""
        if not isinstance(name, str) or not name or ":" in name:
            raise ValueError(f"{name!r} cannot name a {self.kind}: give a word without a colon.")

        def add(found: Object) -> Object:
            where = f"{found.__module__}:{found.__qualname__}"
            if self._entries.get(name, where) != where:
                raise ValueError(f"the {self.kind} {name!r} is {self._entries[name]} already: choose another name.")
            self._entries[name] = where
            self._registered[where] = found
            return found

        return add

    def resolve(self, name: str) -> Any:
        """The object of that name, or at "module:object"."""
        where = self._entries.get(name, name)
        if where in self._registered:
            return self._registered[where]
        if ":" not in where:
            raise ValueError(f"{unknown(self.kind, name, self)} One from elsewhere is named as module:Class.")
        return _import(self.kind, where)

    def name_of(self, found: Any) -> str:
        """The name under which an object is found again: its own in this list, otherwise "module:object".

        An object that was registered from outside has the second form, which works in a process that has not run its
        decorator.
        """
        where = f"{found.__module__}:{found.__qualname__}"
        built_in = (name for name, entry in self._entries.items() if entry == where and where not in self._registered)
        return next(built_in, where)


def _import(kind: str, where: str) -> Any:
    module, _, path = where.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise ValueError(f"the {kind} {where!r} is not there: give module:Class.")
    try:
        found = _module(module)
    except Exception as error:
        name = error.name if isinstance(error, ModuleNotFoundError) else None
        if name is not None and module.endswith(".py"):
            raise ValueError(
                f"the {kind} {where!r} names a file: leave out the .py, {module.removesuffix('.py')}:{path}."
            ) from None
        if name is not None and f"{module}.".startswith(f"{name}."):
            raise ValueError(f"the {kind} {where!r} needs a module {name!r}, which is not on the path.") from None
        why = f"{type(error).__name__}: {error}"  # the module is there, and breaks
        raise ValueError(f"the {kind} {where!r} cannot be imported ({why}): mend its module.") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"the {kind} {where!r} is not there: give module:Class.")
        found = getattr(found, part)
    return found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        folders = [str(folder) for folder in SEARCH if str(folder) not in sys.path]
        if not folders:
            raise
    before = list(sys.path)
    sys.path += folders  # last, and only for this import: a file there never takes the place of an installed module
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = before


TASKS = Registry(
    "task",
    {
        "copy": "tapehead.tasks.copy:Copy",
        "repeat-copy": "tapehead.tasks.repeat_copy:RepeatCopy",
        "associative-recall": "tapehead.tasks.associative_recall:AssociativeRecall",
        "ngrams": "tapehead.tasks.ngrams:NGrams",
        "priority-sort": "tapehead.tasks.priority_sort:PrioritySort",
        "reverse": "tapehead.tasks.reverse:Reverse",
        "parity": "tapehead.tasks.parity:Parity",
        "addition": "tapehead.tasks.addition:Addition",
        "text": "tapehead.tasks.text:Text",
        "graph": "tapehead.tasks.graph:Graph",
    },
)

MODELS = Registry(
    "model",
    {
        "ntm": "tapehead.models.ntm:NTM",
        "dnc": "tapehead.models.dnc.model:DNC",
        "lstm": "tapehead.models.lstm:PaperLSTM",
        "transformer": "tapehead.models.transformer.model:Transformer",
    },
)

CONTROLLERS = Registry(
    "controller",
    {
        "lstm": "tapehead.kernels.ntm_scan.controllers:LSTMController",
        "feedforward": "tapehead.kernels.ntm_scan.controllers:FeedforwardController",
    },
)

OPTIMISERS = Registry(
    "optimiser",
    {
        "graves": "tapehead.kernels.update.optimisers:Graves",
        "adam": "tapehead.kernels.update.optimisers:Adam",
    },
)

SCHEDULES = Registry(
    "schedule",
    {
        "constant": "tapehead.experiment.schedules:Constant",
        "cosine": "tapehead.experiment.schedules:Cosine",
        "warmup-cosine": "tapehead.experiment.schedules:WarmupCosine",
    },
)

FIGURES = Registry(
    "figure",
    {
        "learning-curve": "tapehead.figures.curves:learning_curve",
        "answers": "tapehead.figures.answers:answers",
        "predictions": "tapehead.figures.predictions:predictions",
        "memory": "tapehead.figures.memory:memory_use",
        "links": "tapehead.figures.dnc:link_use",
    },
)
