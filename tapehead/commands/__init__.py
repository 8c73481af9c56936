"""What each command does. A command's module has the name of its class in `tapehead.arguments`."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any


def work_of(command: Any) -> Callable[[], int]:
    """What carries out a parsed command and returns the exit code; its module is imported here."""
    module = import_module(f"tapehead.commands.{type(command).__name__.lower()}")
    return partial(module.run, command)
