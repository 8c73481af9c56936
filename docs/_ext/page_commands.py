"""The help of every command, as the program prints it."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from tapehead import cli

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
COMMAND = re.compile(r"^(?:\W+• |  )([a-z]+)(?: {2,}\S| *$)", flags=re.MULTILINE)
DEEPEST = 2
"""Words of a command, as in `tapehead sweep run`."""
COLUMNS = "88"


def helps(_: str, page: Path) -> str:
    return "\n".join(sections(()))


def sections(command: tuple[str, ...]) -> Iterator[str]:
    """The help of a command, then that of the commands that it lists."""
    text = help_of(*command)
    heading = "##" if len(command) < 2 else "###"
    yield f"{heading} {' '.join(('tapehead', *command))}\n\n```text\n{text}\n```\n"
    for name in COMMAND.findall(text) if len(command) < DEEPEST else ():
        yield from sections((*command, name))


def help_of(*command: str) -> str:
    said = io.StringIO()
    width = mock.patch.dict(os.environ, COLUMNS=COLUMNS, NO_COLOR="1")
    with width, contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        cli.main([*command, "--help"])
    return COLOURS.sub("", said.getvalue()).strip()
