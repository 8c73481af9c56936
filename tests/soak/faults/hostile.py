"""6: hostile pickles, safetensors headers, JSON and TOML, by hand and fuzzed.

A reader may return something or raise a ValueError of one sentence. It may take 1 second of processor time and 256 MB,
start no program, load no pickle, and write nothing outside its folder.
"""

import contextlib
import functools
import json
import os
import pickle
import random
import resource
import shutil
import struct
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import counted
from example_checkpoint import example
from tiny import BASE

from soak.fault import Case, Fault
from tapehead import files, zoo
from tapehead.experiment import checkpoint
from tapehead.experiment.config import Experiment, read_toml
from tapehead.experiment.folder import read_config, read_result
from tapehead.lab import records
from tapehead.sweep import pack
from tapehead.sweep.plan import read_jobs

SECONDS, BYTES = 1.0, 256 << 20
FORBIDDEN = {"os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class"}
MACHINE = "copy-ntm-feedforward"


class Bomb:
    """A pickle of it makes a folder when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploded",)


class Guard:
    """Notes what this process does that a reader must not do; a hook of the interpreter, which cannot be removed."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.folder: str | None = None
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event in FORBIDDEN:
            self.seen.append(f"{event} {arguments!r:.100}")
        if event == "open" and isinstance(arguments[0], str) and isinstance(arguments[2], int):
            writes = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and not str(Path(arguments[0]).absolute()).startswith(self.folder):
                self.seen.append(f"wrote {arguments[0]}")


@functools.cache
def guard() -> Guard:
    """The one of this process, whose memory is bounded from now on."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, most))
    return Guard()


# --- what is read ----------------------------------------------------------------------------------------------------


def read_checkpoint(folder: Path, data: bytes, part: str) -> None:
    """A file of a checkpoint whose manifest vouches for it; the manifest itself is sealed again."""
    path = checkpoint.save(folder / "saved", example(2))
    contents = {file.name: file.read_bytes() for file in path.iterdir() if file.name != checkpoint.MANIFEST}
    if part == checkpoint.MANIFEST:
        (path / part).write_bytes(sealed(data))
    else:
        (path / part).write_bytes(data)
        (path / checkpoint.MANIFEST).write_bytes(checkpoint._manifest(contents | {part: data}))
    checkpoint.load(path)


def sealed(data: bytes) -> bytes:
    """Any bytes under a right seal."""
    head = data.rstrip().removesuffix(b"}").rstrip() + b',\n "seal": "'
    return head + files.sha256(head).encode() + b'"\n}\n'


def read_run(folder: Path, data: bytes, part: str) -> None:
    (folder / "config.json").write_bytes(files.seal({"experiment": BASE.to_plain(), "hash": BASE.hash}))
    (folder / part).write_bytes(sealed(data))
    read_config(folder) if part == "config.json" else read_result(folder)


def read_experiment(folder: Path, data: bytes) -> None:
    path = folder / "experiment.toml"
    path.write_bytes(data)
    Experiment.from_plain(read_toml(path), str(path))


def read_sweep(folder: Path, data: bytes) -> None:
    (folder / "sweep.toml").write_bytes(data)
    read_jobs(folder / "sweep.toml")


def read_record(folder: Path, data: bytes) -> None:
    (folder / "record.json").write_bytes(data)
    records.read(folder / "record.json")


def read_machine(folder: Path, data: bytes, part: str) -> None:
    """Weights whose card vouches for them, or a card that is sealed again."""
    weights, card = zoo.store.weights_file(MACHINE), zoo.store.weights_file(MACHINE).with_suffix(".json")
    if part == "card":
        (folder / card.name).write_bytes(sealed(data))
        shutil.copy(weights, folder)
    else:
        values = files.unseal(card.read_bytes())
        values["sha256"] = files.sha256(data)
        (folder / card.name).write_bytes(files.seal(values))
        (folder / weights.name).write_bytes(data)
    zoo.load(MACHINE, folder=folder)


def read_packed(folder: Path, data: bytes) -> None:
    (folder / "sweep.zip").write_bytes(data)
    pack.unpack(folder / "sweep.zip", folder / "out")


Reader = Callable[[Path, bytes], None]


def part_of(read: Callable[[Path, bytes, str], None], part: str) -> Reader:
    return lambda folder, data: read(folder, data, part)


READERS: dict[str, Reader] = {
    "tensors": part_of(read_checkpoint, checkpoint.TENSORS),
    "facts": part_of(read_checkpoint, checkpoint.FACTS),
    "manifest": part_of(read_checkpoint, checkpoint.MANIFEST),
    "configuration": part_of(read_run, "config.json"),
    "result": part_of(read_run, "result.json"),
    "experiment": read_experiment,
    "sweep": read_sweep,
    "record": read_record,
    "card": part_of(read_machine, "card"),
    "weights": part_of(read_machine, "weights"),
    "packed": read_packed,
}


@functools.cache
def samples() -> dict[str, bytes]:
    """A good file for each reader."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="soak-6-") as name:
        folder = Path(name)
        path = checkpoint.save(folder / "saved", example(2))
        weights = zoo.store.weights_file(MACHINE)
        with zipfile.ZipFile(folder / "sweep.zip", "w") as archive:
            archive.writestr("manifest.json", files.seal({"files": {"a": {"size": 1, "sha256": "x"}}}))
            archive.writestr("a", b"a")
        return {
            "tensors": (path / checkpoint.TENSORS).read_bytes(),
            "facts": (path / checkpoint.FACTS).read_bytes(),
            "manifest": (path / checkpoint.MANIFEST).read_bytes(),
            "configuration": files.seal({"experiment": BASE.to_plain(), "hash": BASE.hash}),
            "result": files.seal({"recipe": "custom", "seeds": [0], "solved_at": [None], "episodes": 1}),
            "experiment": BASE.to_toml().encode(),
            "sweep": counted.write_file(folder).read_bytes().replace(b"counted:Counted", b"copy"),
            "record": json.dumps({"kind": records.KIND, "machines": [], "experiment": BASE.to_plain()}).encode(),
            "card": weights.with_suffix(".json").read_bytes(),
            "weights": weights.read_bytes(),
            "packed": (folder / "sweep.zip").read_bytes(),
        }


# --- what is hostile -------------------------------------------------------------------------------------------------


def tensors_file(header: bytes | Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def entry(**changes: Any) -> dict[str, Any]:
    return {"weights": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


PICKLES = [pickle.dumps(Bomb(), protocol) for protocol in range(6)]
HEADERS = [
    b"",
    b"\0" * 7,
    b"\xff" * 8,
    struct.pack("<Q", 2**63) + b"{}",
    struct.pack("<Q", 100) + b"{}",
    tensors_file(b"[" * 100_000),
    tensors_file(b"not json"),
    tensors_file([]),
    tensors_file(entry(), b"\0" * 7),
    tensors_file(entry(shape=[2**62, 2**62]), b"\0" * 8),
    tensors_file(entry(shape=[-2]), b"\0" * 8),
    tensors_file(entry(data_offsets=[0, 2**63]), b"\0" * 8),
    tensors_file(entry(data_offsets=[8, 0]), b"\0" * 8),
    tensors_file(entry(dtype="PICKLE"), b"\0" * 8),
    tensors_file({"a": entry()["weights"], "b": entry()["weights"]}, b"\0" * 8),
]
TEXTS = [
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 10_000,
    b"null",
    b'"x"',
    b"\xff\xfe",
    b"{",
    b'{"files": {"../x": {"size": 1, "sha256": ""}}}',
    b'{"files": null}',
    b'{"kind": 1e999}',
    b'{"a": 1, "a": 2}',
    b"a = [" + b"[" * 20_000,
    b"a.b.c" + b".d" * 5_000 + b" = 1",
    b"[task]\nname = 1",
    b"seeds = 99999999999999999999999",
    b"x = 1\nx = 2",
]


def by_hand() -> list[tuple[str, bytes]]:
    """At least 50 pairs of a reader and a hostile file for it."""
    found = [(name, data) for name in ("tensors", "facts", "weights", "record") for data in PICKLES]
    found += [(name, data) for name in ("tensors", "weights") for data in HEADERS]
    texts = ("facts", "manifest", "configuration", "result", "experiment", "sweep", "record", "card", "packed")
    return found + [(name, data) for name in texts for data in TEXTS]


TOKENS = (
    b"null", b"true", b"-1", b"1e999", b"NaN", b"99999999999999999999", b'""', b"[]", b"{}", b'"\\u0000"', b"[[[[[[[[",
    b"../../x", b"/etc/passwd", b"\x00", b"\xff", b'"x"', b"0", b"2.5", b"{\"a\":", b"inf", b"[1,2]",
)  # fmt: skip


def fuzzed(data: bytes, source: random.Random) -> bytes:
    """A good file with some of its bytes or words changed."""
    head = data[: min(len(data), 4000)]  # of tensors the header: what follows is numbers, any of which are tensors
    for _ in range(source.choice((1, 1, 2, 4))):
        at, end = sorted(source.randrange(len(head) + 1) for _ in range(2))
        end = min(end, at + source.choice((1, 4, 40)))
        new = source.choice((source.choice(TOKENS), source.randbytes(source.choice((1, 8))), head[at:end] * 2, b""))
        head = head[:at] + new + head[end:]
    return head + data[4000:]


def check(case: Case) -> None:
    hand = by_hand()
    watch, source = guard(), case.random
    if case.number < len(hand):
        name, data = hand[case.number]
    else:
        name = source.choice(list(READERS))
        data = fuzzed(samples()[name], source)
    os.chdir(case.folder)
    watch.seen.clear()
    watch.folder = str(case.folder)
    began, said = time.process_time(), ""
    try:
        with contextlib.redirect_stderr(None):
            READERS[name](case.folder, data)
    except ValueError as error:
        said = str(error)
    finally:
        seconds, watch.folder = time.process_time() - began, None
        os.chdir("/")
    assert "\n" not in said, f"{name}: not one sentence: {said}"
    assert not watch.seen, f"{name}: {watch.seen}"
    assert not (case.folder / "exploded").exists(), f"{name}: a pickle was loaded"
    assert seconds < SECONDS, f"{name}: {seconds:.1f} s"


FAULT = Fault(
    number=6,
    title="hostile pickles, safetensors headers, JSON, TOML and archives",
    promise="nothing executed, no crash, one sentence, at most 1 s and 256 MB each",
    counted="files, over 50 of them by hand, the others fuzzed",
    full=20_200,
    quick=600,
    chunk=5_050,
    check=check,
)
