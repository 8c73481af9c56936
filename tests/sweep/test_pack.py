"""A sweep in one file: it comes back whole, goes on elsewhere, and what is no packed sweep is refused."""

import io
import os
import shutil
import stat
import zipfile

import counted
import pytest
from tiny import contents

from tapehead import files
from tapehead.sweep import pack as pack_module
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.pack import MANIFEST, pack, unpack
from tapehead.sweep.plan import read_jobs
from tapehead.sweep.state import Watch
from tapehead.sweep.work import Assignment, work

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def half_done(tmp_path_factory):
    """A sweep of which one job is finished, one has failed, and one is not begun."""
    folder = tmp_path_factory.mktemp("pack")
    jobs = read_jobs(counted.write_file(folder, numbers=3, task="Faulty"))
    sweep = SweepFolder.create(folder / "sweep", jobs[:2])
    work(Assignment(str(sweep.path), "driver"))
    return SweepFolder.create(sweep.path, jobs)


@pytest.fixture
def packed(half_done, tmp_path):
    pack(half_done.path, tmp_path / "sweep.zip")
    return tmp_path / "sweep.zip"


def states(sweep):
    return [one.state for one in Watch(sweep).snapshot()]


def test_a_sweep_goes_on_where_it_is_unpacked(half_done, packed, tmp_path):
    there = unpack(packed, tmp_path / "there")
    assert states(there) == states(half_done) == ["finished", "failed", "waiting"]
    names = [name for name in contents(half_done.path) if "lease" not in name and not name.endswith(".lock")]
    assert {name: contents(there.path)[name] for name in names} == {
        name: contents(half_done.path)[name] for name in names
    }
    assert not [name for name in contents(there.path) if "lease" in name or name.endswith("run.lock")]
    assert work(Assignment(str(there.path), "driver")) == 1
    assert states(there) == ["finished", "failed", "finished"]


def test_the_same_sweep_makes_the_same_file(half_done, packed, tmp_path):
    pack(half_done.path, tmp_path / "again.zip")
    assert packed.read_bytes() == (tmp_path / "again.zip").read_bytes()


def test_a_sweep_that_is_worked_on_is_not_packed(half_done, tmp_path):
    with half_done.working(), pytest.raises(ValueError, match="is being worked on: stop it first"):
        pack(half_done.path, tmp_path / "sweep.zip")
    assert list(tmp_path.iterdir()) == []
    with half_done.alone(), pytest.raises(ValueError, match="is being packed"), half_done.working():
        pass


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_sweep_with_a_run_that_another_program_trains_is_not_packed(half_done, tmp_path, monkeypatch, meanwhile):
    run, write, held = half_done.run_folder(half_done.jobs[0]), pack_module._write, []

    def start(*arguments):
        held.append(files.lock(run / "run.lock"))
        return write(*arguments) if arguments else None

    if meanwhile:
        monkeypatch.setattr(pack_module, "_write", start)
    else:
        start()
    with pytest.raises(ValueError, match=r"another process is training in .*/run: stop it first") as error:
        pack(half_done.path, tmp_path / "sweep.zip")
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []
    os.close(held[0])
    monkeypatch.undo()
    assert pack(half_done.path, tmp_path / "sweep.zip") > 0


def test_links_are_not_packed(half_done, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(half_done.path, copy)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    run = SweepFolder(copy).run_folder(half_done.jobs[0])
    (run / "env.json").unlink()
    (run / "env.json").symlink_to(secret)
    (run / "figures").symlink_to(tmp_path)
    pack(copy, tmp_path / "sweep.zip")
    names = zipfile.ZipFile(tmp_path / "sweep.zip").namelist()
    assert not [name for name in names if "env.json" in name or "secret" in name]


def test_a_folder_that_is_there_is_not_touched(packed, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "thing").touch()
    with pytest.raises(ValueError, match="is there already"):
        unpack(packed, tmp_path / "there")
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["thing"]


def refused(path, tmp_path, match):
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=match) as error:
        unpack(path, tmp_path / "there")
    assert "\n" not in str(error.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.6, 0.9, 0.97, 0.999])
def test_a_damaged_file_is_refused_and_leaves_nothing(packed, tmp_path, share):
    data = bytearray(packed.read_bytes())
    at = min(int(share * len(data)), len(data) - 1)
    packed.write_bytes(bytes(data[:at]))
    refused(packed, tmp_path, "is no packed sweep, or is damaged")


def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(packed, half_done, tmp_path):
    data = packed.read_bytes()
    names = set(zipfile.ZipFile(packed).namelist())
    refusals = 0
    for at in range(7, len(data), len(data) // 40):
        packed.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        try:
            there = unpack(packed, tmp_path / "there")
        except ValueError:
            refusals += 1
        else:  # a field of the archive that nothing reads, such as the time of a member
            assert {name for name in contents(there.path) if (there.path / name).is_file()} == names - {MANIFEST}
            assert states(there) == states(half_done)
            shutil.rmtree(there.path)
        assert not (tmp_path / "there").exists()
    assert refusals > 30


def forged(packed, *, extra=(), change=None, attributes=0o644 << 16, manifest=None):
    """The archive again, with other members or another manifest."""
    source = zipfile.ZipFile(io.BytesIO(packed.read_bytes()))
    members = [(name, source.read(name)) for name in source.namelist() if name != MANIFEST]
    members += extra
    listed = {name: {"size": len(data), "sha256": files.sha256(data)} for name, data in members}
    if change:
        members = [change(name, data) for name, data in members]
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = attributes
            archive.writestr(info, data)
        archive.writestr(MANIFEST, files.seal({"files": manifest(listed) if manifest else listed}))


NAMES = [
    "../out",
    "/tmp/out",
    "jobs/../../out",
    "jobs/a/run/../x",
    "jobs/a/run/checkpoints/step-000000001/../x",
    "x.py",
]


@pytest.mark.parametrize("name", [*NAMES, "jobs/a/run/run.lock", "jobs/a/lease-000001.json", "jobs/../run/env.json"])
def test_a_name_outside_a_sweep_is_refused(packed, tmp_path, name):
    forged(packed, extra=[(name, b"bad")])
    refused(packed, tmp_path, "which is no file of a sweep")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_other_forgeries_are_refused(packed, tmp_path, monkeypatch):
    original = packed.read_bytes()
    cases = {
        "is no plain file": {"attributes": (stat.S_IFLNK | 0o777) << 16},
        "is not what was packed": {"change": lambda name, data: (name, data[:-1] + b"!")},
        "other files than its": {"manifest": lambda listed: dict(list(listed.items())[1:])},
        "a name twice": {"extra": [("sweep.json", b"{}")]},
        "more bytes than there is room for": {
            "manifest": lambda listed: listed
            | {name: file | {"size": 1 << 50} for name, file in listed.items() if name != "sweep.json"}
        },
        "is not one of this version": {"manifest": lambda listed: {name: 3 for name in listed}},
    }  # fmt: skip
    for words, options in cases.items():
        packed.write_bytes(original)
        forged(packed, **options)
        refused(packed, tmp_path, words)
    packed.write_bytes(original)
    monkeypatch.setattr(pack_module, "MOST_FILES", 3)
    refused(packed, tmp_path, "1 to 3 are read")


@pytest.mark.parametrize("name", ["sweep.json", MANIFEST])
@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_refused(packed, tmp_path, name, method):
    """Before a byte of them is read: a damaged member would be an error of another kind with each."""
    source = zipfile.ZipFile(io.BytesIO(packed.read_bytes()))
    with zipfile.ZipFile(packed, "w") as archive:
        for each in source.namelist():
            archive.writestr(zipfile.ZipInfo(each), source.read(each), method if each == name else zipfile.ZIP_STORED)
    refused(packed, tmp_path, rf"'{name}' is encrypted, or compressed in another way than by deflate")


@pytest.mark.parametrize("name", ["sweep.json", MANIFEST])
def test_encrypted_members_are_refused(packed, tmp_path, name):
    data = bytearray(packed.read_bytes())
    for signature, flags, at in ((b"PK\x03\x04", 6, 30), (b"PK\x01\x02", 8, 46)):
        places = [
            i for i in range(len(data)) if data.startswith(signature, i) and data.startswith(name.encode(), i + at)
        ]
        assert len(places) == 1
        data[places[0] + flags] |= 1
    packed.write_bytes(bytes(data))
    refused(packed, tmp_path, rf"'{name}' is encrypted")


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "text").write_text("hello")
    refused(tmp_path / "text", tmp_path, "is no packed sweep")
    with pytest.raises(ValueError, match="absent cannot be read"):
        unpack(tmp_path / "absent", tmp_path / "there")
