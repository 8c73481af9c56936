"""The folder of a run: what was asked, what happened, what came out.

    config.json       the resolved configuration, with its hash
    env.json          versions and machine of the last (re)start
    metrics.jsonl     one line a block; no clock in it, so a resumed run writes the same bytes
    checkpoints/      see checkpoint.py
    tensorboard/      the metrics again, for TensorBoard
    result.json       written last: what was learned, and the hashes of weights, optimiser state and metrics
    figures/          the pictures
    run.lock          held by the process that trains

What a killed process left half written is cleared away by the next one. JSON files end with a seal (`files.seal`), so
that a damaged one is refused. The folder may be reached through a symbolic link; inside it none is followed.
"""

import dataclasses
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

import tapehead
from tapehead import files
from tapehead.models import SequenceModel, make_model
from tapehead.tasks import Task, make_task
from tapehead.training import checkpoint, events
from tapehead.training.config import BLOCK, PLACE, WINDOW, RunConfig
from tapehead.training.results import is_result

ADVICE = (
    "what was saved before is untouched; make room or permission and run the same command again, "
    "or choose another folder with --out."
)
FOLDERS = ("checkpoints", "tensorboard", "figures")
LOCK = "run.lock"
FILES = (LOCK, "env.json", "metrics.jsonl", "training.json", "result.json", f"tensorboard/{events.FILE}")
STARTS = 100
"""How often a start makes its folder again that another process, which failed, has removed."""


class Run:
    """A run's folder, locked for one process at a time."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        """Open the folder, or make it. What is refused is not touched: another run's folder, or one that was not there.

        Its checkpoints are looked at later, by `newest`; until `begin` nothing but the configuration is written.
        """
        self.folder, self.config = folder, config
        machine(config)  # what cannot be trained leaves nothing behind
        with files.writing(folder, ADVICE):
            _refuse_other(folder, config)
            made, self._lock = _lock(folder)
            try:
                _refuse_other(folder, config)  # it may have come since
                if not os.path.lexists(folder / "config.json"):
                    files.replace(folder / "config.json", _sealed(config))
            except BaseException:
                if not os.path.lexists(folder / "config.json"):  # no run, and no process holds this lock but ours
                    (folder / LOCK).unlink(missing_ok=True)
                    files.remove_empty(made)
                self.close()
                raise

    def close(self) -> None:
        os.close(self._lock)

    def begin(self, lines: list[str]) -> None:
        """Start or go on: clear away what a killed process left, and set the metrics to those of a checkpoint."""
        with files.writing(self.folder, ADVICE):
            _refuse_links(self.folder)
            for place in (self.folder, *(self.folder / name for name in FOLDERS)):
                files.clear_temporary(place)
            self.write_json("env.json", environment(self.config))
            files.replace(self.folder / "metrics.jsonl", "".join(line + "\n" for line in lines).encode())
            events.rewrite(self.folder / "tensorboard", lines)

    def write_json(self, name: str, values: dict[str, Any]) -> None:
        """Write a sealed file into the folder."""
        with files.writing(self.folder, ADVICE):
            files.replace(self.folder / name, files.seal(values, finite=False))  # scores may be infinite

    def save(self, point: checkpoint.Checkpoint) -> Path:
        try:
            return checkpoint.save(self.folder / "checkpoints", point)
        except OSError as error:
            raise ValueError(
                f"cannot save a checkpoint in {self.folder} ({error.strerror}); the last one is untouched: "
                "make room or permission, and run the same command again."
            ) from error

    def newest(self) -> checkpoint.Checkpoint | None:
        return newest(self.folder, self.config)

    def append_metrics(self, line: str) -> None:
        with files.writing(self.folder, ADVICE):
            files.append(self.folder / "metrics.jsonl", f"{line}\n".encode())
            events.append(self.folder / "tensorboard", line)

    @property
    def result(self) -> dict[str, Any] | None:
        """What a finished run wrote; None if it is not there or cannot be read, and has to be made again."""
        return read_result(self.folder)


def _lock(folder: Path) -> tuple[list[Path], int]:
    """Make the folder if need be, and lock it: the folders that were made, and the lock's descriptor."""
    for start in range(STARTS):
        made = []
        try:
            made = files.make_folders(folder)
            lock = files.lock(folder / LOCK)
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
    raise ValueError(f"another process is training in {folder}: wait for it, or choose another --out.")


def _refuse_links(folder: Path) -> None:
    """Refuse, before anything is written, links and the like in the places that a run writes to."""
    for name in FOLDERS:
        files.expect_folder(folder / name)
    for name in FILES:
        files.expect_file(folder / name)
    checkpoint.expect_plain(folder / "checkpoints")


def _refuse_other(folder: Path, config: RunConfig) -> None:
    """Refuse a folder that holds anything but this run, or nothing."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, but a run needs a folder: choose another --out.")
    if not os.path.lexists(folder / "config.json"):
        # A process killed in its first moments leaves its lock and perhaps half a configuration.
        if all(name == LOCK or files.is_temporary(name, of="config.json") for name in _names(folder)):
            return
        if not os.path.lexists(folder / "config.json"):  # which another process may have written since
            raise ValueError(f"{folder} has files in it, but no run: choose an empty or new folder with --out.")
    there = read_config(folder)
    if there.hash == config.hash:
        return
    for name in (field.name for field in dataclasses.fields(config) if field.name not in PLACE):
        value, ours = getattr(there, name), getattr(config, name)
        if json.dumps(value) != json.dumps(ours):
            raise ValueError(
                f"{folder} holds a run with {name} = {value}, not {ours}: choose another --out, "
                "or repeat its settings to go on with it."
            )


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


def _sealed(config: RunConfig) -> bytes:
    """The only valid text of config.json. `sha256` is of what the run computes, `seal` of every setting."""
    return files.seal({"config": config.to_dict(), "sha256": config.hash})


def attempts_of(line: dict[str, Any]) -> list[int]:
    """In which attempt the seeds of a line of the metrics are; older runs say one number for all."""
    attempts = line.get("attempt", 1)
    return attempts if isinstance(attempts, list) else [attempts] * len(line["seeds"])


def taught_of(line: dict[str, Any]) -> list[bool]:
    """Which of the seeds of a line of the metrics are in a curriculum that comes to an end."""
    taught = line.get("curriculum", False)
    return taught if isinstance(taught, list) else [taught] * len(line["seeds"])


def read_config(folder: Path) -> RunConfig:
    """The configuration of a run, every byte of it verified."""
    try:
        text = files.read(folder / "config.json")
        config = RunConfig.from_dict(files.unseal(text)["config"])
        if text != _sealed(config):
            raise ValueError("its hash does not match")
    except files.NotPlain as error:
        damage = f"{folder}/config.json {error.reason}"
        raise ValueError(f"{damage}: restore it, or train into another --out.") from error
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} holds no run (no config.json): give the folder of a run.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        damage = f"{folder}/config.json is damaged ({error})"
        raise ValueError(f"{damage}: restore it, or train into another --out.") from error
    return config


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run, every byte of it verified; None if there is none that can be read."""
    try:
        values = files.unseal(files.read(folder / "result.json"))
    except (OSError, ValueError, RecursionError):
        return None
    return values if is_result(values, read_config(folder).seeds) else None


def newest(folder: Path, config: RunConfig) -> checkpoint.Checkpoint | None:
    """The newest whole checkpoint of a run, if it has one yet."""
    point = checkpoint.load_newest(folder / "checkpoints", most_bytes(config))
    if point is not None and point.facts.get("config") != config.hash:
        raise ValueError(f"the checkpoints in {folder} belong to another configuration: choose another folder.")
    if point is not None and not (isinstance(point.facts.get("updates"), int) and "metrics.jsonl" in point.files):
        raise ValueError(f"the checkpoints in {folder} were made by another version of tapehead: use that one.")
    return point


def most_bytes(config: RunConfig) -> int:
    """Bytes that a checkpoint of a run has at most: generous, but far from what would fill the memory."""
    _, model = machine(config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    tensors = 8 * (8 * parameters + WINDOW + 16)  # weights, averages, optimiser and records of a seed, in 8 bytes each
    metrics = (config.all_updates // BLOCK + 1) * 128  # one line a block
    return (64 << 20) + 2 * len(config.seeds) * (tensors + metrics)


def machine(config: RunConfig) -> tuple[Task, SequenceModel]:
    """The task and the model of a run."""
    task = make_task(config.task, **config.task_options)
    return task, make_model(config.model, task, **config.model_options)


def environment(config: RunConfig) -> dict[str, Any]:
    """Versions and machine, for the record."""
    return {
        "tapehead": tapehead.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if config.device.startswith("cuda") else "cpu",
        "command": sys.argv[1:],
    }


def load(path: str | Path, seed: int | None = None) -> SequenceModel:
    """The trained machine of a run's folder; `seed` chooses one of a population (the first by default)."""
    folder = Path(path)
    config = read_config(folder)
    _, model = machine(config)
    seed = config.seeds[0] if seed is None else seed
    if seed not in config.seeds:
        raise ValueError(f"seed {seed} is not in {folder}: it has {', '.join(map(str, config.seeds))}.")
    point = newest(folder, config)
    if point is None:
        raise ValueError(f"{folder} has no checkpoint yet: train it first.")
    model.load_flat(delivered(point, config, model)[config.seeds.index(seed)])
    return model.eval()


def delivered(point: checkpoint.Checkpoint, config: RunConfig, model: SequenceModel) -> torch.Tensor:
    """The weights [S, P] that a checkpoint stands for: the kept ones, or the latest of a seed that has none yet."""
    tensors = point.tensors
    seeds, parameters = len(config.seeds), sum(parameter.numel() for parameter in model.parameters())
    shapes = {"kept": (seeds, parameters), "update.parameters": (seeds, parameters), "kept_cost": (seeds,)}
    if any(name not in tensors or tensors[name].shape != shape for name, shape in shapes.items()):
        raise ValueError(f"checkpoint {point.step} was made by another version of tapehead: use that one.")
    latest = tensors.get("update.average", tensors["update.parameters"])
    return torch.where(torch.isfinite(tensors["kept_cost"]).unsqueeze(-1), tensors["kept"], latest)
