"""Checkpoints that are whole or not there.

A checkpoint is a folder `step-000001200` with safetensors, JSON and other files, and a manifest with the SHA-256 of
each. It is written under another name, flushed to the disk, manifest last, then renamed: a process killed at any moment
leaves either the whole folder or none. Nothing is used before its hash has been compared, nothing is read from outside
the folder, and nothing is a pickle.
"""

import hashlib
import json
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

MANIFEST = "manifest.json"
TENSORS = "state.safetensors"
FACTS = "state.json"
KEEP = 2
MANIFEST_BYTES = 1 << 20  # a longer one is not ours


class DamagedCheckpoint(ValueError):
    """A checkpoint whose bytes are not those that were saved."""


class Checkpoint(NamedTuple):
    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    files: dict[str, bytes]
    """Other files that were saved with it."""


def save(folder: Path, checkpoint: Checkpoint, keep: int = KEEP) -> Path:
    """Write a checkpoint into `folder`, then remove all but it and the `keep` - 1 before it.

    Newer ones go too: the run would have gone on from them, had they not been damaged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"step-{checkpoint.step:09d}"
    temporary = folder / f".{target.name}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        _write_files(temporary, checkpoint)
        if target.exists() and not _is_copy(target, temporary):  # a damaged one that the run has caught up with
            _discard(target)
        if not target.exists():
            temporary.rename(target)
        sync_folder(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    others = folders(folder)
    for other in others[: others.index(target)] + others[others.index(target) + keep :]:
        _discard(other)
    return target


def _write_files(folder: Path, checkpoint: Checkpoint) -> None:
    contents = dict(checkpoint.files)
    contents[TENSORS] = safetensors.torch.save({k: v.contiguous().cpu() for k, v in checkpoint.tensors.items()})
    contents[FACTS] = json.dumps(checkpoint.facts, sort_keys=True).encode()
    for name, data in contents.items():
        write_durably(folder / name, data)
    write_durably(folder / MANIFEST, _manifest({name: sha256(data) for name, data in contents.items()}))
    sync_folder(folder)


def load(path: Path) -> Checkpoint:
    """One checkpoint, every byte of it verified."""
    try:
        text = _read(path, MANIFEST, limit=MANIFEST_BYTES)
        hashes = json.loads(text)["files"]
        if text != _manifest(hashes):
            raise DamagedCheckpoint(f"{path.name}/{MANIFEST} has been altered")
        contents = {}
        for name, expected in hashes.items():
            data = _read(path, name)
            if sha256(data) != expected:
                raise DamagedCheckpoint(f"{path.name}/{name} does not match its SHA-256")
            contents[name] = data
        tensors = safetensors.torch.load(contents.pop(TENSORS))
        facts = json.loads(contents.pop(FACTS))
        if not isinstance(facts, dict):
            raise DamagedCheckpoint(f"{path.name}/{FACTS} holds no facts")
        return Checkpoint(int(path.name.removeprefix("step-")), tensors, facts, contents)
    except DamagedCheckpoint:
        raise
    except FileNotFoundError as error:
        raise DamagedCheckpoint(f"{path.name}/{Path(error.filename).name} is missing") from error
    except OSError as error:
        raise DamagedCheckpoint(f"{path.name} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise DamagedCheckpoint(f"{path.name} cannot be read ({type(error).__name__})") from error


def _read(folder: Path, name: str, limit: int | None = None) -> bytes:
    """A plain file of a checkpoint: a manifest must not lead out of its folder, nor to a link or a pipe."""
    if name in ("", ".", "..") or set(name) & set("/\\") or not name.isprintable():
        raise DamagedCheckpoint(f"{folder.name}/{MANIFEST} names {name[:50]!r}, which is not a file of a checkpoint")
    found = (folder / name).lstat()
    if not stat.S_ISREG(found.st_mode) or (limit is not None and found.st_size > limit):
        raise DamagedCheckpoint(f"{folder.name}/{name} is not a file of a checkpoint")
    return (folder / name).read_bytes()


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint. Damaged ones are refused by name, on standard error; all damaged is an error."""
    damaged: list[str] = []
    for path in folders(folder):
        try:
            checkpoint = load(path)
        except DamagedCheckpoint as error:
            damaged.append(str(error))
            continue
        for refused in damaged:
            print(f"tapehead: refused a damaged checkpoint: {refused}; taking {path.name}.", file=sys.stderr)
        return checkpoint
    if damaged:
        raise DamagedCheckpoint(
            f"no checkpoint in {folder} is whole ({'; '.join(damaged)}): delete {folder.parent} to start anew."
        )
    return None


def folders(folder: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if p.name.startswith("step-")), key=lambda p: p.name, reverse=True)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes) -> None:
    """Put `data` in the place of a file at once: readers see the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    write_durably(temporary, data)
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _manifest(hashes: Any) -> bytes:
    """The manifest's only valid text, so that any change to it shows; it carries a hash of itself."""
    body = json.dumps(hashes, sort_keys=True)
    return json.dumps({"files": hashes, "sha256": sha256(body.encode())}, sort_keys=True).encode()


def _is_copy(path: Path, other: Path) -> bool:
    """Whether `path` is whole and has the bytes of `other`."""
    try:
        load(path)
    except DamagedCheckpoint:
        return False
    return (path / MANIFEST).read_bytes() == (other / MANIFEST).read_bytes()


def _discard(path: Path) -> None:
    """Remove a checkpoint; first its name, so that an interrupted removal leaves no half folder to choose."""
    doomed = path.with_name(f".{path.name}.{os.getpid()}.old")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
