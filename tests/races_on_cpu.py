"""Races of the GPU's kernels in shared memory, found on the CPU, at the shapes of benchmarks/gpu_sanitize.py.

    python tests/races_on_cpu.py                     every kernel at every shape, into a dated file
    python tests/races_on_cpu.py --control dnc_scan  and then with one barrier of a source taken out at a time

The kernels run through cuda_on_cpu.h, compiled with a call at every access to memory, and races_on_cpu.cpp keeps the
order that barriers make. Unlike compute-sanitizer's racecheck this needs no GPU. It sees what the source says, not what
a GPU's compiler makes of it, and no races in global memory. Exchanges of a warp order nothing here.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import datetime
import functools
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import cuda_on_cpu
import torch

from tapehead.environment import environment
from tapehead.kernels.dnc_scan import gpu as dnc_gpu
from tapehead.kernels.lstm_scan import gpu as lstm_gpu
from tapehead.kernels.lstm_scan.contract import LSTMSpec
from tapehead.kernels.ntm_scan import gpu as ntm_gpu
from tapehead.kernels.update import gpu as update_gpu

HERE = Path(__file__).parent
BENCHMARKS = HERE.parent / "benchmarks"
FINDER = HERE / "races_on_cpu.cpp"
# -O1 keeps local values in registers, which are no accesses. No libtsan: races_on_cpu.cpp stands in for it.
FLAGS = ["-std=c++17", "-O1", "-g1", "-w", "-fPIC", "-fno-strict-aliasing", "-fsanitize=thread", "-DFIND_RACES"]
FLAGS += ["-U_FORTIFY_SOURCE", "-I", str(HERE)]
SHARED_LIMIT = 232448
"""Bytes of a block, on an H100 or H200."""
MOST = 1000
"""Pairs of instructions told of one launch."""
PARTS: dict[str, tuple[Any, str]] = {
    "ntm_scan": (ntm_gpu, "run_machine"),
    "dnc_scan": (dnc_gpu, "run_dnc"),
    "lstm_scan": (lstm_gpu, "run_network"),
    "update": (update_gpu, "run_update"),
}
"""Of the sources, with the functions of gpu_sanitize.py that run them."""


@dataclasses.dataclass(frozen=True, order=True)
class Race:
    """Two accesses to a word of shared memory that no barrier orders, by kernel and by lines of its source."""

    kernel: str
    first: str
    second: str
    writes: bool
    """Whether the second does; if not, the first."""


@dataclasses.dataclass
class Found:
    """What was seen under `watched`, by kernel."""

    accesses: Counter[str] = dataclasses.field(default_factory=Counter)
    """To words of shared memory."""
    races: Counter[Race] = dataclasses.field(default_factory=Counter)
    bad: Counter[str] = dataclasses.field(default_factory=Counter)
    """Launches in which threads waited for ever, left copies behind, or wrote outside their shared memory."""


class WatchedKernels:
    """Stands in for `cuda_on_cpu.EmulatedKernels`."""

    def __init__(
        self, found: Found, source: str, kernels: Sequence[str], clusters: Mapping[str, int] | None = None
    ) -> None:
        self._found = found
        self._path = _library_of(cuda_on_cpu.whole_source(source, kernels, clusters))
        self._library = ctypes.CDLL(str(self._path))

    def launch(
        self, kernel: str, grid: Sequence[int], threads: int, shared_bytes: int, argument: Any, *, urgent: bool = False
    ) -> None:
        x, y, z = (*grid, 1, 1)[:3]
        if self._library[f"run_{kernel}"](ctypes.byref(argument), x, y, z, threads, shared_bytes):
            self._found.bad[kernel] += 1
        accesses, writes = ctypes.c_long(), (ctypes.c_int * MOST)()
        ones, others, times = (ctypes.c_void_p * MOST)(), (ctypes.c_void_p * MOST)(), (ctypes.c_long * MOST)()
        count = self._library.races_found(MOST, ctypes.byref(accesses), writes, ones, others, times)
        self._found.accesses[kernel] += accesses.value
        assert count <= MOST, f"{kernel} has {count} pairs of instructions that race, and {MOST} can be told"
        for i in range(count):
            race = Race(kernel, self._line(ones[i]), self._line(others[i]), bool(writes[i]))
            self._found.races[race] += times[i]

    def _line(self, address: int) -> str:
        return _line_of(str(self._path), address - 1 - self._base)  # behind the call is the next instruction

    @functools.cached_property
    def _base(self) -> int:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        return next(int(line.split("-")[0], 16) for line in maps if line.endswith(str(self._path)))


@functools.cache
def _line_of(library: str, offset: int) -> str:
    """Where an instruction comes from: the text of the line; of a copy, where it is asked for."""
    done = subprocess.run(["addr2line", "-i", "-e", library, hex(offset)], capture_output=True, text=True, check=True)
    for place in done.stdout.splitlines():  # from inside an inlined function outwards
        file, _, number = place.split()[0].partition(":")
        if Path(file).is_file() and number.isdigit():
            text = Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1].strip()
            if not text.startswith(("races_", "emulated_")):
                return text
    return "unknown"


def _library_of(text: str) -> Path:
    folder, compiler = cuda_on_cpu.folder, str(cuda_on_cpu.COMPILER)
    finder, stem = folder / "races.o", folder / f"races-{cuda_on_cpu.name_of(text)}"
    if not finder.exists():
        subprocess.run([compiler, "-std=c++17", "-O2", "-fPIC", "-c", FINDER, "-o", finder], check=True)
    library, compiled = stem.with_suffix(".so"), stem.with_suffix(".o")
    if not library.exists():
        stem.with_suffix(".cpp").write_text(text, encoding="utf-8")
        subprocess.run([compiler, *FLAGS, "-c", f"{stem}.cpp", "-o", compiled], check=True)
        subprocess.run([compiler, "-shared", compiled, finder, "-o", library], check=True)
    return library


@contextlib.contextmanager
def watched() -> Iterator[Found]:
    """Inside, the GPU's kernels run on the CPU and their races are found."""
    found = Found()
    with (
        mock.patch.object(cuda_on_cpu, "EmulatedKernels", functools.partial(WatchedKernels, found)),
        cuda_on_cpu.emulated(),
        mock.patch.object(ntm_gpu, "_shared_limit", return_value=SHARED_LIMIT),
        mock.patch.object(dnc_gpu, "_shared_limit", return_value=SHARED_LIMIT),
        mock.patch.object(lstm_gpu, "_cluster", _cluster),
    ):
        yield found


def _cluster(spec: LSTMSpec, device: torch.device) -> int:
    """As on a device that has clusters."""
    return lstm_gpu.CLUSTERS.get(lstm_gpu._padded(spec.hidden_size), 0)


@functools.cache
def sanitize() -> ModuleType:
    """benchmarks/gpu_sanitize.py, for its shapes and what runs at them."""
    spec = importlib.util.spec_from_file_location("gpu_sanitize", BENCHMARKS / "gpu_sanitize.py")
    if spec is None or spec.loader is None:
        raise ImportError("benchmarks/gpu_sanitize.py is not there.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module


def controls() -> dict[str, int]:
    """Kernels of benchmarks/control.cu, 1 if they have a race. Whether compute-sanitizer knows of copies that are under
    way is not said, so it is not asked about those."""
    return {**sanitize().CONTROLS, "control_early": 1}


def run(part: str, shape: str) -> Found:
    """The kernels of a source at a shape."""
    with watched() as found:
        getattr(sanitize(), PARTS[part][1])(sanitize().SHAPES[shape], sanitize().Draws(torch.device("cpu")))
    return found


def run_control(name: str) -> Found:
    """A kernel of benchmarks/control.cu."""
    found = Found()
    kernels = WatchedKernels(found, (BENCHMARKS / "control.cu").read_text(encoding="utf-8"), [name])
    values = torch.zeros(1024)
    kernels.launch(name, (2,), 512, 1024 * 4, sanitize().ControlArguments(values.data_ptr(), 5))
    return found


CONTROL_SHAPES = (
    "read first, write gate, clip",
    "feedforward, scalar shift, 2 + 3 heads",
    "64 sequences, gradient in chunks",
    "sort, LSTM 2 x 100, 5 + 5 heads, weights streamed",
)
"""From a shape of few accesses to one of many."""
BARRIER = re.compile(r"(?:__syncthreads|row\.sync|__syncwarp|team\.sync|cluster_wait|wait_for_cluster)\(\);")


def without_barrier(part: str, text: str, number: int, shape: str) -> Found:
    """The kernels of a source whose barrier of this number is missing, at a shape."""
    module, place = PARTS[part][0], list(BARRIER.finditer(text))[number]
    missing = text[: place.start()] + ";" + text[place.end() :]
    original = module.source

    def source(*given: Any) -> str:
        whole: str = original(*given)
        assert text in whole, f"{part}: the barrier is not taken out, because the source is put together otherwise"
        return whole.replace(text, missing)

    with mock.patch.object(module, "source", source):
        return run(part, shape)


def source_of(part: str) -> str:
    name = "update.cu" if part == "update" else "scan.cu"
    return Path(str(PARTS[part][0].__file__)).with_name(name).read_text(encoding="utf-8")


def control(part: str, shapes: Sequence[str]) -> Iterator[str]:
    """For each barrier of a source that is a statement by itself, where its absence is seen first."""
    text = source_of(part)
    for number, place in enumerate(BARRIER.finditer(text)):
        line = text.count("\n", 0, place.start())
        words = f"{part} | {line + 1}: {text.splitlines()[line].strip()}"
        for shape in shapes:
            found = without_barrier(part, text, number, shape)
            if found.races or found.bad:
                seen = f"{len(found.races)} races" if found.races else "threads that wait for ever"
                yield f"{words} | {seen}, {shape}"
                break
        else:
            yield f"{words} | nothing"


def lines_of(part: str, shape: str) -> Iterator[str]:
    start = time.perf_counter()
    found = run(part, shape)
    counts = f"{sum(found.accesses.values()):12,d} | {len(found.races):5d} | {time.perf_counter() - start:7.1f}"
    yield f"{part:9s} | {shape:50s} | {counts}"
    for race, times in sorted(found.races.items()):
        yield f"    {race.kernel}, {times} times: {race.first}"
        yield f"        and then {'write' if race.writes else 'read'}: {race.second}"
    for kernel, times in found.bad.items():
        yield f"    {kernel}: {times} launches waited for ever, left copies behind or wrote outside their shared memory"


def main() -> None:
    shapes, date = list(sanitize().SHAPES), datetime.datetime.now(datetime.UTC).date()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--shapes", nargs="+", choices=shapes, default=shapes, metavar="SHAPE")
    parser.add_argument(
        "--control", nargs="+", choices=PARTS, default=[], help="take out their barriers, one at a time"
    )
    parser.add_argument("--out", type=Path, default=BENCHMARKS / "results" / f"{date}-cpu-races.txt")
    given = parser.parse_args()
    place = environment("cpu", "cpu")
    lines = [
        f"races in shared memory, by tests/races_on_cpu.py, tapehead {place['tapehead']}, commit {place['commit']}"
    ]
    lines += [f"{'source':9s} | {'shape':50s} | {'accesses':>12s} | races | seconds"]
    print("\n".join(lines), flush=True)

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(cuda_on_cpu, "folder", Path(folder)):
        for name, races in controls().items():
            known = "has a race" if races else "has no race"
            say(f"control   | {f'{name}, which {known}':50s} | {'':12s} | {len(run_control(name).races):5d} |")
        for part in given.parts:
            for shape in given.shapes:
                for line in lines_of(part, shape):
                    say(line)
        for part in given.control:
            say(f"{part}, without the barrier of a line: where its absence is seen first")
            for line in control(part, CONTROL_SHAPES):
                say(line)


if __name__ == "__main__":
    main()
