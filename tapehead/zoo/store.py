"""The files of the zoo. NAME.safetensors: the named parameters in float32. NAME.json: the card.
NAME.snapshots.safetensors, for some: parameters on the way, in float16, as EPISODES/parameter.

Nothing is loaded before its SHA-256 has been compared with the card's, nor if it is not exactly the card's machine.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from tapehead import files
from tapehead.experiment.config import Experiment
from tapehead.models import SequenceModel
from tapehead.suggest import unknown
from tapehead.zoo.cards import Card

FOLDER = Path(__file__).parent / "machines"
"""The zoo of the package; every function takes another, such as one that `fetch` has filled."""

HEADER = 1 << 20
"""Bytes of a file of weights at most, besides the numbers that its card says it has."""


def names(folder: Path | None = None) -> list[str]:
    """The machines that can be loaded."""
    return sorted(path.stem for path in (folder or FOLDER).glob("*.json"))


def no_machine(name: str, folder: Path | None = None) -> str:
    """One sentence on a name that is not in the zoo."""
    there = names(folder)
    return unknown("machine", name, there) if there else f"there is no machine in {folder or FOLDER} yet."


def card(name: str, folder: Path | None = None) -> Card:
    """What there is to know about a machine."""
    folder = folder or FOLDER
    if name not in names(folder):
        raise ValueError(no_machine(name, folder))
    path = folder / f"{name}.json"
    try:
        found = Card.from_json(files.read(path, links=True))
    except files.NotPlain as error:
        raise ValueError(f"the card {path} {error.reason}: install tapehead or fetch the machine again.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"the card {path} is damaged ({error}): install tapehead or fetch the machine again."
        ) from error
    if found.name != name:
        raise ValueError(f"the card {path} is that of {found.name}: give the file its own name back.")
    return found


def load(
    name: str, device: str | torch.device = "cpu", backend: str = "auto", folder: Path | None = None
) -> SequenceModel:
    """The trained machine, ready to be used (in eval mode)."""
    about = card(name, folder)
    path = weights_file(name, folder)
    return _machine(about, _read(path, about.sha256, 4 * about.parameters), path, device, backend)


def snapshots(
    name: str, device: str | torch.device = "cpu", backend: str = "auto", folder: Path | None = None
) -> list[tuple[int, SequenceModel]]:
    """The machine as it was on the way, oldest first: episodes of training, and the model in eval mode."""
    about = card(name, folder)
    if about.snapshots is None:
        raise ValueError(f"{name} has no snapshots: load it as it was in the end.")
    path = snapshots_file(name, folder)
    series: dict[int, dict[str, Tensor]] = {}
    numbers = len(about.snapshots["episodes"]) * about.parameters
    for key, tensor in _read(path, about.snapshots["sha256"], 2 * numbers).items():
        episodes, _, parameter = key.partition("/")
        series.setdefault(int(episodes), {})[parameter] = tensor.float()
    return [(episodes, _machine(about, series[episodes], path, device, backend)) for episodes in sorted(series)]


def weights_file(name: str, folder: Path | None = None) -> Path:
    return (folder or FOLDER) / f"{name}.safetensors"


def snapshots_file(name: str, folder: Path | None = None) -> Path:
    return (folder or FOLDER) / f"{name}.snapshots.safetensors"


def _read(path: Path, expected: str, size: int) -> dict[str, Tensor]:
    """The tensors of a file that has the SHA-256 it should have. size: bytes of its numbers."""
    try:
        data = files.read(path, size + HEADER, links=True)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: install tapehead or fetch the machine again.") from None
    except files.NotPlain as error:
        raise ValueError(f"{path} {error.reason}: install tapehead or fetch the machine again.") from error
    if files.sha256(data) != expected:
        raise ValueError(f"{path} does not match the SHA-256 on its card: install tapehead or fetch the machine again.")
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
    except SafetensorError as error:
        raise ValueError(f"{path} holds no tensors ({error}): install tapehead or fetch the machine again.") from error
    return tensors


def _machine(
    about: Card, tensors: Mapping[str, Tensor], path: Path, device: str | torch.device, backend: str
) -> SequenceModel:
    """The card's machine with these parameters."""
    experiment = Experiment.from_plain(about.experiment, f"the card of {about.name}")
    model = experiment.model.build(experiment.task, backend).to(device)
    model.backend_in_use()  # refuses a backend that cannot run here
    wanted = dict(model.named_parameters())
    for kind, found in (("lacks", wanted.keys() - tensors), ("has, against its card,", tensors.keys() - wanted.keys())):
        if found:
            raise ValueError(f"{path} {kind} {', '.join(sorted(found))}: it is not the machine of its card.")
    for key, parameter in wanted.items():
        value = tensors[key]
        if value.shape != parameter.shape or value.dtype != torch.float32:
            given, due = ([*t.shape, str(t.dtype).removeprefix("torch.")] for t in (value, parameter))
            raise ValueError(f"{key} in {path} is {given}, but the machine of its card has {due}.")
    model.load_state_dict(dict(tensors))
    return model.eval()


# --- writing ---------------------------------------------------------------------------------------------------------


def put(about: Card, parameters: Mapping[str, Tensor], folder: Path | None = None) -> Card:
    """Write a machine into the zoo, in the place of one of that name and of its snapshots; its card, with the hash."""
    folder = folder or FOLDER
    data = safetensors.torch.save({key: value.detach().float().cpu().contiguous() for key, value in parameters.items()})
    about = dataclasses.replace(about, sha256=files.sha256(data), snapshots=None)
    with files.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        snapshots_file(about.name, folder).unlink(missing_ok=True)
        files.replace(weights_file(about.name, folder), data)
        _put_card(about, folder)
    return about


def put_snapshots(name: str, series: Mapping[int, Mapping[str, Tensor]], folder: Path | None = None) -> Card:
    """Write weights on the way, {episodes: named parameters}, beside a machine of the zoo; its new card."""
    folder = folder or FOLDER
    tensors = {
        f"{episodes}/{key}": value.detach().half().cpu().contiguous()
        for episodes, parameters in series.items()
        for key, value in parameters.items()
    }
    data = safetensors.torch.save(tensors)
    found = {"episodes": sorted(series), "sha256": files.sha256(data)}
    about = dataclasses.replace(card(name, folder), snapshots=found)
    with files.writing(folder):
        files.replace(snapshots_file(name, folder), data)
        _put_card(about, folder)
    return about


def _put_card(about: Card, folder: Path) -> None:
    files.replace(folder / f"{about.name}.json", about.to_json().encode())


def fetch(name: str, out: Path, folder: Path | None = None) -> list[Path]:
    """Copy a machine, its card last, into another folder; the files that are there now."""
    about, sources = card(name, folder), [weights_file(name, folder)]
    load(name, folder=folder)  # what is damaged is not handed on
    if about.snapshots is not None:
        snapshots(name, folder=folder)
        sources.append(snapshots_file(name, folder))
    sources.append((folder or FOLDER) / f"{name}.json")
    copies = {out / source.name: source.read_bytes() for source in sources}  # which have just been verified
    for target, data in copies.items():
        if os.path.lexists(target) and not _holds(target, data):
            raise ValueError(f"{target} is there already, and another one: choose another folder with --out.")
    with files.writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for target, data in copies.items():
            files.replace(target, data)
    return list(copies)


def _holds(path: Path, data: bytes) -> bool:
    """Whether a plain file has these bytes."""
    try:
        return files.read(path, len(data)) == data
    except files.NotPlain:
        return False
