"""The folder of a run: what was asked, what happened, what came out.

    config.json       the resolved configuration, with its hash
    env.json          versions and machine of the last (re)start
    metrics.jsonl     one line a block; no clock in it, so a resumed run writes the same bytes
    checkpoints/      see checkpoint.py
    tensorboard/      the metrics again, for TensorBoard
    result.json       written last: what was learned, and the hashes of weights, optimiser state and metrics
    figures/          the pictures

What a killed process left half written is cleared away by the next one.
"""

import dataclasses
import fcntl
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

import tapehead
from tapehead.models import SequenceModel, make_model
from tapehead.tasks import Task, make_task
from tapehead.training import checkpoint, events
from tapehead.training.config import PLACE, RunConfig

RESULT = {"seeds", "solved_at", "generalisation", "sha256"}
"""What a result must hold to be shown again."""


class Run:
    """A run's folder, locked for one process at a time."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        """Open the folder, or make it. What is refused is not touched: another run's folder, or one that was not there.

        Its checkpoints are looked at later, by `newest`; until `begin` nothing but the configuration is written.
        """
        self.folder, self.config = folder, config
        machine(config)  # what cannot be trained leaves nothing behind
        text = _sealed(config)
        with _can_write(folder):
            _refuse_other(folder, config)
            made = _make(folder)
            try:
                self._lock = _lock(folder)
                if not (folder / "config.json").exists():
                    checkpoint.replace_durably(folder / "config.json", text)
            except BaseException:
                if made is not None:
                    shutil.rmtree(made, ignore_errors=True)
                raise

    def close(self) -> None:
        os.close(self._lock)

    def begin(self, lines: list[str]) -> None:
        """Start or go on: clear away what a killed process left, and set the metrics to those of a checkpoint."""
        with _can_write(self.folder):
            for leftover in (self.folder / "checkpoints").glob(".step-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            for leftover in self.folder.glob(".*.json*.*"):
                leftover.unlink()
            self.write_json("env.json", environment(self.config))
            checkpoint.replace_durably(self.folder / "metrics.jsonl", "".join(line + "\n" for line in lines).encode())
            events.rewrite(self.folder / "tensorboard", lines)

    def write_json(self, name: str, value: Any) -> None:
        with _can_write(self.folder):
            checkpoint.replace_durably(self.folder / name, (json.dumps(value, indent=2) + "\n").encode())

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
        with _can_write(self.folder):
            with (self.folder / "metrics.jsonl").open("a") as file:
                file.write(line + "\n")
            events.append(self.folder / "tensorboard", line)

    @property
    def result(self) -> dict[str, Any] | None:
        """What a finished run wrote; None if it is not there or cannot be read, and has to be made again."""
        return read_result(self.folder)


@contextmanager
def _can_write(folder: Path) -> Iterator[None]:
    """Disk full, folder gone, no permission: one sentence."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write to {folder} ({error.strerror}); what was saved before is untouched: make room or permission "
            "and run the same command again, or choose another folder with --out."
        ) from error


def _make(folder: Path) -> Path | None:
    """Make a folder and those above it; the topmost that was not there."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        for path in missing:
            with suppress(OSError):
                path.rmdir()
        raise
    return missing[-1] if missing else None


def _refuse_other(folder: Path, config: RunConfig) -> None:
    """Refuse a folder that holds anything but this run, or nothing."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, but a run needs a folder: choose another --out.")
    if not (folder / "config.json").exists():
        # A process killed in its first moments leaves its lock and perhaps half a configuration.
        if folder.exists() and any(p.name != "run.lock" and ".config.json." not in p.name for p in folder.iterdir()):
            raise ValueError(f"{folder} has files in it, but no run: choose an empty or new folder with --out.")
        return
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


def _lock(folder: Path) -> int:
    descriptor = os.open(folder / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ValueError(f"another process is training in {folder}: wait for it, or choose another --out.") from None
    return descriptor


def _sealed(config: RunConfig) -> bytes:
    """The only valid text of config.json. `sha256` is of what the run computes, `seal` of every setting."""
    settings = config.to_dict()
    seal = checkpoint.sha256(json.dumps(settings, sort_keys=True).encode())
    return (json.dumps({"config": settings, "sha256": config.hash, "seal": seal}, indent=2) + "\n").encode()


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
        text = (folder / "config.json").read_bytes()
        config = RunConfig.from_dict(json.loads(text)["config"])
        if text != _sealed(config):
            raise ValueError("its hash does not match")
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} holds no run (no config.json): give the folder of a run.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        damage = f"{folder}/config.json is damaged ({error})"
        raise ValueError(f"{damage}: restore it, or train into another --out.") from error
    return config


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None if there is none that can be read."""
    try:
        result = json.loads((folder / "result.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) and result.keys() >= RESULT else None


def newest(folder: Path, config: RunConfig) -> checkpoint.Checkpoint | None:
    """The newest whole checkpoint of a run, if it has one yet."""
    point = checkpoint.load_newest(folder / "checkpoints")
    if point is not None and point.facts.get("config") != config.hash:
        raise ValueError(f"the checkpoints in {folder} belong to another configuration: choose another folder.")
    if point is not None and not (isinstance(point.facts.get("updates"), int) and "metrics.jsonl" in point.files):
        raise ValueError(f"the checkpoints in {folder} were made by another version of tapehead: use that one.")
    return point


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
