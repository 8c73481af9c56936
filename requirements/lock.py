"""Write the lock files: every package that `make` installs, with its version and the SHA-256 of its files.

    make lock                      # versions stay as they are locked, where pyproject.toml allows them
    make lock UPGRADE=1            # the newest versions that pyproject.toml allows
    make lock UPGRADE=torch        # the newest of one package

- dev.txt: the package with all extras, tests, documents; all but torch.
- torch.txt: torch from the package index, with the CUDA libraries that it needs on Linux.
- torch-cpu.txt: its CPU build, which needs none. `make` takes it where an index or folder that pip searches has it.
- tools.txt: what builds, checks and audits a release.

CPU builds are not on the package index. Their hashes come from PyTorch's own index, and from wheels in the folders of
$PIP_FIND_LINKS; where neither has them, those of the same version that are locked already are kept.
"""

import argparse
import hashlib
import os
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
HERE = ROOT / "requirements"
INDEX = "https://pypi.org/simple"
CPU_INDEX = "https://download.pytorch.org/whl/cpu/torch/"
LEAST_PYTHON = "3.11"
TORCH = re.compile(r"torch==|nvidia-|cuda-|triton==")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
HEADERS = {
    "dev.txt": "The package with all extras, tests and documents; all but torch.",
    "torch.txt": "torch from the package index, with the CUDA libraries that it needs on Linux.",
    "torch-cpu.txt": "The CPU build of torch.",
    "tools.txt": "What builds, checks and audits a release.",
}


def compiled(uv: str, name: str, what: list[str], upgrade: str) -> list[str]:
    """The packages of a lock file, each with its hashes; versions that are locked already are preferred."""
    known = "".join(path.read_text() for path in (HERE / name, HERE / "torch.txt") if path.exists())
    start = HERE / f".{name}"
    start.write_text(known)
    upgrading = {"": [], "1": ["--upgrade"]}.get(upgrade, ["--upgrade-package", upgrade])
    command = [uv, "pip", "compile", *what, "--universal", "--python-version", LEAST_PYTHON, "--generate-hashes"]
    quiet = ["--quiet", "--no-header", "--no-annotate", "--no-config", "--default-index", INDEX]
    try:
        subprocess.run([*command, *quiet, *upgrading, "--output-file", str(start)], cwd=ROOT, check=True)
        text = start.read_text()
    finally:
        start.unlink()
    return re.findall(r"^\S.*(?:\n    .*)*\n", text, flags=re.MULTILINE)


def cpu_hashes(version: str) -> set[str]:
    """SHA-256 of the CPU builds of a version of torch, as far as they can be known from here."""
    wheel = f"torch-{version}+cpu-"
    found = set()
    for folder in os.environ.get("PIP_FIND_LINKS", "").split():
        for path in Path(folder).glob(f"{wheel}*.whl"):
            found.add(hashlib.sha256(path.read_bytes()).hexdigest())
    try:
        with urllib.request.urlopen(CPU_INDEX, timeout=20) as answer:
            page = answer.read().decode().replace("%2B", "+")
        found.update(re.findall(rf"{re.escape(wheel)}[^#\"]*#sha256=([0-9a-f]{{64}})", page))
    except (urllib.error.URLError, TimeoutError) as error:
        print(f"{CPU_INDEX} cannot be read ({error}): hashes of CPU builds are those known so far.")
    return found


def cpu_build(block: str) -> str:
    """The line of torch's CPU build, given that of the version on the package index."""
    version = block.split()[0].removeprefix("torch==")
    locked = HERE / "torch-cpu.txt"
    before = locked.read_text() if locked.exists() else ""
    known = HASH.findall(before) if f"torch=={version}+cpu " in before else []
    hashes = (f"--hash=sha256:{one}" for one in sorted({*known, *cpu_hashes(version)}))
    return " \\\n    ".join([f"torch=={version}+cpu", *hashes]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uv", default="uv", help="the program uv")
    parser.add_argument("--upgrade", default="", help="1 for all packages, or the name of one")
    options = parser.parse_args()
    dev = compiled(options.uv, "dev.txt", ["pyproject.toml", "--extra", "dev"], options.upgrade)
    torch = [block for block in dev if TORCH.match(block)]
    files = {
        "dev.txt": [block for block in dev if block not in torch],
        "torch.txt": torch,
        "torch-cpu.txt": [cpu_build(block) for block in torch if block.startswith("torch==")],
        "tools.txt": compiled(options.uv, "tools.txt", ["--group", "release"], options.upgrade),
    }
    for name, lines in files.items():
        (HERE / name).write_text(f"# Written by `make lock`: do not edit. {HEADERS[name]}\n" + "".join(lines))
        print(f"requirements/{name}: {len(lines)} packages")


if __name__ == "__main__":
    main()
