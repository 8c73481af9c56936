"""The parser's complaints as one sentence, with what was probably meant.

An option that is not there may be one under another name (--lr), a misspelt one, or a value of an experiment that is
given by its path (--model.memory-slots).
"""

import dataclasses
import difflib
import re

from tapehead.suggest import unknown

OTHER_NAMES = {
    **dict.fromkeys(("lr", "rate", "learningrate", "alpha"), "--learning-rate"),
    **dict.fromkeys(("epochs", "steps", "iterations", "iters", "num-episodes", "num-sequences"), "--episodes"),
    **dict.fromkeys(("batch", "bs", "batchsize", "num-batch"), "--batch-size"),
    **dict.fromkeys(("output", "outdir", "out-dir", "output-dir", "outfile", "folder", "dir", "o"), "--out"),
    **dict.fromkeys(("num-seeds", "n-seeds", "population"), "--seeds"),
    **dict.fromkeys(("gpu", "cuda"), "--device cuda"),
    **dict.fromkeys(("config", "write-toml"), "--write-config"),
    **dict.fromkeys(("silent", "s"), "--quiet"),
    **dict.fromkeys(("plan", "simulate", "n"), "--dry-run"),
    **dict.fromkeys(("size", "lengths"), "--sizes"),
}
"""Names that other programs have for options, and ours."""

ALIKE, PERHAPS = 0.8, 0.65
"""How alike a misspelt option is, as difflib counts it, when it is surely meant, and when it may be."""


def in_one_sentence(box: str, called: str, kind: type) -> str:
    """box: the parser's text in its frame; called: "tapehead train"; kind: the command's class."""
    lines = [line.strip("│| ") for line in box.splitlines()[1:]]
    text = " ".join(line for line in lines if not re.fullmatch(r"[╭╮╰╯─+-]*", line))
    text = re.split(r"Perhaps you meant:|Argument helptext|For full helptext", text)[0]
    message = re.sub(r"\s+", " ", text).strip().rstrip(".")
    return f"{_says(message, called, kind)} See {called} --help."


def _says(message: str, called: str, kind: type) -> str:
    if match := re.match(r"Unrecognized options: (.*)", message):
        word = match[1].split(", ")[0]
        what = "option" if word.startswith("-") else "argument"
        return f"unknown {what} {word} of {called}{_hint(word, match[1], kind, called)}"
    if match := re.match(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*)\)", message):
        valid = [choice for choice in re.findall(r"'([^']*)'", match[3]) if choice != "None"]
        return unknown(f"value of {match[2]}", match[1], valid)
    if match := re.match(r"Missing value for argument '(.*)'", message):
        return f"{match[1]} needs a value: give it behind the option."
    if match := re.match(r"Missing from [a-z ]*: (.*)", message):
        return f"{called} needs {match[1].removesuffix(' (required)').rstrip('.')}."
    return re.sub(r"^Error parsing (\S+): ", r"\1: ", message) + "."


def _hint(word: str, words: str, kind: type, called: str) -> str:
    """The end of the sentence: what was probably meant, if that can be said."""
    flags = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(kind) if field.name != "values"]
    training = called == "tapehead train"
    name, given, value = word.lstrip("-").partition("=")
    if not word.startswith("-"):
        path = _path(name) if training and given else None
        return f"; did you mean --{path} {value}?" if path else ": leave it out."
    other = OTHER_NAMES.get(name.replace("_", "-").lower(), "")
    near = difflib.get_close_matches(f"--{name.replace('_', '-')}", flags, n=1, cutoff=ALIKE)
    found = other if other.partition(" ")[0] in flags else near[0] if near else None
    if found is None and training:
        path = _path(name)
        found = f"--{path}" if path else None
    if found is None:
        found = next(iter(difflib.get_close_matches(word, flags, n=1, cutoff=PERHAPS)), None)
    return f"; did you mean {found}?" if found else "."


def _path(name: str) -> str | None:
    """The path of a value of an experiment with this name, as it is typed; this imports torch."""
    from tapehead.experiment.values import paths

    found = paths(name.replace("-", "_"))
    return found[0].replace("_", "-") if found else None
