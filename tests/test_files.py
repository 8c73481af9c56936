"""Files: what is not plain is refused and not touched, and what was damaged does not pass for whole."""

import errno
import fcntl
import json
import os
import random
import stat
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest

from tapehead import files
from tapehead.typed import fits


def link(path, outside):
    outside.write_bytes(b"theirs")
    path.symlink_to(outside)


def dangling(path, outside):
    path.symlink_to(outside)


def pipe(path, outside):
    os.mkfifo(path)


def folder(path, outside):
    path.mkdir()


KINDS = {
    link: "a symbolic link",
    dangling: "a symbolic link",
    pipe: "a named pipe",
    folder: "a folder",
}


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def strange(request, tmp_path):
    """A path where something is that is not a plain file, and what it is."""
    request.param(tmp_path / "it", tmp_path / "outside")
    return tmp_path / "it", KINDS[request.param]


def everything(path):
    return [(p.name, p.lstat().st_mode, p.read_bytes() if stat.S_ISREG(p.lstat().st_mode) else None)
            for p in sorted(path.iterdir())]  # fmt: skip


@pytest.mark.parametrize(
    "act",
    [
        files.read,
        files.expect_file,
        files.lock,
        lambda path: files.replace(path, b"ours"),
        lambda path: files.append(path, b"ours"),
    ],
    ids=["read", "expect_file", "lock", "replace", "append"],
)
def test_what_is_no_plain_file_is_refused_and_not_touched(strange, act):
    path, kind = strange
    before = everything(path.parent)
    with pytest.raises(files.NotPlain, match=f"it is {kind}, not a plain file: remove or restore it."):
        act(path)
    assert everything(path.parent) == before


def test_what_is_no_folder_is_refused_and_not_touched(strange):
    path, kind = strange
    if kind == "a folder":
        pytest.skip("this one is")
    before = everything(path.parent)
    for act in (files.expect_folder, files.make_folder, files.discard):
        with pytest.raises(files.NotPlain, match=f"it is {kind}, not a folder"):
            act(path)
    assert everything(path.parent) == before


def test_a_link_is_refused_also_if_it_comes_after_the_check(tmp_path, monkeypatch):
    path, outside = tmp_path / "it", tmp_path / "outside"
    link(path, outside)
    monkeypatch.setattr(files, "_expect_file", lambda *_: None)
    for act in (files.read, files.lock, lambda path: files.append(path, b"ours")):
        with pytest.raises(OSError) as refusal:
            act(path)
        assert refusal.value.errno == errno.ELOOP
    with pytest.raises(FileExistsError):
        files.write_new(path, b"ours")
    assert outside.read_bytes() == b"theirs"


def test_a_device_is_refused():
    with pytest.raises(files.NotPlain, match="is a socket or a device, not a plain file"):
        files.read(Path(os.devnull))


def test_links_are_read_where_they_may_be(tmp_path):
    path, outside = tmp_path / "it", tmp_path / "outside"
    link(path, outside)
    assert files.read(path, links=True) == b"theirs"
    path.unlink()
    os.mkfifo(tmp_path / "pipe")
    path.symlink_to(tmp_path / "pipe")
    with pytest.raises(files.NotPlain, match="a named pipe"):
        files.read(path, links=True)


def test_only_so_much_is_read(tmp_path):
    path = tmp_path / "it"
    path.write_bytes(b"12345")
    assert files.read(path, 5) == b"12345"
    with pytest.raises(files.NotPlain, match="it has 5 bytes, but at most 4 are read"):
        files.read(path, 4)
    os.truncate(path, 1 << 40)
    with pytest.raises(files.NotPlain, match="has 1,099,511,627,776 bytes, but at most 16,777,216 are read"):
        files.read(path)


def test_writing_replacing_and_appending(tmp_path):
    path = tmp_path / "it"
    files.replace(path, b"1")
    files.replace(path, b"2")
    files.append(path, b"3")
    files.append(tmp_path / "new", b"4")
    assert (path.read_bytes(), (tmp_path / "new").read_bytes()) == (b"23", b"4")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["it", "new"]


def test_temporary_names_cannot_be_predicted_and_are_recognised(tmp_path):
    names = {files.temporary_name(tmp_path / "config.json").name for _ in range(100)}
    assert len(names) == 100
    assert all(files.is_temporary(name, of="config.json") for name in names)
    assert not any(files.is_temporary(name, of="env.json") for name in names)
    for name in ("config.json", ".config.json", ".config.json.mine", ".config.json.0123456789abcdef.mine"):
        assert not files.is_temporary(name, of="config.json")


def test_what_killed_processes_left_is_cleared_away_and_nothing_else(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    files.temporary_name(tmp_path / "file").write_text("half")
    (half := files.temporary_name(tmp_path / "folder")).mkdir()
    (half / "out").symlink_to(kept)
    (linked := files.temporary_name(tmp_path / "linked")).symlink_to(kept)
    files.clear_temporary(tmp_path)
    assert set(tmp_path.iterdir()) == {kept, linked}
    assert (kept / "file").read_text() == "mine"
    files.clear_temporary(tmp_path / "nowhere")


@pytest.mark.parametrize("act", [files.replace, files.write_new, files.append], ids=lambda act: act.__name__)
def test_a_full_disk_has_the_name_of_the_file_and_leaves_nothing(tmp_path, monkeypatch, act):
    """Errors of descriptors have none."""

    class Full:
        def __init__(self, descriptor, mode):
            self.descriptor = descriptor

        def __enter__(self):
            return self

        def __exit__(self, *_):
            os.close(self.descriptor)

        def fileno(self):
            return self.descriptor

        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen", Full)
    with pytest.raises(OSError) as refusal:
        act(tmp_path / "it", b"ours")
    assert refusal.value.filename == str(tmp_path / "it")
    says = rf"cannot write to {tmp_path} \(No space left on device\): make room"
    with pytest.raises(ValueError, match=says), files.writing(tmp_path):
        act(tmp_path / "other", b"ours")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


# --- folders and locks -----------------------------------------------------------------------------------------------


def test_folders_that_were_made_are_known(tmp_path):
    assert files.make_folders(tmp_path / "a" / "b") == [tmp_path / "a", tmp_path / "a" / "b"]
    assert files.make_folders(tmp_path / "a" / "b") == []
    assert files.make_folders(tmp_path / "a" / "c") == [tmp_path / "a" / "c"]
    files.remove_empty([tmp_path / "a", tmp_path / "a" / "b"])
    assert (tmp_path / "a" / "c").is_dir()  # not ours, and what has it in it stays too
    assert not (tmp_path / "a" / "b").exists()


def test_folders_that_cannot_be_made_leave_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "a", tmp_path / "a" / ("n" * 300), tmp_path / "file"):
        with pytest.raises(OSError):
            files.make_folders(path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_lock_is_held_by_one(tmp_path):
    first = files.lock(tmp_path / "lock")
    assert first is not None
    assert files.lock(tmp_path / "lock") is None
    os.close(first)
    second = files.lock(tmp_path / "lock")
    assert second is not None
    os.close(second)


@pytest.mark.parametrize("again", [False, True])
def test_the_lock_of_a_removed_file_is_not_taken(tmp_path, monkeypatch, again):
    """Another process removes the file after we have opened it, and perhaps a third one makes it again."""
    path, original, calls = tmp_path / "lock", fcntl.flock, []

    def flock(descriptor, flags):
        calls.append(descriptor)
        if len(calls) == 1:
            path.unlink()
            if again:
                path.touch()
        original(descriptor, flags)

    monkeypatch.setattr(fcntl, "flock", flock)
    descriptor = files.lock(path)
    assert len(calls) == 2
    assert os.path.samestat(os.fstat(descriptor), path.lstat())
    os.close(descriptor)


def test_a_file_that_is_never_the_locked_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os.path, "samestat", lambda *_: False)
    with pytest.raises(files.NotPlain, match="lock was another file each of 100 times that it was locked"):
        files.lock(tmp_path / "lock")


def test_the_lock_of_a_removed_folder_is_an_error(tmp_path, monkeypatch):
    path, original = tmp_path / "run" / "lock", fcntl.flock
    path.parent.mkdir()

    def flock(descriptor, flags):
        path.unlink()
        path.parent.rmdir()
        original(descriptor, flags)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(FileNotFoundError):
        files.lock(path)


# --- seals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{}, {"a": 1}, {"b": [1.5, None, "\u00e4", {"seal": "x"}], "a": {}}])
def test_a_seal_is_the_last_field_of_plain_json(values):
    text = files.seal(values)
    assert files.unseal(text) == values
    found = json.loads(text)
    assert list(found) == [*values, "seal"]
    assert len(found["seal"]) == 64
    assert text == files.seal(files.unseal(text))


def test_numbers_that_json_does_not_have_are_refused_unless_asked_for():
    values = {"a": [float("inf")]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.seal(values)
    assert files.unseal(files.seal(values, finite=False)) == values


def test_every_bit_of_a_sealed_text_counts():
    good = files.seal({"a": 1, "b": [0.25, "text"]})
    for place in range(len(good) * 8):
        changed = bytearray(good)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(ValueError, match="its seal does not match"):
            files.unseal(bytes(changed))
    for end in range(len(good)):
        with pytest.raises(ValueError, match="its seal does not match"):
            files.unseal(good[:end])
    for more in (b"\n", b" ", b"\0", good):
        with pytest.raises(ValueError, match="its seal does not match"):
            files.unseal(good + more)


def test_nothing_unsealed_is_parsed(monkeypatch):
    monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("it was parsed"))
    source = random.Random(0)
    for text in (b"", b"{}", b"[" * 100_000, b'{\n "seal": ""\n}\n', source.randbytes(500)):
        with pytest.raises(ValueError, match="its seal does not match"):
            files.unseal(text)


# --- types -----------------------------------------------------------------------------------------------------------


class Table(TypedDict):
    name: str
    count: NotRequired[int]


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [0, -3], [True, 1.0, "1", None, []]),
        (float, [1, 1.5, float("inf")], [True, "1", None]),
        (bool, [True], [1, None]),
        (str, ["", "x"], [1, None, b"x"]),
        (int | None, [1, None], [1.5, "x", False]),
        (list[int], [[], [1, 2]], [(1,), [1, "x"], {}, None, "12"]),
        (tuple[int, float], [(1, 2.0), (1, 2)], [[1, 2.0], (1,), (1.5, 2.0), (1, 2, 3)]),
        (dict[str, int], [{}, {"a": 1}], [{1: 1}, {"a": "x"}, [], None]),
        (dict[str, Any], [{"a": NotImplemented}], [[]]),
        (
            list[Table],
            [[{"name": "x"}, {"name": "x", "count": 1, "more": None}]],
            [[{}], [{"name": "x", "count": "1"}]],
        ),
    ],
    ids=str,
)
def test_types(hint, good, bad):
    assert all(fits(value, hint) for value in good)
    assert not any(fits(value, hint) for value in bad)
