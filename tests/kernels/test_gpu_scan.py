"""The GPU scan against the float64 reference: on the CPU, thread by thread, wherever there is a C++ compiler; on a GPU
where there is one. The GPU's own, longer gate is benchmarks/gpu_check.py.
"""

import pytest
import torch
from scan_problems import assert_one_slot_is_exact, assert_slots_of_one_entry_are_exact
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from tapehead.kernels.ntm_scan import gpu, reference
from tapehead.kernels.ntm_scan.contract import ScanState
from tapehead.kernels.ntm_scan.gpu_plan import FEW_THREADS, MOST_THREADS, Plan
from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.losses import BINARY, CATEGORICAL

# Relative norm. Seen: 8e-7 at worst; float32 rounds at 6e-8, and a step has some fifty roundings in a row.
TOLERANCE = 5e-6
SMALL = dict(input_size=3, output_size=2, controller_size=6, memory_width=5)

WIDE = ScanSpec(**SMALL | {"controller_size": 64, "output_size": 9, "memory_width": 3}, read_heads=5, write_heads=4)

# specification, slots of the tape, whether lengths and slots are ragged, bytes of shared memory
CASES: dict[str, tuple[ScanSpec, int, bool, int]] = {
    "plain": (ScanSpec(**SMALL), 16, True, 232448),
    "read first, write gate, clip": (
        ScanSpec(**SMALL, order="read_then_write", write_gate=True, interface_clip=0.5), 9, False, 232448,
    ),
    "feedforward, scalar shift, many heads": (
        ScanSpec(
            **SMALL, controller="feedforward", controller_layers=2, read_heads=2, write_heads=3, shift="scalar",
            shift_range=2, key_activation="linear", add_activation="sigmoid",
        ),
        7, True, 232448,
    ),
    "two layers, weights streamed": (
        ScanSpec(**SMALL, controller_layers=2, shift_range=2, output_from="hidden", add_activation="linear"),
        33, False, 9000,
    ),
    "one slot": (ScanSpec(**SMALL), 1, False, 232448),
    "several slots a thread": (ScanSpec(**SMALL), 600, True, 232448),
    "many threads": (ScanSpec(**SMALL | {"memory_width": 21}), 256, True, 232448),
    "weights in registers and shared": (WIDE, 8, False, 232448),
    "weights in registers, shared and streamed": (WIDE, 8, True, 80000),
}  # fmt: skip


def test_the_cases_have_every_layout_of_the_presets() -> None:
    """So that a change of plan does not take a path away from the tests."""
    plans = [Plan(spec, tape, limit) for spec, tape, _, limit in CASES.values()]
    assert {plan.threads for plan in plans} == {FEW_THREADS, MOST_THREADS}
    products = [product for plan in plans for backward in (False, True) for product in plan.products(backward)]
    assert any(0 < p.in_registers <= p.in_shared and not p.streamed for p in products)
    assert any(p.in_registers and p.in_shared and p.streamed for p in products)
    assert any(plan.slots_per_thread > 1 for plan in plans)
    assert any(plan.spec.output_size > 8 for plan in plans)


def normal(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def draw(spec: ScanSpec, seeds: int, steps: int, batch: int, tape: int) -> tuple[Tensor, Tensor, ScanState]:
    rng = torch.Generator().manual_seed(7)
    layers, c, m = spec.recurrent_layers, spec.controller_size, spec.memory_width
    state = ScanState(
        0.7 * normal(rng, seeds, batch, tape, m),
        torch.softmax(2 * normal(rng, seeds, batch, spec.read_heads, tape), -1),
        torch.softmax(2 * normal(rng, seeds, batch, spec.write_heads, tape), -1),
        0.5 * normal(rng, seeds, batch, spec.read_heads, m),
        0.5 * normal(rng, seeds, batch, layers, c),
        0.5 * normal(rng, seeds, batch, layers, c),
    )
    return 0.4 * normal(rng, seeds, spec.parameter_count), normal(rng, seeds, steps, batch, spec.input_size), state


def assert_close(got: Tensor, want: Tensor | None, name: str) -> None:
    want = torch.zeros_like(got, dtype=torch.float64) if want is None else want
    norm = float(want.norm()) or 1.0
    error = float((got.double() - want).norm()) / norm
    assert error < TOLERANCE, f"{name}: {error:.1e}"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_agrees_with_the_reference(
    case: tuple[ScanSpec, int, bool, int], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, tape, ragged, limit = case
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: limit)
    seeds, steps, batch = 2, 3, 2
    drawn = draw(spec, seeds, steps, batch, tape)
    parameters, inputs, state = (tree_map(lambda part: part.to(device), value) for value in drawn)
    lengths = torch.tensor([[3, 1], [2, 3]] if ragged else [[3, 3], [3, 3]], device=device)
    slots = torch.tensor([[tape, tape // 2 + 1], [1, tape]] if ragged else [[tape] * 2] * 2, device=device)
    leaves = [parameters, inputs, *state]
    for leaf in leaves:
        leaf.requires_grad_(True)
    outputs, final, _ = reference.scan(spec, parameters, inputs, lengths, slots, state)
    rng = torch.Generator().manual_seed(8)
    d_outputs = normal(rng, *outputs.shape).to(device)
    d_final = ScanState(*(normal(rng, *part.shape).to(device) for part in final))
    total = (outputs * d_outputs).sum() + sum((a * b).sum() for a, b in zip(final, d_final, strict=True))
    want = torch.autograd.grad(total, leaves, allow_unused=True, retain_graph=True)

    p, x, s = (tree_map(lambda part: part.detach().float(), value) for value in (parameters, inputs, state))
    d_y, d_f = (tree_map(lambda part: part.float(), value) for value in (d_outputs, d_final))
    y, f, kept = gpu.forward(spec, p, x, lengths, slots, s, True)
    d_p, d_x, d_s = gpu.backward(spec, p, x, lengths, slots, s, kept, d_y, d_f)
    assert_close(y, outputs.detach(), "outputs")
    for name, a, b in zip(ScanState._fields, f, final, strict=True):
        assert_close(a, b.detach(), f"final {name}")
    for name, part in spec.split_parameters(d_p).items():
        assert_close(part, spec.split_parameters(want[0])[name], f"gradient of {name}")
    for name, a, b in zip(("inputs", *ScanState._fields), (d_x, *d_s), want[1:], strict=True):
        assert_close(a, b, f"gradient of {name}")

    bits = (normal(rng, *outputs.shape) > 0).double().to(device)
    mask = (normal(rng, seeds, steps, batch) > -0.5).double().to(device)
    symbols = normal(rng, *outputs.shape).square().to(device)  # weights, which need not sum to one
    for loss, targets in ((BINARY, bits), (CATEGORICAL, symbols)):
        costs = loss.nats(outputs, targets, mask)
        want = torch.autograd.grad(costs.mean(1).sum(), [parameters, *state], allow_unused=True, retain_graph=True)
        cost, gradient, d_state, squares = gpu.loss_and_gradient(
            spec, p, x, targets.float(), mask.float(), lengths, slots, s, state_gradient=True, loss=loss.kernel
        )
        assert d_state is not None
        assert_close(cost, costs.detach(), f"{loss.kernel} costs")
        for name, a, b in zip(("parameters", *ScanState._fields), (gradient, *d_state), want, strict=True):
            assert_close(a, b, f"gradient of the {loss.kernel} cost by {name}")
        assert squares is not None
        assert_close(squares.sum(1), gradient.double().square().sum(1), "squares")


def test_one_slot_is_exact(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """e (1 / e) missed 1 by a rounding, and the gradients that vanish were 1e-7."""
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    assert_one_slot_is_exact(gpu, torch.float32, device)


def test_slots_of_one_entry_are_exact(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    assert_slots_of_one_entry_are_exact(gpu, device)


@pytest.mark.parametrize("size", [30.0, 300.0])
def test_extreme_strengths_take_the_slow_softmax(
    size: float, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strengths and sharpenings of hundreds: exponentials underflow, so the largest exponent must come off.

    They multiply the rounding of cosines and logarithms by their size, so the yardstick is the reference in float32,
    over many machines: at 30, 1.1e-6 here against its 1.0e-6 (root of mean squares).
    """
    spec, seeds = ScanSpec(**SMALL), 24
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    parameters, inputs, state = draw(spec, seeds, 2, 1, 16)
    bias = spec.split_parameters(parameters)["interface.bias"]
    parts = spec.interface.read
    for head in (0, parts.size):
        bias[:, head + parts["strength"].start] = size
        bias[:, head + parts["sharpening"].start] = size
    lengths, slots = torch.full((seeds, 1), 2), torch.full((seeds, 1), 16)
    p, x, s = (tree_map(lambda part: part.float(), value) for value in (parameters, inputs, state))
    exact_inputs = (tree_map(lambda part: part.double(), value) for value in (p, x, s))
    parameters, inputs, state = exact_inputs
    exact = reference.scan(spec, parameters, inputs, lengths, slots, state)[0]
    yardstick = (reference.scan(spec, p, x, lengths, slots, s)[0].double() - exact).norm()
    p, x, s = (tree_map(lambda part: part.to(device), value) for value in (p, x, s))
    y, f, _ = gpu.forward(spec, p, x, lengths.to(device), slots.to(device), s, False)
    assert float((y.cpu().double() - exact).norm()) < 4 * float(yardstick)
    torch.testing.assert_close(f.read_weightings.sum(-1).cpu(), torch.ones(seeds, 1, 1), atol=1e-5, rtol=0)


def test_one_machine_without_its_seed_axis(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers, to the bit: this is what `ntm(x)` runs."""
    spec = ScanSpec(**SMALL)
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    p, x, s = (tree_map(lambda part: part.float().to(device), value) for value in draw(spec, 1, 3, 2, 5))
    counts = (torch.tensor([[3, 1]], device=device), torch.full((1, 2), 5, device=device))
    y, final, kept = gpu.forward(spec, p, x, *counts, s, True)
    gradients = gpu.backward(spec, p, x, *counts, s, kept, y, final)
    x, s, d_final = x[0], ScanState(*(part[0] for part in s)), ScanState(*(part[0] for part in final))
    one_y, one_final, one_kept = gpu.forward(spec, p, x, *counts, s, True, checked=True)
    one = gpu.backward(spec, p, x, *counts, s, one_kept, one_y, d_final)
    torch.testing.assert_close((one_y, one_final), (y[0], d_final), rtol=0, atol=0)
    torch.testing.assert_close(one[0], gradients[0], rtol=0, atol=0)
    torch.testing.assert_close(one[1:], tree_map(lambda part: part[0], gradients[1:]), rtol=0, atol=0)


def test_gradients_that_are_not_wanted_change_nothing(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """No gradient of the final state is zeros; gradients of inputs and start that are not wanted are left out."""
    spec = ScanSpec(**SMALL)
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    drawn = draw(spec, 2, 3, 2, 5)
    p, x, s = (tree_map(lambda part: part.float().to(device), value) for value in drawn)
    lengths, slots = torch.tensor([[3, 1], [2, 3]], device=device), torch.full((2, 2), 5, device=device)
    y, final, kept = gpu.forward(spec, p, x, lengths, slots, s, True)
    zeros = ScanState(*(torch.zeros_like(part) for part in final))
    d_p, d_x, d_s = gpu.backward(spec, p, x, lengths, slots, s, kept, y, zeros)
    for given in ((True, True), (False, True), (True, False), (False, False)):
        less = gpu.backward(spec, p, x, lengths, slots, s, kept, y, None, *given)
        assert torch.equal(less[0], d_p)
        for wanted, found, whole in zip(given, less[1:], (d_x, d_s), strict=True):
            assert (found is not None) == wanted
            if found is not None:
                tree_map(lambda one, other: torch.testing.assert_close(one, other, rtol=0, atol=0), found, whole)


def test_more_steps_than_the_output_layer_takes_at_once(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """And more than a tile of the weight gradient is deep."""
    spec, steps = ScanSpec(**SMALL | {"controller_size": 2, "memory_width": 2}), 67
    assert steps > 2 * gpu.OUTPUT_THREADS // 32
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    drawn = draw(spec, 1, steps, 1, 4)
    lengths, slots = torch.tensor([[steps - 1]], device=device), torch.tensor([[4]], device=device)
    parameters, inputs, state = (tree_map(lambda part: part.to(device), value) for value in drawn)
    p, x, s = (tree_map(lambda part: part.float(), value) for value in (parameters, inputs, state))
    wanted, _, _ = reference.scan(spec, parameters.requires_grad_(), inputs, lengths, slots, state)
    y, _, _ = gpu.forward(spec, p, x, lengths, slots, s, False)
    assert_close(y, wanted.detach(), "outputs")
    targets, mask = torch.ones_like(y), torch.ones(1, steps, 1, device=device)
    costs, gradient, _, squares = gpu.loss_and_gradient(
        spec, p, x, targets, mask, lengths, slots, s, state_gradient=False, loss="binary"
    )
    all_of_it = F.binary_cross_entropy_with_logits(wanted, targets.double(), reduction="sum")
    assert_close(costs, all_of_it.detach().reshape(1, 1), "cost")
    (exact,) = torch.autograd.grad(all_of_it, parameters)
    assert_close(gradient, exact, "gradient")
    assert squares is not None
    assert_close(squares.sum(1), exact.square().sum(1), "squares")


def test_many_sequences_are_summed_in_chunks(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The squares of the parts say nothing of their sum then, and are left to the update."""
    spec, batch = ScanSpec(**SMALL | {"controller_size": 2, "memory_width": 2}), 64
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    parameters, inputs, state = (
        tree_map(lambda part: part.to(device), value) for value in draw(spec, 1, 2, batch, 4)
    )  # fmt: skip
    lengths, slots = torch.full((1, batch), 2, device=device), torch.full((1, batch), 4, device=device)
    p, x, s = (tree_map(lambda part: part.float(), value) for value in (parameters, inputs, state))
    wanted, _, _ = reference.scan(spec, parameters.requires_grad_(), inputs, lengths, slots, state)
    targets, mask = torch.ones_like(wanted), torch.ones(1, 2, batch, device=device)
    cost = F.binary_cross_entropy_with_logits(wanted, targets, reduction="sum") / batch
    (exact,) = torch.autograd.grad(cost, parameters)
    learned = gpu.loss_and_gradient(
        spec, p, x, targets.float(), mask, lengths, slots, s, state_gradient=False, loss="binary"
    )
    assert_close(learned.gradient, exact, "gradient")
    assert learned.squares is None


@pytest.mark.parametrize("outputs", [2, 40])
def test_categorical_loss_of_extreme_logits(
    outputs: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits of +-1e4, and costs from 1e-4 to 2e4. Errors seen: 2.6e-8."""
    spec = ScanSpec(**SMALL | {"output_size": outputs})
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    p, x, s = (tree_map(lambda part: part.to(device).float(), value) for value in draw(spec, 1, 1, 1, 16))
    counts = torch.ones(1, 1, dtype=torch.int64, device=device)
    for low, high, answer in ((-1e4, 1e4, 0), (-1e4, 1e4, -1), (-9.0, 0.0, -1), (0.0, 0.0, 0)):
        logits = torch.linspace(low, high, outputs).round().to(device)
        parameters = torch.zeros_like(p)
        spec.split_parameters(parameters)["output.bias"].copy_(logits)
        targets = torch.zeros(1, 1, 1, outputs, device=device)
        targets[..., answer] = 1
        mask = torch.ones(1, 1, 1, device=device)
        exact = logits.double().reshape(1, 1, 1, -1).requires_grad_()
        cost = CATEGORICAL.nats(exact, targets.double(), mask)
        (slope,), cost = torch.autograd.grad(cost.sum(), exact), cost.detach()
        given = (spec, parameters, x, targets, mask, counts, 16 * counts, s)
        learned = gpu.loss_and_gradient(*given, state_gradient=False, loss="categorical")
        found = spec.split_parameters(learned.gradient)["output.bias"].double()
        assert abs(float(learned.costs) - float(cost)) <= 2e-7 * float(cost)
        assert float((found.flatten() - slope.flatten()).norm()) <= 2e-7


@pytest.mark.parametrize("loss", ["binary", "categorical"])
def test_a_step_counts_where_its_mask_is_not_zero(
    loss: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ScanSpec(**SMALL)
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    p, x, s = (tree_map(lambda part: part.to(device).float(), value) for value in draw(spec, 1, 7, 1, 16))
    lengths, slots = torch.full((1, 1), 6, device=device), torch.full((1, 1), 16, device=device)
    targets = torch.ones(1, 7, 1, 2, device=device)

    def learned(mask: Tensor) -> tuple[Tensor, ...]:
        given = (spec, p, x, targets, mask, lengths, slots, s)
        return gpu.loss_and_gradient(*given, state_gradient=False, loss=loss)[:2]

    odd = torch.tensor([0.5, 2.0, 0.0, -1.0, 1e-40, torch.nan, 3.0], device=device).reshape(1, 7, 1)
    expected = learned((odd != 0).float())
    for mask in (odd, odd != 0, 1e-300 * (odd != 0).double()):
        for ours, truth in zip(learned(mask), expected, strict=True):
            assert torch.equal(ours, truth)


def test_nan_reaches_cost_and_gradient(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the seed and sequence where it is, and in no other."""
    spec = ScanSpec(**SMALL)
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    p, x, s = (tree_map(lambda part: part.to(device).float(), value) for value in draw(spec, 2, 2, 2, 8))
    s.memory[1, 0, 3, 2] = torch.nan
    lengths, slots = torch.full((2, 2), 2, device=device), torch.full((2, 2), 8, device=device)
    targets, mask = torch.zeros(2, 2, 2, 2, device=device), torch.ones(2, 2, 2, device=device)
    costs, gradient, _, squares = gpu.loss_and_gradient(
        spec, p, x, targets, mask, lengths, slots, s, state_gradient=False, loss="binary"
    )
    assert torch.isnan(costs).tolist() == [[False, False], [True, False]]
    assert torch.isfinite(gradient[0]).all()
    assert torch.isnan(gradient[1]).any()
    assert squares is not None
    assert torch.isfinite(squares).all(1).tolist() == [True, False]


def test_squares_say_that_a_cost_is_not_finite(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the gradient is finite."""
    spec = ScanSpec(**SMALL)
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    p, x, s = (tree_map(lambda part: part.to(device).float(), value) for value in draw(spec, 2, 2, 2, 8))
    lengths, slots = torch.full((2, 2), 1, device=device), torch.full((2, 2), 8, device=device)
    targets, mask = torch.zeros(2, 2, 2, 2, device=device), torch.ones(2, 2, 2, device=device)
    targets[1, 1, 1, 0] = torch.nan  # past the sequence's end: a cost, and no gradient
    costs, gradient, _, squares = gpu.loss_and_gradient(
        spec, p, x, targets, mask, lengths, slots, s, state_gradient=False, loss="binary"
    )
    assert torch.isfinite(costs).tolist() == [[True, True], [True, False]]
    assert torch.isfinite(gradient).all()
    assert squares is not None
    assert torch.isfinite(squares).all(1).tolist() == [True, False]


def test_a_seed_alone_and_among_others_gives_the_same_bits(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ScanSpec(**SMALL)
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    p, x, s = (tree_map(lambda part: part.to(device).float(), value) for value in draw(spec, 3, 2, 2, 8))
    lengths, slots = torch.full((3, 2), 2, device=device), torch.full((3, 2), 8, device=device)
    targets, mask = torch.zeros(3, 2, 2, 2, device=device), torch.ones(3, 2, 2, device=device)
    among = gpu.loss_and_gradient(spec, p, x, targets, mask, lengths, slots, s, state_gradient=False, loss="binary")
    one = slice(1, 2)
    alone = gpu.loss_and_gradient(
        spec, p[one], x[one], targets[one], mask[one], lengths[one], slots[one],
        ScanState(*(part[one] for part in s)), state_gradient=False, loss="binary",
    )  # fmt: skip
    assert torch.equal(alone[0], among[0][one])
    assert torch.equal(alone[1], among[1][one])
    assert alone.squares is not None
    assert among.squares is not None
    assert torch.equal(alone.squares, among.squares[one])


def test_an_empty_batch_launches_nothing(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA refuses a grid without blocks; the gradient of nothing is zero."""
    spec = ScanSpec(**SMALL)
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    p, x, s = (tree_map(lambda part: part.to(device).float(), value) for value in draw(spec, 2, 3, 0, 8))
    counts = torch.ones(2, 0, dtype=torch.int64, device=device)
    launched, kernels = [], gpu._kernels

    class Recording:
        def launch(self, name: str, grid: tuple[int, ...], *rest: object, urgent: bool) -> None:
            assert 0 not in grid, name
            launched.append(name)
            kernels(plan, device).launch(name, grid, *rest, urgent=urgent)

    plan = gpu._plan(spec, 8, device)
    monkeypatch.setattr(gpu, "_kernels", lambda plan, device: Recording())
    y, final, kept = gpu.forward(spec, p, x, counts, counts, s, True)
    assert y.shape == (2, 3, 0, 2)
    d_p, d_x, _ = gpu.backward(spec, p, x, counts, counts, s, kept, y, final)
    assert not d_p.any()
    assert d_x.shape == x.shape
    assert launched == ["ntm_gradient"]
