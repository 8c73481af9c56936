"""The machines that a page can show: those of the zoo, and those of runs. What is listed is cheap to find; weights are
loaded, and verified, when they are asked for."""

import abc
import functools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from tapehead import files, zoo
from tapehead.experiment import checkpoint, folder
from tapehead.experiment.config import Experiment
from tapehead.models import SequenceModel
from tapehead.registry import CONTROLLERS, MODELS, TASKS

Weights = Mapping[str, Tensor]

PAGE_MODELS = ("ntm", "lstm")
MOST_RUNS = 200
MOST_SEEDS = 50
"""Of a run that are listed."""

MOST_FOLDERS = 20_000
"""That are looked at for runs."""

DEPTH = 7
"""Levels of folders that are looked at, the first included: runs/SWEEP/jobs/JOB/run is the fifth below it."""
SKIPPED = frozenset({"node_modules", "site-packages", "checkpoints", "tensorboard", "figures", "__pycache__"})


class Machine(abc.ABC):
    """A machine of a page. `id` is a word for addresses: letters, digits, dots and hyphens."""

    id: str
    title: str
    group: str
    task: dict[str, Any]
    model: dict[str, Any]
    card: dict[str, Any] | None = None
    seed: int | None = None
    """Of a run's machine."""

    @property
    @abc.abstractmethod
    def detail(self) -> str:
        """One line about it."""

    @abc.abstractmethod
    def weights(self) -> Weights:
        """The named parameters in float32."""

    @abc.abstractmethod
    def snapshots(self) -> list[tuple[str, int]]:
        """Its weights on the way, oldest first: a key, and the episodes until then."""

    @abc.abstractmethod
    def snapshot(self, key: str) -> Weights:
        """The named parameters of a snapshot, in float16: they are looked at, not measured."""

    def entry(self) -> dict[str, Any]:
        """What the index says of it."""
        return {
            "id": self.id,
            "title": self.title,
            "group": self.group,
            "task": self.task,
            "model": self.model,
            "detail": self.detail,
            "snapshots": [{"key": key, "episodes": episodes} for key, episodes in self.snapshots()],
        }

    def about(self) -> dict[str, Any]:
        """What the page is told when it loads the machine."""
        return {"task": self.task, "model": self.model, "card": self.card}


class ZooMachine(Machine):
    group = "zoo"

    def __init__(self, name: str, place: Path | None = None) -> None:
        self._card, self._place = zoo.card(name, place), place
        self.id = self.title = name
        self.task, self.model = self._card.task, self._card.model
        self.card = json.loads(self._card.to_json())

    @property
    def detail(self) -> str:
        return f"{self._card.machine}; {self._card.parameters:,} parameters"

    def weights(self) -> Weights:
        return _named(zoo.load(self.id, backend="reference", folder=self._place))

    def snapshots(self) -> list[tuple[str, int]]:
        found = self._card.snapshots
        return [] if found is None else [(str(episodes), episodes) for episodes in found["episodes"]]

    def snapshot(self, key: str) -> Weights:
        return {name: value.half() for name, value in self._series[key].items()}

    @functools.cached_property
    def _series(self) -> dict[str, Weights]:
        found = zoo.snapshots(self.id, backend="reference", folder=self._place)
        return {str(episodes): _named(model) for episodes, model in found}


class RunMachine(Machine):
    """One seed of a run. Its snapshots are the initial weights, which follow from the seed, and the checkpoints."""

    group = "run"

    def __init__(self, path: Path, title: str, experiment: Mapping[str, Any], seed: int) -> None:
        """experiment: of its config.json, as plain values."""
        self._path, self.seed = path, seed
        self._seeds: list[int] = list(experiment["seeds"])
        self._place = self._seeds.index(seed)
        self._batch = int(experiment["training"]["batch_size"])
        self._one_attempt = experiment["restarts"]["attempts"] == 1
        self.id = f"run-{files.sha256(os.fsencode(path.absolute()))[:12]}-{seed}"
        self.title = title if len(self._seeds) == 1 else f"{title}, seed {seed}"
        self.task, self.model = dict(experiment["task"]), dict(experiment["model"])

    @property
    def detail(self) -> str:
        controller = self.model.get("controller")
        return f"{self.model['name']}{f', {controller} controller' if controller else ''}; a run, seed {self.seed}"

    @property
    def _experiment(self) -> Experiment:
        return folder.read_config(self._path)

    def weights(self) -> Weights:
        return _named(folder.load(self._path, self.seed))

    def snapshots(self) -> list[tuple[str, int]]:
        points = reversed(checkpoint.folders(self._path / "checkpoints"))
        found = [(point.name, int(point.name.removeprefix("step-")) * self._batch) for point in points]
        return [("initial", 0), *found] if self._one_attempt else found

    def snapshot(self, key: str) -> Weights:
        if key not in [known for known, _ in self.snapshots()]:
            raise ValueError(
                f"{self.title} has no snapshot {key}: checkpoints are removed when newer ones are written."
            )
        experiment = self._experiment
        model = experiment.model.build(experiment.task)
        if key == "initial":
            flat = model.initial_population([self._seeds[self._place]])[0]
        else:
            point = checkpoint.load(self._path / "checkpoints" / key, folder.most_bytes(experiment))
            latest = point.tensors.get("update.average", point.tensors["update.parameters"])
            flat = latest[self._place]
        return {name: value.detach().half() for name, value in model.split_flat(flat).items()}


def _named(model: SequenceModel) -> Weights:
    return {name: value.detach().float().clone() for name, value in model.named_parameters()}


def to_safetensors(weights: Weights) -> bytes:
    """Weights as a file, which must be finite: the page refuses anything else."""
    if not all(bool(torch.isfinite(value).all()) for value in weights.values()):
        raise ValueError("the machine has weights that are not finite, or too large for float16: it cannot be shown.")
    data: bytes = safetensors.torch.save({name: value.contiguous() for name, value in weights.items()})
    return data


# --- finding them ----------------------------------------------------------------------------------------------------


def zoo_machines() -> list[Machine]:
    return [ZooMachine(name) for name in zoo.names()]


def run_machines(path: Path, title: str | None = None) -> list[Machine]:
    """The machines of a run that the page can run; refuses a folder that holds none."""
    experiment = folder.read_config(path).to_plain()
    if not checkpoint.folders(path / "checkpoints"):
        raise ValueError(f"{path} has no checkpoint yet: train it first.")
    if experiment["model"]["name"] not in PAGE_MODELS or _controller(experiment) not in CONTROLLERS:
        name = experiment["model"]["name"]
        what = f"model {name}" if name not in PAGE_MODELS else f"model {name}, controller {_controller(experiment)}"
        raise ValueError(f"{path} is of {what}, but the viewer runs ntm with its own controllers, and lstm.")
    seeds = experiment["seeds"][:MOST_SEEDS]
    place = path.resolve()
    own = place.parent.name if place.name == "run" else place.name  # the job of a sweep
    return [RunMachine(path, title or own, experiment, seed) for seed in seeds]


def runs_below(root: Path) -> list[Machine]:
    """The machines of all runs in a folder and below it. Damaged runs, links and code from outside are left out."""
    found: list[Machine] = []
    for path in _run_folders(root):
        try:
            experiment = files.unseal(files.read(path / "config.json"))["experiment"]
            if _is_built_in(experiment):  # a name from elsewhere would be imported, which a list must not do
                title = path.relative_to(root).as_posix()
                found += run_machines(path, title if title != "." else path.resolve().name)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return found


def _is_built_in(experiment: Mapping[str, Any]) -> bool:
    model = experiment["model"]["name"]
    return experiment["task"]["name"] in TASKS and model in MODELS and _controller(experiment) in CONTROLLERS


def _controller(experiment: Mapping[str, Any]) -> str:
    return str(experiment["model"].get("controller", "lstm"))


def _run_folders(root: Path) -> Iterator[Path]:
    """Folders with a config.json, nearest first; neither links nor hidden folders are followed."""
    level, visited, yielded = [root], 0, 0
    for _ in range(DEPTH):
        below: list[Path] = []
        for path in level:
            visited += 1
            if visited > MOST_FOLDERS:
                return
            try:
                entries = sorted(os.scandir(path), key=lambda entry: entry.name)
            except OSError:
                continue
            if any(entry.name == "config.json" and entry.is_file(follow_symlinks=False) for entry in entries):
                yield path
                yielded += 1
                if yielded == MOST_RUNS:
                    return
                continue
            below += [
                Path(entry.path)
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and entry.name not in SKIPPED
            ]
        level = below


def find(what: str) -> list[Machine]:
    """The machines of a run's folder, or the one of that name in the zoo if there is no such folder."""
    if Path(what).exists():
        return run_machines(Path(what))
    if what not in zoo.names():
        raise ValueError(f"{what} is no folder of a run, nor in the zoo: {zoo.store.no_machine(what)}")
    return [ZooMachine(what)]
