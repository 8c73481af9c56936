"""The folder of a run: what was asked, what happened, what came out.

    config.json       the resolved configuration, with its hash
    env.json          versions and machine of the last (re)start
    metrics.jsonl     one line a block; no clock in it, so a resumed run writes the same bytes
    checkpoints/      see checkpoint.py
    tensorboard/      the metrics again, for TensorBoard
    result.json       written last: what was learned, and the hashes of weights, optimiser state and metrics
    figures/          the pictures
"""

import fcntl
import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

import tapehead
from tapehead.models import SequenceModel, make_model
from tapehead.tasks import make_task
from tapehead.training import checkpoint, events
from tapehead.training.config import PLACE, RunConfig


class Run:
    """A run's folder, locked for one process at a time."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        """Open the folder, or make it. A folder that holds another configuration is refused, and not touched."""
        self.folder, self.config = folder, config
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file, but a run needs a folder: choose another --out.")
        if (folder / "config.json").exists():
            _refuse_other(folder, config)
        elif folder.exists() and any(p.name != "run.lock" for p in folder.iterdir()):
            raise ValueError(f"{folder} has files in it, but no run: choose an empty or new folder with --out.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
            for leftover in (folder / "checkpoints").glob(".step-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            if not (folder / "config.json").exists():
                self.write_json("config.json", {"config": config.to_dict(), "sha256": config.hash})
            self.write_json("env.json", environment(config))
        except OSError as error:
            raise ValueError(f"cannot write to {folder} ({error.strerror}): choose another folder with --out.") from error

    def close(self) -> None:
        os.close(self._lock)

    def write_json(self, name: str, value: Any) -> None:
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
        point = checkpoint.load_newest(self.folder / "checkpoints")
        if point is not None and point.facts.get("config") != self.config.hash:
            raise ValueError(f"the checkpoints in {self.folder} belong to another configuration: choose another --out.")
        return point

    def rewrite_metrics(self, lines: list[str]) -> None:
        """Set the metrics to those of a checkpoint; what a killed process wrote after it is written again."""
        checkpoint.replace_durably(self.folder / "metrics.jsonl", "".join(line + "\n" for line in lines).encode())
        events.rewrite(self.folder / "tensorboard", lines)

    def append_metrics(self, line: str) -> None:
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(line + "\n")
        events.append(self.folder / "tensorboard", line)

    @property
    def result(self) -> dict[str, Any] | None:
        """What a finished run wrote."""
        path = self.folder / "result.json"
        return json.loads(path.read_text()) if path.exists() else None


def _refuse_other(folder: Path, config: RunConfig) -> None:
    there = read_config(folder)
    if there.hash == config.hash:
        return
    for name, value in there.to_dict().items():
        if name not in PLACE and value != config.to_dict()[name]:
            raise ValueError(
                f"{folder} holds a run with {name} = {value}, not {config.to_dict()[name]}: choose another --out, "
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


def read_config(folder: Path) -> RunConfig:
    """The configuration of a run, verified against its hash."""
    try:
        stored = json.loads((folder / "config.json").read_text())
        config = RunConfig.from_dict(stored["config"])
        if stored["sha256"] != config.hash:
            raise ValueError("its hash does not match")
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no run (no config.json): give the folder of a run.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}/config.json is damaged ({error}): restore it, or train into another --out.") from error
    return config


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
    seed = config.seeds[0] if seed is None else seed
    if seed not in config.seeds:
        raise ValueError(f"seed {seed} is not in {folder}: it has {', '.join(map(str, config.seeds))}.")
    point = checkpoint.load_newest(folder / "checkpoints")
    if point is None:
        raise ValueError(f"{folder} has no checkpoint yet: train it first.")
    task = make_task(config.task, **config.task_options)
    model = make_model(config.model, task, **config.model_options)
    model.load_flat(delivered(point)[config.seeds.index(seed)])
    return model.eval()


def delivered(point: checkpoint.Checkpoint) -> torch.Tensor:
    """The weights [S, P] that a checkpoint stands for: the kept ones, or the latest of a seed that has none yet."""
    tensors = point.tensors
    latest = tensors.get("update.average", tensors["update.parameters"])
    return torch.where(torch.isfinite(tensors["kept_cost"]).unsqueeze(-1), tensors["kept"], latest)
