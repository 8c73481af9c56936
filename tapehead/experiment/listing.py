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
from typing import Any, Literal, NamedTuple, get_type_hints

from tapehead import files
from tapehead.typed import fits

State = Literal["finished", "running", "broken off", "damaged"]
"""broken off: not finished, and no process trains it; the same command goes on with it."""

CONFIG, RESULT, METRICS, LOCK = "config.json", "result.json", "metrics.jsonl", "run.lock"
DEPTH = 8
"""Folders below the given one that are looked into."""
TAIL = 1 << 20
"""Bytes at the end of metrics.jsonl that are read for its last lines; with ten thousand seeds one is that long."""
WINDOW = 1000
"""Episodes over which costs are averaged, as in `experiment.parts`, which imports torch."""


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
    """Median over the seeds of their mean cost in the last 1,000 episodes, or in all of them while there are fewer."""
    changed: float = 0.0
    """When a file of it was last written, in seconds since 1970."""

    @property
    def task(self) -> str:
        return str(self._part("task").get("name", ""))

    @property
    def model(self) -> str:
        """The model's name; of a machine with a controller also that: ntm-lstm."""
        model = self._part("model")
        name = str(model.get("name", ""))
        return f"{name}-{model.get('controller', 'lstm')}" if name in ("ntm", "dnc") else name

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
        if bits is None:  # shorter than a window, or not finite
            bits = _last_lines(folder)[1]
        return dataclasses.replace(info, state="finished", result=result, episodes=result["episodes"], bits=bits)
    episodes, bits = _last_lines(folder)
    state: State = "running" if files.is_locked(folder / LOCK) else "broken off"
    return dataclasses.replace(info, state=state, episodes=episodes, bits=bits)


def has_checkpoint(folder: Path) -> bool:
    """Whether a run has saved anything yet."""
    with contextlib.suppress(OSError), os.scandir(folder / "checkpoints") as entries:
        return any(entry.name.startswith("step-") for entry in entries)
    return False


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


def _last_lines(folder: Path) -> tuple[int | None, float | None]:
    """Episodes at the last whole line of the metrics, and the median over the seeds of the mean cost in the window
    before it."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        path = folder / METRICS
        files.expect_file(path)
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read(TAIL).split(b"\n")[:-1]  # behind the last line break is nothing, or half a line
        blocks = _blocks(lines[size > TAIL :])  # the first may have lost its beginning
        if blocks:
            return blocks[-1].episodes, _window_bits(blocks, whole=size <= TAIL)
    return None, None


class _Block(NamedTuple):
    """What is read of a line of the metrics."""

    episodes: int
    seeds: list[int]
    bits: list[float | None]
    attempt: list[int]


def _blocks(lines: list[bytes]) -> list[_Block]:
    """The last lines, back to one that is a window before the last."""
    blocks: list[_Block] = []
    for text in reversed(lines):
        values = json.loads(text)
        block = _Block(*(values[name] for name in _Block._fields))
        if not all(fits(value, hint) for value, hint in zip(block, get_type_hints(_Block).values(), strict=True)):
            raise ValueError("a line of metrics.jsonl is not what this version of tapehead writes")
        blocks.append(block)
        if block.episodes <= blocks[0].episodes - WINDOW:
            break
    return blocks[::-1]


def _window_bits(blocks: list[_Block], *, whole: bool) -> float | None:
    """The median over the seeds of the mean cost of their last episodes, a window at most, in their present attempts.

    whole: whether the first block is the first of the run, or else one of which only the end is known.
    """
    last = blocks[-1].episodes
    attempts: dict[int, int] = {}
    for block in blocks:
        attempts |= dict(zip(block.seeds, block.attempt, strict=True))
    sums = {seed: (0.0, 0) for seed in attempts}
    for k, block in enumerate(blocks):
        before = blocks[k - 1].episodes if k else 0
        if block.episodes <= last - WINDOW or (k == 0 < len(blocks) - 1 and not whole):
            continue
        for seed, bits, attempt in zip(block.seeds, block.bits, block.attempt, strict=True):
            if attempt == attempts[seed]:
                cost, count = sums[seed]
                more = block.episodes - before
                sums[seed] = cost + more * (float("inf") if bits is None else bits), count + more
    return _median([cost / count for cost, count in sums.values() if count])


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
