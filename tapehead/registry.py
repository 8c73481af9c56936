"""What can be asked for by name. Values are "module:object", so that reading this page imports nothing."""

from importlib import import_module
from typing import Any

TASKS = {
    "copy": "tapehead.tasks.copy:Copy",
    "repeat-copy": "tapehead.tasks.repeat_copy:RepeatCopy",
    "associative-recall": "tapehead.tasks.associative_recall:AssociativeRecall",
    "ngrams": "tapehead.tasks.ngrams:NGrams",
    "priority-sort": "tapehead.tasks.priority_sort:PrioritySort",
}

MODELS = {
    "ntm": "tapehead.models.ntm:NTM",
    "lstm": "tapehead.models.lstm:PaperLSTM",
}


def resolve(where: str) -> Any:
    """The object at "module:object"."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)
