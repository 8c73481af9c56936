"""What each command of the command line does. A command's module has the name of its options in `tapehead.cli`."""

from importlib import import_module
from typing import Any


def run(command: Any) -> int:
    """Carry out a parsed command; the exit code."""
    module = import_module(f"tapehead.commands.{type(command).__name__.lower()}")
    code: int = module.run(command)
    return code
