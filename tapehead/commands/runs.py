"""`tapehead runs`: list, filter and compare the runs below a folder."""

import dataclasses
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapehead.commands.tables import new_table, print_table
from tapehead.experiment.listing import RunInfo, find_runs, read_run
from tapehead.sweep import lease
from tapehead.terminal import say

if TYPE_CHECKING:
    from tapehead import cli

LABELS = ("recipe", "place.device", "place.backend")
"""Values that are no part of what a run computes."""


def run(options: "cli.Runs") -> int:
    if options.solved and options.unsolved:
        raise ValueError("--solved and --unsolved were both given: give one of them.")
    if options.compare:
        return _compare(options.compare, as_json=options.json)
    found = [_with_lease(info) for info in find_runs(options.folder)]
    shown = [info for info in found if _matches(info, options)]
    if options.json:
        print(json.dumps([info.to_plain() for info in shown], indent=1, allow_nan=False))
        return 0
    if shown:
        _print_list(shown, options.folder)
    for info in shown:
        if info.state == "damaged":
            print(f"damaged: {info.folder}: {info.reason}")
    say(f"{len(shown):,} of {len(found):,} runs below {options.folder}.")
    return 0


def _with_lease(info: RunInfo) -> RunInfo:
    """A run of a sweep's job that a worker of another machine has is running, too."""
    if info.state == "broken off" and lease.holder(info.folder.parent) is not None:
        return dataclasses.replace(info, state="running")
    return info


def _matches(info: RunInfo, options: "cli.Runs") -> bool:
    every = info.solved is not None and info.solved == len(info.seeds)
    model = info.model
    wanted = (
        options.task in (None, info.task),
        options.model in (None, model, model.partition("-")[0] if model.startswith("ntm-") else model),
        options.recipe is None or info.recipe.startswith(options.recipe),
        options.state is None or info.state == options.state.replace("-", " "),
        not options.solved or every,
        not options.unsolved or (info.solved is not None and not every),
    )
    return all(wanted)


def _print_list(runs: Iterable[RunInfo], folder: Path) -> None:
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


def _compare(folders: tuple[Path, ...], *, as_json: bool) -> int:
    if len(folders) != 2:
        raise ValueError(f"--compare was given {len(folders)} runs, but it compares 2: give two folders.")
    one, other = (_with_lease(_read(folder)) for folder in folders)
    ours, theirs = one.settings(), other.settings()
    paths = [path for path in dict.fromkeys([*ours, *theirs]) if ours.get(path) != theirs.get(path)]
    differing = {path: [ours.get(path), theirs.get(path)] for path in paths}
    results = _results(one, other)
    if as_json:
        values = {"runs": [one.to_plain(), other.to_plain()], "settings": differing, "results": results}
        print(json.dumps(values, indent=1, allow_nan=False))
        return 0
    print(f"A: {folders[0]}\nB: {folders[1]}")
    table = new_table("Settings that differ", ("setting", "A", "B"))
    for path, (left, right) in differing.items():
        table.add_row(path + (" (a label)" if path in LABELS else ""), _short(left), _short(right))
    if not differing:
        table.add_row("none", "", "")
    print_table(table, width=None)
    table = new_table("Results", ("",), ("A", "B"))
    for name, (left, right) in results.items():
        table.add_row(name, _shown(left), _shown(right))
    print_table(table, width=None)
    return 0


def _read(folder: Path) -> RunInfo:
    info = read_run(folder)
    if not info.experiment:
        raise ValueError(f"{folder} holds no run that can be read ({info.reason}): give the folder of a run.")
    return info


def _results(one: RunInfo, other: RunInfo) -> dict[str, list[Any]]:
    """What came of two runs, side by side; None where a run has no such number."""
    rows: dict[str, list[Any]] = {
        "state": [one.state, other.state],
        "seeds": [len(one.seeds), len(other.seeds)],
        "solved": [one.solved, other.solved],
        "episodes": [one.episodes, other.episodes],
        "bits": [one.bits, other.bits],
        "seconds": [one.result.get("seconds"), other.result.get("seconds")],
    }
    costs = (one.costs, other.costs)
    return rows | {
        f"bits at {size}": [each.get(size) for each in costs] for size in dict.fromkeys([*one.costs, *other.costs])
    }


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
