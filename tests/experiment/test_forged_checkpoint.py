"""Forged checkpoints: refused, whatever their manifest vouches for; nothing outside the folder is read, nothing run."""

import json
import os
import pickle
import shutil
import struct

import pytest
from example_checkpoint import FILES, example
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def safetensors_file(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def entry(**changes):
    return {"weights": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 7,
        b"\xff" * 8,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        safetensors_file(b"[" * 100_000),
        safetensors_file(b"not json"),
        safetensors_file([]),
        safetensors_file(entry(), b"\0" * 7),
        safetensors_file(entry(shape=[2**62, 2**62]), b"\0" * 8),
        safetensors_file(entry(shape=[-2]), b"\0" * 8),
        safetensors_file(entry(data_offsets=[0, 2**63]), b"\0" * 8),
        safetensors_file(entry(data_offsets=[8, 0]), b"\0" * 8),
        safetensors_file(entry(data_offsets=[4, 12]), b"\0" * 12),
        safetensors_file(entry(dtype="PICKLE"), b"\0" * 8),
        safetensors_file(entry(dtype=None), b"\0" * 8),
        safetensors_file({"a": entry()["weights"], "b": entry()["weights"]}, b"\0" * 8),
        pickle.dumps({"weights": 1}),
    ],
)
def test_hostile_tensor_files_are_refused(tmp_path, parts, data):
    path = tmp_path / "step-000000002"
    forge(path, parts | {"state.safetensors": data})
    with pytest.raises(DamagedCheckpoint):
        checkpoint.load(path)


@pytest.mark.parametrize(
    "text",
    [b"", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b"[]", b"null", b'"x"', b"3", b"\xff\xfe", b"{"],
    ids=lambda text: repr(text[:8]),
)
def test_hostile_json_is_refused(tmp_path, parts, text):
    path = tmp_path / "step-000000002"
    forge(path, parts | {"state.json": text})
    with pytest.raises(DamagedCheckpoint):
        checkpoint.load(path)
    forge(path, parts)
    for manifest in (text, b'{"files": ' + text + b"}"):
        (path / MANIFEST).write_bytes(manifest)
        with pytest.raises(DamagedCheckpoint):
            checkpoint.load(path)


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


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(
    name=st.sampled_from(("state.safetensors", "state.json", MANIFEST)),
    data=st.binary(max_size=200),
    valid=st.booleans(),
)
def test_any_bytes_are_refused_or_mean_what_they_say(tmp_path, parts, name, data, valid):
    """Fuzzed files, with and without a manifest that vouches for them: a refusal or a checkpoint, never a crash."""
    path = tmp_path / "step-000000002"
    forge(path, parts | ({name: data} if valid and name != MANIFEST else {}))
    (path / name).write_bytes(data)
    try:
        found = checkpoint.load(path)
    except DamagedCheckpoint:
        return
    assert valid
    assert isinstance(found.facts, dict)
