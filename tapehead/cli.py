"""The command line: `tapehead.arguments` says what can be asked, `tapehead.commands` does it, and is imported when it
is needed, so that help is instant."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from tapehead import commands, notices, registry, signals, terminal
from tapehead.arguments.parsing import parse
from tapehead.commands.ending import Ending


def main(arguments: list[str] | None = None) -> None:
    """Entry point; `tapehead.commands.ending` says which exit code means what."""
    terminal.prepare()
    ending = Ending(own_process=arguments is None)

    def start() -> Callable[[], int]:
        _search_here()
        command = parse(sys.argv[1:] if arguments is None else arguments)
        ending.command = type(command).__name__.lower()
        terminal.be_quiet(getattr(command, "action", command).quiet)
        return commands.work_of(command)

    with notices.heard_by(terminal.say_ours):
        code = ending.of(start)
    if arguments is None:
        signals.leave_to_the_system()
    sys.exit(code)


def _search_here() -> None:
    """Let module:Class name what is in the working directory."""
    with contextlib.suppress(OSError):  # it may have been removed
        if (here := Path.cwd()) not in registry.SEARCH:
            registry.SEARCH.append(here)


if __name__ == "__main__":
    main()
