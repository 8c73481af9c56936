"""`tapehead runs`: list, filter and compare the runs below a folder."""

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapehead.commands.tables import new_table, print_table
from tapehead.experiment.listing import RunInfo, find_runs, has_checkpoint, read_run
from tapehead.registry import CONTROLLERS, MODELS, TASKS
from tapehead.suggest import unknown
from tapehead.sweep import lease
from tapehead.terminal import say

if TYPE_CHECKING:
    from tapehead import arguments

LABELS = ("recipe", "place.device", "place.backend")
"""Values that are no part of what a run computes."""
LETTERS = "ABCDEFGHIJ"
"""Runs that are compared, at most as many."""
MOST_CURVES = 20
"""Runs in one picture: there are seven looks of lines, and a legend that a page can hold."""


def run(options: "arguments.Runs") -> int:
    if options.solved and options.unsolved:
        raise ValueError("--solved and --unsolved were both given: give one of them.")
    if options.compare:
        if not 2 <= (count := len(options.compare)) <= len(LETTERS):
            raise ValueError(f"--compare was given {count} runs, but it compares 2 to {len(LETTERS)}: give as many.")
        compared = [_with_lease(_read(folder)) for folder in options.compare]
        save = _drawn(compared, options)
        _compare(compared, as_json=options.json)
        save()
        return 0
    found = [_with_lease(info) for info in find_runs(options.folder)]
    _refuse_unknown(found, options)
    shown = [info for info in found if _matches(info, options)]
    save = _drawn(shown, options)
    if options.json:
        print(json.dumps([info.to_plain() for info in shown], indent=1, allow_nan=False))
    else:
        _print_list(shown, options.folder)
        say(f"{len(shown):,} of {len(found):,} runs below {options.folder}.")
    save()
    return 0


def _refuse_unknown(found: Sequence[RunInfo], options: "arguments.Runs") -> None:
    """Refuse a task or model that is neither known nor that of any run here: it is misspelt."""
    ntms = [f"ntm-{controller}" for controller in CONTROLLERS]
    for name, wanted, there, registry in (
        ("task", options.task, {info.task for info in found}, TASKS),
        ("model", options.model, {name for info in found for name in _names(info.model)}, (*MODELS, *ntms)),
    ):
        valid = {*there, *registry} - {""}
        if wanted is not None and ":" not in wanted and wanted not in valid:
            raise ValueError(unknown(name, wanted, valid))


def _names(model: str) -> tuple[str, ...]:
    """What --model may say for a model: ntm-lstm is one of ntm."""
    return (model, "ntm") if model.startswith("ntm-") else (model,)


def _drawn(runs: Sequence[RunInfo], options: "arguments.Runs") -> Callable[[], None]:
    """The learning curves of some runs in one picture, if that is asked for: what writes it and prints its path."""
    if options.curves is None:
        return lambda: None
    folders = [info.folder for info in runs if info.episodes and has_checkpoint(info.folder)]
    if not folders:
        raise ValueError("--curves is given, but none of these runs has trained yet: there is nothing to draw.")
    if len(folders) > MOST_CURVES:
        raise ValueError(f"--curves would draw {len(folders):,} runs, but at most {MOST_CURVES}: choose some of them.")
    from tapehead.figures import style
    from tapehead.figures.comparison import draw_comparison, read_runs

    figure, path = draw_comparison(read_runs(folders)), options.curves

    def save() -> None:
        for picture in style.save(figure, path.parent, path.name):
            (say if options.json else print)(str(picture))

    return save


def _with_lease(info: RunInfo) -> RunInfo:
    """A run of a sweep's job that a worker of another machine has is running, too."""
    if info.state == "broken off" and lease.holder(info.folder.parent) is not None:
        return dataclasses.replace(info, state="running")
    return info


def _matches(info: RunInfo, options: "arguments.Runs") -> bool:
    every = info.solved is not None and info.solved == len(info.seeds)
    wanted = (
        options.task in (None, info.task),
        options.model in (None, *_names(info.model)),
        options.recipe is None or info.recipe.startswith(options.recipe),
        options.state is None or info.state == options.state.replace("-", " "),
        not options.solved or every,
        not options.unsolved or (info.solved is not None and not every),
    )
    return all(wanted)


def _print_list(runs: Sequence[RunInfo], folder: Path) -> None:
    if not runs:
        return
    left, right = ("run", "task", "model", "state"), ("seeds", "solved", "episodes", "bits", "cost at sizes", "age")
    table = new_table(f"Runs below {folder}", left, right)
    for info in runs:
        table.add_row(
            str(info.folder.relative_to(folder)) if info.folder != folder else ".",
            info.task,
            info.model,
            info.state,
            f"{len(info.seeds):,}" if info.seeds else "",
            "" if info.solved is None else f"{info.solved:,}",
            "" if info.episodes is None else f"{info.episodes:,}",
            _number(info.bits),
            _costs(info.costs),
            _age(max(0.0, time.time() - info.changed)),
        )
    print_table(table, width=None)
    for info in runs:
        if info.state == "damaged":
            print(f"damaged: {info.folder}: {info.reason}")


def _compare(runs: Sequence[RunInfo], *, as_json: bool) -> None:
    settings = [info.settings() for info in runs]
    values = {path: [each.get(path) for each in settings] for path in dict.fromkeys(itertools.chain(*settings))}
    differing = {path: each for path, each in values.items() if any(value != each[0] for value in each)}
    results = _results(runs)
    if as_json:
        plain = {"runs": [info.to_plain() for info in runs], "settings": differing, "results": results}
        print(json.dumps(plain, indent=1, allow_nan=False))
        return
    letters = LETTERS[: len(runs)]
    for letter, info in zip(letters, runs, strict=True):
        print(f"{letter}: {info.folder}")
    table = new_table("Settings that differ", ("setting", *letters))
    for path, each in differing.items():
        table.add_row(path + (" (a label)" if path in LABELS else ""), *map(_short, each))
    if not differing:
        table.add_row("none")
    print_table(table, width=None)
    table = new_table("Results", ("",), tuple(letters))
    for name, each in results.items():
        table.add_row(name, *map(_shown, each))
    print_table(table, width=None)


def _read(folder: Path) -> RunInfo:
    info = read_run(folder)
    if not info.experiment:
        raise ValueError(f"{folder} holds no run that can be read ({info.reason}): give the folder of a run.")
    return info


def _results(runs: Sequence[RunInfo]) -> dict[str, list[Any]]:
    """What came of the runs, side by side; None where a run has no such number."""
    rows: dict[str, list[Any]] = {
        "state": [info.state for info in runs],
        "seeds": [len(info.seeds) for info in runs],
        "solved": [info.solved for info in runs],
        "episodes": [info.episodes for info in runs],
        "bits": [info.bits for info in runs],
        "seconds": [info.result.get("seconds") for info in runs],
    }
    sizes = dict.fromkeys(size for info in runs for size in info.costs)
    return rows | {f"bits at {size}": [info.costs.get(size) for info in runs] for size in sizes}


def _costs(costs: dict[str, float | None]) -> str:
    """At the first and the last size."""
    items = list(costs.items())
    return ", ".join(f"{label}: {_number(bits) or 'infinite'}" for label, bits in [*items[:1], *items[1:][-1:]])


def _shown(value: Any) -> str:
    return _number(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value or "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 50 else f"{text[:47]}..."


def _age(seconds: float) -> str:
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"
