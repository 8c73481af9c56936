"""Reading and writing files safely.

Reading takes plain files of a bounded size: a symbolic link is refused unless the caller allows it, and neither a pipe
nor an enormous file is opened. A file is written under a temporary name that cannot be predicted, flushed to the disk
and renamed, so readers see the old or the new one, and never a part. Nothing is written or removed through a link.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

LIMIT = 16 << 20
"""Bytes of a JSON file at most; the record of 10,000 machines, the longest that can be made, has 12 million."""

LOCK_TRIES = 100

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # neither of the two is on Windows, where the next one is needed
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)
_BYTES = getattr(os, "O_BINARY", 0)

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
)
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}")
_SEAL, _END = b'\n "seal": "', b'"\n}\n'
_HEX = 64  # digits of a SHA-256


class NotPlain(ValueError):
    """What is found at a path is not the plain file or folder that belongs there; it has not been touched."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}: remove or restore it.")
        self.path, self.reason = path, reason


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- what is there ---------------------------------------------------------------------------------------------------


def expect_file(path: Path) -> None:
    """Refuse a path where something other than a plain file is; nothing may be there."""
    with suppress(FileNotFoundError):
        _expect_file(path, path.lstat())


def expect_folder(path: Path) -> None:
    """Refuse a path where something other than a plain folder is; nothing may be there."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode):
            raise NotPlain(path, f"is {_kind(mode)}, not a folder")


def _expect_file(path: Path, found: os.stat_result, limit: int | None = None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotPlain(path, f"is {_kind(found.st_mode)}, not a plain file")
    if limit is not None and found.st_size > limit:
        raise NotPlain(path, f"has {found.st_size:,} bytes, but at most {limit:,} are read")


def _kind(mode: int) -> str:
    return next((word for matches, word in _KINDS if matches(mode)), "a socket or a device")


# --- reading ---------------------------------------------------------------------------------------------------------


def read(path: Path, limit: int = LIMIT, *, links: bool = False) -> bytes:
    """The bytes of a plain file of at most `limit` bytes. links: whether the path may be a symbolic link to one."""
    _expect_file(path, path.stat(follow_symlinks=links), limit)
    with os.fdopen(os.open(path, os.O_RDONLY | _BYTES | _NO_WAITING | (0 if links else _NO_LINKS)), "rb") as file:
        found = os.fstat(file.fileno())  # of what has been opened, which may have come since
        _expect_file(path, found, limit)
        data = file.read(found.st_size + 1)
    if len(data) != found.st_size:
        raise NotPlain(path, "changed while it was read")
    return data


# --- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def writing(folder: Path, advice: str = "make room or permission, or choose another folder.") -> Iterator[None]:
    """Disk full, folder gone, no permission: one sentence that names the folder."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error.strerror}): {advice}") from error


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Give errors of descriptors, such as a full disk, the name of the file: they come without one."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, and wait until it is on the disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BYTES | _NO_LINKS
    with _named(path), os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, data: bytes) -> None:
    """Put `data` in the place of a plain file or of nothing: readers see the old or the new one, never a part."""
    expect_file(path)
    temporary = temporary_name(path)
    with _named(path):
        try:
            write_new(temporary, data)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def append(path: Path, data: bytes) -> None:
    """Append to a plain file, which is made if need be. It is not flushed to the disk."""
    expect_file(path)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _BYTES | _NO_LINKS | _NO_WAITING
    with _named(path), os.fdopen(os.open(path, flags, 0o666), "ab") as file:
        _expect_file(path, os.fstat(file.fileno()))
        file.write(data)


def sync_folder(path: Path) -> None:
    with _named(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def temporary_name(path: Path) -> Path:
    """A name beside `path` that cannot be predicted, and that `clear_temporary` recognises."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def is_temporary(name: str, of: str) -> bool:
    """Whether a name is a temporary one of a file called `of`."""
    match = _TEMPORARY.fullmatch(name)
    return match is not None and match[1] == of


def clear_temporary(folder: Path) -> None:
    """Remove what killed processes left under temporary names. Links and the like are not ours, and stay."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _TEMPORARY.fullmatch(path.name):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                path.unlink()
            elif stat.S_ISDIR(mode):
                shutil.rmtree(path, ignore_errors=True)


# --- folders ---------------------------------------------------------------------------------------------------------


def make_folder(path: Path) -> None:
    """Make a folder inside one that is there; a link in its place is refused."""
    expect_folder(path)
    path.mkdir(exist_ok=True)


def make_folders(folder: Path) -> list[Path]:
    """Make a folder and those above it; the ones that this call has made, outermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    made: list[Path] = []
    try:
        for path in reversed(missing):
            with suppress(FileExistsError):  # another process was faster, or a file is there
                path.mkdir()
                made.append(path)
        folder.mkdir(exist_ok=True)
    except OSError:
        remove_empty(made)
        raise
    return made


def remove_empty(folders: list[Path]) -> None:
    """Remove folders, outermost first in the list, that have nothing in them."""
    for path in reversed(folders):
        with suppress(OSError):
            path.rmdir()


def discard(folder: Path) -> None:
    """Remove a folder; first its name, so that an interrupted removal leaves no half folder under it."""
    expect_folder(folder)
    doomed = temporary_name(folder)
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


# --- locks -----------------------------------------------------------------------------------------------------------


def need_locks() -> None:
    """Refuse a system that does not have the locks of runs and sweeps."""
    if sys.platform == "win32":
        raise ValueError(
            "runs and sweeps need POSIX file locks, which Windows does not have: train on Linux or macOS, or under WSL."
        )


def lock(path: Path) -> int | None:
    """Lock a file, which is made if need be: its descriptor, or None if another process holds the lock.

    A process that gives up may remove the file between our opening and our locking it. The lock of a removed file
    excludes no process, because the next process makes a new one, so the path is then tried again.
    """
    need_locks()
    for _ in range(LOCK_TRIES):
        expect_file(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS | _NO_WAITING, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        os.close(descriptor)
    raise NotPlain(path, f"was another file each of {LOCK_TRIES} times that it was locked")


def is_locked(path: Path) -> bool:
    """Whether a process has locked a file. Looking takes the lock for a moment, shared with others who look."""
    if sys.platform == "win32":  # where nothing is locked
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_LINKS | _NO_WAITING)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


# --- seals -----------------------------------------------------------------------------------------------------------


def seal(values: dict[str, Any], *, finite: bool = True) -> bytes:
    """JSON text of a table whose last field, `seal`, is the SHA-256 of all the text before it.

    finite: refuse infinities and NaN, which JSON does not have.
    """
    text = json.dumps(values | {"seal": ""}, indent=1, allow_nan=not finite) + "\n"
    head = text.encode().removesuffix(_END)
    return head + sha256(head).encode() + _END


def unseal(data: bytes) -> dict[str, Any]:
    """The table of a sealed text. Nothing is parsed before the seal has been compared."""
    head, digest = data[: -_HEX - len(_END)], data[-_HEX - len(_END) : -len(_END)]
    if not (data.endswith(_END) and head.endswith(_SEAL) and digest == sha256(head).encode()):
        raise ValueError("its seal does not match")
    values: dict[str, Any] = json.loads(data)
    values.pop("seal", None)
    return values
