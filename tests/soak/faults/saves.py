"""2: a process that ends inside a save, at any call by which a save touches the disk, before it, after it or in it."""

import contextlib
import functools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from example_checkpoint import assert_same, example

from soak import children
from soak.fault import Case, Fault
from tapehead import files
from tapehead.experiment import checkpoint

CALLS: tuple[tuple[Any, str], ...] = (
    (os, "fsync"), (os, "open"), (shutil, "rmtree"), (files, "write_new"), (files, "sync_folder"), (Path, "mkdir"),
    (Path, "rename"), (Path, "iterdir"),
)  # fmt: skip
STEPS = {"the next step": 3, "the same step again": 2}


class Stop(BaseException):
    """Stands for an end after which clean-up runs; nothing may catch it."""


@contextlib.contextmanager
def counted_calls(happen: Callable[[int, Callable[..., Any], tuple[Any, ...]], None]) -> Iterator[list[int]]:
    """`happen(number, function, arguments)` before every call of CALLS; the number of calls."""
    calls = [0]

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            calls[0] += 1
            happen(calls[0], original, arguments)
            return original(*arguments, **named)

        return call

    with contextlib.ExitStack() as stack:
        for owner, name in CALLS:
            stack.enter_context(mock.patch.object(owner, name, watched(getattr(owner, name))))
        yield calls


@functools.cache
def moments() -> list[tuple[int, int, str]]:
    """Every step, call and way to end."""
    found = []
    for step in STEPS.values():
        folder = Path(tempfile.mkdtemp(prefix="soak-2-count-"))
        two_saved(folder)
        with counted_calls(lambda *_: None) as calls:
            checkpoint.save(folder, example(step))
        shutil.rmtree(folder)
        assert calls[0] > 15
        found += [(step, call, way) for call in range(1, calls[0] + 1) for way in ("killed", "half", "stopped")]
    return found


def two_saved(folder: Path) -> None:
    for step in (1, 2):
        checkpoint.save(folder, example(step))


def end_at(folder: Path, step: int, call: int, way: str) -> None:
    """Save, and end at a call: killed before it, killed with half of what it writes, or by an exception."""

    def happen(number: int, original: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if number != call:
            return
        if way == "stopped":
            raise Stop
        if way == "half" and original.__name__ == "write_new":
            arguments[0].write_bytes(arguments[1][: len(arguments[1]) // 2])
        elif way == "half" and original.__name__ in ("mkdir", "rename", "rmtree"):
            with contextlib.suppress(OSError):
                original(*arguments)  # done, but nothing after it
        os.kill(os.getpid(), signal.SIGKILL)

    with counted_calls(happen):
        checkpoint.save(folder, example(step))


def check(case: Case) -> None:
    every = moments()
    step, call, way = every[case.random.randrange(len(every)) if case.number >= len(every) else case.number]
    saved = case.folder / "checkpoints"
    saved.mkdir()
    two_saved(saved)
    if way == "stopped":
        with contextlib.suppress(Stop):
            end_at(saved, step, call, way)
            raise AssertionError("the save came to its end")
    else:
        code = children.run(lambda: end_at(saved, step, call, way), case.folder, case.folder / "said")
        assert code == -signal.SIGKILL, (case.folder / "said").read_text()[-500:]
    found = checkpoint.load_newest(saved)
    assert found is not None
    assert found.step in (2, step)
    assert_same(found, example(found.step))
    checkpoint.save(saved, example(4))
    newest = checkpoint.load_newest(saved)
    assert newest is not None
    assert_same(newest, example(4))
    assert len(checkpoint.folders(saved)) == checkpoint.KEEP


FAULT = Fault(
    number=2,
    title="the process ends inside a save: open, half a write, fsync, manifest, rename, prune",
    promise="a good checkpoint is left, and a half one is never chosen",
    counted="ends",
    full=160,
    quick=40,
    chunk=200,
    check=check,
)
