"""Where numbers were made: device, versions, commit, date. No paths and no names of machines."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import tapehead


def environment(device: str, backend: str) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else _processor(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "backend": backend,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numba": _version("numba"),
        "tapehead": tapehead.__version__,
        "commit": _commit(Path(tapehead.__file__).parent),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _processor() -> str:
    """The processor's name where Linux tells it, otherwise its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit(package: Path) -> str | None:
    """The commit of the source tree, with "+changes" if it has been edited since; None outside one."""
    if not _git(package, "ls-files", "__init__.py"):  # not installed inside another repository
        return None
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", ".")
    return f"{_git(package, 'rev-parse', 'HEAD')}{'+changes' if changed else ''}"


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:  # there is no git here
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
