"""From a sweep's TOML file to its jobs. docs/sweeps.md describes the file for users.

    experiment, recipe      what is changed: a row, a task, or an experiment's TOML file
    seeds, side_by_side     one machine each; how many a job trains
    [PART]                  values of every job; without `experiment`, they are the whole experiment
    [grid]                  lists of values by path: every combination
    [[job]]                 values of one entry; each is combined with the grid

Everything is checked here, before anything runs.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tapehead.experiment.config import Experiment, read_toml
from tapehead.experiment.parts import PARTS
from tapehead.experiment.values import checked_values
from tapehead.paper.recipes import Start, row_experiment, rows, task_start
from tapehead.suggest import unknown
from tapehead.sweep.jobs import MOST_JOBS, MOST_SEEDS, Job, distinct, with_seeds, words
from tapehead.typed import canonical

Values = dict[str, Any]

BASE = ("experiment", "recipe")
"""Keys that say what is changed; they may be in the grid."""

ENTRY = (*BASE, "seeds", "side_by_side", *PARTS)
"""Keys of a [[job]]; all but the parts have the file's own as their default."""


def read_jobs(path: Path) -> tuple[Job, ...]:
    """The jobs of a sweep's TOML file, in its order, or one sentence why there are none."""
    return jobs_of(read_toml(path, "a sweep"), path.parent, str(path))


def jobs_of(values: Mapping[str, Any], folder: Path, where: str) -> tuple[Job, ...]:
    """The jobs of a sweep's plain values. folder: where its files are. where: their name in messages."""
    for key in values:
        if key not in (*ENTRY, "grid", "job"):
            raise ValueError(f"{where}: {unknown('part of a sweep', key, (*ENTRY, 'grid', 'job'))}")
    common = _entry({key: value for key, value in values.items() if key in ENTRY}, where)
    grid = _grid(values.get("grid", {}), where)
    entries = _entries(values.get("job", [{}]), where)
    _check_count(common, grid, entries, where)
    plan = _Plan(folder, where, common, whole=not any("experiment" in table for table in (common, grid, *entries)))
    return distinct(job for entry in entries for point in _points(grid) for job in plan.jobs(entry, point))


class _Plan:
    """Makes the jobs of one file; files and machines that several jobs share are read and checked once."""

    def __init__(self, folder: Path, where: str, common: Values, *, whole: bool) -> None:
        """common: values of every job. whole: they are the experiment, and not changes of another one."""
        self._folder, self._where = folder, where
        self._common, self._whole = common, whole
        self._built: set[str] = set()
        self._files: dict[str, Experiment] = {}
        self._rows: dict[tuple[Any, ...], Values] = {}

    def jobs(self, entry: Values, point: Values) -> list[Job]:
        """The jobs of an entry at a point of the grid."""
        own = entry | point
        merged = self._common | own
        changes = {path: value for path, value in (own if self._whole else merged).items() if "." in path}
        shown = {path: value for path, value in own.items() if path not in ("seeds", "side_by_side")}
        start, title = self._start(merged, changes)
        label = " ".join(filter(None, (title, words({path: shown[path] for path in shown if path != "experiment"}))))
        try:
            checked = checked_values(self._base(start), changes, self._where)
            experiment = start(checked)
            self._check_built(experiment)
        except ValueError as error:
            says = str(error)
            raise ValueError(says if says.startswith(self._where) else f"{self._where}, {label}: {says}") from error
        seeds = _seeds(merged.get("seeds", list(experiment.seeds)), self._where)
        side_by_side = _side_by_side(merged.get("side_by_side", 1), len(seeds), self._where)
        values = shown | {path: checked[path] for path in shown if path in checked}
        return with_seeds(label, experiment, seeds, side_by_side, json.loads(json.dumps(values)))

    def _base(self, start: Start) -> Values:
        """The plain values of a start; those of a row are made once."""
        if not isinstance(start, partial) or start.func is not row_experiment:
            return start({}).to_plain()
        if start.args not in self._rows:
            self._rows[start.args] = start({}).to_plain()
        return self._rows[start.args]

    def _start(self, merged: Values, changes: Values) -> tuple[Start, str]:
        """What is changed, and its name."""
        name, recipe = merged.get("experiment"), merged.get("recipe")
        if name is None:
            whole = Experiment.from_plain(self._parts(), self._where)
            return whole.with_values, f"{whole.task.name} {whole.model.name}"
        for key, value in (("experiment", name), ("recipe", recipe)):
            if not isinstance(value, str | None):
                raise ValueError(f"{self._where}: {key} is {value!r}, but it must be a word.")
        if name.endswith(".toml"):
            if recipe is not None:
                raise ValueError(f"{self._where}: recipe is {recipe}, but {name} has all settings: leave it out.")
            return self._file(name).with_values, Path(name).stem
        if name in rows():
            start: Start = partial(row_experiment, name, recipe or "tuned")
            return start, name
        return task_start(name, recipe, changes), _short(name)

    def _parts(self) -> Values:
        """The whole experiment that the file itself is."""
        parts: Values = {"recipe": self._common.get("recipe", "custom")}
        for path, value in self._common.items():
            part, dot, key = path.partition(".")
            if dot:
                parts.setdefault(part, {})[key] = value
        return parts

    def _file(self, name: str) -> Experiment:
        if name not in self._files:
            path = self._folder / name
            self._files[name] = Experiment.from_plain(read_toml(path), str(path))
        return self._files[name]

    def _check_built(self, experiment: Experiment) -> None:
        """Refuse machines that cannot be made. On the CPU: the device may be on another machine."""
        key = json.dumps([experiment.to_plain()[part] for part in ("task", "model", "training")], sort_keys=True)
        if key not in self._built:
            model = experiment.model.build(experiment.task)
            if experiment.training.slots is not None:
                model.check_slots(experiment.training.slots[1])
            self._built.add(key)


# --- parts of the file -----------------------------------------------------------------------------------------------


def _entry(values: Mapping[str, Any], where: str) -> Values:
    """The table of the file or of a [[job]], with its parts by path."""
    flat: Values = {}
    for key, value in values.items():
        part, dot, _ = key.partition(".")
        if key in PARTS:
            if not isinstance(value, Mapping):
                raise ValueError(f"{where}: {key} is {value!r}, but it must be a table of names and values.")
            flat |= {f"{key}.{name}": inner for name, inner in value.items()}
        elif key in ENTRY or (dot and part in PARTS):
            flat[key] = value
        else:
            raise ValueError(f"{where}: {unknown('part of a job', part, ENTRY)}")
    return flat


def _entries(tables: Any, where: str) -> list[Values]:
    if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
        raise ValueError(f"{where}: job is {tables!r}, but jobs are a list of tables: write [[job]] above each.")
    return [_entry(table, f"{where}, [[job]] {number}") for number, table in enumerate(tables, 1)]


def _grid(table: Any, where: str) -> dict[str, list[Any]]:
    """Lists of values by path."""
    if not isinstance(table, Mapping):
        raise ValueError(f"{where}: grid is {table!r}, but it must be a table of paths and lists of values.")
    bases = {key: value for key, value in table.items() if key in BASE}
    flat = bases | _entry({key: value for key, value in table.items() if key not in BASE}, f"{where}, [grid]")
    for path, choices in flat.items():
        if path in ("seeds", "side_by_side") or path.startswith("place."):
            raise ValueError(f"{where}, [grid]: {path} does not make another experiment: give it outside the grid.")
        if not isinstance(choices, list) or not choices:
            raise ValueError(f"{where}, [grid]: {path} is {choices!r}, but it must be a list of values.")
    return flat


def _points(grid: Mapping[str, Sequence[Any]]) -> Iterator[Values]:
    """Every combination; the last path changes fastest."""
    for choice in itertools.product(*grid.values()):
        yield dict(zip(grid, choice, strict=True))


def _check_count(common: Values, grid: Mapping[str, Sequence[Any]], entries: Sequence[Values], where: str) -> None:
    """Refuse, before they are made, more jobs than a sweep may have."""
    points = math.prod(len(choices) for choices in grid.values())
    jobs = 0
    for entry in entries:
        seeds = len(_seeds((common | entry).get("seeds", [0]), where))
        jobs += points * -(-seeds // _side_by_side((common | entry).get("side_by_side", 1), seeds, where))
    if jobs > MOST_JOBS:
        raise ValueError(f"{where} has {jobs:,} jobs, but at most {MOST_JOBS:,} fit into one sweep: split it.")


def _seeds(given: Any, where: str) -> tuple[int, ...]:
    """A list of seeds, or { first, count }."""
    if isinstance(given, Mapping):
        for key in given:
            if key not in ("first", "count"):
                raise ValueError(f"{where}: {unknown('setting of seeds', str(key), ('first', 'count'))}")
        first, count = (canonical(given.get(key, 0), int, f"{where}: seeds.{key}") for key in ("first", "count"))
        if not 1 <= count <= MOST_SEEDS:
            raise ValueError(f"{where}: seeds.count is {count}, but it must be 1 to {MOST_SEEDS:,}.")
        return tuple(range(first, first + count))
    seeds: tuple[int, ...] = canonical(given, tuple[int, ...], f"{where}: seeds")
    if not 1 <= len(seeds) <= MOST_SEEDS or len(set(seeds)) != len(seeds):
        raise ValueError(f"{where}: seeds are {len(seeds):,}, but give 1 to {MOST_SEEDS:,}, all different.")
    return seeds


def _side_by_side(given: Any, seeds: int, where: str) -> int:
    if given == "all":
        return seeds
    number: int = canonical(given, int, f"{where}: side_by_side")
    if number < 1:
        raise ValueError(f'{where}: side_by_side is {number}, but it must be at least 1, or "all".')
    return number


def _short(name: str) -> str:
    """Of module:Class the class."""
    return name.rpartition(":")[2]
