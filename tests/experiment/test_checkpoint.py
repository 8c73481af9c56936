"""Checkpoints: whole or not there, whatever happens to the process or the disk."""

import os
import random
import shutil
from pathlib import Path

import pytest
import torch
from damage import HARMS, flip_bit
from example_checkpoint import FILES, assert_same, example

from tapehead import files
from tapehead.experiment import checkpoint
from tapehead.experiment.checkpoint import KEEP, MANIFEST, DamagedCheckpoint


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


class Stop(BaseException):
    """Stands for the end of the process: nothing may catch it."""


def at_call(number, monkeypatch, happen):
    """Let `happen` at the number-th call of anything by which a save touches the disk; a counter of the calls."""
    calls = [0]

    def watch(owner, name):
        original = getattr(owner, name)

        def watched(*arguments, **keywords):
            calls[0] += 1
            if calls[0] == number:
                happen(original, arguments)
            return original(*arguments, **keywords)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in [
        (os, "fsync"),
        (os, "open"),
        (shutil, "rmtree"),
        (files, "write_new"),
        (files, "sync_folder"),
        (Path, "mkdir"),
        (Path, "rename"),
        (Path, "iterdir"),
    ]:
        watch(owner, name)
    return calls


def stop(original, arguments):
    raise Stop


def calls_of_a_save(folder, step):
    with pytest.MonkeyPatch.context() as patch:
        calls = at_call(0, patch, stop)
        checkpoint.save(folder, example(step))
    return calls[0]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("step", [3, 2], ids=["next", "again"])
def test_a_save_that_ends_at_any_call(folder, tmp_path, step):
    """Two ways to end: an exception, after which the clean-up runs, and a process that is gone (a fork)."""
    shutil.copytree(folder, tmp_path / "count")
    total = calls_of_a_save(tmp_path / "count", step)
    assert total > 15
    for number in range(1, total + 1):
        trial = tmp_path / f"trial-{number}"
        shutil.copytree(folder, trial)
        with pytest.MonkeyPatch.context() as patch:
            at_call(number, patch, stop)
            with pytest.raises(Stop):
                checkpoint.save(trial, example(step))
        check_survivor(trial, step)
        forked = tmp_path / f"forked-{number}"
        shutil.copytree(folder, forked)
        die_at_call(number, forked, step)
        check_survivor(forked, step)


def check_survivor(folder, step):
    """A whole checkpoint is the newest, 2 or the new one; the next save leaves no trace of what happened."""
    found = checkpoint.load_newest(folder)
    assert found is not None
    assert_same(found, example(found.step))
    assert found.step in (2, step)
    checkpoint.save(folder, example(4))
    assert_same(checkpoint.load_newest(folder), example(4))
    assert len(checkpoint.folders(folder)) == KEEP


def die_at_call(number, folder, step):
    """Save in a child process that is gone at a call, half a file written if the call writes one."""

    def die(original, arguments):
        if original.__name__ == "write_new":
            arguments[0].write_bytes(arguments[1][: len(arguments[1]) // 2])
        os._exit(9)

    child = os.fork()
    if child == 0:
        try:
            at_call(number, pytest.MonkeyPatch(), die)
            checkpoint.save(folder, example(step))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


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


def open_descriptors():
    here = Path("/proc/self/fd")
    return len(list(here.iterdir())) if here.exists() else 0


def test_soak(tmp_path):
    checkpoint.save(tmp_path, example(1))
    before = open_descriptors()
    for step in range(2, 202):
        checkpoint.save(tmp_path, example(step))
        assert checkpoint.load_newest(tmp_path).step == step
    assert open_descriptors() <= before
    assert names(tmp_path) == ["step-000000200", "step-000000201"]


# --- damage ----------------------------------------------------------------------------------------------------------


def damage(path, name, change):
    data = (path / name).read_bytes()
    (path / name).write_bytes(change(data))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", HARMS)
def test_every_kind_of_damage_to_every_kind_of_file_is_refused(folder, name, harm):
    path, source = folder / "step-000000002", random.Random(f"{name} {harm.__name__}")
    good = (path / name).read_bytes()
    for _ in range(100):
        (path / name).write_bytes(harm(good, source))
        with pytest.raises(DamagedCheckpoint, match="step-000000002"):
            checkpoint.load(path)
    (path / name).write_bytes(good)
    assert_same(checkpoint.load(path), example(2))


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
