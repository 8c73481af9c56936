"""8: random machines on every fused backend, against the reference in float64: outputs, states and all gradients.

The kernel of the CPU runs in float32 and in float64; the CUDA source runs on the CPU, thread by thread (a GPU, where
there is one, runs it itself). Arguments are also transposed, expanded and strided; tapes have one slot or an odd number
of them; batches are empty, lengths zero, and states given. `test_soak.py` counts which values the full number of
machines has.
"""

import contextlib
import dataclasses
import functools
import random
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import cuda_on_cpu
import torch
from scan_problems import FLOATS, Problem, errors, gradients_of, leaves, limit, make_problem, poisoned, wrong
from torch import Tensor

from soak.fault import Case, Fault
from tapehead.kernels import dispatch
from tapehead.kernels.ntm_scan import gpu, reference
from tapehead.kernels.ntm_scan.contract import COUNTS, FusedBackend, ScanState
from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.losses import BINARY, CATEGORICAL

CPU = torch.device("cpu")
SHARED = (232448, 99 * 1024, None)
"""Bytes of shared memory of a block: of an H200, of smaller devices, and None: what the machine needs beside its
weights, which then are streamed."""


class Drawn(NamedTuple):
    """What a case is."""

    spec: ScanSpec
    on_cpu: Problem
    in_cuda: Problem  # small, for the emulation, which takes a second for some steps
    limit: int  # bytes of shared memory
    blocks: int  # multiprocessors of the emulated device


def drawn(case: Case, *, small: bool = True) -> Drawn:
    """small: whether the CUDA source will be emulated."""
    source = case.random
    spec = random_spec(source)
    on_cpu, in_cuda = (
        with_odd_layouts(random_problem(source, case.number, spec, small=one), source) for one in (False, small)
    )
    limit, blocks = source.choice(SHARED), source.choice((1, 3))
    if limit is None:
        plan = gpu.Plan(spec, in_cuda.state.memory.shape[-2], 0)
        limit = max(map(plan.working_bytes, (False, True)))
    return Drawn(spec, on_cpu, in_cuda, limit, blocks)


def random_spec(source: random.Random) -> ScanSpec:
    return ScanSpec(
        input_size=source.randint(1, 5),
        output_size=source.choice((1, 2, 3, 8, 9)),
        controller=source.choice(("lstm", "feedforward")),
        controller_size=source.choice((1, 2, 5, 8, 17, 33)),
        controller_layers=source.choice((1, 1, 2, 3)),
        read_heads=source.choice((1, 1, 2, 4)),
        write_heads=source.choice((1, 1, 2, 3)),
        memory_width=source.choice((1, 2, 3, 4, 9, 20, 21)),
        shift=source.choice(("softmax", "scalar")),
        shift_range=source.randint(0, 3),
        order=source.choice(("write_then_read", "read_then_write")),
        key_activation=source.choice(("linear", "tanh")),
        add_activation=source.choice(("linear", "tanh", "sigmoid")),
        output_from=source.choice(("hidden_and_reads", "hidden")),
        write_gate=source.random() < 0.5,
        interface_clip=source.choice((None, None, 0.5, 3.0)),
    )


def random_problem(source: random.Random, seed: int, spec: ScanSpec, *, small: bool) -> Problem:
    tapes = (1, 1, 2, 3, 7, 13, 7, 13, 33, 260) if small else (1, 2, 3, 13, 16, 31, 13, 16, 31, 67)
    return make_problem(
        spec,
        seeds=source.choice((1, 1, 2) if small else (1, 3)),
        steps=source.choice((1, 2, 3) if small else (1, 2, 5, 7, 12)),
        batch=source.choice((1, 1, 2) if small else (1, 2, 5, 9, 17)),
        tape=source.choice(tapes),
        seed=seed,
        ragged=source.random() < 0.8,
    )


def odd_layout(tensor: Tensor, source: random.Random) -> Tensor:
    """The same values in another layout: strided, transposed, or with a gap before them. A gap holds what is wrong to
    read: NaN, or the largest number of the type."""
    if tensor.ndim < 2 or tensor.numel() == 0:
        return tensor
    gap = float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).max
    kind = source.randrange(4)
    if kind == 0:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if kind == 1:
        wide = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1]), gap)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if kind == 2:
        longer = tensor.new_full((tensor.numel() + 3,), gap)
        longer[3:] = tensor.flatten()
        return longer[3:].view(tensor.shape)
    return tensor


def with_odd_layouts(problem: Problem, source: random.Random) -> Problem:
    """Also with one batch row for all, as expanded tensors: of the inputs, of the state, of the final state's gradient;
    and with one number for all lengths, or slots."""
    most = max(problem.inputs.shape[1], problem.state.memory.shape[-2])
    types = [dtype for dtype in COUNTS if torch.iinfo(dtype).max >= most]
    counts = {name: getattr(problem, name).to(source.choice(types)) for name in ("lengths", "slots")}
    names = ("parameters", "inputs", "targets", "symbols", "mask", "d_outputs")
    changed = {name: odd_layout(part, source) for name, part in counts.items()}
    changed |= {name: odd_layout(getattr(problem, name), source) for name in names}
    states = {name: ScanState(*(odd_layout(part, source) for part in getattr(problem, name))) for name in STATES}
    if source.random() < 0.2:
        changed["inputs"] = problem.inputs[:, :, :1].expand_as(problem.inputs)
    for name, count in counts.items():
        if source.random() < 0.1:
            changed[name] = count[:1, :1].expand_as(count)
    for name in STATES:
        if source.random() < 0.2:
            states[name] = ScanState(*(part[:, :1].expand_as(part) for part in getattr(problem, name)))
    return dataclasses.replace(problem, **changed, **states)


STATES = ("state", "d_final")


def assert_empty_batch(backend: FusedBackend, problem: Problem, dtype: torch.dtype, device: torch.device) -> None:
    """No sequences: tensors of the right shapes, and a gradient of zeros. Of such a batch `dispatch` asks a backend
    neither a trace nor a cost."""
    spec, parameters, inputs, lengths, slots, state = problem.arguments(dtype, device)
    none = ScanState(*(part[:, :0] for part in state))
    given = (spec, parameters, inputs[:, :, :0], lengths[:, :0], slots[:, :0], none)
    outputs, final, kept = backend.forward(*given, keep=True)
    unkept, after, _ = backend.forward(*given, keep=False)
    d_parameters, d_inputs, d_state = backend.backward(*given, kept, torch.zeros_like(outputs), final)
    assert d_inputs is not None
    assert d_state is not None
    assert outputs.shape == unkept.shape == (*inputs.shape[:2], 0, spec.output_size)
    for found in (final, after, d_state):
        assert [part.shape for part in found] == [part.shape for part in none]
    assert d_inputs.shape == given[2].shape
    assert d_parameters.shape == parameters.shape
    assert not bool(d_parameters.any())


class InTorch:
    """The reference with autograd, in the form of a backend: how far off it is itself, in float32."""

    def _given(self, *given: Any) -> tuple[Any, ...]:
        return given

    def _scan(self, given: tuple[Any, ...]) -> tuple[list[Tensor], Tensor, ScanState]:
        spec, parameters, inputs, lengths, slots, state = self._given(*given)
        variables = [part.detach().clone().requires_grad_() for part in (parameters, inputs, *state)]
        outputs, final, _ = reference.scan(spec, *variables[:2], lengths, slots, ScanState(*variables[2:]))
        return variables, outputs, final

    def forward(self, *given: Any, keep: bool) -> tuple[Tensor, ScanState, None]:
        _, outputs, final = self._scan(given)
        return outputs, final, None

    def backward(self, *given: Any) -> tuple[Tensor, Tensor, ScanState]:
        *scan, _, d_outputs, d_final = given
        variables, outputs, final = self._scan(tuple(scan))
        d_parameters, d_inputs, *d_state = gradients_of([outputs, *final], variables, [d_outputs, *d_final])
        return d_parameters, d_inputs, ScanState(*d_state)

    def trace(self, *given: Any) -> Any:
        return reference.scan(*self._given(*given), with_trace=True)

    def loss_and_gradient(self, *given: Any) -> tuple[Tensor, Tensor, ScanState | None, None]:
        spec, parameters, inputs, targets, mask, lengths, slots, state, want, name = given
        variables, outputs, _ = self._scan((spec, parameters, inputs, lengths, slots, state))
        costs = next(loss for loss in (BINARY, CATEGORICAL) if loss.kernel == name).nats(outputs, targets, mask)
        found = gradients_of([costs], variables, [torch.full_like(costs, 1 / costs.shape[1])])
        return costs, found[0], ScanState(*found[2:]) if want else None, None


DRAWS = 8
MOST = 20.0
"""How many times beyond a limit rounding may take a machine of the suite. The most seen is 11."""


class Moved(InTorch):
    """The reference on arguments that are moved by at most a rounding of float32, to be run in float64: what a backend
    in float32 may be off by, however well it computes."""

    def __init__(self, draw: int) -> None:
        self._draw = draw

    def _given(self, spec: ScanSpec, *given: Any) -> tuple[Any, ...]:
        parameters, inputs, lengths, slots, state = given
        generator = torch.Generator().manual_seed(self._draw)

        def moved(part: Tensor) -> Tensor:
            draws = torch.rand(part.shape, generator=generator, dtype=part.dtype)
            return part * (1 + (2 * draws - 1) * 2.0**-24)

        return spec, moved(parameters), moved(inputs), lengths, slots, ScanState(*map(moved, state))


def quantity(name: str) -> tuple[str, str]:
    """What is measured several times, such as the gradient of the memory by either loss."""
    parts = name.split(".")
    return parts[0], parts[-1]


def conditions(problem: Problem) -> dict[tuple[str, str], float]:
    """How many times beyond the limit of float32 the rounding of the arguments takes each quantity alone, or 1."""
    found = [errors(InTorch(), problem, torch.float32, CPU)]
    found += [errors(Moved(draw), problem, torch.float64, CPU) for draw in range(DRAWS)]
    most: dict[tuple[str, str], float] = {}
    for name, value in ((name, value) for one in found for name, value in one.items()):
        beyond = value / limit(name, torch.float32)
        assert beyond <= MOST, (
            f"rounding takes {name} of this machine {beyond:.3g} times beyond its limit: draw another"
        )
        most[quantity(name)] = max(1.0, beyond, most.get(quantity(name), 1.0))
    return most


def assert_close(backend: Any, problem: Problem, dtype: torch.dtype, device: torch.device) -> None:
    """A quantity of an ill-conditioned machine may be further off than its limit, in either type, by as many times as
    the rounding of the arguments takes it there, or that of the reference in float32 (docs/reliability.md)."""
    found = errors(backend, problem, dtype, device)
    too_large = wrong(found, dtype)
    if too_large:
        most = conditions(problem)
        allowed = {name: most[quantity(name)] * limit(name, dtype) for name in too_large}
        too_large = {name: value for name, value in too_large.items() if not value <= allowed[name]}
    assert not too_large, f"{too_large} for {problem.spec}, tape {problem.state.memory.shape}, {dtype}"


def check(case: Case) -> None:
    on_gpu = torch.cuda.is_available()
    spec, problem, in_cuda, limit, blocks = drawn(case, small=not on_gpu)
    with poisoned():
        if dispatch.fused("cpu").refusal(spec, torch.float32, CPU) is None:
            for dtype in FLOATS:
                assert_close(dispatch.fused("cpu"), problem, dtype, CPU)
                assert_empty_batch(dispatch.fused("cpu"), problem, dtype, CPU)
        if on_gpu:
            check_cuda(in_cuda, torch.device("cuda"))
        elif cuda_on_cpu.COMPILER is not None:
            with emulated(blocks, limit):
                check_cuda(in_cuda, CPU)
    for part in (problem, in_cuda):  # no backend writes to what it is given
        assert all(bool(torch.isfinite(value).all()) for _, value in leaves(part.state))


def check_cuda(problem: Problem, device: torch.device) -> None:
    if gpu.Plan(problem.spec, problem.state.memory.shape[-2], gpu._shared_limit(device)).refusal() is None:
        assert_close(gpu, problem, torch.float32, device)
        assert_empty_batch(gpu, problem, torch.float32, device)


@contextlib.contextmanager
def emulated(blocks: int, limit: int) -> Iterator[None]:
    """The GPU's kernels on the CPU, on a device with so much shared memory; loaded once for each machine."""
    with cuda_on_cpu.emulated(blocks), contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(gpu, "_shared_limit", return_value=limit))
        stack.enter_context(mock.patch.object(gpu, "_kernels", functools.cache(gpu._kernels)))
        yield


FAULT = Fault(
    number=8,
    title="random machines on every fused backend: the CPU kernel, and the CUDA source by emulation",
    promise="every output, state, trace, cost and gradient agrees with the reference in float64",
    counted="machines",
    full=500,
    quick=5,
    chunk=25,
    check=check,
    needs=("numba",),
)
