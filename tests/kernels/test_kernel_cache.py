"""Compiled code on disk: what was not written by us, whole and under its name, is never used."""

import errno
import os
import stat
import tempfile
import threading

import pytest

from tapehead.kernels import cache

NAME, CONTENT = "kernel-1.cubin", b"machine code\nof two lines"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A cache of its own for every test, in which nothing has been said."""
    monkeypatch.setenv("TAPEHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_said", set())
    return tmp_path / "cache" / "kernels"


def test_what_is_written_is_read(place, heard):
    assert cache.read(NAME) is None
    assert cache.write(NAME, CONTENT)
    assert cache.read(NAME) == CONTENT
    assert cache.write(NAME, b"")
    assert cache.read(NAME) == b""
    assert [file.name for file in place.iterdir()] == [NAME]  # no temporary file is left
    assert stat.S_IMODE(place.stat().st_mode) == stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / NAME).stat().st_mode) == 0o600
    assert cache.problem() is None
    assert heard() == ""


def test_every_flipped_bit_and_every_truncation_is_found(place, heard):
    cache.write(NAME, CONTENT)
    whole = (place / NAME).read_bytes()
    damaged = [whole[:k] for k in range(len(whole))]
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for content in [*damaged, whole + b"\0"]:
        (place / NAME).write_bytes(content)
        assert cache.read(NAME) is None
        assert not (place / NAME).exists()
    said = heard()
    assert said.count("\n") == said.count(f"{place / NAME} is damaged") == 1


def test_a_file_under_another_name_is_not_used(place):
    cache.write(NAME, CONTENT)
    (place / NAME).rename(place / "kernel-2.cubin")
    assert cache.read("kernel-2.cubin") is None


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
@pytest.mark.parametrize("which", ["folder", "folder of kernels", "file"])
def test_what_others_can_write_to_is_not_used(place, heard, which, mode):
    cache.write(NAME, CONTENT)
    changed = {"folder": place.parent, "folder of kernels": place, "file": place / NAME}[which]
    changed.chmod(mode)
    for _ in range(2):
        assert cache.read(NAME) is None
    assert which == "file" or not cache.write("kernel-2.cubin", CONTENT)
    said = heard()
    assert said.count("\n") == 1
    assert str(changed) in said
    assert f"mode {mode:o}" in said
    assert which == "file" or str(changed) in str(cache.problem())
    changed.chmod(0o500)
    assert cache.read(NAME) == CONTENT


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users here")
def test_what_belongs_to_others_is_not_used():
    def status(owner):
        return os.stat_result((stat.S_IFREG | 0o600, 0, 0, 1, owner, 0, 0, 0, 0, 0))

    assert cache._distrust(status(os.geteuid())) is None
    assert cache._distrust(status(0)) is None
    assert f"belongs to user {os.geteuid() + 1}" in str(cache._distrust(status(os.geteuid() + 1)))


def test_where_there_is_no_home(monkeypatch, heard):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TAPEHEAD_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(cache.Path, "home", no_home)
    assert cache.read(NAME) is None
    assert not cache.write(NAME, CONTENT)
    with cache.lock("waiting"):
        pass
    assert cache.problem() == "there is no home folder"
    said = heard()
    assert said.count("\n") == said.count("TAPEHEAD_CACHE") == 1


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch, heard):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TAPEHEAD_CACHE", str(tmp_path / "file" / "cache"))
    assert cache.read(NAME) is None
    assert heard() == ""  # nothing is there, which is not worth a word
    assert not cache.write(NAME, CONTENT)
    with cache.lock("waiting"):
        pass
    assert "cannot be made (Not a directory)" in str(cache.problem())
    assert heard().count("\n") == 1


def test_a_folder_that_cannot_be_written_to_is_read(place, monkeypatch, heard):
    def read_only(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    cache.write(NAME, CONTENT)
    monkeypatch.setattr(tempfile, "mkstemp", read_only)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", read_only)
    assert not cache.write("kernel-2.cubin", CONTENT)
    assert cache.read(NAME) == CONTENT
    assert "cannot be written to (Read-only file system)" in str(cache.problem())
    assert "Read-only file system" in heard()


def test_a_full_disk_leaves_nothing_behind(place, monkeypatch, heard):
    def full(name, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache, "seal", full)
    assert not cache.write(NAME, CONTENT)
    assert list(place.iterdir()) == []
    assert "No space left on device" in heard()


def test_one_at_a_time(monkeypatch):
    """The second one says that it waits, and comes in when the first has left."""
    waits, inside = threading.Event(), threading.Event()
    monkeypatch.setattr(cache, "say", lambda sentence: waits.set() if sentence == "waiting" else None)

    def enter():
        with cache.lock("waiting"):
            inside.set()

    second = threading.Thread(target=enter)
    with cache.lock("not said"):
        second.start()
        assert waits.wait(60)
        assert not inside.wait(0.1)
    second.join(60)
    assert inside.is_set()
