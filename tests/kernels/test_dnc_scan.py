"""The fused scans of the DNC against the reference in float64 with autograd: outputs, final state, gradients, costs.

Memory that nothing has written to holds NaN in all comparisons on the CPU. The GPU's kernels run there thread by thread
wherever there is a C++ compiler, and on a GPU where there is one.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from test_lstm_scan import Squared
from test_ntm_scan_gate import poisoned
from torch import Tensor

from tapehead import DNC, DNCState
from tapehead.kernels import dispatch
from tapehead.kernels.dnc_scan import cpu, gpu, reference
from tapehead.kernels.dnc_scan.contract import initial_state, state_shapes
from tapehead.kernels.dnc_scan.gpu_plan import Plan, rows_of_block
from tapehead.kernels.dnc_scan.spec import DNCSpec
from tapehead.kernels.ntm_scan.controllers import FeedforwardController
from tapehead.kernels.ntm_scan.spec import SIZES
from tapehead.losses import BINARY, CATEGORICAL, Loss
from tapehead.models.sequence import SequenceModel

# Relative norm of each part. Seen: 1.7e-15 in float64, and in float32 5.6e-7 on the CPU, both of the interface's
# biases; 6.7e-7 of the GPU's kernels, emulated, of the inputs of a feedforward machine.
TOLERANCES = {torch.float64: 1e-14, torch.float32: 2e-6}
SEEDS = 2
CPU = torch.device("cpu")
Fields = dict[str, Any]
SMALL: Fields = dict(input_size=3, output_size=2, controller_size=5, memory_width=3, read_heads=2)


class Shape(NamedTuple):
    steps: int = 7
    batch: int = 3
    tape: int = 6
    ragged: bool = False  # whether sequences use parts of the tape


CASES: dict[str, tuple[Fields, Shape]] = {
    "plain": ({}, Shape()),
    "parts of the tape": ({}, Shape(ragged=True)),
    "the paper's machine": (
        dict(input_size=9, output_size=8, controller_size=100, memory_width=20, read_heads=4),
        Shape(11, 1, 64),
    ),
    "one of everything": (dict(memory_width=1, read_heads=1, controller_size=1), Shape(1, 1, 1)),
    "five heads, 2 layers, 19 slots": (dict(read_heads=5, controller_layers=2), Shape(18, 6, 19, True)),
    "feedforward, softplus": (dict(controller="feedforward", strength="softplus", controller_layers=2), Shape(9)),
    "detached usage": (dict(detached_usage=True), Shape()),
    "masks": (dict(masked_content=True), Shape(ragged=True)),
    "de-allocation": (dict(deallocation=True), Shape(10, ragged=True)),
    "sharp links": (dict(link_sharpness=True), Shape(10, ragged=True)),
    "all options": (
        dict(masked_content=True, deallocation=True, link_sharpness=True, detached_usage=True, read_heads=3),
        Shape(18, 9, 13, True),
    ),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
H200 = 232448  # bytes of shared memory that a block may have
LONG: tuple[Fields, Shape] = (dict(deallocation=True), Shape(6, 2, 131, True))
GPU_CASES: dict[str, tuple[tuple[Fields, Shape], int]] = {
    **{name: (CASES[name], H200) for name in ("parts of the tape", "the paper's machine", "one of everything")},
    "five heads, 2 layers, 19 slots": ((CASES["five heads, 2 layers, 19 slots"][0], Shape(9, 5, 19, True)), H200),
    **{name: (CASES[name], H200) for name in ("feedforward, softplus", "de-allocation")},
    "all options": ((CASES["all options"][0], Shape(9, 5, 13, True)), H200),
    "two sequences at a time forward, one backward": ((CASES["all options"][0], Shape(5, 4, 13)), 12000),
    "a long tape": (LONG, H200),
    "links in global memory": (LONG, 60000),
    "links and memory in global memory": (LONG, 42000),
}
gpu_cases = pytest.mark.parametrize("case", GPU_CASES.values(), ids=GPU_CASES)
both_types = pytest.mark.parametrize("dtype", TOLERANCES, ids=["float64", "float32"])


class Problem(NamedTuple):
    """A machine and what it is given, in float64, but of numbers that float32 has."""

    spec: DNCSpec
    tape: int
    flat: Tensor
    inputs: Tensor
    lengths: Tensor
    slots: Tensor
    state: DNCState

    def start(self) -> DNCState:
        lead = (self.inputs.shape[0], self.inputs.shape[2])
        return initial_state(self.spec, lead, self.tape, device=CPU, dtype=torch.float64)


def draw(options: Fields, shape: Shape, seed: int = 1) -> Problem:
    draws, spec = torch.Generator().manual_seed(seed), DNCSpec(**SMALL | options)
    steps, batch, tape, ragged = shape

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=draws).double()

    lengths = torch.randint(1, steps + 1, (SEEDS, batch), generator=draws)
    lengths[0, -1] = steps
    lengths[1, 0] = 0
    slots = torch.randint(1, tape + 1, (SEEDS, batch), generator=draws) if ragged else torch.full((SEEDS, batch), tape)
    parts = {name: normal(*size) for name, size in state_shapes(spec, (SEEDS, batch), tape).items()}
    parts["usage"] = parts["usage"].sigmoid()
    parts["usage"][..., ::4], parts["usage"][..., 1::4] = 0.0, 1.0  # ties, and factors of zero
    for name in ("link", "precedence", "read_weightings", "write_weighting"):
        parts[name] = 0.7 * torch.softmax(2 * parts[name], dim=-1)
    parts = {name: part.float().double() for name, part in parts.items()}
    width = spec.controller_size + spec.read_heads * spec.memory_width + spec.input_size
    flat = (1.5 * width**-0.5 * normal(SEEDS, spec.parameter_count)).float().double()
    inputs = normal(SEEDS, steps, batch, spec.input_size)
    return Problem(spec, tape, flat, inputs, lengths, slots, DNCState(**parts))


def error(have: Tensor, want: Tensor) -> float:
    difference, size = float((have.cpu().double() - want).norm()), float(want.norm())
    return difference / size if size else difference


def assert_close(have: dict[str, Tensor], want: dict[str, Tensor], dtype: torch.dtype) -> None:
    found = {name: error(have[name].detach(), want[name].detach()) for name in want if want[name].numel()}
    wrong = {name: one for name, one in found.items() if not one <= TOLERANCES[dtype]}  # a NaN is wrong, too
    assert not wrong, wrong


def named(values: Any, prefix: str = "") -> dict[str, Tensor]:
    names = ("parameters", "inputs", *DNCState._fields)[-len(values) :]
    return {f"{prefix}{name}": value for name, value in zip(names, values, strict=True)}


@cases
@both_types
def test_agrees_with_the_reference(case: tuple[Fields, Shape], dtype: torch.dtype) -> None:
    """From a given state, with gradients of outputs and final state."""
    check_scan(cpu, case, dtype, CPU)


def check_scan(backend: Any, case: tuple[Fields, Shape], dtype: torch.dtype, device: torch.device) -> None:
    problem = draw(*case)
    spec, tape, flat, inputs, lengths, slots, state = problem
    variables = [part.clone().requires_grad_() for part in (flat, inputs, *state)]
    used = slots if case[1].ragged else None
    outputs, final, _ = reference.scan(spec, *variables[:2], lengths, used, DNCState(*variables[2:]))
    draws = torch.Generator().manual_seed(2)
    weights = [torch.randn(part.shape, generator=draws).double() for part in (outputs, *final)]
    gradients = torch.autograd.grad([outputs, *final], variables, weights)

    def cast(parts: Any) -> list[Tensor]:
        return [part.to(device, dtype) for part in parts]

    with poisoned():
        given = (*cast((flat, inputs)), lengths.to(device), slots.to(device), tape)
        y, end, kept = backend.forward(spec, *given, DNCState(*cast(state)), keep=True)
        without, _, nothing = backend.forward(spec, *given, DNCState(*cast(state)), keep=False)
        d_y, *d_end = cast(weights)
        d_flat, d_inputs, d_state = backend.backward(spec, *given, kept, d_y, DNCState(*d_end))
        again = backend.backward(spec, *given, kept, d_y, DNCState(*d_end), state_gradient=False)
    assert_close(named(end) | {"outputs": y}, named(final) | {"outputs": outputs}, dtype)
    assert d_state is not None
    assert_close(named((d_flat, d_inputs, *d_state), "d "), named(gradients, "d "), dtype)
    assert torch.equal(y, without)
    assert nothing.numel() == 0
    assert again[2] is None
    assert torch.equal(again[0], d_flat)


def training(problem: Problem, loss: Loss) -> tuple[Tensor, Tensor]:
    """Targets and mask, which also counts some steps beyond the end of a sequence."""
    draws = torch.Generator().manual_seed(3)
    targets = torch.randn((*problem.inputs.shape[:3], problem.spec.output_size), generator=draws).double()
    targets = (targets > 0).double() if loss is BINARY else targets.square().float().double()
    return targets, (torch.rand(problem.inputs.shape[:3], generator=draws) < 0.7).double()


@cases
@both_types
def test_a_training_step_agrees_with_the_reference(case: tuple[Fields, Shape], dtype: torch.dtype) -> None:
    check_training(cpu, case, dtype, CPU)


def check_training(backend: Any, case: tuple[Fields, Shape], dtype: torch.dtype, device: torch.device) -> None:
    problem = draw(*case)
    spec, tape, flat, inputs, lengths, slots, _ = problem
    used = slots if case[1].ragged else None
    for loss in (BINARY, CATEGORICAL):
        targets, mask = training(problem, loss)
        own = flat.clone().requires_grad_()
        logits, _, _ = reference.scan(spec, own, inputs, lengths, used, problem.start())
        costs = torch.stack([loss.nats(*parts) for parts in zip(logits, targets, mask, strict=True)])
        (gradient,) = torch.autograd.grad(costs.mean(dim=1).sum(), own)
        with poisoned():
            given = [part.to(device, dtype) for part in (flat, inputs, targets, mask)]
            counts = (lengths.to(device), slots.to(device), tape)
            have = backend.loss_and_gradient(spec, *given, *counts, str(loss.kernel))
        want = {"costs": costs} | spec.split_parameters(gradient)
        assert_close({"costs": have[0]} | spec.split_parameters(have[1]), want, dtype)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_seed_alone_is_the_seed_among_others(threads: int, one_thread: None) -> None:
    """With padding that its neighbours need, and without; to the bit."""
    torch.set_num_threads(threads)
    check_seeds(cpu, CPU)


def check_seeds(backend: Any, device: torch.device) -> None:
    problem = draw(*CASES["five heads, 2 layers, 19 slots"])
    targets, mask = training(problem, BINARY)
    problem.lengths[1].clamp_(1, 15)
    mask[:, 15:] = 0.0
    given = [part.to(device, torch.float32) for part in (problem.flat, problem.inputs, targets, mask)]
    given += [problem.lengths.to(device), problem.slots.to(device)]
    everyone = backend.loss_and_gradient(problem.spec, *given, problem.tape, "binary")
    for seed, steps in enumerate((18, 15)):
        flat, *sequences, lengths, slots = (part[seed : seed + 1] for part in given)
        mine = (flat, *(part[:, :steps] for part in sequences), lengths, slots)
        alone = backend.loss_and_gradient(problem.spec, *mine, problem.tape, "binary")
        for have, want in zip(alone, everyone, strict=True):
            assert torch.equal(have[0], want[seed])


def test_what_does_not_count_changes_nothing() -> None:
    check_padding(cpu, CPU, torch.float64)


def check_padding(backend: Any, device: torch.device, dtype: torch.dtype) -> None:
    problem = draw({}, Shape())
    targets, mask = training(problem, BINARY)
    beyond = torch.arange(7).unsqueeze(-1) >= problem.lengths.unsqueeze(1)
    mask[beyond] = 0.0
    other = [problem.inputs.clone(), targets.clone()]
    other[0][beyond], other[1][mask == 0] = torch.nan, torch.nan
    counts = (problem.lengths.to(device), problem.slots.to(device), problem.tape, "binary")
    flat, inputs, targets, mask, *other = (
        part.to(device, dtype) for part in (problem.flat, problem.inputs, targets, mask, *other)
    )
    one = backend.loss_and_gradient(problem.spec, flat, inputs, targets, mask, *counts)
    two = backend.loss_and_gradient(problem.spec, flat, *other, mask, *counts)
    assert all(map(torch.equal, one, two))


def test_what_is_not_finite_stays_so() -> None:
    """A seed whose numbers are NaN says so, also where a usage has no place in the order; its neighbour is as
    before."""
    check_not_finite(cpu, CPU, torch.float64)


def check_not_finite(backend: Any, device: torch.device, dtype: torch.dtype) -> None:
    problem = draw({}, Shape())
    targets, mask = training(problem, BINARY)
    lengths, slots = problem.lengths.fill_(7).to(device), problem.slots.to(device)
    flat, inputs, targets, mask = (part.to(device, dtype) for part in (problem.flat, problem.inputs, targets, mask))
    given = (inputs, targets, mask, lengths, slots, problem.tape, "binary")
    want = backend.loss_and_gradient(problem.spec, flat, *given)
    broken = flat.clone()
    broken[1, 5] = torch.nan
    costs, gradient = backend.loss_and_gradient(problem.spec, broken, *given)
    assert not bool(torch.isfinite(costs[1]).all() and torch.isfinite(gradient[1]).all())
    assert torch.equal(costs[0], want[0][0])
    assert torch.equal(gradient[0], want[1][0])
    usage = problem.state.usage.clone()
    usage[1, 0, 2] = torch.nan
    state = problem.state._replace(usage=usage).to(device, dtype)
    outputs, final, _ = backend.forward(problem.spec, flat, inputs, lengths, slots, problem.tape, state, keep=False)
    assert bool(final.memory[1, 0].isnan().any())
    assert bool(outputs[0].isfinite().all())


@pytest.mark.parametrize("masked", [False, True])
def test_huge_memories(masked: bool) -> None:
    """Squares that overflow float32."""
    check_huge(cpu, masked, CPU)


def check_huge(backend: Any, masked: bool, device: torch.device) -> None:
    spec, tape, flat, inputs, lengths, slots, state = draw(dict(masked_content=masked), Shape())
    state = state._replace(memory=1e25 * state.memory)
    single = DNCState(*(part.float() for part in state))
    outputs, final, _ = reference.scan(spec, flat.float(), inputs.float(), lengths, None, single)
    counts = (lengths.to(device), slots.to(device), tape)
    given = (flat.to(device, torch.float32), inputs.to(device, torch.float32), *counts, single.to(device))
    y, end, _ = backend.forward(spec, *given, keep=False)
    assert bool(y.isfinite().all()) == bool(outputs.isfinite().all())
    assert error(end.write_weighting, final.write_weighting.double()) < TOLERANCES[torch.float32]


@pytest.mark.parametrize("masked", [False, True])
def test_slots_of_one_entry_are_exact(masked: bool) -> None:
    check_slots_of_one_entry(cpu, masked, CPU)


def check_slots_of_one_entry(backend: Any, masked: bool, device: torch.device) -> None:
    """As `assert_slots_of_one_entry_are_exact` for the NTM: rows and keys of a millionth. Errors seen: 8.8e-7.

    The control is the reference in float32.
    """
    problem = draw(dict(memory_width=1, masked_content=masked), Shape(2))
    spec, tape, flat, inputs, lengths, slots, state = problem
    entries = spec.interface.part_names()
    keys, masks = (torch.tensor([name == part for name in entries]) for part in ("key", "mask"))
    parts = spec.split_parameters(flat)
    parts["interface.weight"][:, keys] = 0.0
    parts["interface.bias"][:, keys] = 1e-6 * parts["interface.bias"][:, keys].sign()
    state = state._replace(memory=1e-6 * (state.memory.sign() + 0.1 * state.memory.tanh()))
    draws = torch.Generator().manual_seed(2)
    weights = [torch.randn(shape, generator=draws) for shape in ((*inputs.shape[:3], 2), *(x.shape for x in state))]

    def slopes(d_flat: Tensor, d_memory: Tensor) -> dict[str, Tensor]:
        d_parts = spec.split_parameters(d_flat)
        found = {"memory": d_memory}
        for name in ("interface.weight", "interface.bias"):
            found |= {f"{name} of keys": d_parts[name][:, keys], f"{name} of masks": d_parts[name][:, masks]}
        return found

    def of_reference(dtype: torch.dtype) -> dict[str, Tensor]:
        variables = [part.to(dtype).requires_grad_() for part in (flat, state.memory)]
        start = DNCState(*(part.to(dtype) for part in state))._replace(memory=variables[1])
        outputs, final, _ = reference.scan(spec, variables[0], inputs.to(dtype), lengths, None, start)
        given = [weight.to(dtype) for weight in weights]
        d_flat, d_memory = torch.autograd.grad([outputs, *final], variables, given)
        return slopes(d_flat, d_memory)

    single = DNCState(*(part.to(device, torch.float32) for part in state))
    parts = (flat.to(device, torch.float32), inputs.to(device, torch.float32), lengths.to(device), slots.to(device))
    *_, kept = backend.forward(spec, *parts, tape, single, keep=True)
    d_y, *d_end = (weight.to(device) for weight in weights)
    d_flat, _, d_state = backend.backward(spec, *parts, tape, kept, d_y, DNCState(*d_end))
    truth, control = of_reference(torch.float64), of_reference(torch.float32)
    for name, value in slopes(d_flat, d_state.memory).items():
        if truth[name].numel():
            assert error(value, truth[name]) < TOLERANCES[torch.float32], name
            assert error(control[name].double(), truth[name]) > 1e-3, name


# --- the GPU's kernels ------------------------------------------------------------------------------------------------


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says how much shared memory a block may have."""
    return lambda limit: monkeypatch.setattr(gpu, "_shared_limit", lambda device: limit)


@gpu_cases
def test_the_gpu_agrees_with_the_reference(
    case: tuple[tuple[Fields, Shape], int], device: torch.device, limit: Callable[[int], None]
) -> None:
    limit(case[1])
    check_scan(gpu, case[0], torch.float32, device)
    check_training(gpu, case[0], torch.float32, device)


def test_the_cases_have_every_layout() -> None:
    """So that a change of plan does not take a path away from the tests."""
    plans = [
        Plan(DNCSpec(**SMALL | fields), shape.tape, most, rows_of_block(shape.batch))
        for (fields, shape), most in GPU_CASES.values()
    ]
    layouts = [(plan.forward, plan.backward) for plan in plans]
    passes = [layout for pair in layouts for layout in pair if layout is not None]
    assert len(passes) == 2 * len(plans)
    assert {layout.rows for layout in passes} == {1, 2, 4}
    for k in (0, 1):
        shared = {(one.link_shared, one.tape_shared) for pair in layouts if (one := pair[k]) is not None}
        assert shared == {(True, True), (False, True), (False, False)} - ({(False, False)} if k == 0 else set())
    assert any(layout.lanes > 1 for layout in passes)
    assert {1, 2, 64} <= {layout.link_lanes for layout in passes}, "rows of links below, within and beyond a warp"
    assert any(
        forward is not None and backward is not None and forward.rows > backward.rows for forward, backward in layouts
    )


def test_a_seed_alone_is_the_seed_among_others_on_a_gpu(device: torch.device, limit: Callable[[int], None]) -> None:
    limit(H200)
    check_seeds(gpu, device)


def test_gradients_of_large_batches_are_added_in_chunks(device: torch.device, limit: Callable[[int], None]) -> None:
    limit(H200)
    check_training(gpu, (dict(controller_size=2, memory_width=2, read_heads=1), Shape(2, 65, 3)), torch.float32, device)


def test_numbers_that_do_not_count_or_are_not_finite_on_a_gpu(
    device: torch.device, limit: Callable[[int], None]
) -> None:
    limit(H200)
    check_padding(gpu, device, torch.float32)
    check_not_finite(gpu, device, torch.float32)


@pytest.mark.parametrize("masked", [False, True])
def test_huge_memories_on_a_gpu(masked: bool, device: torch.device, limit: Callable[[int], None]) -> None:
    limit(H200)
    check_huge(gpu, masked, device)


@pytest.mark.parametrize("masked", [False, True])
def test_slots_of_one_entry_are_exact_on_a_gpu(
    masked: bool, device: torch.device, limit: Callable[[int], None]
) -> None:
    limit(H200)
    check_slots_of_one_entry(gpu, masked, device)


def test_no_sequences_launch_nothing_on_a_gpu(
    device: torch.device, limit: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA refuses a grid without blocks; the gradient of nothing is zero."""
    limit(H200)
    spec, tape, flat, inputs, lengths, slots, state = draw({}, Shape())
    counts = (lengths[:, :0].to(device), slots[:, :0].to(device), tape)
    given = (flat.to(device, torch.float32), inputs[:, :, :0].to(device, torch.float32), *counts)
    empty = DNCState(*(part[:, :0] for part in state)).to(device, torch.float32)
    launched, kernels = [], gpu._kernels(gpu._plan(spec, tape, 1, device), device)

    class Recording:
        def launch(self, name: str, grid: tuple[int, ...], *rest: Any) -> None:
            launched.append(name)
            kernels.launch(name, grid, *rest)

    monkeypatch.setattr(gpu, "_kernels", lambda plan, device: Recording())
    y, final, kept = gpu.forward(spec, *given, empty, keep=True)
    d_flat, d_inputs, _ = gpu.backward(spec, *given, kept, y, final)
    assert y.shape == (2, 7, 0, 2)
    assert d_inputs.shape == (2, 7, 0, 3)
    assert not d_flat.any()
    assert launched == ["dnc_gradient"]


SIZES_OF_A_PAPER: Fields = dict(input_size=9, output_size=8)


@pytest.mark.parametrize("most", [H200, 166912, 101376])
def test_the_paper_sized_machine_fits_every_gpu(most: int) -> None:
    for slots in (16, 64, 128, 256 if most > 101376 else 192):
        assert Plan(DNCSpec(**SIZES_OF_A_PAPER), slots, most).refusal() is None
    at_64 = Plan(DNCSpec(**SIZES_OF_A_PAPER), 64, most)
    for layout in (at_64.forward, at_64.backward):
        assert layout is not None
        assert layout.link_shared
        assert layout.tape_shared
        assert layout.shared_bytes <= most
        assert layout.rows == 4 or most < H200


def test_what_does_not_fit_a_gpu_is_refused_with_its_numbers(limit: Callable[[int], None]) -> None:
    spec = DNCSpec(**SIZES_OF_A_PAPER)
    reason = Plan(spec, 2000, H200).refusal()
    assert reason is not None
    assert all(word in reason for word in ("forward pass on 2000 slots", "232448", "shared memory"))
    assert "at most 2048 slots, and this tape 2049" in str(Plan(spec, 2049, H200).refusal())
    limit(H200)
    with pytest.raises(ValueError, match=r"cannot run this scan.*2049"):
        gpu._plan(spec, 2049, 4, torch.device("cuda"))


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(DNCSpec) if field.name not in SIZES])
def test_an_unknown_value_is_refused_on_a_gpu_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(gpu.nvrtc, "missing", lambda: None)
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: H200)
    place = (torch.float32, torch.device("cuda", 7))  # of no other test: refusals are kept
    spec = DNCSpec(**SMALL)
    assert gpu.refusal(spec, *place, 6) is None
    object.__setattr__(spec, name, "invented")
    reason = gpu.refusal.__wrapped__(spec, *place, 6)
    assert reason is not None
    assert all(word in reason for word in ("GPU", name, "'invented'", "only"))


@pytest.mark.gpu
def test_a_training_step_can_be_captured() -> None:
    """And replayed on other numbers: the same bits as without a graph."""
    problem, place = draw(*CASES["five heads, 2 layers, 19 slots"]), torch.device("cuda")
    targets, mask = training(problem, BINARY)
    given = [part.to(place, torch.float32) for part in (problem.flat, problem.inputs, targets, mask)]
    given += [problem.lengths.to(place), problem.slots.to(place)]
    dnc = DNC(3, 2, controller_size=5, controller_layers=2, memory_slots=19, memory_width=3, read_heads=5).cuda()
    assert dnc.backend_in_use() == "gpu"

    def learn() -> tuple[Tensor, Tensor]:
        *parts, lengths, slots = given
        return dnc.loss_and_gradient(*parts, lengths, slots=slots, checked=True)[:2]

    learn()  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = learn()
    given[0].mul_(0.5)
    graph.replay()
    for have, want in zip(captured, learn(), strict=True):
        assert torch.equal(have, want)


# --- dispatch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(DNCSpec) if field.name not in SIZES])
def test_an_unknown_value_of_an_option_is_refused_by_name(name: str) -> None:
    spec = DNCSpec(**SMALL)
    object.__setattr__(spec, name, "invented")  # of a later version
    chosen, reason = dispatch.choose_dnc("auto", spec, torch.float32, CPU, 6)
    assert chosen == "reference"
    assert all(word in reason for word in (name, "'invented'", "only"))
    with pytest.raises(ValueError, match=r"backend 'cpu' cannot run this machine.*invented"):
        dispatch.choose_dnc("cpu", spec, torch.float32, CPU, 6)


class Outside(FeedforwardController):
    """A controller that is not in the kernels."""


def test_what_runs_where() -> None:
    assert DNC(3, 2).backend_and_reason() == ("cpu", "")
    assert DNC(3, 2, backend="reference").backend_in_use() == "reference"
    assert DNC(3, 2, backend="cpu").with_memory(5).backend == "cpu"
    outside = DNC(3, 2, controller=f"{__name__}:Outside")
    assert outside.backend_in_use() == "reference"
    assert "Outside" in outside.backend_and_reason()[1]
    y, _ = outside(torch.zeros(2, 1, 3))
    assert y.requires_grad
    with pytest.raises(ValueError, match="'gpu' cannot run this machine: the GPU kernel runs on CUDA devices"):
        DNC(3, 2, backend="gpu").backend_in_use()
    chosen, reason = dispatch.choose_dnc("auto", DNCSpec(**SMALL), torch.float64, torch.device("cuda"), 6)
    assert (chosen, "float32 only" in reason) == ("reference", True)
    with pytest.raises(ValueError, match="float32 only"):
        dispatch.choose_dnc("gpu", DNCSpec(**SMALL), torch.float64, torch.device("cuda"), 6)
    assert "float16" in dispatch.choose_dnc("auto", DNCSpec(**SMALL), torch.float16, CPU, 6)[1]
    assert DNC(3, 2).kernel_identity() != DNC(3, 2, backend="reference").kernel_identity()


# --- the layer --------------------------------------------------------------------------------------------------------


def twins(**options: Any) -> tuple[DNC, DNC]:
    """One machine on either backend."""
    sizes = dict(controller_size=5, memory_slots=6, memory_width=3, read_heads=2) | options
    fused, plain = (DNC(3, 2, backend=name, dtype=torch.float64, **sizes) for name in ("cpu", "reference"))
    plain.load_state_dict(fused.state_dict())
    return fused, plain


def test_the_layer_and_its_gradients() -> None:
    """From the start and from a state, with lengths and slots; `backward` reaches parameters, input and state."""
    fused, plain = twins()
    draws = torch.Generator().manual_seed(4)
    found = []
    for dnc in (fused, plain):
        x = torch.randn(5, 3, 3, generator=draws.manual_seed(4), dtype=torch.float64).requires_grad_()
        first, state = dnc(x, lengths=torch.tensor([5, 2, 4]), slots=torch.tensor([6, 3, 4]))
        y, (memory, usage, link, *_) = dnc(x, state)
        (first.sum() + y.square().sum() + link.sum() + (memory * usage.unsqueeze(-1)).sum()).backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        gradients = {name: one.grad for name, one in dnc.named_parameters() if one.grad is not None}
        found.append({"y": y, "link": link, "x": x.grad} | gradients)
    assert len(found[0]) == 3 + len(list(fused.parameters()))
    assert_close(found[0], found[1], torch.float64)


def test_an_output_without_a_gradient_and_one_state_alone() -> None:
    fused, plain = twins()
    x = torch.ones(2, 1, 3, dtype=torch.float64)
    gradients = []
    for dnc in (fused, plain):
        _, state = dnc(x)
        total = state.usage.sum() + state.precedence.sum()
        gradients.append(torch.autograd.grad(total, list(dnc.parameters()), allow_unused=True)[:2])
    for have, want in zip(*gradients, strict=True):
        assert error(have, want) <= TOLERANCES[torch.float64]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own, on first use
def test_second_derivatives_and_forward_mode_are_refused() -> None:
    fused, _ = twins()
    x = torch.ones(2, 1, 3, dtype=torch.float64, requires_grad=True)
    (d_x,) = torch.autograd.grad(fused(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="differentiate the scan once"):
        d_x.sum().backward()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))
        with pytest.raises(NotImplementedError, match="choose backend='reference'"):
            fused(dual)


def test_wrapped_tensors_run_on_the_reference_where_the_backend_is_free() -> None:
    fused, plain = twins()
    x = torch.randn(4, 2, 1, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="backend 'cpu' cannot run under"):
        torch.func.vmap(lambda one: fused(one)[0])(x)
    fused.choose_backend("auto")
    have = torch.func.vmap(lambda one: fused(one)[0])(x)
    want = torch.stack([plain(one)[0] for one in x])
    assert error(have.detach(), want.detach()) <= TOLERANCES[torch.float64]


def test_no_sequences() -> None:
    fused, _ = twins()
    y, state = fused(torch.zeros(4, 0, 3))
    assert y.shape == (4, 0, 2)
    assert state.link.shape == (0, 6, 6)
    y.sum().backward()
    assert all(not bool(one.grad.any()) for one in fused.parameters() if one.grad is not None)


# --- populations ------------------------------------------------------------------------------------------------------


def test_populations_train_on_the_kernel() -> None:
    fused, plain = twins()
    problem = draw({}, Shape())
    flat = fused.initial_population([1, 2])
    for loss in (BINARY, CATEGORICAL, Squared()):
        targets, mask = training(problem, loss)
        given = (flat, problem.inputs, targets, mask, problem.lengths.clamp(min=1))
        have, want = (dnc.loss_and_gradient(*given, slots=problem.slots, loss=loss) for dnc in (fused, plain))
        assert error(have[0], want[0]) <= TOLERANCES[torch.float64]
        assert error(have[1], want[1]) <= TOLERANCES[torch.float64]
        assert dispatch.is_fused("cpu", loss) == (not isinstance(loss, Squared))
    logits = fused.population(flat, problem.inputs, problem.lengths)
    want = SequenceModel.population(plain, flat, problem.inputs, problem.lengths.clamp(min=1))
    assert error(logits[0], want[0].detach()) <= TOLERANCES[torch.float64]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("flat", lambda part: part[:, 1:], "parameters has shape"),
        ("inputs", lambda part: part[..., :2], "inputs has shape"),
        ("inputs", lambda part: part.float(), "inputs is torch.float32"),
        ("targets", lambda part: part[..., :1], "targets has shape"),
        ("mask", lambda part: part[:, 1:], "mask has shape"),
        ("lengths", lambda part: part + 50, "lengths holds 5"),
        ("lengths", lambda part: part.double(), "must hold whole numbers"),
    ],
)
def test_tensors_that_do_not_fit(name: str, change: Any, message: str) -> None:
    fused, _ = twins()
    problem = draw({}, Shape())
    targets, mask = training(problem, BINARY)
    given = dict(flat=fused.initial_population([1, 2]), inputs=problem.inputs, targets=targets, mask=mask)
    given["lengths"] = problem.lengths
    given[name] = change(given[name])
    with pytest.raises(ValueError, match=message):
        fused.loss_and_gradient(*given.values())
