"""14: bad command lines by the hundred: exit code 2, at most five lines, no traceback, nothing written.

Each is a command that would work, some harmless options, and one or two things that are wrong, made from a seed, so
that a line that fails can be repeated.
"""

import contextlib
import io
import os
import random
from pathlib import Path

from soak.fault import Case, Fault

HUGE = "9" * 40
STRANGE = ("", "x", "\u00e9\u00df", "[/a]", "[red]x", "a\x00b", "\udcff", "1,5", "\u22125", "{", "%s", "\n")
COUNTS = (*STRANGE, "0", "-1", "1.5", "1e-3", "nan", "inf", HUGE)
PATHS = ("file", "file/run", "full", "n" * 300, "", "a\x00b", "pipe", "loop")
NO_FOLDERS = tuple(path for path in PATHS if path != "full")  # results may go where other files are
DEVICES = ("", "tpu", "CPU", "cuda:99", "cuda:-1", "cuda:[b]", "meta", "cpu:1", "cuda:\u0663")
NOT_NUMBERS = (*STRANGE, "none", "true", "{}", "[]", "[[1]]", "1e999", "[" * 3000, HUGE)
NOT_SIZES = (*NOT_NUMBERS, "0", "-3", "2.5", "[3,1]", "[1", "[1,2,3]")


def flag(name, values):
    return [(name, value) for value in values]


def option(name, key, values):
    return [(name, key, value) for value in values]


PLACE = [*flag("--device", DEVICES), *flag("--backend", (*STRANGE, "gpu", "CPU"))]
UNKNOWN = [("--nosuch",), ("--nosuch", "1"), ("--help-me",), ("-x",), ("---",), ("extra",), ("",), ("\udcff",)]
POPULATION = [
    *flag("--seed", [value for value in COUNTS if value != "0"]),
    *flag("--seeds", COUNTS),
    *flag("--episodes", COUNTS),
    *flag("--recipe", STRANGE),
]
TRAIN = [
    *POPULATION,
    *PLACE,
    *flag("--batch-size", COUNTS),
    *flag("--learning-rate", (*STRANGE, "0", "-1", "nan", "inf", "1e300", "1e-300")),
    *flag("--model", STRANGE),
    *flag("--controller", STRANGE),
    *flag("--out", PATHS),
    *option("--task-options", "length", NOT_SIZES),
    *option("--task-options", "width", (*NOT_SIZES, "[1,2]")),
    *option("--task-options", "blanks", (*NOT_NUMBERS, "1", "-1")),
    *option("--curriculum", "density", (*NOT_NUMBERS, "1", "[2,3]", "[0.5,0.1]")),
    *option("--validation", "length", NOT_SIZES),
    *option("--model-options", "memory_slots", (*NOT_SIZES, "[1,2]")),
    *option("--model-options", "forget_bias", NOT_NUMBERS),
    *option("--model-options", "interface_clip", [v for v in (*NOT_NUMBERS, "0", "-1") if v not in ("none", HUGE)]),
    *option("--model-options", "shift", STRANGE),
    *option("--settings", "clip", (*STRANGE, "1", "None")),
    *option("--settings", "clip_at", (*NOT_NUMBERS, "0", "-1", "1e39")),
    *option("--settings", "attempts", (*NOT_SIZES, "2")),
    *option("--settings", "average", (*NOT_NUMBERS, "1", "-0.5")),
    *option("--settings", "slots", [value for value in (*NOT_SIZES, "[0,4]") if value != "none"]),
    *[(name, key, "1") for name in ("--task-options", "--model-options", "--settings") for key in STRANGE],
    *[(name, "width") for name in ("--task-options", "--model-options", "--settings")],
    ("--early-stop", "--no-early-stop"),
]

# command: what would work, harmless options, and what is wrong
COMMANDS = {
    "train": (("train", "copy"), [("--seed", "3"), ("--seeds", "2"), ("--backend", "reference")], TRAIN),
    "eval": (("eval", "full"), [("--backend", "auto")], [*flag("--episodes", COUNTS), *PLACE]),
    "figures": (("figures", "full"), [("--seed", "1")], flag("--seed", STRANGE)),
    "view": (
        ("view", "full", "--no-open"),
        [("--port", "0")],
        [*flag("--port", STRANGE), *flag("--export", NO_FOLDERS)],
    ),
    "site": (("site", "--out", "full"), [], [(value,) for value in STRANGE]),
    "confirm": (
        ("confirm", "copy-ntm-lstm"),
        [("--seeds", "2"), ("--episodes", "100")],
        [*POPULATION, *PLACE, *flag("--sequences", COUNTS), *flag("--work", NO_FOLDERS), *flag("--out", NO_FOLDERS)],
    ),
    "report": (("report",), [("--out", "page")], flag("--results", NO_FOLDERS)),
    "reproduce": (
        ("reproduce",),
        [("--dry-run",), ("--engine", "local")],
        [*flag("--scale", STRANGE), *flag("--device", DEVICES), *flag("--workers", COUNTS)],
    ),
    "bench": (("bench",), [("--no-growth",)], [*flag("--rounds", COUNTS), *flag("--device", DEVICES)]),
    "tasks": (("tasks",), [], [(value,) for value in STRANGE]),
    "presets": (("presets",), [], []),
    "doctor": (("doctor",), [], []),
    "zoo show": (("zoo", "show"), [], [(value,) for value in STRANGE]),
    "zoo add": (("zoo", "add"), [("--work", "runs")], [(value,) for value in (*PATHS, "record")]),
    "zoo fetch": (("zoo", "fetch", "copy-ntm-lstm"), [], flag("--out", NO_FOLDERS)),
    "nothing": ((), [], [(value,) for value in STRANGE]),
}


def line_of(seed):
    """The bad command line of a seed."""
    chance = random.Random(seed)
    name = chance.choice(["train"] * 6 + list(COMMANDS))
    works, harmless, wrong = COMMANDS[name]
    wrong = wrong + UNKNOWN
    parts = chance.sample(wrong, chance.choice((1, 1, 2))) + chance.sample(harmless, chance.randint(0, len(harmless)))
    # An option given twice counts once, so what is wrong comes last.
    parts.reverse()
    return [*works, *(word for part in parts for word in part)]


def everything():
    return sorted((str(path), path.lstat().st_mtime_ns) for path in Path().rglob("*"))


def furnish() -> None:
    """Put things that cannot be run folders into this folder."""
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full/thesis").write_text("years of work")
    Path("pipe").symlink_to("nowhere/at/all")
    Path("loop").symlink_to("loop")
    Path("record").write_text('{"kind": "tapehead confirmation", "config": []}')


def check(case: Case) -> None:
    from tapehead import cli  # where its packages are missing, the other faults run

    arguments, out, said, code = line_of(case.number), io.StringIO(), io.StringIO(), None
    os.chdir(case.folder)
    try:
        furnish()
        before = everything()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            try:
                cli.main(arguments)
            except SystemExit as stop:
                code = stop.code
        after = everything()
    finally:
        os.chdir("/")
    text = said.getvalue()
    assert code == 2, f"{arguments}: exit code {code}, {text[-500:]}"
    assert text.startswith("tapehead: "), f"{arguments}: {text[-500:]}"
    assert len(text.splitlines()) <= 5, arguments
    assert "Traceback" not in text, arguments
    assert out.getvalue() == "", arguments
    assert after == before, f"{arguments} has written something"


FAULT = Fault(
    number=14,
    title="bad command lines and configurations",
    promise="exit code 2, at most five lines, no traceback, nothing written",
    counted="command lines",
    full=320,
    quick=100,
    chunk=160,
    check=check,
    needs=("numba", "tyro", "rich"),
)
