"""Forged checkpoints: refused, whatever their manifest vouches for; nothing outside is read or run. Fuzzed: soak."""

import os
import pickle
import shutil

import pytest
from example_checkpoint import FILES, example

from tapehead import files
from tapehead.experiment import checkpoint
from tapehead.experiment.checkpoint import MANIFEST, DamagedCheckpoint


def forge(path, contents, **changes):
    """A checkpoint with a valid manifest over any bytes; `changes` are other names in it, and what they should hold."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    for name, data in contents.items():
        (path / name).write_bytes(data)
    (path / MANIFEST).write_bytes(checkpoint._manifest(contents | changes))


@pytest.fixture
def parts(tmp_path):
    """The files of a good checkpoint, to be forged with."""
    path = checkpoint.save(tmp_path / "checkpoints", example(2))
    return {name: (path / name).read_bytes() for name in FILES if name != MANIFEST}


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/hostname", "..", ".", "", "a/../../x", "..\\x", "x\0", "sub/x", "\n", "\x1b[31m", "n" * 300],
)
def test_nothing_is_read_outside_the_folder(tmp_path, parts, name, monkeypatch):
    (tmp_path / "x").write_bytes(b"secret")
    path = tmp_path / "step-000000002"
    forge(path, parts, **{name: b"secret"})
    monkeypatch.setattr(os, "open", inside(path, os.open))
    with pytest.raises(DamagedCheckpoint) as refusal:
        checkpoint.load(path)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 400


def inside(folder, original):
    def checked(path, *flags):
        assert path.parent == folder
        assert path.name in FILES
        return original(path, *flags)

    return checked


@pytest.mark.parametrize(
    "listed",
    [
        *({}, {"state.json": None}, {"state.json": 3}, [], ["state.json"], None, "x", 1.5),
        {"state.json": {}},
        {"state.json": {"size": 3}},
        {"state.json": {"size": "3", "sha256": ""}},
        {"state.json": {"size": True, "sha256": ""}},
        {"state.json": {"size": -3, "sha256": ""}},
        {"state.json": {"size": 3, "sha256": 3}},
        {"state.json": {"size": 3, "sha256": "", "more": 3}},
    ],
)
def test_hostile_manifests_with_a_right_seal_are_refused(tmp_path, parts, listed):
    path = tmp_path / "step-000000002"
    forge(path, parts)
    (path / MANIFEST).write_bytes(files.seal({"files": listed}))
    with pytest.raises(DamagedCheckpoint):
        checkpoint.load(path)


def test_an_enormous_manifest_is_not_read(tmp_path, parts):
    path = tmp_path / "step-000000002"
    forge(path, parts)
    with (path / MANIFEST).open("r+b") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(DamagedCheckpoint, match=r"manifest.json has 1,099,511,627,776 bytes, but at most 1,048,576"):
        checkpoint.load(path)


ENORMOUS = 128 << 30


def test_an_enormous_file_is_not_read(tmp_path, parts):
    """Neither one that outgrew its manifest nor one whose manifest was forged."""
    path = tmp_path / "step-000000002"
    forge(path, parts)
    with (path / "state.safetensors").open("r+b") as file:
        file.truncate(ENORMOUS)  # sparse
    with pytest.raises(DamagedCheckpoint, match=r"state.safetensors has 137,438,953,472 bytes, but at most"):
        checkpoint.load(path)
    listed = files.unseal((path / MANIFEST).read_bytes())["files"]
    listed["state.safetensors"]["size"] = ENORMOUS
    listed["balance"] = {"size": -ENORMOUS, "sha256": ""}
    (path / MANIFEST).write_bytes(files.seal({"files": listed}))
    with pytest.raises(
        DamagedCheckpoint, match=r"step-000000002 has 137,438,95.,... bytes, but such a run has at most"
    ):
        checkpoint.load(path)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "metrics.jsonl", "extra.pt"])
def test_a_pickle_is_never_loaded(tmp_path, parts, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "step-000000002"
    forge(path, parts | {name: pickle.dumps(Bomb())})
    if name in ("state.safetensors", "state.json"):
        with pytest.raises(DamagedCheckpoint):
            checkpoint.load(path)
    else:
        assert checkpoint.load(path).files[name] == pickle.dumps(Bomb())  # bytes, as they are
    assert not (tmp_path / "exploded").exists()
