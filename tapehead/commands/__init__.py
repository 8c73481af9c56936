"""What each command of the command line does. A command's module has the name of its options in `tapehead.cli`."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from tapehead import registry


def work_of(command: Any) -> Callable[[], int]:
    """What carries out a parsed command and returns the exit code; its module is imported here.

    From here on module:Class is also looked for in the working directory.
    """
    with suppress(FileNotFoundError):  # the working directory may have been removed
        if Path.cwd() not in registry.SEARCH:
            registry.SEARCH.append(Path.cwd())
    module = import_module(f"tapehead.commands.{type(command).__name__.lower()}")
    return partial(module.run, command)
