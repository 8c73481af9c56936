"""The GPU scan on a real GPU: first the gate (against the float64 reference), then the clock.

    python benchmarks/gpu_check.py --out benchmarks/results/DATE-DEVICE-scan.json

The gate compares outputs, final state and all gradients on fresh random inputs, with every new tensor poisoned by NaN,
and demands the same bits from a seed alone and among others. On red it prints no speed. Times are medians of CUDA graph
replays.
"""

import argparse
import dataclasses
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from tapehead.kernels import nvrtc
from tapehead.kernels.ntm_scan import gpu, reference
from tapehead.kernels.ntm_scan.contract import ScanState
from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.losses import BINARY, CATEGORICAL

# Relative norm. Long sequences amplify rounding, so the reference in float32, on the same inputs, is the yardstick
# where it is further off than the tolerance; both errors stand in the result file.
TOLERANCE = 1e-5
YARDSTICKS = 3.0
DEVICE = torch.device("cuda")
LOSSES = (BINARY, CATEGORICAL)
SMALL = dict(input_size=3, output_size=2, controller_size=6, memory_width=5)

PRESETS = {
    "copy": ScanSpec(input_size=9, output_size=8),
    "recall, feedforward 256, 4 + 4 heads": ScanSpec(
        input_size=8, output_size=6, controller="feedforward", controller_size=256, read_heads=4, write_heads=4
    ),
    "n-grams": ScanSpec(input_size=1, output_size=1),
    "sort, feedforward 512, 8 + 8 heads": ScanSpec(
        input_size=9, output_size=8, controller="feedforward", controller_size=512, read_heads=8, write_heads=8
    ),
    "sort, LSTM 2 x 100, 5 + 5 heads": ScanSpec(
        input_size=9, output_size=8, controller_layers=2, read_heads=5, write_heads=5
    ),
}

# specification, S, T, B, N, ragged lengths and slots, scale of the parameters
CASES: list[tuple[ScanSpec, int, int, int, int, bool, float]] = [
    (PRESETS["copy"], 3, 8, 2, 128, False, 0.1),
    (PRESETS["copy"], 2, 41, 2, 128, True, 0.1),
    (PRESETS["copy"], 1, 1, 1, 128, False, 0.3),
    (ScanSpec(input_size=9, output_size=8, order="read_then_write", write_gate=True), 2, 6, 2, 128, True, 0.1),
    (PRESETS["recall, feedforward 256, 4 + 4 heads"], 2, 5, 2, 128, True, 0.05),
    (PRESETS["sort, feedforward 512, 8 + 8 heads"], 2, 4, 1, 128, False, 0.03),
    (PRESETS["sort, LSTM 2 x 100, 5 + 5 heads"], 2, 4, 1, 128, True, 0.1),
    (ScanSpec(**SMALL), 2, 5, 3, 7, True, 0.5),
    (ScanSpec(**SMALL, controller_layers=3, interface_clip=0.5), 2, 4, 2, 33, False, 0.3),
    (
        ScanSpec(
            **SMALL, controller="feedforward", controller_layers=2, read_heads=2, write_heads=3, shift="scalar",
            shift_range=2, key_activation="linear", add_activation="sigmoid",
        ),
        2, 5, 2, 16, True, 0.3,
    ),
    (ScanSpec(**SMALL, shift_range=3, output_from="hidden", add_activation="linear"), 2, 4, 2, 1000, False, 0.3),
    (ScanSpec(**SMALL, shift_range=2, key_activation="linear"), 1, 5, 2, 1, False, 0.3),
    (ScanSpec(**SMALL), 2, 6, 2, 20, False, 3.0),
]  # fmt: skip


def draw(
    spec: ScanSpec, seeds: int, steps: int, batch: int, tape: int, scale: float
) -> tuple[Tensor, Tensor, ScanState]:
    """Random float64 parameters, inputs and state."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, device=DEVICE)

    layers, c, m = spec.recurrent_layers, spec.controller_size, spec.memory_width
    state = ScanState(
        0.7 * normal(seeds, batch, tape, m),
        torch.softmax(2 * normal(seeds, batch, spec.read_heads, tape), -1),
        torch.softmax(2 * normal(seeds, batch, spec.write_heads, tape), -1),
        0.5 * normal(seeds, batch, spec.read_heads, m),
        0.5 * normal(seeds, batch, layers, c),
        0.5 * normal(seeds, batch, layers, c),
    )
    inputs = (normal(seeds, steps, batch, spec.input_size) > 0).double()
    return scale * normal(seeds, spec.parameter_count), inputs, state


def error(got: Tensor, want: Tensor) -> float:
    norm = float(want.norm())
    return float((got.double() - want).norm()) / (norm if norm > 0 else 1.0)


def single(tree: Any) -> Any:
    return tree_map(lambda part: part.detach().float(), tree)


Answers = dict[str, Tensor]
Costs = dict[str, tuple[Tensor, list[Tensor]]]  # by loss: costs, and their gradients of parameters and initial state


def by_reference(
    spec: ScanSpec, dtype: torch.dtype, inputs_of: tuple[Any, ...], d_outputs: Tensor, d_final: ScanState
) -> Answers:
    """All that a backend returns, from the reference and autograd in `dtype`."""
    parameters, inputs, targets, mask, lengths, slots, state = inputs_of
    parameters, inputs, targets, mask = (part.detach().to(dtype) for part in (parameters, inputs, targets, mask))
    state = ScanState(*(part.detach().to(dtype) for part in state))
    leaves = [parameters.requires_grad_(), inputs.requires_grad_(), *(part.requires_grad_() for part in state)]
    outputs, final, _ = reference.scan(spec, parameters, inputs, lengths, slots, state)
    total = (outputs * d_outputs.to(dtype)).sum()
    total = total + sum((a * b.to(dtype)).sum() for a, b in zip(final, d_final, strict=True))
    gradients = torch.autograd.grad(total, leaves, allow_unused=True, retain_graph=True)
    zeroed = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)]
    learned: Costs = {}
    cost_leaves = [parameters, *state]
    for loss in LOSSES:
        costs = loss.nats(outputs, targets, mask)
        of_cost = torch.autograd.grad(costs.mean(1).sum(), cost_leaves, allow_unused=True, retain_graph=True)
        filled = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(cost_leaves, of_cost, strict=True)]
        learned[str(loss.kernel)] = (costs, filled)
    return named(spec, outputs, final, zeroed, learned)


def named(spec: ScanSpec, outputs: Tensor, final: ScanState, gradients: list[Tensor], learned: "Costs") -> Answers:
    answers = {"outputs": outputs} | dict(zip(ScanState._fields, final, strict=True))
    answers |= {f"d {name}": part for name, part in spec.split_parameters(gradients[0]).items()}
    answers |= {f"d {n}": part for n, part in zip(("inputs", *ScanState._fields), gradients[1:], strict=True)}
    names = ("parameters", *ScanState._fields)
    for loss, (costs, of_cost) in learned.items():
        answers[f"{loss} cost"] = costs
        answers |= {f"d {loss} cost / d {name}": part for name, part in zip(names, of_cost, strict=True)}
    return {name: part.detach() for name, part in answers.items()}


def gate_case(
    spec: ScanSpec, seeds: int, steps: int, batch: int, tape: int, ragged: bool, scale: float
) -> dict[str, tuple[float, float]]:
    """Relative errors of everything the backend returns, each beside that of the reference in float32."""
    parameters, inputs, state = draw(spec, seeds, steps, batch, tape, scale)
    lengths = torch.full((seeds, batch), steps, device=DEVICE)
    slots = torch.full((seeds, batch), tape, device=DEVICE)
    if ragged:
        lengths = torch.randint(1, steps + 1, (seeds, batch), device=DEVICE)
        slots = torch.randint(1, tape + 1, (seeds, batch), device=DEVICE)
    shape = (seeds, steps, batch, spec.output_size)
    d_outputs, targets = torch.randn(shape, device=DEVICE), torch.rand(shape, device=DEVICE).round()
    d_final = ScanState(*(torch.randn(part.shape, device=DEVICE) for part in state))
    mask = (torch.rand(seeds, steps, batch, device=DEVICE) > 0.3).float()
    parameters, inputs, state = single(parameters), single(inputs), single(state)  # what both sides start from
    given = (parameters, inputs, targets, mask, lengths, slots, state)
    want = by_reference(spec, torch.float64, given, d_outputs, d_final)
    yardstick = by_reference(spec, torch.float32, given, d_outputs, d_final)

    scan = (spec, parameters, inputs, lengths, slots, state)
    y, f, kept = gpu.forward(*scan, True)
    d_p, d_x, d_s = gpu.backward(*scan, kept, d_outputs, d_final)
    again = gpu.backward(*scan, kept, d_outputs, d_final)[0]
    learned: Costs = {}
    for loss in map(str, (loss.kernel for loss in LOSSES)):
        cost, g, d_state, _ = gpu.loss_and_gradient(spec, *given, state_gradient=True, loss=loss)
        assert d_state is not None
        learned[loss] = (cost, [g, *d_state])
    got = named(spec, y, f, [d_p, d_x, *d_s], learned)
    errors = {name: (error(got[name], want[name]), error(yardstick[name], want[name])) for name in want}
    # the last seed alone gives the same bits, and so does the same call again
    one = slice(seeds - 1, seeds)
    part = tree_map(lambda tensor: tensor[one], state)
    alone = gpu.loss_and_gradient(spec, *(tensor[one] for tensor in given[:-1]), part, state_gradient=False, loss=loss)
    same = torch.equal(alone[1], g[one]) and torch.equal(alone[0], cost[one]) and torch.equal(again, d_p)
    errors["bits differ"] = (0.0 if same else 1.0, 0.0)
    return errors


def passes(pair: tuple[float, float]) -> bool:
    return pair[0] < max(TOLERANCE, YARDSTICKS * pair[1])


def gate() -> tuple[bool, list[dict[str, Any]]]:
    torch.use_deterministic_algorithms(True, warn_only=True)  # poisons torch.empty with NaN
    torch.utils.deterministic.fill_uninitialized_memory = True
    rows, green = [], True
    for case in CASES:
        start = time.perf_counter()
        errors = gate_case(*case)
        name, worst = max(errors.items(), key=lambda item: item[1][0] if item[1][0] == item[1][0] else float("inf"))
        ok = all(passes(pair) for pair in errors.values())
        green &= ok
        said = {k: v for k, v in dataclasses.asdict(case[0]).items() if v != ScanSpec.__dataclass_fields__[k].default}
        row = dict(spec=said, shape=case[1:5], ragged=case[5], worst=worst[0], where=name, float32_reference=worst[1])
        rows.append(row | dict(ok=ok))
        took = time.perf_counter() - start
        numbers = f"{worst[0]:.1e} (float32 reference {worst[1]:.1e})"
        print(f"{'ok ' if ok else 'BAD'} {numbers} in {name:24s} {took:5.1f} s  {case[1:]} {said}", flush=True)
        if not ok:
            print("    ", {k: f"{v[0]:.1e} / {v[1]:.1e}" for k, v in errors.items() if not passes(v)}, flush=True)
    torch.use_deterministic_algorithms(False)
    return green, rows


def graph_times(call: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of single replays."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            call()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        seconds = []
        for _ in range(repeats):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            seconds.append(start.elapsed_time(end) / 1e3)
    return seconds


def training_case(spec: ScanSpec, seeds: int, steps: int, batch: int, tape: int = 128) -> Callable[[], Any]:
    """A closure over one loss_and_gradient on inputs as in training: random bits, blank memory, heads at slot 0."""
    parameters = torch.cat(
        [
            (torch.rand(seeds, *shape, device=DEVICE) * 2 - 1).flatten(1) / (shape[-1] ** 0.5)
            if len(shape) > 1
            else torch.zeros(seeds, *shape, device=DEVICE)
            for shape in spec.parameter_shapes.values()
        ],
        dim=1,
    )
    inputs = torch.rand(seeds, steps, batch, spec.input_size, device=DEVICE).round()
    targets = torch.rand(seeds, steps, batch, spec.output_size, device=DEVICE).round()
    mask = (torch.arange(steps, device=DEVICE) > steps // 2).float()[None, :, None].expand(seeds, steps, batch)
    mask = mask.contiguous()
    layers, c, m = spec.recurrent_layers, spec.controller_size, spec.memory_width
    first = torch.zeros(tape, device=DEVICE)
    first[0] = 1
    state = ScanState(
        torch.full((seeds, batch, tape, m), 1e-6, device=DEVICE),
        first.expand(seeds, batch, spec.read_heads, tape).contiguous(),
        first.expand(seeds, batch, spec.write_heads, tape).contiguous(),
        torch.zeros(seeds, batch, spec.read_heads, m, device=DEVICE),
        torch.zeros(seeds, batch, layers, c, device=DEVICE),
        torch.zeros(seeds, batch, layers, c, device=DEVICE),
    )
    lengths = torch.full((seeds, batch), steps, device=DEVICE)
    slots = torch.full((seeds, batch), tape, device=DEVICE)
    return lambda: gpu.loss_and_gradient(
        spec, parameters, inputs, targets, mask, lengths, slots, state, state_gradient=False, loss="binary"
    )


def kernel_times(call: Callable[[], Any]) -> dict[str, float]:
    """Microseconds of each kernel of one call, from torch's profiler."""
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    return {
        event.key: round(event.device_time_total / 5, 1)
        for event in profile.key_averages()
        if event.device_time_total > 0
    }


def clock(quick: bool) -> list[dict[str, Any]]:
    copy = PRESETS["copy"]
    sizes = [(132, 1), (1, 1), (1, 4096), (264, 1)]
    cases = [("copy", copy, seeds, 41, batch) for seeds, batch in sizes]
    if not quick:
        cases += [(name, PRESETS[name], 132, 200 if name == "n-grams" else 40, 1) for name in list(PRESETS)[1:]]
    rows = []
    for name, spec, seeds, steps, batch in cases:
        call = training_case(spec, seeds, steps, batch)
        times = graph_times(call, 20 if batch > 1 else 100)
        median = statistics.median(times)
        spread = (statistics.quantiles(times, n=20)[0], statistics.quantiles(times, n=20)[-1])
        row = dict(
            task=name, seeds=seeds, steps=steps, batch=batch, microseconds=round(1e6 * median, 1),
            percentile_5_95=[round(1e6 * value, 1) for value in spread],
            episodes_per_second=round(seeds * batch / median), kernels=kernel_times(call),
        )  # fmt: skip
        rows.append(row)
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="only the copy task's times")
    arguments = parser.parse_args()
    torch.manual_seed(int(time.time()))
    start = time.perf_counter()
    training_case(PRESETS["copy"], 1, 2, 1)()
    torch.cuda.synchronize()
    print(f"first call {time.perf_counter() - start:.1f} s, NVRTC {nvrtc.nvrtc_version()}", flush=True)
    green, gate_rows = gate()
    result: dict[str, Any] = dict(
        date=time.strftime("%Y-%m-%d"), device=torch.cuda.get_device_name(), torch=torch.__version__,
        nvrtc=".".join(map(str, nvrtc.nvrtc_version())), python=platform.python_version(), gate=gate_rows, green=green,
    )  # fmt: skip
    if green:
        result["times"] = clock(arguments.quick)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    if not green:
        sys.exit("the gate is red: no times")


if __name__ == "__main__":
    main()
