"""The code in the documents runs: blocks of Python in order, files under the name in their first line, commands.

Commands of extending.md, with less training, and of sweeps.md are carried out. Those of the others would train for
minutes: they are parsed, and the experiment of `tapehead train` is made.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tapehead import cli
from tapehead.arguments import Train
from tapehead.arguments.parsing import parse
from tapehead.commands.experiments import from_options
from tapehead.registry import FIGURES, MODELS, OPTIMISERS, SCHEDULES, TASKS

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+\.(?:py|toml))\n")
DOCUMENTS = sorted(path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts)
LESS = {
    "train": ["--episodes", "100", "--evaluation.sequences", "2"],
    "confirm": ["--episodes", "100", "--sequences", "2"],
    "eval": ["--episodes", "2"],
}


def blocks_of(document):
    """Language and text of every block of code."""
    return BLOCK.findall((ROOT / document).read_text())


def commands_in(text):
    """The arguments of the lines that begin with `$ tapehead`."""
    lines = [shlex.split(line, comments=True) for line in text.splitlines() if line.startswith("$ ")]
    return [words[2:] for words in lines if words[1] == "tapehead"]


def carry_out(arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments + LESS.get(arguments[0], []))
    assert stop.value.code == 0, arguments


def check(arguments):
    command = parse(arguments)
    if (
        isinstance(command, Train)
        and not command.what.startswith("runs/")
        and (Path(command.what).suffix != ".toml" or Path(command.what).exists())
    ):
        from_options(command)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in; what is imported from it, and what is registered meanwhile, is forgotten."""
    before = set(sys.modules)
    for names in (TASKS, MODELS, OPTIMISERS, SCHEDULES, FIGURES):
        monkeypatch.setattr(names, "_entries", dict(names))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("document", "with_command", "least"),
    [
        ("README.md", check, 3),
        ("docs/tutorial.md", check, 3),
        ("docs/pytorch.md", check, 5),
        ("docs/extending.md", carry_out, 3),
        ("docs/sweeps.md", carry_out, 1),
        ("docs/sublayers.md", check, 3),
        ("docs/dnc.md", check, 1),
        ("docs/reproduce.md", check, 0),
        ("docs/viewer.md", check, 1),
        ("docs/command-line.md", check, 0),
        ("docs/quickstart.md", check, 3),
        ("docs/reference/file-formats.md", check, 1),
        *((f"docs/howto/{path.name}", check, 1) for path in sorted(ROOT.glob("docs/howto/*.md"))),
    ],
)
def test_the_code_of_a_document_runs(document, with_command, least, folder):
    blocks, names = blocks_of(document), {}
    assert {language for language, _ in blocks} <= {"python", "console", "toml", "text"}
    assert sum(language == "python" for language, _ in blocks) >= least
    for language, text in blocks:
        named = FILE.match(text)
        if named:
            (folder / named[1]).write_text(text)
        elif language == "python":
            exec(compile(text, document, "exec"), names)
        elif language == "console":
            for arguments in commands_in(text):
                with_command(arguments)


def test_a_block_that_fails_is_noticed(folder):
    with pytest.raises(AssertionError, match="nonsense"):
        carry_out(["train", "nonsense"])
    with pytest.raises(ValueError, match="nonsense"):
        check(["train", "nonsense"])
    with pytest.raises(ValueError, match="fliers"):
        check(["train", "copy", "--fliers", "3"])


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", "SECURITY.md", *(str(path.relative_to(ROOT)) for path in DOCUMENTS)]
)
def test_links_of_a_document_lead_to_files(document):
    path = ROOT / document
    targets = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert missing == []
