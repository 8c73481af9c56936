"""18: the cache of compiled kernels: eight processes that need it at once, cold, warm, damaged, unwritable.

In `make test` the first alone: the tests of kernels/jit.py have the other states, inside one process.
"""

import os
import subprocess
import sys
from pathlib import Path

from soak.fault import Case, Fault

TESTS = Path(__file__).resolve().parents[2]
COMPILING, WAITING = "compiling the CPU kernel", "another process compiles the CPU kernel"
TINY = """
import hashlib, sys, numpy
import tiny_kernels
from tapehead.kernels import jit
x = numpy.arange(100.0)
jit.load([tiny_kernels.DOUBLE], "float64")[0](x)
print(hashlib.sha256(x.tobytes()).hexdigest())
"""
WHOLE = """
import sys
sys.path[:0] = sys.argv[1:2]
from tiny import tiny
import tapehead
from tapehead.experiment.run import Observer

class Told(Observer):
    def notice(self, sentence):
        print(sentence, file=sys.stderr)

print(tapehead.train(tiny(backend="cpu", episodes=200), observer=Told(), scored=False).sha256["weights"])
"""
STATES = ("eight at once", "cold", "warm", "damaged", "unwritable")
TOGETHER = 8


def start(program: str, cache: Path) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    environment = os.environ | {"TAPEHEAD_CACHE": str(cache), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, str(TESTS)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(program: str, cache: Path, count: int = 1) -> tuple[set[str], list[str]]:
    """What so many processes at once computed, and what each of them said."""
    children = [start(program, cache) for _ in range(count)]
    ended = [child.communicate(timeout=1800) for child in children]
    failed = [said for child, (_, said) in zip(children, ended, strict=True) if child.returncode]
    assert not failed, failed[0][-1000:]
    return {out.strip() for out, _ in ended}, [said for _, said in ended]


def check(case: Case) -> None:
    """Of a kernel of a few lines, then of those that a training run needs, which take half a minute to compile."""
    state, program = STATES[case.number % len(STATES)], TINY if case.number < len(STATES) else WHOLE
    cache, count = case.folder / "cache", TOGETHER if state == "eight at once" else 1
    if state == "unwritable":
        cache = Path("/dev/null/cache")
    if state in ("warm", "damaged"):
        run(program, cache)
    if state == "damaged":
        for path in (cache / "kernels").glob("*.numba"):
            data = bytearray(path.read_bytes())
            data[case.random.randrange(len(data))] ^= 1
            path.write_bytes(data)
    found, said = run(program, cache, count)
    compiled = sum(COMPILING in one for one in said)
    assert compiled == (0 if state == "warm" else 1), f"{state}: {compiled} of {count} processes compiled"
    assert state != "damaged" or "is damaged" in said[0], said
    assert state != "unwritable" or "set TAPEHEAD_CACHE" in said[0], said
    assert state != "eight at once" or any(WAITING in one for one in said), "no process waited"
    again, _ = run(program, cache if state != "unwritable" else case.folder / "other")
    assert len(found) == 1
    assert again == found, f"{state}: other bits"


FAULT = Fault(
    number=18,
    title="compiled kernels: cache cold, warm, damaged, unwritable, eight processes at once",
    promise="one process compiles, the others wait; damaged code is never run; the same bits in every state",
    counted="starts",
    full=10,
    quick=1,
    chunk=5,
    check=check,
    needs=("numba",),
)
