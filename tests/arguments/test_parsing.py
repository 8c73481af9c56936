"""From words to a command; what people type in other programs is answered."""

import sys

import pytest

from tapehead import arguments
from tapehead._version import __version__
from tapehead.arguments import ACTIONS, COMMANDS
from tapehead.arguments.parsing import parse


def printed(capsys, *words):
    """What is printed by words that end the program."""
    with pytest.raises(SystemExit) as stop:
        parse(list(words))
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("-h",)])
def test_the_list_of_commands(words, capsys):
    out = printed(capsys, *words)
    for name in COMMANDS:
        assert f"\n  {name} " in out
    assert "--version" in out
    assert "--quiet" in out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("words", [("version",), ("--version",), ("-V",)])
def test_the_version(words, capsys):
    assert printed(capsys, *words) == f"tapehead {__version__}\n"


EVERY = [(name,) for name in COMMANDS if name not in ACTIONS]
EVERY += [(name, action) for name, actions in ACTIONS.items() for action in actions]


@pytest.mark.parametrize("words", EVERY)
def test_help_of_a_command_says_each_default_once(words, capsys):
    out = printed(capsys, *words, "--help")
    assert out == printed(capsys, "help", *words)
    assert f"usage: tapehead {' '.join(words)}" in out
    for wrong in ("None", "(default: )", "{", "(default: False)", "STR", "INT"):
        assert wrong not in out.replace("{agreement,", "").replace("{worth,", "")
    text = " ".join(out.replace("│", " ").split())
    for option in text.split(" --")[1:]:
        assert option.count("(default: ") <= 1, option


def test_help_of_commands_of_a_command(capsys):
    for name in ACTIONS:
        out = printed(capsys, name, "--help")
        assert all(f"\n  {action} " in out for action in ACTIONS[name])
    assert printed(capsys, "zoo") == printed(capsys, "zoo", "--help")


def test_quiet_may_stand_anywhere():
    for words in (["--quiet", "tasks"], ["-q", "tasks", "copy"], ["tasks", "copy", "-q"], ["zoo", "list", "--quiet"]):
        command = parse(words)
        assert getattr(command, "action", command).quiet
    assert not parse(["tasks"]).quiet


@pytest.mark.parametrize(("text", "value"), [("1e4", 10_000), ("10_000", 10_000), ("1.5e3", 1500), ("25", 25)])
def test_whole_numbers_as_people_write_them(text, value):
    assert parse(["train", "copy", "--episodes", text]).episodes == value
    assert parse(["eval", "x", "--episodes", text]).episodes == value


def test_pairs_in_both_forms():
    words = ["--model-options", "memory_slots=64", "shift", "fft", "memory_width=20", "--task-options", "length=[1,5]"]
    train = parse(["train", "copy", *words])
    assert train.model_options == {"memory_slots": "64", "shift": "fft", "memory_width": "20"}
    assert train.task_options == {"length": "[1,5]"}
    assert parse(["eval", "x", "--sizes", "length=37,73", "width=2"]).sizes == {"length": "37,73", "width": "2"}


def test_the_word_run_may_be_left_out(tmp_path):
    given = parse(["sweep", str(tmp_path / "file.toml"), "--dry-run"])
    assert isinstance(given.action, arguments.Run)
    assert given.action.plan


HINTS = {
    "train copy --lr 1": "unknown option --lr of tapehead train; did you mean --learning-rate?",
    "train copy --epochs 3": "did you mean --episodes?",
    "train copy --gpu": "did you mean --device cuda?",
    "train copy --output x": "did you mean --out?",
    "train copy --memory-slots 64": "did you mean --model.memory-slots?",
    "train copy memory_slots=64": "did you mean --model.memory-slots 64?",
    "train copy --beta1 0.5": "did you mean --optimiser.beta1?",
    "train copy --nosuch": "unknown option --nosuch of tapehead train. See tapehead train --help.",
    "train copy more": "unknown argument more of tapehead train: leave it out. See tapehead train --help.",
    "train copy --recipe tund": "value of --recipe 'tund'. Did you mean 'tuned'? Valid: once, paper, sure, tuned. See",
    "train copy --episodes 1.5": "--episodes: '1.5' is no whole number, such as 10000 or 1e4. See tapehead train",
    "train copy --learning-rate x": "--learning-rate: 'x' is no number, such as 0.001 or 1e-3. See tapehead train",
    "train copy --seed": "--seed needs a value: give it behind the option. See tapehead train --help.",
    "train": "tapehead train needs TASK",
    "runs --state happy": "unknown value of --state 'happy'. Valid: broken-off, damaged, finished, running.",
    "zoo shw": "unknown command of zoo 'shw'. Did you mean 'show'? Valid: add, fetch, list, show",
    "eval x --sizes 37": "--sizes is given '37', but it takes NAME=N or NAME=N,N, such as length=37,73.",
    "sweep": "tapehead sweep needs a TOML file",
    "sweep statu": "Did you mean 'status'?",
}


@pytest.mark.parametrize("line", HINTS)
def test_a_mistake_is_one_sentence_with_what_was_meant(line):
    with pytest.raises(ValueError, match=r"\w") as refusal:
        parse(line.split())
    assert HINTS[line] in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_module_can_be_run(capsys):
    import runpy

    old, sys.argv = sys.argv, ["tapehead", "version"]
    try:
        with pytest.raises(SystemExit) as stop:
            runpy.run_module("tapehead", run_name="not main")
    finally:
        sys.argv = old
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"tapehead {__version__}\n"
