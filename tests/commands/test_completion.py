"""Completion scripts, the one for bash carried out by bash."""

import shutil
import subprocess

import pytest

from tapehead import zoo
from tapehead.arguments import ACTIONS, COMMANDS
from tapehead.commands import completion
from tapehead.registry import MODELS, TASKS

CASES = {
    ("tapehead", "tr"): {"train"},
    ("tapehead", "--v"): {"--version"},
    ("tapehead", "train", "co"): {"copy"},
    ("tapehead", "train", ""): set(TASKS),
    ("tapehead", "train", "copy", "--ep"): {"--episodes"},
    ("tapehead", "train", "copy", "--model", ""): set(MODELS),
    ("tapehead", "train", "copy", "--recipe", "t"): {"tuned"},
    ("tapehead", "train", "copy", "--out", ""): set(),  # where nothing fits, bash completes files
    ("tapehead", "zoo", ""): set(ACTIONS["zoo"]),
    ("tapehead", "zoo", "show", "copy-ntm-l"): {"copy-ntm-lstm"},
    ("tapehead", "-q", "eval", ""): set(zoo.names()),
    ("tapehead", "runs", "--state", "br"): {"broken-off"},
    ("tapehead", "confirm", "priority-sort-n"): {"priority-sort-ntm-feedforward", "priority-sort-ntm-lstm"},
    ("tapehead", "sweep", "run", "file.toml", "--dry"): {"--dry-run"},
    ("tapehead", "bench", "--no-g"): {"--no-growth"},
    ("tapehead", "completion", ""): {"bash", "zsh", "fish"},
    ("tapehead", "help", "tr"): {"train"},
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes():
    lines = [completion.bash(), "complete -p tapehead"]
    for words in CASES:
        quoted = " ".join(f"'{word}'" for word in words)
        lines.append(f'COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _tapehead; echo "${{COMPREPLY[*]}}"')
    done = subprocess.run(["bash", "--norc"], input="\n".join(lines), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    registered, *found = done.stdout.splitlines()
    assert registered == "complete -o default -F _tapehead tapehead"
    assert {words: set(line.split()) for words, line in zip(CASES, found, strict=True)} == CASES


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_in_the_script(shell, capsys):
    script = getattr(completion, shell)()
    form = "-l {}" if shell == "fish" else "--{}"
    for command, options in completion.commands().items():
        assert command in script
        for option in options:
            for flag in option.flags:
                assert not flag.startswith("--") or form.format(flag[2:]) in script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_finds_no_mistake_in_it(shell):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    done = subprocess.run(
        [program, "-n"], input=getattr(completion, shell)(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_names_of_the_zoo_are_found_without_torch():
    assert list(completion.zoo_names()) == zoo.names()
    assert set(COMMANDS) >= {"train", "eval"}
