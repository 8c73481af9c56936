"""From words to a command, or one sentence on what is wrong with them."""

import contextlib
import dataclasses
import io
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tyro

from tapehead._version import __version__
from tapehead.arguments import ACTIONS, COMMANDS, overview
from tapehead.arguments.complaints import in_one_sentence
from tapehead.suggest import unknown

LEAST_COLUMNS = 20
"""Of the terminal that help is laid out for; in fewer than ten the parser never ends."""

HELP = ("-h", "--help")
QUIET = ("-q", "--quiet")
PAIRS = ("--task-options", "--model-options", "--curriculum", "--validation", "--settings", "--engine-options")
"""Options that take NAME VALUE pairs, or NAME=VALUE."""


def parse(arguments: list[str]) -> Any:
    """The command that is asked for. Help and version are printed, and end the program with exit code 0."""
    if shutil.get_terminal_size().columns < LEAST_COLUMNS:
        os.environ["COLUMNS"] = str(LEAST_COLUMNS)
    words = _usual_form(arguments)
    if words == ["--version"]:
        _print(f"tapehead {__version__}")
    if words[0] in HELP:
        _print(overview.of_all())
    if "" in words:
        raise ValueError("an argument is empty: give it a value, or leave out its option.")
    name = _known("command", words[0], COMMANDS)
    if name not in ACTIONS:
        return _command(COMMANDS[name], f"tapehead {name}", words[1:])
    return _action(name, words[1:])


def _usual_form(arguments: list[str]) -> list[str]:
    """What people type, as options behind a command: `help train` is `train --help`."""
    first = arguments[:1]
    if first and first[0] in QUIET and arguments[1:]:
        return _usual_form([*arguments[1:], first[0]])
    if not arguments or arguments == ["help"]:
        return ["--help"]
    if first == ["help"]:
        return [*arguments[1:], "--help"]
    return ["--version"] if arguments in (["version"], ["-V"]) else arguments


def _print(text: str) -> None:
    print(text)
    sys.exit(0)


def _known(kind: str, word: str, there: Mapping[str, type], called: str = "tapehead") -> str:
    if word not in there:
        raise ValueError(f"{unknown(kind, word, there)} See {called} --help.")
    return word


def _action(name: str, words: list[str]) -> Any:
    """A command of a command: `tapehead zoo show NAME`."""
    actions, whole = ACTIONS[name], COMMANDS[name]
    if (words and words[0] in HELP) or (not words and name != "sweep"):
        _print(overview.of_actions(name))
    if name == "sweep":
        words = _with_run(words, actions)
    word = _known(f"command of {name}", words[0], actions, f"tapehead {name}")
    return whole(action=_command(actions[word], f"tapehead {name} {word}", words[1:]))


def _with_run(words: list[str], actions: Mapping[str, type]) -> list[str]:
    """`tapehead sweep FILE` is `tapehead sweep run FILE`."""
    if not words:
        raise ValueError("tapehead sweep needs a TOML file or a sweep's folder: see tapehead sweep --help.")
    if words[0] in actions:
        return words
    if re.fullmatch("[a-z]+", words[0]) and not Path(words[0]).exists():
        raise ValueError(f"{unknown('command of sweep', words[0], actions)} Or give a TOML file or a sweep's folder.")
    return ["run", *words]


def _command(kind: type, called: str, words: list[str]) -> Any:
    values: dict[str, str] = {}
    if called == "tapehead train":
        words, values = _split_values(words)
    words = _split_pairs(words)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            command: Any = tyro.cli(kind, prog=called, args=words)
    except SystemExit as stop:
        if stop.code == 2:
            raise ValueError(in_one_sentence(complaint.getvalue(), called, kind)) from None
        raise
    return dataclasses.replace(command, values=values) if values else command


def _split_values(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments without --PART.NAME VALUE, and those by path."""
    rest, values = [], {}
    words = iter(arguments)
    for word in words:
        match = re.fullmatch(r"--([a-z]+\.[a-zA-Z0-9_-]+)(?:=(.*))?", word, flags=re.DOTALL)
        if match is None:
            rest.append(word)
            continue
        value = match[2] if match[2] is not None else next(words, None)
        if value is None:
            raise ValueError(f"{word} needs a value: give it behind the option.")
        values[match[1].replace("-", "_")] = value
    return rest, values


def _split_pairs(arguments: list[str]) -> list[str]:
    """The arguments with NAME=VALUE of an option that takes pairs as two words; --sizes takes nothing else."""
    words: list[str] = []
    inside, names_next = "", False
    for word in arguments:
        if word.startswith("--"):
            inside, names_next = word if word in (*PAIRS, "--sizes") else "", True
        elif inside and names_next and (match := re.fullmatch(r"(\w+)=(.*)", word, flags=re.DOTALL)):
            words += [match[1], match[2]]
            continue
        elif inside == "--sizes":
            raise ValueError(f"--sizes is given {word!r}, but it takes NAME=N or NAME=N,N, such as length=37,73.")
        else:
            names_next = not names_next
        words.append(word)
    return words
