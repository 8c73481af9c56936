"""The gate: every fused backend against the reference in float64: outputs, state, gradients, trace, training step.

How errors are measured, and how large they may be: scan_problems.py. Random machines: soak/faults/parity.py.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from scan_problems import (
    FLOATS,
    SMALL,
    Problem,
    assert_one_slot_is_exact,
    assert_slots_of_one_entry_are_exact,
    error,
    errors,
    make_problem,
    poisoned,
    small,
    wrong,
)
from torch import Tensor

from tapehead.kernels import dispatch
from tapehead.kernels.ntm_scan import reference
from tapehead.kernels.ntm_scan.contract import FusedBackend, ScanState
from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.losses import CATEGORICAL

BACKENDS = [
    "cpu",
    pytest.param(
        "gpu",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]
DEVICES = {"cpu": torch.device("cpu"), "gpu": torch.device("cuda")}


def check(name: str, problem: Problem, dtype: torch.dtype) -> None:
    found = errors(dispatch.fused(name), problem, dtype, DEVICES[name])
    too_large = wrong(found, dtype)
    assert not too_large, f"{too_large} for {problem.spec}"


def supported(name: str, dtype: torch.dtype) -> None:
    reason = dispatch.fused(name).refusal(SMALL, dtype, DEVICES[name])
    if reason is not None:
        pytest.skip(reason)


# Name -> machine and shape: one odd thing at a time, then several.
CASES: dict[str, tuple[ScanSpec, dict[str, Any]]] = {
    "plain": (SMALL, dict(steps=5)),
    "default machine": (ScanSpec(input_size=9, output_size=8), dict(steps=11, tape=128, ragged=False)),
    "one step": (SMALL, dict(steps=1)),
    "one slot": (SMALL, dict(tape=1, steps=4)),
    "two slots, range 2": (small(shift_range=2), dict(tape=2)),
    "13 slots": (SMALL, dict(tape=13, steps=20)),
    "width 1": (small(memory_width=1), dict()),
    "width 20": (small(memory_width=20), dict(tape=37)),
    "2 read, 3 write heads": (small(read_heads=2, write_heads=3), dict(steps=9)),
    "4 read heads": (small(read_heads=4), dict()),
    "no write gate, 2 write heads, read first": (small(write_heads=2, order="read_then_write"), dict()),
    "2 layers": (small(controller_layers=2), dict()),
    "3 layers": (small(controller_layers=3), dict(seeds=3)),
    "feedforward": (small(controller="feedforward"), dict()),
    "feedforward, 3 layers": (small(controller="feedforward", controller_layers=3), dict(steps=9)),
    "scalar shift": (small(shift="scalar", shift_range=2), dict(tape=7)),
    "scalar shift, range 3, 2 slots": (small(shift="scalar", shift_range=3), dict(tape=2)),
    "no shift": (small(shift_range=0), dict()),
    "read first": (small(order="read_then_write"), dict(steps=10)),
    "linear key, linear add": (small(key_activation="linear", add_activation="linear"), dict()),
    "sigmoid add": (small(add_activation="sigmoid"), dict()),
    "output from hidden": (small(output_from="hidden"), dict()),
    "write gate": (small(write_gate=True, write_heads=2), dict()),
    "clip": (small(interface_clip=0.7), dict()),
    "many sequences": (SMALL, dict(seeds=3, batch=19, steps=9)),
    "wide controller": (small(controller_size=33, output_size=11, input_size=1), dict(batch=5)),
    "all at once": (
        small(
            read_heads=2,
            write_heads=3,
            controller_layers=2,
            shift="scalar",
            shift_range=2,
            order="read_then_write",
            write_gate=True,
            interface_clip=2.0,
            key_activation="linear",
            add_activation="sigmoid",
            output_from="hidden",
        ),
        dict(seeds=3, batch=4, steps=9, tape=13),
    ),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_agrees_with_the_reference(backend: str, case: str, dtype: torch.dtype) -> None:
    supported(backend, dtype)
    spec, shape = CASES[case]
    with poisoned():
        check(backend, make_problem(spec, **shape), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_slot_is_exact(backend: str, dtype: torch.dtype) -> None:
    supported(backend, dtype)
    assert_one_slot_is_exact(dispatch.fused(backend), dtype, DEVICES[backend])


@pytest.mark.parametrize("backend", BACKENDS)
def test_slots_of_one_entry_are_exact(backend: str) -> None:
    """The gradient of an initial memory was off by 1.1 %, where a row was 3e-7."""
    supported(backend, torch.float32)
    assert_slots_of_one_entry_are_exact(dispatch.fused(backend), DEVICES[backend])


# Name -> what is made extreme.
EXTREMES: dict[str, dict[str, Any]] = {
    "zero parameters": dict(scale=0.0),
    "zero memory": dict(memory_scale=0.0),
    "memory of the default start, 1e-6": dict(memory_scale=1e-6),
    "memory of 1e4": dict(memory_scale=1e4),
    "memory of 1e19, whose squares overflow": dict(memory_scale=1e19),
    "raw interface of +-1e4": dict(interface=1e4),
    "raw interface of +-100: strengths and sharpenings of 100": dict(interface=1e2),
}


@pytest.mark.parametrize(
    "spec", [SMALL, small(key_activation="linear", shift="scalar", write_heads=2)], ids=["soft", "scalar"]
)
@pytest.mark.parametrize("tape", [1, 13])
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_extremes_are_finite_and_weightings_sum_to_one(backend: str, extreme: str, tape: int, spec: ScanSpec) -> None:
    kernel, device = dispatch.fused(backend), DEVICES[backend]
    options = dict(EXTREMES[extreme])
    size = options.pop("interface", None)
    problem = make_problem(spec, steps=6, tape=tape, ragged=False, **options)
    if size is not None:  # biases of the interface far out, on either side
        bias = spec.split_parameters(problem.parameters)["interface.bias"]
        bias.copy_(size * torch.sign(torch.randn(bias.shape, generator=torch.Generator().manual_seed(1))))
    arguments = problem.arguments(torch.float32, device)
    with poisoned():
        outputs, final, kept = kernel.forward(*arguments, keep=True)
        d_final = ScanState(*(d.to(device, torch.float32) for d in problem.d_final))
        gradients = kernel.backward(*arguments, kept, problem.d_outputs.to(device, torch.float32), d_final)
    for tensor in (outputs, *final, gradients[0], gradients[1], *gradients[2]):
        assert torch.isfinite(tensor).all()
    for weightings in (final.read_weightings, final.write_weightings):
        torch.testing.assert_close(weightings.sum(-1), torch.ones_like(weightings[..., 0]), rtol=0, atol=1e-6)
    truth, _, _ = reference.scan(*problem.arguments(torch.float64, torch.device("cpu")))
    if "1e4" not in extreme or "memory" in extreme:  # a softmax of 1e4 jumps where float32 cannot tell two slots apart
        assert error(outputs, truth) < 1e-4


def with_logits(logits: Tensor) -> tuple[Any, ...]:
    """A machine of one step whose logits are these [O]: biases of its outputs, all other parameters being zero."""
    problem = make_problem(small(output_size=logits.numel()), steps=1, batch=1, scale=0.0, ragged=False)
    problem.spec.split_parameters(problem.parameters)["output.bias"].copy_(logits)
    return problem.arguments(torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("outputs", [1, 2, 9, 40, 3000])
@pytest.mark.parametrize("backend", BACKENDS)
def test_categorical_loss_of_extreme_logits(backend: str, outputs: int) -> None:
    """Logits of +-1e4, and costs from 1e-4 to 2e4, have all digits of float32. Errors seen: 5.4e-8."""
    kernel, device = dispatch.fused(backend), DEVICES[backend]
    generator = torch.Generator().manual_seed(outputs)
    for low, high, answer in ((-1e4, 1e4, 0), (-1e4, 1e4, -1), (-9.0, 0.0, -1), (0.0, 0.0, 0), (1e4, 1e4, 0)):
        logits = torch.linspace(low, high, outputs).round()
        logits = logits if outputs < 9 else logits + torch.randint(-3, 4, (outputs,), generator=generator)
        spec, parameters, inputs, *rest = with_logits(logits)
        targets = torch.zeros(1, 1, 1, outputs)
        targets[..., answer] = 1
        exact = logits.double().reshape(1, 1, 1, -1).requires_grad_()
        cost = CATEGORICAL.nats(exact, targets.double(), torch.ones(1, 1, 1))
        (slope,), cost = torch.autograd.grad(cost.sum(), exact), cost.detach()
        state = ScanState(*(part.to(device) for part in rest[2]))
        given = (parameters, inputs, targets, torch.ones(1, 1, 1), *rest[:2])
        learned = kernel.loss_and_gradient(spec, *(part.to(device) for part in given), state, False, "categorical")
        found = spec.split_parameters(learned.gradient)["output.bias"].cpu().double()
        assert abs(float(learned.costs) - float(cost)) <= 2e-7 * float(cost)
        assert float((found.flatten() - slope.flatten()).norm()) <= 2e-7


@pytest.mark.parametrize("loss", ["binary", "categorical"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_counts_where_its_mask_is_not_zero(backend: str, loss: str) -> None:
    """Whatever else the mask is there; and where it is zero, the targets may be anything."""
    kernel, device = dispatch.fused(backend), DEVICES[backend]
    problem = make_problem(SMALL, steps=7, batch=3)
    spec, parameters, inputs, *rest = problem.arguments(torch.float32, device)
    targets, mask = problem.targets.float().to(device), problem.mask.to(device)
    assert mask.any()
    assert not mask.all()

    def learned(mask: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return kernel.loss_and_gradient(spec, parameters, inputs, targets, mask, *rest, False, loss)[:2]

    expected = learned(mask.float(), targets)
    odd = torch.tensor([0.5, 2.0, -1.0, 1e-40, torch.inf, torch.nan], device=device)
    odd = odd[torch.arange(mask.numel(), device=device) % 6].reshape(mask.shape)
    for other in (
        torch.where(mask != 0, odd, 0.0),
        1e-300 * mask.double(),
        mask.bool(),
        -mask.int(),
    ):
        for ours, truth in zip(learned(other, targets), expected, strict=True):
            assert torch.equal(ours, truth)
    noise = torch.where(mask.unsqueeze(-1) != 0, targets, torch.nan)
    for ours, truth in zip(learned(mask.float(), noise), expected, strict=True):
        assert torch.equal(ours, truth)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_stays_in_its_sequence(backend: str) -> None:
    kernel, device = dispatch.fused(backend), DEVICES[backend]
    problem = make_problem(SMALL, seeds=2, steps=5, batch=6, ragged=False)
    clean = kernel.forward(*problem.arguments(torch.float32, device), keep=False)
    problem.inputs[1, 2, 3, 0] = float("nan")
    arguments = problem.arguments(torch.float32, device)
    outputs, final, kept = kernel.forward(*arguments, keep=True)
    d_final = ScanState(*(d.to(device, torch.float32) for d in problem.d_final))
    d_parameters, d_inputs, _ = kernel.backward(*arguments, kept, problem.d_outputs.to(device, torch.float32), d_final)
    assert outputs[1, 2:, 3].isnan().all()
    assert final.memory[1, 3].isnan().all()
    assert d_parameters[1].isnan().any()
    assert d_inputs[1, 0, 3].isnan().any()
    assert torch.isfinite(d_parameters[0]).all()
    healthy = torch.ones(2, 6, dtype=torch.bool)
    healthy[1, 3] = False
    for value, before in zip((outputs.transpose(1, 2), *final), (clean[0].transpose(1, 2), *clean[1]), strict=True):
        assert torch.equal(value[healthy], before[healthy])
    assert torch.isfinite(d_inputs.transpose(1, 2)[healthy]).all()


def _everything(
    kernel: FusedBackend, problem: Problem, seeds: slice = slice(None), batch: slice = slice(None)
) -> list[Tensor]:
    """All that a backend computes in float32 for some seeds and sequences of a problem."""
    spec, parameters, inputs, lengths, slots, state = problem.arguments(torch.float32, torch.device("cpu"))
    part = (spec, parameters[seeds], inputs[seeds, :, batch], lengths[seeds, batch], slots[seeds, batch])
    part += (ScanState(*(x[seeds, batch] for x in state)),)
    outputs, final, kept = kernel.forward(*part, keep=True)
    d_outputs = problem.d_outputs[seeds, :, batch].float()
    d_final = ScanState(*(d[seeds, batch].float() for d in problem.d_final))
    d_parameters, d_inputs, d_state = kernel.backward(*part, kept, d_outputs, d_final)
    targets, mask = problem.targets[seeds, :, batch].float(), problem.mask[seeds, :, batch].float()
    costs, gradient, *_ = kernel.loss_and_gradient(*part[:3], targets, mask, *part[3:], False, "binary")
    symbols = problem.symbols[seeds, :, batch].float()
    learned = kernel.loss_and_gradient(*part[:3], symbols, mask, *part[3:], False, "categorical")
    return [outputs, *final, d_parameters, d_inputs, *d_state, learned.costs, learned.gradient, costs, gradient]


@pytest.fixture
def thread_count() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("thread_count")
def test_bits_depend_neither_on_threads_nor_on_other_seeds() -> None:
    """The control shows that the comparison can fail: another batch is cut into other groups, and bits differ."""
    kernel = dispatch.fused("cpu")
    problem = make_problem(small(controller_size=33), seeds=4, batch=9, steps=12, tape=17)
    torch.set_num_threads(1)
    alone = _everything(kernel, problem)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        for value, expected in zip(_everything(kernel, problem), alone, strict=True):
            assert torch.equal(value, expected)
    for value, expected in zip(_everything(kernel, problem, seeds=slice(2, 3)), alone, strict=True):
        assert torch.equal(value, expected[2:3])
    half = _everything(kernel, problem, batch=slice(0, 5))[-1] * 5
    other_half = _everything(kernel, problem, batch=slice(5, 9))[-1] * 4
    mean = (half + other_half) / 9
    assert not torch.equal(mean, alone[-1])
    assert error(mean, alone[-1].double()) < 1e-5


def test_a_sequences_bits_do_not_depend_on_how_long_the_others_are() -> None:
    """Rows of a group are computed two at a time; a row whose neighbours have ended is computed alone."""
    kernel = dispatch.fused("cpu")
    for inputs in (1, 12):  # columns of the controller's weights that fill vectors, and some that do not
        problem = make_problem(small(controller_size=19, input_size=inputs), seeds=1, batch=16, steps=9, tape=17)
        spec, parameters, x, lengths, slots, state = problem.arguments(torch.float32, torch.device("cpu"))
        d_outputs = problem.d_outputs.float()
        d_final = ScanState(*(d.float() for d in problem.d_final))
        seen = []
        for others in (1, 4, 9):
            lengths = torch.full_like(lengths, others)
            lengths[:, ::4] = 9  # the first of each group
            outputs, final, kept = kernel.forward(spec, parameters, x, lengths, slots, state, keep=True)
            given = (spec, parameters, x, lengths, slots, state, kept, d_outputs, d_final)
            _, d_inputs, d_state = kernel.backward(*given)
            seen.append([part[:, ::4] for part in (*final, *d_state)] + [outputs[:, :, ::4], d_inputs[:, :, ::4]])
        for other in seen[1:]:
            for value, expected in zip(other, seen[0], strict=True):
                assert torch.equal(value, expected)


def test_padding_and_chunks_change_nothing_but_rounding() -> None:
    """A sequence alone, among longer ones, and in two pieces."""
    kernel = dispatch.fused("cpu")
    problem = make_problem(SMALL, batch=3, steps=11, tape=13)
    spec, parameters, inputs, lengths, slots, state = problem.arguments(torch.float64, torch.device("cpu"))
    outputs, final, _ = kernel.forward(spec, parameters, inputs, lengths, slots, state, keep=False)
    for b in range(3):
        length, row = int(lengths[0, b]), slice(b, b + 1)
        one, carried = [], ScanState(*(part[:, row] for part in state))
        for begin, end in ((0, length // 2), (length // 2, length)):
            if begin == end:
                continue
            piece = inputs[:, begin:end, row]
            y, carried, _ = kernel.forward(
                spec, parameters, piece, torch.full((1, 1), end - begin), slots[:, row], carried, keep=False
            )
            one.append(y)
        if one:
            torch.testing.assert_close(torch.cat(one, 1), outputs[:, :length, row], rtol=1e-12, atol=1e-12)
        for value, expected in zip(carried, final, strict=True):
            torch.testing.assert_close(value, expected[:, row], rtol=1e-12, atol=1e-12)


def test_wrong_counts_are_refused() -> None:
    kernel = dispatch.fused("cpu")
    spec, parameters, inputs, lengths, slots, state = make_problem(SMALL).arguments(torch.float32, torch.device("cpu"))
    with pytest.raises(ValueError, match="lengths holds 4, but must lie between 0 and 3"):
        kernel.forward(spec, parameters, inputs, torch.full_like(lengths, 4), slots, state, keep=False)
    with pytest.raises(ValueError, match="slots holds 0, but must lie between 1 and 5"):
        kernel.forward(spec, parameters, inputs, lengths, torch.zeros_like(slots), state, keep=False)


def test_refusals_say_why() -> None:
    kernel = dispatch.fused("cpu")
    assert "float16" in str(kernel.refusal(SMALL, torch.float16, torch.device("cpu")))
    assert "cuda" in str(kernel.refusal(SMALL, torch.float32, torch.device("cuda")))
    assert kernel.refusal(SMALL, torch.float32, torch.device("cpu")) is None


def test_the_record_is_smaller_than_the_memories() -> None:
    """At most 1.5 T N M numbers a sequence at the default machine, copy of length 20."""
    from tapehead.kernels.ntm_scan import cpu

    ratio = cpu.record_size(ScanSpec(input_size=9, output_size=8), 41, 128) / (41 * 128 * 20)
    assert ratio == pytest.approx(0.93, abs=0.01)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_that_is_not_contiguous(backend: str) -> None:
    """The gradient of the start of a training step had the layout of the start, and values in another."""
    problem = make_problem(SMALL, seeds=2, steps=3, batch=3, tape=5)
    state = ScanState(*(part.transpose(0, -1).contiguous().transpose(0, -1) for part in problem.state))
    assert not state.memory.is_contiguous()
    check(backend, dataclasses.replace(problem, state=state), torch.float32)
