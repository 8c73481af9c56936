"""A whole sweep in one file: to carry it to another machine, and to go on there.

The file is a zip archive of the folder's plain files, with `manifest.json` as its last member: sizes and SHA-256 of all
others, sealed. Leases, locks and logs stay behind: they are about processes of this machine. Nothing is unpacked that
the manifest does not name, outside the folder, or through a link; a damaged archive leaves nothing behind.
"""

import hashlib
import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypedDict

from tapehead import files
from tapehead.sweep.folder import FAILURE, LIST, LIST_BYTES, SweepFolder
from tapehead.sweep.jobs import NAME
from tapehead.typed import fits

MANIFEST = "manifest.json"
MANIFEST_BYTES = 256 << 20
MOST_FILES = 1_000_000
MOST_BYTES = 1 << 40
CHUNK = 1 << 20

_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1
"""The bit of a member's flags."""
_RUN_FILES = ("config.json", "env.json", "metrics.jsonl", "time.json", "result.json")
_PART = r"[A-Za-z0-9._=-]{1,120}"
_MEMBER = re.compile(
    rf"{LIST}|jobs/{NAME.pattern}/(?:{FAILURE}|run/(?:{'|'.join(map(re.escape, _RUN_FILES))}"
    rf"|checkpoints/step-\d{{9,}}/{_PART}|tensorboard/{_PART}|figures/{_PART}))"
)


class _File(TypedDict):
    size: int
    sha256: str


def pack(folder: Path, target: Path) -> int:
    """Write a sweep into one file; the number of files in it. Refused while the sweep is worked on, or a run of it is
    trained by another program."""
    sweep = SweepFolder(folder)
    with sweep.alone(), files.writing(target.parent, "make room or permission, or choose another place."):
        files.expect_file(target)
        temporary = files.temporary_name(target)
        try:
            with temporary.open("xb") as file:
                count = _write(sweep.path, file)
                file.flush()
                os.fsync(file.fileno())
            sweep.refuse_trained_outside()  # such a program may have started meanwhile: it does not know the sweep
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        files.sync_folder(target.parent)
    return count


def _write(folder: Path, file: IO[bytes]) -> int:
    listed: dict[str, _File] = {}
    with zipfile.ZipFile(file, "w") as archive:
        for name in sorted(_members(folder)):
            listed[name] = _add(archive, folder / name, name)
        archive.writestr(zipfile.ZipInfo(MANIFEST), files.seal({"files": listed}), zipfile.ZIP_DEFLATED)
    return len(listed)


def _members(folder: Path) -> Iterator[str]:
    """The files of a sweep that travel; links and the like are left out."""
    for where, _, names in os.walk(folder):  # which follows no links
        for name in names:
            path = Path(where, name)
            member = path.relative_to(folder).as_posix()
            if _MEMBER.fullmatch(member) and stat.S_ISREG(path.lstat().st_mode):
                yield member


def _add(archive: zipfile.ZipFile, path: Path, name: str) -> _File:
    digest, size = hashlib.sha256(), 0
    info = zipfile.ZipInfo(name)  # without the time of day: equal sweeps make equal files
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    with path.open("rb") as source, archive.open(info, "w", force_zip64=True) as member:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            member.write(chunk)
    return _File(size=size, sha256=digest.hexdigest())


def unpack(source: Path, folder: Path) -> SweepFolder:
    """Make the folder of a packed sweep, which must not be there yet; every byte is compared before it is."""
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"{folder} is there already: choose a new or empty folder.")
    try:
        source.open("rb").close()
    except OSError as error:
        raise ValueError(f"{source} cannot be read ({error.strerror}): give a packed sweep.") from error
    with files.writing(folder):
        made = files.make_folders(folder.absolute().parent)
        temporary = files.temporary_name(folder)
        try:
            temporary.mkdir()
            _read(source, temporary)
            SweepFolder(temporary)  # its list is one
            if folder.is_dir():
                folder.rmdir()
            temporary.rename(folder)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            files.remove_empty(made)
            if isinstance(error, _Damaged | zipfile.BadZipFile | zlib.error | EOFError | NotImplementedError):
                raise _refusal(source, error) from error
            if isinstance(error, ValueError) and not isinstance(error, files.NotPlain):
                raise _refusal(source, error) from error
            raise
        files.sync_folder(folder.absolute().parent)
    sweep = SweepFolder(folder)
    for name in ("jobs", "logs", "stops"):
        files.make_folder(folder / name)
    return sweep


class _Damaged(Exception):
    """An archive that is not what `pack` wrote."""


def _refusal(source: Path, error: BaseException) -> ValueError:
    says = " ".join(str(error).split()) or type(error).__name__
    return ValueError(f"{source} is no packed sweep, or is damaged ({says}): pack it again, and copy it again.")


def _read(source: Path, folder: Path) -> None:
    with source.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if not 0 < len(members) <= MOST_FILES:
            raise _Damaged(f"{len(members):,} files, but 1 to {MOST_FILES:,} are read")
        if len({info.filename for info in members}) != len(members):
            raise _Damaged("a name twice")
        for info in members:
            if info.compress_type not in _COMPRESSIONS or info.flag_bits & _ENCRYPTED:
                raise _Damaged(f"{info.filename[:60]!r} is encrypted, or compressed in another way than by deflate")
        listed = _manifest(archive, members[-1])
        if [info.filename for info in members[:-1]] != list(listed):
            raise _Damaged(f"other files than its {MANIFEST} names")
        if sum(file["size"] for file in listed.values()) > min(MOST_BYTES, shutil.disk_usage(folder).free):
            raise _Damaged("more bytes than there is room for")
        for info in members[:-1]:
            _extract(archive, info, folder, listed[info.filename])


def _manifest(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> dict[str, _File]:
    if info.filename != MANIFEST or info.file_size > MANIFEST_BYTES:
        raise _Damaged(f"no {MANIFEST} at its end")
    listed: Any = files.unseal(_bounded(archive, info, info.file_size)).get("files")
    if not fits(listed, dict[str, _File]) or LIST not in listed:
        raise _Damaged(f"its {MANIFEST} is not one of this version of tapehead")
    for name, file in listed.items():
        if not _MEMBER.fullmatch(name) or ".." in name.split("/") or "." in name.split("/"):
            raise _Damaged(f"it names {name[:60]!r}, which is no file of a sweep")
        if file["size"] < 0 or (name == LIST and file["size"] > LIST_BYTES):
            raise _Damaged(f"{name} has {file['size']:,} bytes")
    return dict(listed)


def _bounded(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int) -> bytes:
    with archive.open(info) as member:
        data = member.read(size + 1)
    if len(data) != size:
        raise _Damaged(f"{info.filename} has another size than it says")
    return data


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path, expected: _File) -> None:
    """Write one member, as a plain file whatever its attributes say, no further than its size."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise _Damaged(f"{info.filename} is no plain file")
    path = folder / info.filename
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with archive.open(info) as member, path.open("xb") as target:
        while chunk := member.read(min(CHUNK, expected["size"] - size + 1)):
            size += len(chunk)
            if size > expected["size"]:
                break
            digest.update(chunk)
            target.write(chunk)
        target.flush()
        os.fsync(target.fileno())
    if size != expected["size"] or digest.hexdigest() != expected["sha256"]:
        raise _Damaged(f"{info.filename} is not what was packed")
