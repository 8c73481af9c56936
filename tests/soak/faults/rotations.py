"""17: thousands of checkpoints, each saved, read and rotated out."""

import gc
import resource
from pathlib import Path

import torch
from example_checkpoint import example

from soak.fault import Case, Fault
from tapehead.experiment import checkpoint

SETTLED = 0.1
"""Of the rotations, after which memory is measured first: caches are full by then."""


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def check(case: Case) -> None:
    weights = torch.randn(3, 10_000)
    memory, opened = 0, descriptors()
    for step in range(1, case.size + 1):
        point = example(step)._replace(files={"metrics.jsonl": b'{"bits": 1}\\n' * 100})
        checkpoint.save(case.folder, point._replace(tensors={"weights": weights + step}))
        found = checkpoint.load_newest(case.folder)
        assert found is not None
        assert found.step == step
        if step == max(2, int(SETTLED * case.size)):
            gc.collect()
            memory = resident()
    gc.collect()
    growth = resident() / memory - 1
    assert growth < 0.01, f"memory grew by {100 * growth:.2f} %"
    assert descriptors() <= opened, f"{descriptors() - opened} descriptors were left open"
    assert [path.name for path in checkpoint.folders(case.folder)] == [f"step-{case.size - n:09d}" for n in (0, 1)]


FAULT = Fault(
    number=17,
    title="checkpoints saved, read and rotated out",
    promise="memory grows by less than 1 %, no descriptor is left open",
    counted="rotations",
    full=2000,
    quick=100,
    each=None,
    check=check,
)
