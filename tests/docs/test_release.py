"""What a release needs: lock files that fit the metadata, a wheel with everything in it, one version."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tapehead

ROOT = Path(__file__).parents[2]
METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("dev.txt", "torch.txt", "torch-cpu.txt", "tools.txt")
PINNED = re.compile(r"^([\w.-]+)==(\S+)((?:.*\n(?:    .*\n)*))", flags=re.MULTILINE)


def locked(name):
    """Version and the rest of the lines of every package in a lock file."""
    text = (ROOT / "requirements" / name).read_text()
    return [(package, version, rest) for package, version, rest in PINNED.findall(text)]


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_of_a_lock_file_has_hashes(name):
    text = (ROOT / "requirements" / name).read_text()
    assert locked(name)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", rest) for _, _, rest in locked(name))
    assert len(locked(name)) == len(re.findall(r"^[a-z]", text, flags=re.MULTILINE))
    assert not re.search(r"https?:|file:|index-url|find-links", text)


def test_the_lock_files_fit_the_metadata():
    versions = {package: version for package, version, _ in [*locked("torch.txt"), *locked("dev.txt")]}
    project = METADATA["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        if name != "tapehead":
            assert name in versions, f"{name} is not locked: run `make lock`"
            assert versions[name] in requirement.specifier, f"{name} {versions[name]}: run `make lock`"


def test_tools_are_locked():
    versions = {package: version for package, version, _ in locked("tools.txt")}
    for requirement in map(Requirement, METADATA["dependency-groups"]["release"]):
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier


def test_one_version():
    version = tapehead.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()


def tracked(folder):
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(listed.splitlines())


def test_wheel_and_sdist_have_everything(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=300)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        (about,) = (name for name in inside if name.endswith("/METADATA"))
        metadata = archive.read(about).decode()
        archive.extractall(tmp_path / "installed")
    package = {path for path in tracked("tapehead") if (ROOT / path).exists()}
    assert package - inside == set()
    assert {name.split("/")[0] for name in inside} == {"tapehead", f"tapehead-{tapehead.__version__}.dist-info"}
    assert "License-Expression: Apache-2.0" in metadata
    assert "Description-Content-Type: text/markdown" in metadata
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert package | {"pyproject.toml", "README.md", "LICENSE"} <= names

    code = "import tapehead; print(tapehead.__file__); print(tapehead.load('copy-ntm-lstm').memory_slots)"
    isolated = [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(tmp_path / 'installed')!r}]; {code}"]
    done = subprocess.run(isolated, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == [str(tmp_path / "installed/tapehead/__init__.py"), "128"], done.stderr
