"""Compiled code on disk. What is damaged, or what others could have written, is never used.

A file holds the SHA-256 of its name and its content, a line feed, and the content: neither a flipped bit nor a file
under another file's name passes. That is no protection against a person, so the folder and its files must belong to
this user or to root, and no other user may be able to write to them.
"""

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tapehead import notices

if sys.platform != "win32":
    import fcntl

_said: set[str] = set()


def say(sentence: str) -> None:
    """A sentence for the user, the first time that it is said in this process."""
    if sentence not in _said:
        _said.add(sentence)
        notices.tell(sentence)


def folder() -> Path | None:
    """$TAPEHEAD_CACHE, else $XDG_CACHE_HOME/tapehead, else ~/.cache/tapehead; None if there is no home either."""
    named, base = os.environ.get("TAPEHEAD_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named).absolute()
    if base:
        return Path(base).absolute() / "tapehead"
    try:
        return Path.home() / ".cache" / "tapehead"
    except RuntimeError:
        return None


def seal(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + content).hexdigest().encode() + b"\n" + content


def unseal(name: str, sealed: bytes) -> bytes | None:
    """The content, or None if these are not the bytes that `seal` made for this name."""
    content = sealed.partition(b"\n")[2]
    return content if seal(name, content) == sealed else None


def read(name: str) -> bytes | None:
    """The content of a file of the cache; None if it is not there or not to be trusted."""
    place = _place()
    if place is None:
        return None
    file = place / name
    try:
        with file.open("rb") as opened:
            reason = _distrust(os.fstat(opened.fileno()))
            sealed = opened.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        say(f"{file} cannot be read ({error.strerror}), so it is not used.")
        return None
    if reason is not None:
        say(f"{file} {reason}, so it is not used.")
        return None
    content = unseal(name, sealed)
    if content is None:
        say(f"{file} is damaged, so it is not used.")
        with contextlib.suppress(OSError):
            file.unlink()
    return content


def write(name: str, content: bytes) -> bool:
    """Put a file into the cache, in one step: another process sees all of it or nothing. False if that cannot be."""
    place = _place(make=True)
    if place is None:
        return False
    try:
        handle, part = tempfile.mkstemp(dir=place, prefix=f"{name}.")
    except OSError as error:
        _say_not_kept(place, error)
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(seal(name, content))
        Path(part).replace(place / name)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(part).unlink()
        if not isinstance(error, OSError):
            raise
        _say_not_kept(place, error)
        return False
    return True


@contextlib.contextmanager
def lock(waiting: str) -> Iterator[None]:
    """Inside, no other process of this machine is; says `waiting` if one is now. Where no file can be locked (no
    writable folder, no such system call), it excludes no process."""
    place = _place(make=True)
    with contextlib.ExitStack() as stack:
        if place is not None and sys.platform != "win32":
            with contextlib.suppress(OSError):
                handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                stack.callback(os.close, handle)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    say(waiting)
                    fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def problem() -> str | None:
    """None if files can be written to the cache here and will be read again, otherwise what stands against it."""
    place = _find(make=True)
    if isinstance(place, str):
        return place
    try:
        with tempfile.NamedTemporaryFile(dir=place):
            return None
    except OSError as error:
        return f"{place} cannot be written to ({error.strerror})"


def _place(make: bool = False) -> Path | None:
    """The folder of the files, if there is one that is to be trusted; says so if not."""
    found = _find(make)
    if isinstance(found, str):
        say(f"the cache of compiled kernels is not used, because {found}: set TAPEHEAD_CACHE to a folder of your own.")
        return None
    return found


def _find(make: bool) -> Path | str | None:
    """The folder of the files, or why it is not used; None if it is not there and not to be made."""
    where = folder()
    if where is None:
        return "there is no home folder"
    for level in (where, where / "kernels"):
        try:
            if make:
                level.mkdir(mode=0o700, parents=True, exist_ok=True)
            reason = _distrust(level.stat())
        except OSError as error:
            return f"{level} cannot be made ({error.strerror})" if make else None
        if reason is not None:
            return f"{level} {reason}"
    return where / "kernels"


def _distrust(status: os.stat_result) -> str | None:
    if sys.platform == "win32":
        return None
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {status.st_uid}, who is neither this one ({os.geteuid()}) nor root"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written to by others (mode {stat.S_IMODE(status.st_mode):o}; chmod go-w changes that)"
    return None


def _say_not_kept(place: Path, error: OSError) -> None:
    say(f"compiled kernels cannot be kept in {place} ({error.strerror}): set TAPEHEAD_CACHE to a folder of your own.")
