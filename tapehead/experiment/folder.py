"""The folder of a run: what was asked, what happened, what came out. docs/run-folder.md describes it for users.

    config.json       the experiment, with its hash
    env.json          versions and machine of the last (re)start of training
    metrics.jsonl     one line a block; no clock in it, so a resumed run writes the same bytes
    checkpoints/      see checkpoint.py
    tensorboard/      the metrics again, for TensorBoard
    time.json         how long it has trained
    result.json       written last: what was learned, and the hashes of weights, optimiser state and metrics
    figures/          the pictures
    run.lock          held by the process that trains

What a killed process left half written is cleared away by the next one. JSON files end with a seal (`files.seal`), so
that a damaged one is refused. The folder may be reached through a symbolic link; inside it none is followed.
"""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from tapehead import files
from tapehead.environment import environment
from tapehead.experiment import checkpoint, events, metrics
from tapehead.experiment.config import Experiment
from tapehead.experiment.extension import extends, why_not
from tapehead.experiment.parts import BLOCK, WINDOW
from tapehead.experiment.population import choose_delivered
from tapehead.experiment.results import Result
from tapehead.models import SequenceModel
from tapehead.terminal import say

ADVICE = (
    "what was saved before is untouched; make room or permission and run the same command again, "
    "or choose another folder."
)
FOLDERS = ("checkpoints", "tensorboard", "figures")
LOCK = "run.lock"
FILES = (LOCK, "env.json", "metrics.jsonl", "time.json", "result.json", f"tensorboard/{events.FILE}")
LOOKS = 4
STARTS = 100
"""How often a start makes its folder again that another process, which failed, has removed."""


class Busy(ValueError):
    """Another process is training in the folder."""


class RunFolder:
    """A run's folder, locked for one process at a time."""

    def __init__(self, folder: Path, experiment: Experiment) -> None:
        """Open the folder, or make it. What is refused is not touched: another run's folder, or one that was not there.

        Its checkpoints are read later, by `newest`; until `begin` nothing but the configuration is written.
        """
        self.path, self.experiment = folder, experiment
        with files.writing(folder, ADVICE):
            _refuse_other(folder, experiment)
            self._made, self._lock = _lock(folder)
            try:
                _refuse_other(folder, experiment)  # it may have come since
                if not os.path.lexists(folder / "config.json"):
                    files.replace(folder / "config.json", _sealed(experiment))
                elif (there := read_config(folder)).hash != experiment.hash:
                    _extend(folder, there, experiment)
            except BaseException:
                if not os.path.lexists(folder / "config.json"):  # no run, and no process holds this lock but ours
                    (folder / LOCK).unlink(missing_ok=True)
                    files.remove_empty(self._made)
                self.close()
                raise

    def close(self) -> None:
        os.close(self._lock)

    def abandon(self) -> bool:
        """Remove a folder that this run has made and has no checkpoint in yet; whether there is nothing left of it."""
        if checkpoint.folders(self.path / "checkpoints"):
            return False
        if self.path in self._made:
            shutil.rmtree(self.path, ignore_errors=True)
            files.remove_empty(self._made[:-1])
        return True

    def begin(self, lines: list[str]) -> None:
        """Start or go on: clear away what a killed process left, and set the metrics to those of a checkpoint."""
        with files.writing(self.path, ADVICE):
            _refuse_links(self.path)
            for place in (self.path, *(self.path / name for name in FOLDERS)):
                files.clear_temporary(place)
            files.replace(self.path / "metrics.jsonl", "".join(line + "\n" for line in lines).encode())
            events.rewrite(self.path / "tensorboard", lines)

    def write_environment(self, backend: str) -> None:
        """Say where this process trains; one that finds the run finished leaves what the last one said."""
        where = environment(self.experiment.place.device, backend)
        self.write_json("env.json", where | {"command": sys.argv[1:]})

    def write_json(self, name: str, values: dict[str, Any]) -> None:
        """Write a sealed file into the folder."""
        with files.writing(self.path, ADVICE):
            files.replace(self.path / name, files.seal(values))

    def save(self, point: checkpoint.Checkpoint) -> Path:
        try:
            return checkpoint.save(self.path / "checkpoints", point)
        except OSError as error:
            raise ValueError(
                f"cannot save a checkpoint in {self.path} ({error.strerror}); the last one is untouched: "
                "make room or permission, and run the same command again."
            ) from error

    def newest(self, tell: Callable[[str], None] = say) -> checkpoint.Checkpoint | None:
        return newest(self.path, self.experiment, tell)

    def append_metrics(self, line: str) -> None:
        with files.writing(self.path, ADVICE):
            files.append(self.path / "metrics.jsonl", f"{line}\n".encode())
            events.append(self.path / "tensorboard", line)

    def seconds(self) -> float | None:
        """How long the run has trained, as far as that was written down."""
        try:
            seconds = files.unseal(files.read(self.path / "time.json"))["seconds"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return float(seconds) if type(seconds) in (int, float) else None


def _lock(folder: Path) -> tuple[list[Path], int]:
    """Make the folder if need be, and lock it: the folders that were made, and the lock's descriptor."""
    for start in range(STARTS):
        made = []
        try:
            made = files.make_folders(folder)
            lock = _lock_file(folder / LOCK)
        except FileNotFoundError:  # another process has made it, failed, and removed it again
            if start == STARTS - 1:
                raise
            continue
        except BaseException:
            files.remove_empty(made)
            raise
        if lock is not None:
            return made, lock
        break
    raise Busy(f"another process is training in {folder}: wait for it, or choose another folder.")


def _lock_file(path: Path) -> int | None:
    """The lock; tried again, because `tapehead runs` has it for a moment when it looks whether a run is trained."""
    for _ in range(LOOKS):
        lock = files.lock(path)
        if lock is not None:
            return lock
        time.sleep(0.01)
    return None


def _refuse_links(folder: Path) -> None:
    """Refuse, before anything is written, links and the like in the places that a run writes to."""
    for name in FOLDERS:
        files.expect_folder(folder / name)
    for name in FILES:
        files.expect_file(folder / name)
    checkpoint.expect_plain(folder / "checkpoints")


def _refuse_other(folder: Path, experiment: Experiment) -> None:
    """Refuse a folder that holds anything but this run, or nothing."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, but a run needs a folder: choose another.")
    if not os.path.lexists(folder / "config.json"):
        # A process killed in its first moments leaves its lock and perhaps half a configuration.
        if all(name == LOCK or files.is_temporary(name, of="config.json") for name in _names(folder)):
            return
        if not os.path.lexists(folder / "config.json"):  # which another process may have written since
            raise ValueError(f"{folder} has files in it, but no run: choose an empty or new folder.")
    there = read_config(folder)
    if there.hash == experiment.hash or extends(experiment, there):
        return
    ours, theirs = _flat(experiment), _flat(there)
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            raise ValueError(
                f"{folder} holds a run with {name} = {theirs.get(name)}, not {ours.get(name)}: choose another folder, "
                "or repeat its settings to go on with it."
            )


def _flat(experiment: Experiment) -> dict[str, Any]:
    """What a run computes, by "part.name"."""
    values = {name: value for name, value in experiment.to_plain().items() if name not in ("place", "recipe")}
    return {
        f"{part}.{name}" if name else part: value
        for part, table in values.items()
        for name, value in (table if isinstance(table, dict) else {"": table}).items()
    }


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


def _extend(folder: Path, there: Experiment, experiment: Experiment) -> None:
    """Make a folder that of the same run with more episodes, or refuse it and leave it as it is.

    What is killed on the way leaves the run as it was, or broken off before its end: its configuration is changed last.
    """
    point = newest(folder, there)
    before = f"{folder} holds this run with {there.training.episodes:,} episodes"
    reason = "" if point is None else why_not(experiment, there, point.facts["updates"] // BLOCK * BLOCK)
    whole = [] if point is None else _whole_blocks(folder, there)
    if not reason and point is not None and not whole:
        reason = "its last block of updates is not whole, and there is no checkpoint from before it"
    if reason:
        raise ValueError(
            f"{before}, which cannot go on exactly to {experiment.training.episodes:,}: {reason}. "
            "Train it from the start in another folder."
        )
    files.expect_file(folder / "result.json")
    (folder / "result.json").unlink(missing_ok=True)
    for path in checkpoint.folders(folder / "checkpoints"):
        if path not in whole:
            shutil.rmtree(path)
    files.replace(folder / "config.json", _sealed(experiment, (*_earlier(folder), there.hash)))


def _whole_blocks(folder: Path, experiment: Experiment) -> list[Path]:
    """The whole checkpoints after whole blocks of updates."""
    found = []
    for path in checkpoint.folders(folder / "checkpoints"):
        with contextlib.suppress(checkpoint.DamagedCheckpoint):
            point = checkpoint.load(path, most_bytes(experiment))
            if point.facts.get("updates", 1) % BLOCK == 0:
                found.append(path)
    return found


def _sealed(experiment: Experiment, earlier: Sequence[str] = ()) -> bytes:
    """The text of config.json. `sha256` is of what the run computes, the seal of every setting; `extends` has the same
    of the runs with fewer episodes that it goes on from, if it does."""
    values = {"experiment": experiment.to_plain(), "sha256": experiment.hash}
    return files.seal(values | ({"extends": list(earlier)} if earlier else {}))


def _earlier(folder: Path) -> list[str]:
    """The hashes of the runs that the one in a folder goes on from."""
    earlier = files.unseal(files.read(folder / "config.json")).get("extends", [])
    return [str(one) for one in earlier] if isinstance(earlier, list) else []


def read_config(folder: Path) -> Experiment:
    """The experiment of a run, every byte of it verified."""
    try:
        values = files.unseal(files.read(folder / "config.json"))["experiment"]
    except files.NotPlain as error:
        raise ValueError(f"{folder}/config.json {error.reason}: restore it, or train into another folder.") from error
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} holds no run (no config.json): give the folder of a run.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        damage = f"{folder}/config.json is damaged ({error})"
        raise ValueError(f"{damage}: restore it, or train into another folder.") from error
    return Experiment.from_plain(values, f"{folder}/config.json")


def read_result(folder: Path) -> Result | None:
    """The result of a finished run, every byte of it verified; None if there is none that can be read."""
    try:
        result = Result.from_plain(files.unseal(files.read(folder / "result.json")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return result if result.seeds == read_config(folder).seeds else None


def newest(folder: Path, experiment: Experiment, tell: Callable[[str], None] = say) -> checkpoint.Checkpoint | None:
    """The newest whole checkpoint of a run, if it has one yet. tell: of damaged ones that were passed over."""
    point = checkpoint.load_newest(folder / "checkpoints", most_bytes(experiment), tell)
    if point is not None and point.facts.get("experiment") not in (experiment.hash, *_earlier(folder)):
        raise ValueError(f"the checkpoints in {folder} belong to another experiment: choose another folder.")
    if point is not None and not (isinstance(point.facts.get("updates"), int) and "metrics.jsonl" in point.files):
        raise ValueError(f"the checkpoints in {folder} were made by another version of tapehead: use that one.")
    return point


def finished_checkpoint(folder: Path, experiment: Experiment) -> checkpoint.Checkpoint:
    """The newest checkpoint, of a run that has one."""
    point = newest(folder, experiment)
    if point is None:
        raise ValueError(f"{folder} has no checkpoint yet: train it first.")
    return point


def most_bytes(experiment: Experiment) -> int:
    """Bytes that a checkpoint of a run has at most: generous, but far from what would fill the memory."""
    parameters = sum(parameter.numel() for parameter in experiment.model.build(experiment.task).parameters())
    # weights, averages, moments and records of a seed, in 8 bytes each
    tensors = 8 * ((6 + len(experiment.optimiser.moments)) * parameters + WINDOW + 16)
    lines = (experiment.all_updates // BLOCK + 1) * 256  # one line a block
    return (64 << 20) + 2 * len(experiment.seeds) * (tensors + lines)


def read_metrics(folder: Path) -> list[metrics.Line]:
    """The metrics of a run, as its newest checkpoint has them."""
    return metrics.read(finished_checkpoint(folder, read_config(folder)).files["metrics.jsonl"].splitlines())


def load(path: str | Path, seed: int | None = None) -> SequenceModel:
    """The trained machine of a run's folder; `seed` chooses one of a population (the first by default)."""
    folder = Path(path)
    experiment = read_config(folder)
    seed = experiment.seeds[0] if seed is None else seed
    if seed not in experiment.seeds:
        raise ValueError(f"seed {seed} is not in {folder}: it has {', '.join(map(str, experiment.seeds))}.")
    model = experiment.model.build(experiment.task)
    model.load_flat(delivered(folder, experiment)[experiment.seeds.index(seed)])
    return model.eval()


def delivered(folder: Path, experiment: Experiment) -> Tensor:
    """The weights [S, P] that a run stands for: the kept ones, or the latest of a seed that has none yet."""
    point = finished_checkpoint(folder, experiment)
    tensors = point.tensors
    seeds, parameters = (
        len(experiment.seeds),
        sum(p.numel() for p in experiment.model.build(experiment.task).parameters()),
    )
    shapes = {"kept": (seeds, parameters), "update.parameters": (seeds, parameters), "kept_cost": (seeds,)}
    if any(name not in tensors or tensors[name].shape != shape for name, shape in shapes.items()):
        raise ValueError(f"checkpoint {point.step} was made by another version of tapehead: use that one.")
    latest = tensors.get("update.average", tensors["update.parameters"])
    return choose_delivered(tensors["kept"], tensors["kept_cost"], latest)
