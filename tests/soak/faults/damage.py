"""4: bit flips, truncations, zeroed blocks and appended bytes in every kind of file that is sealed or hashed."""

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import counted
from damage import HARMS
from example_checkpoint import FILES, example
from tiny import contents

from soak import children, commands
from soak.fault import Case, Fault
from tapehead import files, zoo
from tapehead.experiment import checkpoint
from tapehead.experiment.checkpoint import DamagedCheckpoint
from tapehead.experiment.folder import RunFolder, read_config, read_result
from tapehead.kernels import cache
from tapehead.sweep import pack
from tapehead.sweep.folder import LIST, SweepFolder
from tapehead.sweep.plan import read_jobs

MACHINE = "copy-ntm-lstm"
EACH_KIND = 1600


class Kind(NamedTuple):
    """A file, and whether what is in it now is refused when it is read."""

    path: Path
    is_refused: Callable[[], bool]


def refuses(error: type[Exception], read: Callable[[], Any]) -> Callable[[], bool]:
    def is_refused() -> bool:
        try:
            read()
        except error:
            return True
        return False

    return is_refused


@functools.cache
def kinds() -> dict[str, Kind]:
    """Made once for each process, in a folder that goes with it."""
    root = Path(tempfile.mkdtemp(prefix="soak-4-files-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return _of_checkpoints(root) | _of_runs(root) | _of_the_zoo(root) | _of_sweeps(root) | _of_the_cache(root)


def _of_checkpoints(root: Path) -> dict[str, Kind]:
    saved = checkpoint.save(root / "checkpoints", example(2))
    is_refused = refuses(DamagedCheckpoint, lambda: checkpoint.load(saved))
    return {f"checkpoint, {name}": Kind(saved / name, is_refused) for name in FILES}


def _of_runs(root: Path) -> dict[str, Kind]:
    commands.write_config(root, "plain")
    code = children.run(lambda: commands.train("experiment.toml", "run"), root, root / "said")
    assert code == 0, (root / "said").read_text()[-500:]
    run = root / "run"
    opened = RunFolder(run, read_config(run))
    return {
        "configuration of a run": Kind(run / "config.json", refuses(ValueError, lambda: read_config(run))),
        "result of a run": Kind(run / "result.json", lambda: read_result(run) is None),
        "time of a run": Kind(run / "time.json", lambda: opened.seconds() is None),
        "environment of a run": Kind(
            run / "env.json", refuses(ValueError, lambda: files.unseal(files.read(run / "env.json")))
        ),
    }


def _of_the_zoo(root: Path) -> dict[str, Kind]:
    home = root / "zoo"
    home.mkdir()
    paths = [zoo.store.weights_file(MACHINE), zoo.store.snapshots_file(MACHINE)]
    for path in [*paths, paths[0].with_suffix(".json")]:
        shutil.copy(path, home)
    return {
        "card of a machine": Kind(home / f"{MACHINE}.json", refuses(ValueError, lambda: zoo.card(MACHINE, home))),
        "weights of a machine": Kind(home / paths[0].name, refuses(ValueError, lambda: zoo.load(MACHINE, folder=home))),
        "snapshots of a machine": Kind(
            home / paths[1].name, refuses(ValueError, lambda: zoo.snapshots(MACHINE, folder=home))
        ),
    }


def _of_sweeps(root: Path) -> dict[str, Kind]:
    jobs = read_jobs(counted.write_file(root, numbers=2))
    sweep = SweepFolder.create(root / "sweep", jobs)
    sweep.job_folder(jobs[0]).mkdir(parents=True, exist_ok=True)
    sweep.write_failure(jobs[0], "a mistake")
    (failure,) = sweep.job_folder(jobs[0]).glob("fail*")
    packed, out = root / "sweep.zip", root / "unpacked"
    pack.pack(root / "sweep", packed)
    good = packed.read_bytes()

    pack.unpack(packed, out)
    whole = contents(out)
    shutil.rmtree(out)

    def unpack() -> None:
        """Bytes of an archive outside its files, such as their dates, may be anything: the files may not."""
        try:
            pack.unpack(packed, out)
            if contents(out) == whole and packed.read_bytes() != good:
                raise ValueError("nothing that is unpacked was damaged")
        finally:
            shutil.rmtree(out, ignore_errors=True)

    return {
        "jobs of a sweep": Kind(root / "sweep" / LIST, refuses(ValueError, lambda: SweepFolder(root / "sweep"))),
        "failure of a job": Kind(failure, lambda: sweep.failure(jobs[0]) != "a mistake"),
        "packed sweep": Kind(packed, refuses(ValueError, unpack)),
    }


def _of_the_cache(root: Path) -> dict[str, Kind]:
    name, place = "kernel.cubin", {"TAPEHEAD_CACHE": str(root / "cache")}
    path = root / "cache" / "kernels" / name
    with mock.patch.dict(os.environ, place):
        assert cache.write(name, bytes(range(256)) * 8)

    def is_refused() -> bool:
        with mock.patch.dict(os.environ, place):
            return cache.read(name) is None and not path.exists()

    return {"compiled kernel": Kind(path, is_refused)}


def check(case: Case) -> None:
    """`size` damages of one kind."""
    names = list(kinds())
    assert len(names) == KIND_COUNT
    name, source = names[case.number % len(names)], case.random
    path, is_refused = kinds()[name]
    good = path.read_bytes()
    try:
        for number in range(case.size):
            harm = HARMS[number % len(HARMS)]
            path.write_bytes(harm(good, source))
            with contextlib.redirect_stderr(None):
                refused = is_refused()
            assert refused, f"{name} was read after damage {number} ({harm.__name__})"
    finally:
        path.write_bytes(good)
    assert not is_refused(), f"{name} is refused without damage"


KIND_COUNT = 15

FAULT = Fault(
    number=4,
    title="bit flips, truncations, zeroed blocks, appended bytes in every kind of sealed or hashed file",
    promise="all refused; of a packed sweep also harmless if all files come out as they were",
    counted=f"damaged files ({EACH_KIND:,} of each of {KIND_COUNT} kinds)",
    full=EACH_KIND * KIND_COUNT,
    quick=40 * KIND_COUNT,
    each=40,
    chunk=60,
    check=check,
    needs=("numba", "tyro", "rich"),
)
