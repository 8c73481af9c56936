"""Checkpoints: whole or not there. Saves that are killed, damaged files and thousands of rotations: soak."""

import os
import random

import pytest
import torch
from damage import flip_bit
from example_checkpoint import FILES, assert_same, example

from tapehead import files
from tapehead.experiment import checkpoint
from tapehead.experiment.checkpoint import MANIFEST, DamagedCheckpoint


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Without waiting for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def folder(tmp_path):
    """Checkpoints 1 and 2."""
    for step in (1, 2):
        checkpoint.save(tmp_path / "checkpoints", example(step))
    return tmp_path / "checkpoints"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# --- saving ----------------------------------------------------------------------------------------------------------


def test_round_trip(tmp_path):
    path = checkpoint.save(tmp_path, example(3))
    assert path.name == "step-000000003"
    assert_same(checkpoint.load(path), example(3))
    assert_same(checkpoint.load_newest(tmp_path), example(3))
    assert checkpoint.load_newest(tmp_path / "nothing") is None


def test_views_and_strides_are_saved_as_values(tmp_path):
    wide = torch.arange(12.0).view(3, 4)
    tensors = {"transposed": wide.T, "row": wide[1], "column": wide[:, 1]}
    found = checkpoint.load(checkpoint.save(tmp_path, example(1)._replace(tensors=tensors)))
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in tensors.items())


def test_the_newest_are_kept_and_a_damaged_future_is_dropped(folder):
    damage(folder / "step-000000002", "state.json", lambda data: data[:-1])
    checkpoint.save(folder, example(9))
    (folder / "step-000000009" / "state.json").write_bytes(b"")
    checkpoint.save(folder, example(3))  # the run went on from an older one
    assert names(folder) == ["step-000000002", "step-000000003"]


def test_saving_the_same_step_again(folder):
    before = (folder / "step-000000002").stat().st_ino
    checkpoint.save(folder, example(2))
    assert (folder / "step-000000002").stat().st_ino == before  # whole and the same: left alone
    other = example(2)._replace(files={"metrics.jsonl": b"other"})
    checkpoint.save(folder, other)
    assert_same(checkpoint.load_newest(folder), other)
    damage(folder / "step-000000002", "metrics.jsonl", lambda data: data[:-1])
    checkpoint.save(folder, example(2))
    assert_same(checkpoint.load_newest(folder), example(2))
    assert names(folder) == ["step-000000001", "step-000000002"]


@pytest.mark.parametrize("name", ["write_new", "sync_folder"])
def test_a_full_disk_leaves_no_rubbish(folder, monkeypatch, name):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, name, full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(folder, example(3))
    monkeypatch.undo()
    assert not [name for name in names(folder) if name.startswith(".")]
    assert checkpoint.load_newest(folder) is not None


# --- damage ----------------------------------------------------------------------------------------------------------


def damage(path, name, change):
    data = (path / name).read_bytes()
    (path / name).write_bytes(change(data))


@pytest.mark.parametrize("name", FILES)
def test_every_bit_of_a_small_file_counts(folder, name):
    path = folder / "step-000000002"
    good = (path / name).read_bytes()
    for place in range(0, len(good) * 8, 7):
        changed = bytearray(good)
        changed[place // 8] ^= 1 << place % 8
        (path / name).write_bytes(changed)
        with pytest.raises(DamagedCheckpoint):
            checkpoint.load(path)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_or_something_else(folder, name, tmp_path):
    path = folder / "step-000000002"
    good = (path / name).read_bytes()
    (path / name).unlink()
    with pytest.raises(DamagedCheckpoint, match=f"step-000000002/{name} is missing"):
        checkpoint.load(path)
    (path / name).mkdir()
    with pytest.raises(DamagedCheckpoint, match=f"step-000000002/{name} is a folder, not a plain file"):
        checkpoint.load(path)
    (path / name).rmdir()
    os.mkfifo(path / name)  # reading it would wait for ever
    with pytest.raises(DamagedCheckpoint, match=f"step-000000002/{name} is a named pipe, not a plain file"):
        checkpoint.load(path)
    (path / name).unlink()
    (tmp_path / "elsewhere").write_bytes(good)
    (path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedCheckpoint, match=f"step-000000002/{name} is a symbolic link, not a plain file"):
        checkpoint.load(path)


def test_the_one_before_is_taken_and_named(folder, capsys):
    damage(folder / "step-000000002", "state.safetensors", lambda data: flip_bit(data, random.Random(1)))
    assert_same(checkpoint.load_newest(folder), example(1))
    said = capsys.readouterr().err
    assert "step-000000002/state.safetensors does not match its SHA-256" in said
    assert "taking step-000000001" in said
    assert said.count("\n") == 1


def test_all_damaged_is_an_error_that_names_them(folder, capsys):
    for path in checkpoint.folders(folder):
        (path / MANIFEST).unlink()
    with pytest.raises(DamagedCheckpoint, match=r"step-000000002/manifest.json.*step-000000001/manifest.json.*delete"):
        checkpoint.load_newest(folder)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["step-notes", "step-", "step-000000003"])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_strange_things_beside_the_checkpoints_are_passed_over(folder, name, kind):
    (folder / name).mkdir() if kind == "folder" else (folder / name).write_text("mine")
    assert_same(checkpoint.load_newest(folder), example(2))
