"""All GPU kernels under compute-sanitizer: memcheck, racecheck, initcheck and synccheck, at nine shapes.

    python benchmarks/gpu_sanitize.py

Writes benchmarks/results/DATE-gpu-sanitize.txt, one line for each tool and shape, and exits with 1 if there is any
report. A first pass without a tool compiles the kernels into the cache and counts their launches: a kernel of the
sources that no shape launches is an error. torch's caching allocator is off in all passes, because it hides accesses
beyond a tensor from memcheck, and passes the content of freed tensors off as written for initcheck.

Before racecheck, small kernels whose races are known run under it: some that have none, with barriers of a part of a
block as the DNC's kernels have them, and others that have one. Where it is wrong about these, so it may be about ours.
If it has reports, it runs again with sequences of one length, whose teams all meet as many barriers.

Reports are attributed to shapes by marks in the output; the totals are the tools' own. A report of a kernel of torch
is counted apart, as `other`; any other is taken for ours. A tool that complains of itself, a pass that ends with an
exit code, and one that does not launch what was launched without a tool are not clean either.
"""

import argparse
import ctypes
import dataclasses
import datetime
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tapehead.environment import environment
from tapehead.kernels import nvrtc
from tapehead.kernels.dnc_scan import gpu as dnc_gpu
from tapehead.kernels.dnc_scan.contract import DNCState, state_shapes
from tapehead.kernels.dnc_scan.spec import DNCSpec
from tapehead.kernels.lstm_scan import gpu as lstm_gpu
from tapehead.kernels.lstm_scan.contract import LSTMSpec
from tapehead.kernels.ntm_scan import gpu as ntm_gpu
from tapehead.kernels.ntm_scan.contract import ScanState
from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.kernels.update import gpu as update_gpu
from tapehead.kernels.update.contract import UpdateRule, UpdateState
from tapehead.kernels.update.optimisers import Adam, Graves

RESULTS = Path(__file__).parent / "results"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PLACES = ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/*/bin")
LONGEST = 300  # seconds of one tool
SETTLE = 0.2  # seconds for the reports of a shape to arrive: another process prints them
SMALL = dict(input_size=3, output_size=2, controller_size=6, memory_width=5)


@dataclasses.dataclass(frozen=True)
class Shape:
    """Machines, a network and the sizes of their calls."""

    machine: ScanSpec
    dnc: DNCSpec
    seeds: int
    steps: int
    batch: int
    slots: int
    network: LSTMSpec
    parameters: int
    """Of a seed in the update."""


SHAPES = {
    "copy, registers and shared memory": Shape(
        ScanSpec(input_size=9, output_size=8), DNCSpec(input_size=9, output_size=8),
        2, 3, 2, 128, LSTMSpec(9, 8, 128, 2), 17163,
    ),
    "read first, write gate, clip": Shape(
        ScanSpec(**SMALL, order="read_then_write", write_gate=True, interface_clip=0.5),
        DNCSpec(**SMALL, masked_content=True, deallocation=True, link_sharpness=True, detached_usage=True),
        2, 3, 2, 9, LSTMSpec(4, 3, 60, 3), update_gpu.PART + 2,
    ),
    "feedforward, scalar shift, 2 + 3 heads": Shape(
        ScanSpec(
            **SMALL, controller="feedforward", controller_layers=2, read_heads=2, write_heads=3, shift="scalar",
            shift_range=2, key_activation="linear", add_activation="sigmoid",
        ),
        DNCSpec(**SMALL, controller="feedforward", controller_layers=2, read_heads=5, strength="softplus"),
        3, 4, 2, 7, LSTMSpec(3, 2, 5, 2), 2 * update_gpu.PART - 1,
    ),
    "sort, LSTM 2 x 100, 5 + 5 heads, weights streamed": Shape(
        ScanSpec(input_size=9, output_size=8, controller_layers=2, read_heads=5, write_heads=5),
        DNCSpec(input_size=9, output_size=8, controller_layers=2, read_heads=5, deallocation=True),
        1, 2, 2, 128, LSTMSpec(40, 17, 96, 2), 3 * update_gpu.PART,
    ),
    "one slot, one step": Shape(
        ScanSpec(**SMALL, shift_range=2, output_from="hidden", add_activation="linear"),
        DNCSpec(**SMALL, read_heads=1, masked_content=True),
        1, 1, 1, 1, LSTMSpec(4, 3, 32, 1), 1,
    ),
    "several slots a thread": Shape(
        ScanSpec(**SMALL), DNCSpec(**SMALL, read_heads=2), 1, 6, 1, 600, LSTMSpec(2, 9, 33, 1), 3
    ),
    "512 threads": Shape(
        ScanSpec(**SMALL | {"memory_width": 21}), DNCSpec(**SMALL | {"memory_width": 21}, link_sharpness=True),
        1, 2, 2, 256, LSTMSpec(2, 3, 70, 2), update_gpu.PART,
    ),
    "64 sequences, gradient in chunks": Shape(
        ScanSpec(**SMALL | {"controller_size": 2, "memory_width": 2}),
        DNCSpec(**SMALL | {"controller_size": 2, "memory_width": 2}, read_heads=1),
        1, 2, 64, 4, LSTMSpec(3, 2, 20, 1), update_gpu.PART + 1,
    ),
    "memory of width 1": Shape(
        ScanSpec(**SMALL | {"memory_width": 1}), DNCSpec(**SMALL | {"memory_width": 1}, masked_content=True),
        2, 3, 4, 9, LSTMSpec(2, 2, 8, 1), 2,
    ),
}  # fmt: skip

CONTROLS = {
    "control_barriers": 0,
    "control_copies": 0,
    "control_exchange": 0,
    "control_race": 1,
    "control_exchange_race": 1,
}
"""Kernels of control.cu: 0 if they have no race, 1 if they have one."""


class ControlArguments(ctypes.Structure):
    _fields_ = (("values", ctypes.c_void_p), ("steps", ctypes.c_int))


def run_controls(device: torch.device) -> None:
    source = Path(__file__).with_name("control.cu").read_text(encoding="utf-8")
    kernels = nvrtc.Kernels(source, "control.cu", device)
    for name in CONTROLS:
        values = torch.zeros(1024, device=device)
        print(f"@begin {name}", flush=True)
        kernels.launch(name, (2,), 512, 1024 * 4, ControlArguments(values.data_ptr(), 5))
        torch.cuda.synchronize()
        time.sleep(SETTLE)
        print(f"@end {name} | 0.0 | {'finite' if bool(values.isfinite().all()) else 'NOT FINITE'}", flush=True)


class Draws:
    """Random tensors, made on the CPU and copied: initcheck then knows every one of their bytes as written."""

    def __init__(self, device: torch.device, even: bool = False) -> None:
        self.rng, self.device, self.even = torch.Generator().manual_seed(5), device, even

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(shape, generator=self.rng)).to(self.device)

    def bits(self, *shape: int) -> Tensor:
        return torch.randint(2, shape, generator=self.rng).float().to(self.device)

    def counts(self, most: int, *shape: int) -> Tensor:
        """Lengths and numbers of slots: ragged, or all the same if `even`."""
        counts = torch.randint(1, most + 1, shape, generator=self.rng)
        if self.even:
            counts.fill_(most)
        counts.flatten()[0] = most
        return counts.to(self.device)

    def weightings(self, *shape: int) -> Tensor:
        return torch.softmax(2 * torch.randn(shape, generator=self.rng), -1).to(self.device)


def run_machine(shape: Shape, draws: Draws) -> list[Tensor]:
    """Every entry of the NTM's backend, with ragged lengths and slots."""
    spec, s, t, b, n = shape.machine, shape.seeds, shape.steps, shape.batch, shape.slots
    layers, c, m = spec.recurrent_layers, spec.controller_size, spec.memory_width
    parameters, inputs = draws.normal(s, spec.parameter_count, scale=0.1), draws.bits(s, t, b, spec.input_size)
    state = ScanState(
        draws.normal(s, b, n, m),
        draws.weightings(s, b, spec.read_heads, n),
        draws.weightings(s, b, spec.write_heads, n),
        draws.normal(s, b, spec.read_heads, m),
        draws.normal(s, b, layers, c),
        draws.normal(s, b, layers, c),
    )
    scan = (spec, parameters, inputs, draws.counts(t, s, b), draws.counts(n, s, b), state)
    outputs, final, _ = ntm_gpu.forward(*scan, False)
    _, _, kept = ntm_gpu.forward(*scan, True)
    d_outputs = draws.normal(*outputs.shape)
    d_final = ScanState(*(draws.normal(*part.shape) for part in final))
    whole = ntm_gpu.backward(*scan, kept, d_outputs, d_final)
    least = ntm_gpu.backward(*scan, kept, d_outputs, None, inputs_gradient=False, state_gradient=False)
    given = (spec, parameters, inputs, draws.bits(*outputs.shape), draws.bits(s, t, b), *scan[3:])
    learned = [ntm_gpu.loss_and_gradient(*given, state_gradient=True, loss=loss) for loss in ntm_gpu.LOSSES]
    return [outputs, *final, whole[0], least[0], *(part for one in learned for part in (one.costs, one.gradient))]


def run_dnc(shape: Shape, draws: Draws) -> list[Tensor]:
    """Every entry of the DNC's backend, with ragged lengths and slots, from a state and from the start."""
    spec, s, t, b, n = shape.dnc, shape.seeds, shape.steps, shape.batch, shape.slots
    parameters, inputs = draws.normal(s, spec.parameter_count, scale=0.1), draws.bits(s, t, b, spec.input_size)
    shapes = state_shapes(spec, (s, b), n)
    along = ("usage", "link", "precedence", "read_weightings", "write_weighting")
    parts = {name: draws.weightings(*size) if name in along else draws.normal(*size) for name, size in shapes.items()}
    scan = (spec, parameters, inputs, draws.counts(t, s, b), draws.counts(n, s, b), n)
    outputs, final, _ = dnc_gpu.forward(*scan, DNCState(**parts), keep=False)
    _, _, kept = dnc_gpu.forward(*scan, None, keep=True)
    d_outputs = draws.normal(*outputs.shape)
    d_final = DNCState(*(draws.normal(*part.shape) for part in final))
    whole = dnc_gpu.backward(*scan, kept, d_outputs, d_final)
    least = dnc_gpu.backward(*scan, kept, d_outputs, None, state_gradient=False)
    given = (spec, parameters, inputs, draws.bits(*outputs.shape), draws.bits(s, t, b), *scan[3:])
    learned = [dnc_gpu.loss_and_gradient(*given, loss=loss) for loss in dnc_gpu.LOSSES]
    return [outputs, *final, *whole[:2], least[0], *(part for one in learned for part in one)]


def run_network(shape: Shape, draws: Draws) -> list[Tensor]:
    """Every entry of the LSTM's backend, with ragged lengths."""
    spec, s, t, b = shape.network, shape.seeds, shape.steps, shape.batch
    parameters = draws.normal(s, sum(torch.Size(one).numel() for one in spec.shapes().values()), scale=0.1)
    inputs, lengths = draws.bits(s, t, b, spec.input_size), draws.counts(t, s, b)
    targets, mask = draws.bits(s, t, b, spec.output_size), draws.bits(s, t, b)
    learned = [
        lstm_gpu.loss_and_gradient(spec, parameters, inputs, targets, mask, lengths, loss) for loss in lstm_gpu.LOSSES
    ]
    return [*lstm_gpu.forward(spec, parameters, inputs, lengths), *(part for one in learned for part in one)]


def run_update(shape: Shape, draws: Draws) -> list[Tensor]:
    """Both optimisers, with the gradient's squares and without, with an average and without."""
    seeds, size = shape.seeds + 1, shape.parameters
    changed = []
    for rule in (UpdateRule(Graves(), "elementwise"), UpdateRule(Adam(), "norm", clip_at=0.5, average=0.9)):
        state = UpdateState(rule, draws.normal(seeds, size))
        for known in (False, True):
            gradient, costs = draws.normal(seeds, size), draws.normal(seeds, shape.batch)
            squares = draws.normal(seeds, 3).square() if known else None
            rates = draws.normal(seeds).abs()
            update_gpu.update(rule, state, gradient, costs, rates, squares)
        changed += list(state.tensors(rule).values())
    return changed


def launched_names(count: Counter[str]) -> None:
    """From here on, launches are counted by kernel."""
    launch = nvrtc.Kernels.launch

    def counting(self: nvrtc.Kernels, kernel: str, *rest: Any, **named: Any) -> None:
        count[kernel] += 1
        launch(self, kernel, *rest, **named)

    nvrtc.Kernels.launch = counting  # type: ignore[method-assign]


def work(names: Sequence[str], device: torch.device, even: bool = False) -> None:
    """What runs under a tool: all kernels at these shapes, a mark before and after each."""
    count: Counter[str] = Counter()
    launched_names(count)
    nvrtc._OPTIONS = (*nvrtc._OPTIONS, "--generate-line-info")  # reports name lines of the source
    if set(names) <= set(CONTROLS):
        run_controls(device)
        return
    for name in names:
        print(f"@begin {name}", flush=True)
        start, draws = time.perf_counter(), Draws(device, even)
        shape = SHAPES[name]
        results = [*run_machine(shape, draws), *run_dnc(shape, draws), *run_network(shape, draws)]
        results += run_update(shape, draws)
        finite = all(bool(part.cpu().isfinite().all()) for part in results)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        time.sleep(SETTLE)
        print(f"@end {name} | {seconds:.1f} | {'finite' if finite else 'NOT FINITE'}", flush=True)
    print("@kernels " + " ".join(f"{kernel}={times}" for kernel, times in sorted(count.items())), flush=True)


def kernel_names() -> set[str]:
    """Of all sources."""
    folder = Path(nvrtc.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*/*.cu"))]
    return {name for text in texts for name in re.findall(r"__global__[^;{]*?(\w+)\(const __grid_constant__", text)}


def find_sanitizer() -> str:
    found = shutil.which("compute-sanitizer")
    if found is None:
        root = Path("/")
        files = [file for place in PLACES for file in root.glob(f"{place[1:]}/compute-sanitizer")]
        found = next((str(file) for file in files if file.is_file() and os.access(file, os.X_OK)), None)
    if found is None:
        sys.exit("compute-sanitizer was not found: install the CUDA toolkit, or put its bin folder into PATH.")
    return found


@dataclasses.dataclass
class Pass:
    """What one process did: reports and seconds of each shape, and how it ended."""

    reports: Counter[str]
    others: int
    functions: dict[str, str]  # first report of each of our functions that has one
    seconds: dict[str, float]
    launched: Counter[str]
    summary: str | None
    failure: str | None
    output: str


REPORT = re.compile(
    r"=+ (?:Error: |Warning: )?(?:Invalid|Uninitialized|Race reported|Potential|Barrier error|Misaligned)"
)
SUMMARY = re.compile(r"=+ (?:ERROR|RACECHECK) SUMMARY: (.*)")
FUNCTION = re.compile(r"\bat (?:void )?([\w:]+)[+(<]")  # which need not be a kernel: also one that is not inlined
OTHERS = re.compile(r"(?:at|at_cuda_detail|c10|cub|cuda|thrust)::")  # functions of torch
ITSELF = re.compile(r"=+ (?:Internal Sanitizer Error|(?:Fatal|FATAL)|Error: (?!Race))")  # what a tool says of itself


def read_output(output: str, names: Sequence[str], code: int) -> Pass:
    found = Pass(Counter(), 0, {}, {}, Counter(), None, None, output)
    shape, pending = "before the first shape", None
    for line in output.splitlines():
        if line.startswith("@begin "):
            shape = line[7:]
        elif line.startswith("@end "):
            name, seconds, finite = line[5:].split(" | ")
            found.seconds[name] = float(seconds)
            if finite != "finite":
                found.failure = f"values of {name!r} are not finite"
        elif line.startswith("@kernels "):
            found.launched.update({k: int(v) for k, v in (item.split("=") for item in line[9:].split())})
        elif match := SUMMARY.match(line):
            found.summary = match[1]
        elif line.startswith("="):
            if ITSELF.match(line) and not REPORT.match(line):
                found.failure = found.failure or line.strip("= ")
            if REPORT.match(line):
                found.reports[shape] += 1
                pending = line.strip("= ")
            if pending and (match := FUNCTION.search(line)):  # racecheck has it in the first line, others after it
                if OTHERS.match(match[1]):
                    found.reports[shape] -= 1
                    found.others += 1
                else:
                    found.functions.setdefault(match[1], pending)
                pending = None
    missing = [name for name in names if name not in found.seconds]
    if missing:
        found.failure = found.failure or f"it ended with exit code {code} before {missing[0]!r} was done"
    elif code != 0:
        found.failure = found.failure or f"it ended with exit code {code}"
    return found


def one_pass(names: Sequence[str], wrapper: Sequence[str] = (), even: bool = False) -> Pass:
    command = [*wrapper, sys.executable, str(Path(__file__).resolve()), "--work", *names, *(["--even"] if even else [])]
    settings = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    root = Path(__file__).resolve().parents[1]
    settings["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", timeout=LONGEST, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        partial = error.stdout or b""
        text = partial.decode(errors="replace") if isinstance(partial, bytes) else partial
        found = read_output(text, names, -1)
        found.failure = f"it was stopped after {LONGEST} seconds"
        return found
    return read_output(done.stdout, names, done.returncode)


def warm_up(names: Sequence[str]) -> Counter[str]:
    """Compiles all kernels, the shapes side by side, without a tool. Returns the launches by kernel."""
    with ThreadPoolExecutor(max_workers=min(len(names), os.cpu_count() or 1)) as pool:
        passes = list(pool.map(lambda name: one_pass([name]), names))
    for done in passes:
        if done.failure is not None:
            sys.exit(f"without a tool, {done.failure}:\n{done.output[-3000:]}")
    return sum((done.launched for done in passes), Counter())


def clean(done: Pass) -> bool:
    """Whether the tool ran to its end, and its last line counts no more than reports of torch's kernels."""
    numbers = re.findall(r"\d+", done.summary or "")
    return done.failure is None and bool(numbers) and int(numbers[0]) == done.others and not done.reports.total()


def lines_of(tool: str, done: Pass, names: Sequence[str], wall: float) -> list[str]:
    lines = []
    for name in names:
        if name in done.seconds:
            lines.append(f"{tool:9s} | {name:50s} | {done.reports[name]:7d} | {done.seconds[name]:7.1f}")
        else:
            lines.append(f"{tool:9s} | {name:50s} | not run |")
    verdict = "clean" if clean(done) else "NOT CLEAN"
    summary = done.summary or "no summary"
    lines.append(f"{tool:9s} | all: {verdict}; {summary}; other kernels: {done.others}; {wall:.0f} s")
    lines += [f"{tool:9s} | {function}: {report}" for function, report in done.functions.items()]
    if done.failure is not None:
        lines.append(f"{tool:9s} | failed: {done.failure}")
    return lines


def control_lines(sanitizer: str) -> tuple[bool, list[str]]:
    """Whether racecheck is right about kernels whose races are known, and what it says of each."""
    done = one_pass(
        list(CONTROLS), [sanitizer, "--tool", "racecheck", "--show-backtrace", "no", "--print-limit", "1000"]
    )
    right, lines = done.failure is None, []
    for name, races in CONTROLS.items():
        right &= bool(done.reports[name]) == bool(races)
        known = "has a race" if races else "has no race"
        lines.append(f"racecheck | {f'{name}, which {known}':50s} | {done.reports[name]:7d} |")
    word = "right" if right else f"WRONG{f', {done.failure}' if done.failure else ''}"
    return right, [*lines, f"racecheck | its controls: it is {word}"]


def header(sanitizer: str, launched: Counter[str]) -> list[str]:
    place = environment("cuda", "gpu")
    version = subprocess.run([sanitizer, "--version"], capture_output=True, text=True, check=False).stdout
    version = next((line for line in version.splitlines() if "ersion" in line), "unknown version").strip()
    nvrtc_version = ".".join(map(str, nvrtc.nvrtc_version()))
    return [
        f"compute-sanitizer over all GPU kernels, {place['date']}, {place['device']}, torch {place['torch']}, NVRTC "
        f"{nvrtc_version}, python {place['python']}, tapehead {place['tapehead']}, commit {place['commit']}",
        f"{version}",
        f"{len(launched)} kernels, launches in a pass: "
        + ", ".join(f"{kernel} {times}" for kernel, times in sorted(launched.items())),
        f"{'tool':9s} | {'shape':50s} | reports | seconds",
    ]


def measure(tools: Sequence[str], names: Sequence[str], out: Path) -> bool:
    sanitizer = find_sanitizer()
    start = time.perf_counter()
    launched = warm_up(names)
    print(f"compiled and run without a tool in {time.perf_counter() - start:.0f} s", flush=True)
    untouched = kernel_names() - set(launched)
    lines, good = header(sanitizer, launched), True
    if untouched and set(names) == set(SHAPES):
        lines.append(f"NOT LAUNCHED: {', '.join(sorted(untouched))}")
        good = False
    for tool in tools:
        if tool == "racecheck":
            right, said = control_lines(sanitizer)
            good &= right
            lines += said
            print("\n".join(said), flush=True)
        start = time.perf_counter()
        options = ["--tool", tool, "--show-backtrace", "no", "--print-limit", "1000"]
        options += ["--report-api-errors", "no"] if tool == "memcheck" else []  # torch probes; we check our own calls
        done = one_pass(names, [sanitizer, *options])
        if unequal := [
            kernel for kernel in sorted(launched | done.launched) if launched[kernel] != done.launched[kernel]
        ]:
            done.failure = done.failure or f"not launched as often as without a tool: {', '.join(unequal)}"
        found = lines_of(tool, done, names, time.perf_counter() - start)
        good &= clean(done)
        lines += found
        print("\n".join(found), flush=True)
        if not clean(done) or done.others:
            log = out.with_name(f"{out.stem}-{tool}.log")
            log.write_text(done.output)
            print(f"the whole output of {tool} is in {log}", flush=True)
        if tool == "racecheck" and done.reports.total():
            start = time.perf_counter()
            again = one_pass(names, [sanitizer, *options], even=True)
            said = [
                f"{tool} again, sequences of one length:",
                *lines_of(tool, again, names, time.perf_counter() - start),
            ]
            lines += said
            print("\n".join(said), flush=True)
        out.write_text("\n".join(lines) + "\n")
    return good


def main() -> None:
    date = datetime.datetime.now(datetime.UTC).date()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / f"{date}-gpu-sanitize.txt")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES), metavar="SHAPE")
    parser.add_argument("--work", nargs="+", choices=[*SHAPES, *CONTROLS], help=argparse.SUPPRESS)
    parser.add_argument("--even", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device was found: run this on a machine with one.")
    if arguments.work:
        work(arguments.work, torch.device("cuda"), arguments.even)
    elif not measure(arguments.tools, arguments.shapes, arguments.out):
        sys.exit(1)


if __name__ == "__main__":
    main()
