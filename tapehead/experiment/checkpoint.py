"""Checkpoints that are whole or not there.

A checkpoint is a folder `step-000001200` with safetensors, JSON and other files, and a manifest with the size and the
SHA-256 of each. It is written under another name, flushed to the disk, manifest last, then renamed: a process killed at
any moment leaves either the whole folder or none. Nothing is used before its hash has been compared, nothing is read
or removed outside the folder, and nothing is a pickle.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from tapehead import files
from tapehead.terminal import say
from tapehead.typed import fits

MANIFEST = "manifest.json"
TENSORS = "state.safetensors"
FACTS = "state.json"
KEEP = 2
MANIFEST_BYTES = 1 << 20  # a longer one is not ours
_NAME = re.compile("step-[0-9]{9,}")
LIMIT = 1 << 30
"""Bytes of a whole checkpoint at most, where the caller does not know better."""


class DamagedCheckpoint(ValueError):
    """A checkpoint whose bytes are not those that were saved."""


class Checkpoint(NamedTuple):
    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    files: dict[str, bytes]
    """Other files that were saved with it."""


class _File(TypedDict):
    """What the manifest says of a file."""

    size: int
    sha256: str


def save(folder: Path, checkpoint: Checkpoint, keep: int = KEEP) -> Path:
    """Write a checkpoint into `folder`, then remove all but it and the `keep` - 1 before it.

    Newer ones go too: the run would have gone on from them, had they not been damaged.
    """
    files.make_folder(folder)
    target = folder / f"step-{checkpoint.step:09d}"
    expect_plain(folder)
    temporary = files.temporary_name(target)
    try:
        temporary.mkdir()
        _write_files(temporary, checkpoint)
        if os.path.lexists(target) and not _is_copy(target, temporary):  # damaged, and the run has caught up with it
            files.discard(target)
        if not os.path.lexists(target):
            temporary.rename(target)
        files.sync_folder(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    others = folders(folder)
    for other in others[: others.index(target)] + others[others.index(target) + keep :]:
        files.discard(other)
    return target


def _write_files(folder: Path, checkpoint: Checkpoint) -> None:
    contents = dict(checkpoint.files)
    contents[TENSORS] = safetensors.torch.save({k: v.contiguous().cpu() for k, v in checkpoint.tensors.items()})
    contents[FACTS] = json.dumps(checkpoint.facts, sort_keys=True).encode()
    for name, data in contents.items():
        files.write_new(folder / name, data)
    files.write_new(folder / MANIFEST, _manifest(contents))
    files.sync_folder(folder)


def load(path: Path, limit: int = LIMIT) -> Checkpoint:
    """One checkpoint, every byte of it verified. limit: bytes of all its files together."""
    try:
        files.expect_folder(path)
        listed = files.unseal(files.read(path / MANIFEST, MANIFEST_BYTES))["files"]
        if not fits(listed, dict[str, _File]):
            raise DamagedCheckpoint(f"{path.name}/{MANIFEST} is not one of this version of tapehead")
        total = sum(max(0, file["size"]) for file in listed.values())
        if total > limit:
            raise DamagedCheckpoint(f"{path.name} has {total:,} bytes, but such a run has at most {limit:,}")
        contents = {name: _read(path, name, **file) for name, file in listed.items()}
        tensors = safetensors.torch.load(contents.pop(TENSORS))
        facts = json.loads(contents.pop(FACTS))
        if not isinstance(facts, dict):
            raise DamagedCheckpoint(f"{path.name}/{FACTS} holds no facts")
        return Checkpoint(int(path.name.removeprefix("step-")), tensors, facts, contents)
    except DamagedCheckpoint:
        raise
    except files.NotPlain as error:
        name = error.path.relative_to(path.parent)
        raise DamagedCheckpoint(f"{name} {error.reason}") from error
    except FileNotFoundError as error:
        raise DamagedCheckpoint(f"{path.name}/{Path(error.filename).name} is missing") from error
    except OSError as error:
        raise DamagedCheckpoint(f"{path.name} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise DamagedCheckpoint(f"{path.name} cannot be read ({type(error).__name__})") from error


def _read(folder: Path, name: str, size: int, sha256: str) -> bytes:
    """A file of a checkpoint: a manifest must not lead out of its folder."""
    if name in ("", ".", "..") or set(name) & set("/\\") or not name.isprintable():
        raise DamagedCheckpoint(f"{folder.name}/{MANIFEST} names {name[:50]!r}, which is not a file of a checkpoint")
    data = files.read(folder / name, size)
    if len(data) != size or files.sha256(data) != sha256:
        raise DamagedCheckpoint(f"{folder.name}/{name} does not match its SHA-256")
    return data


def load_newest(folder: Path, limit: int = LIMIT, tell: Callable[[str], None] = say) -> Checkpoint | None:
    """The newest whole checkpoint. Damaged ones are refused by name, which `tell` is told; all damaged is an error."""
    damaged: list[str] = []
    for path in folders(folder):
        try:
            checkpoint = load(path, limit)
        except DamagedCheckpoint as error:
            damaged.append(str(error))
            continue
        for refused in damaged:
            tell(f"tapehead: refused a damaged checkpoint: {refused}; taking {path.name}.")
        return checkpoint
    if damaged:
        raise DamagedCheckpoint(
            f"no checkpoint in {folder} is whole ({'; '.join(damaged)}): delete {folder.parent} to start anew."
        )
    return None


def folders(folder: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    files.expect_folder(folder)
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), key=lambda p: int(p.name[5:]), reverse=True)


def expect_plain(folder: Path) -> None:
    """Refuse checkpoints that are links or the like: they cannot be removed when others take their place."""
    for path in folders(folder):
        files.expect_folder(path)


def _manifest(contents: dict[str, bytes]) -> bytes:
    return files.seal(
        {"files": {name: _File(size=len(data), sha256=files.sha256(data)) for name, data in sorted(contents.items())}}
    )


def _is_copy(path: Path, other: Path) -> bool:
    """Whether `path` is whole and has the bytes of `other`, which is."""
    try:
        manifest = files.read(other / MANIFEST)
        size = sum(file["size"] for file in files.unseal(manifest)["files"].values())
        load(path, size)
        return files.read(path / MANIFEST) == manifest
    except DamagedCheckpoint:
        return False
