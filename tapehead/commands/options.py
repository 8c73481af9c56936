"""Checks that several commands make."""

import re
from pathlib import Path

import torch

from tapehead import files

MOST = 2**31 - 1
"""Of anything that is counted."""


def check_count(flag: str, count: int) -> None:
    """Refuse a count that is not positive, or that tensors cannot have."""
    if not 1 <= count <= MOST:
        raise ValueError(f"{flag} is {count}, but it must be at least 1 and under 2^31.")


def make_folder(folder: Path) -> list[Path]:
    """Make the folder that results go to, before the work that makes them; the folders that were not there."""
    with files.writing(folder, "choose another folder with --out."):
        return files.make_folders(folder)


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,2})?", device):
        raise ValueError(f"--device is {device!r}, but it must be cpu, cuda or cuda:NUMBER.")
    found = torch.cuda.device_count()
    if device != "cpu" and int(device.partition(":")[2] or 0) >= found:
        there = f"only {found} CUDA devices" if found else "no CUDA device"
        raise ValueError(f"--device is {device!r}, but torch finds {there} here: use --device cpu.")
