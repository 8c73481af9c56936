"""Build wheel and sdist, check them, and run the quickstart from the wheel in an empty environment.

    make dist-check

The environment has what the wheel's own metadata asks for, at the locked versions, and nothing of this folder: what is
missing in the wheel or its metadata shows.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


def run(*command: str | Path, folder: Path = ROOT) -> None:
    print("$", *command, flush=True)
    subprocess.run([str(word) for word in command], cwd=folder, check=True)


def tool(name: str) -> Path:
    """A program of the environment that runs this one."""
    return Path(sys.executable).parent / name


def quickstart() -> str:
    """The Python of docs/quickstart.md as one script."""
    text = (ROOT / "docs/quickstart.md").read_text()
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE))


def versions() -> str:
    """The locked versions as constraints for pip."""
    texts = [(ROOT / "requirements" / name).read_text() for name in ("dev.txt", "torch.txt")]
    return "\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", "".join(texts), flags=re.MULTILINE))


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    files = sorted(DIST.iterdir())
    run(tool("twine"), "check", "--strict", *files)
    (wheel,) = (path for path in files if path.suffix == ".whl")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run(sys.executable, "-m", "venv", folder / "venv")
        (folder / "versions.txt").write_text(versions())
        pip = (folder / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, "-c", folder / "versions.txt", wheel)
        (folder / "work").mkdir()
        (folder / "quickstart.py").write_text(quickstart())
        for command in (("tapehead", "doctor"), ("tapehead", "zoo", "list"), ("python", "../quickstart.py")):
            run(folder / "venv/bin" / command[0], *command[1:], folder=folder / "work")
    print(f"{', '.join(path.name for path in files)}: built, checked, and tried in an empty environment")


if __name__ == "__main__":
    main()
