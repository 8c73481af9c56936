"""Runs below a folder: what they are and how far they came, from plain files alone.

Nothing is imported that a run names, no link is followed, and no run can break the list: one that cannot be read is
shown as damaged. torch is not needed.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from tapehead import files
from tapehead.typed import fits

State = Literal["finished", "running", "broken off", "damaged"]
"""broken off: not finished, and no process trains it; the same command goes on with it."""

CONFIG, RESULT, METRICS, LOCK = "config.json", "result.json", "metrics.jsonl", "run.lock"
DEPTH = 8
"""Folders below the given one that are looked into."""
TAIL = 1 << 20
"""Bytes at the end of metrics.jsonl that are read for its last line; with ten thousand seeds it is that long."""


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """What the files of a run say."""

    folder: Path
    state: State
    reason: str = ""
    """What is wrong with a damaged run."""
    experiment: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Plain values; empty if they cannot be read."""
    hash: str = ""
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Plain values of result.json; empty if there is none."""
    episodes: int | None = None
    """So far, of the seed that had the most."""
    bits: float | None = None
    """Median over the seeds of the mean cost: of the last 1,000 episodes, or while it is unfinished of the last
    block."""
    changed: float = 0.0
    """When a file of it was last written, in seconds since 1970."""

    @property
    def task(self) -> str:
        return str(self._part("task").get("name", ""))

    @property
    def model(self) -> str:
        """The model's name; of a Neural Turing Machine with its controller: ntm-lstm."""
        model = self._part("model")
        name = str(model.get("name", ""))
        return f"{name}-{model.get('controller', 'lstm')}" if name == "ntm" else name

    @property
    def recipe(self) -> str:
        return str(self.experiment.get("recipe", ""))

    @property
    def seeds(self) -> list[int]:
        seeds = self.experiment.get("seeds")
        return seeds if isinstance(seeds, list) else []

    @property
    def solved(self) -> int | None:
        """Seeds solved, of a finished run."""
        return sum(at is not None for at in self.result["solved_at"]) if self.result else None

    @property
    def costs(self) -> dict[str, float | None]:
        """Median cost in bits over the seeds, by size; None if it is not finite."""
        return {score["label"]: _median(score["bits"]) for score in self.result.get("generalisation", ())}

    def settings(self) -> dict[str, Any]:
        """All values of the experiment by path."""
        return {
            f"{part}.{name}" if name else part: value
            for part, table in self.experiment.items()
            for name, value in (table if isinstance(table, dict) else {"": table}).items()
        }

    def to_plain(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "state": self.state,
            "reason": self.reason,
            "task": self.task,
            "model": self.model,
            "recipe": self.recipe,
            "hash": self.hash,
            "seeds": self.seeds,
            "solved": self.solved,
            "episodes": self.episodes,
            "bits": self.bits,
            "costs": self.costs,
            "age": round(max(0.0, time.time() - self.changed), 1),
        }

    def _part(self, name: str) -> Mapping[str, Any]:
        part = self.experiment.get(name)
        return part if isinstance(part, dict) else {}


def find_runs(folder: Path) -> Iterator[RunInfo]:
    """The runs in and below a folder, by path."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: give one with runs in it.")
    for path in _run_folders(folder, DEPTH):
        yield read_run(path)


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # not ours to read, or just removed
        return
    if any(entry.name == CONFIG for entry in entries):
        yield folder
        return
    for entry in entries:
        if depth and entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield from _run_folders(Path(entry.path), depth - 1)


def read_run(folder: Path) -> RunInfo:
    """What the files of a run say; never an error."""
    changed = _changed(folder)
    try:
        config = files.unseal(files.read(folder / CONFIG))
        experiment, digest = config["experiment"], str(config["sha256"])
        if not isinstance(experiment, dict):
            raise ValueError("it holds no experiment")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return RunInfo(folder, "damaged", f"{CONFIG}: {_why(error)}", changed=changed)
    info = RunInfo(folder, "broken off", "", experiment, digest, changed=changed)
    try:
        result = _result(folder, info)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        return dataclasses.replace(info, state="damaged", reason=f"{RESULT}: {_why(error)}")
    if result is not None:
        bits = _median(result["last_window_bits"])
        return dataclasses.replace(info, state="finished", result=result, episodes=result["episodes"], bits=bits)
    episodes, bits = _last_line(folder)
    state: State = "running" if files.is_locked(folder / LOCK) else "broken off"
    return dataclasses.replace(info, state=state, episodes=episodes, bits=bits)


_FIELDS: dict[str, Any] = {
    "seeds": list[int],
    "solved_at": list[int | None],
    "episodes": int,
    "last_window_bits": list[float | None],
    "generalisation": list[dict[str, Any]],
}


def _result(folder: Path, info: RunInfo) -> dict[str, Any] | None:
    try:
        values = files.unseal(files.read(folder / RESULT))
    except FileNotFoundError:
        return None
    for name, hint in _FIELDS.items():
        if not fits(values.get(name), hint):
            raise ValueError(f"its {name} is not what this version of tapehead writes")
    for score in values["generalisation"]:
        if not (fits(score.get("label"), str) and fits(score.get("bits"), list[float | None])):
            raise ValueError("its scores are not what this version of tapehead writes")
    if values["seeds"] != info.seeds:
        raise ValueError("it has other seeds than the experiment")
    return values


def _last_line(folder: Path) -> tuple[int | None, float | None]:
    """Episodes and cost of the last whole line of the metrics."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        path = folder / METRICS
        files.expect_file(path)
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read(TAIL).split(b"\n")
        values = json.loads(lines[-2])  # behind the last line break is nothing, or half a line
        if fits(values["episodes"], int) and fits(values["bits"], list[float | None]):
            return values["episodes"], _median(values["bits"])
    return None, None


def _changed(folder: Path) -> float:
    times = [0.0]
    for name in (CONFIG, RESULT, METRICS):
        with contextlib.suppress(OSError):
            times.append((folder / name).lstat().st_mtime)
    return max(times)


def _median(values: list[float | None]) -> float | None:
    """Of a list with None for what is not finite, which counts as larger than any number."""
    if not values:
        return None
    median = statistics.median(float("inf") if value is None else value for value in values)
    return median if median < float("inf") else None


def _why(error: BaseException) -> str:
    if isinstance(error, files.NotPlain):
        return error.reason
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return " ".join(str(error).split()) if isinstance(error, ValueError) else type(error).__name__
