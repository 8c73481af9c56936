"""The GPU's optimiser step against the reference's: on the CPU, thread by thread, and on a GPU where there is one."""

import pytest
import torch

from tapehead.kernels.update import gpu, reference
from tapehead.kernels.update.contract import Clip, UpdateRule, UpdateState
from tapehead.kernels.update.optimisers import Adam, Graves, Optimiser

SEEDS = 5  # with an odd size they begin at every remainder of four


@pytest.mark.parametrize(("size", "average"), [(3 * gpu.PART, 0.9), (2 * gpu.PART - 1, 0.0), (gpu.PART + 2, 0.9)])
@pytest.mark.parametrize("optimiser", [Graves(), Adam()], ids=["graves", "adam"])
@pytest.mark.parametrize("clip", ["none", "elementwise", "norm"])
def test_agrees_with_the_reference_and_skips_what_is_not_finite(
    optimiser: Optimiser, clip: Clip, size: int, average: float, device: torch.device
) -> None:
    rule = UpdateRule(optimiser, clip, clip_at=0.5, average=average)
    start, gradients, costs = draw(size, device)
    ours, exact = UpdateState(rule, start.clone()), UpdateState(rule, start.double())
    rates = rates_on(device)
    for step, gradient in enumerate(gradients):
        if step == 2:
            gradient[1, 7 * size // 10] = torch.inf
            costs[2, 1] = torch.nan
        else:
            costs[2, 1] = 1.0
        skipped = gpu.update(rule, ours, gradient, costs, rates)
        wanted = reference.update(rule, exact, gradient.double(), costs.double(), rates.double())
        assert torch.equal(skipped, wanted)
        assert skipped.tolist() == [step == 2 and seed in (1, 2) for seed in range(SEEDS)]
    for name, tensor in ours.tensors(rule).items():
        error = (tensor.double() - exact.tensors(rule)[name].double()).abs().max()
        assert error < 1e-6, name  # seen: 5e-7, of values up to 4


@pytest.mark.parametrize("size", [1, 3, gpu.PART - 3, gpu.PART - 2, gpu.PART - 1, gpu.PART, gpu.PART + 1, gpu.PART + 2])
@pytest.mark.parametrize("optimiser", [Graves(), Adam()], ids=["graves", "adam"])
def test_a_seed_alone_is_the_seed_among_others(optimiser: Optimiser, size: int, device: torch.device) -> None:
    rule = UpdateRule(optimiser, "norm", clip_at=0.5, average=0.9)
    start, gradients, costs = draw(size, device)
    everyone, rates = UpdateState(rule, start.clone()), rates_on(device)
    alone = [UpdateState(rule, start[seed : seed + 1].clone()) for seed in range(SEEDS)]
    for gradient in gradients:
        gpu.update(rule, everyone, gradient, costs, rates)
        for seed, state in enumerate(alone):  # a gradient that does not begin at 16 bytes is taken too
            gpu.update(rule, state, gradient[seed : seed + 1], costs[seed : seed + 1], rates[seed : seed + 1])
    for seed, state in enumerate(alone):
        for name, tensor in state.tensors(rule).items():
            assert torch.equal(tensor, everyone.tensors(rule)[name][seed : seed + 1]), name


def test_other_tensors_and_another_rule_are_noticed(device: torch.device) -> None:
    """What rule and state decide is kept from update to update, as long as they are the same."""
    first, second = UpdateRule(Graves(), "elementwise", clip_at=0.5), UpdateRule(Graves(), "none")
    start, gradients, costs = draw(5, device)
    ours, exact, rates = UpdateState(first, start.clone()), UpdateState(first, start.clone()), rates_on(device)
    for rule, gradient in zip((first, first, second), gradients, strict=False):
        gpu.update(rule, ours, gradient, costs, rates)
        reference.update(rule, exact, gradient, costs, rates)
        old = [ours.parameters, *ours.moments]
        ours.parameters, ours.moments = ours.parameters.clone(), [moment.clone() for moment in ours.moments]
        for tensor in old:
            tensor.fill_(torch.nan)
    assert ours.seen[0] is second
    for name, tensor in ours.tensors(second).items():
        assert torch.allclose(tensor, exact.tensors(second)[name], rtol=0, atol=1e-6), name


@pytest.mark.parametrize("clip", ["none", "elementwise"])
def test_a_nan_that_nobody_looked_for_is_carried_on(clip: Clip, device: torch.device) -> None:
    """With `squares` from outside nothing is skipped, and clipping makes no number of a NaN."""
    rule = UpdateRule(Graves(), clip, clip_at=0.5)
    start, gradients, costs = draw(gpu.PART + 2, device)
    ours, exact = UpdateState(rule, start.clone()), UpdateState(rule, start.clone())
    gradient = gradients[0].clone()
    gradient[3, 5] = torch.nan
    squares = torch.zeros(SEEDS, 1, device=device)
    assert not gpu.update(rule, ours, gradient, costs, rates_on(device), squares).any()
    gpu.update(rule, exact, gradients[0], costs, rates_on(device), squares)
    expected = exact.parameters.clone()
    expected[3, 5] = torch.nan
    torch.testing.assert_close(ours.parameters, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("optimiser", [Graves(), Adam()], ids=["graves", "adam"])
@pytest.mark.parametrize("clip", ["elementwise", "norm"])
def test_squares_that_are_known_are_taken(optimiser: Optimiser, clip: Clip, device: torch.device) -> None:
    """Those of a half of the gradient each; a seed with a NaN among them is skipped, though its gradient is finite."""
    rule = UpdateRule(optimiser, clip, clip_at=0.5)
    start, gradients, costs = draw(gpu.PART + 2, device)
    ours, exact = UpdateState(rule, start.clone()), UpdateState(rule, start.double())
    rates = rates_on(device)
    for step, gradient in enumerate(gradients):
        squares = gradient.square().unflatten(1, (2, -1)).sum(2)
        if step == 2:
            squares[3, 1] = torch.nan
        skipped = gpu.update(rule, ours, gradient, costs, rates, squares)
        told = costs.double().index_fill(0, torch.tensor([3], device=device), torch.nan if step == 2 else 1.0)
        assert torch.equal(skipped, reference.update(rule, exact, gradient.double(), told, rates.double()))
        assert skipped.tolist() == [step == 2 and seed == 3 for seed in range(SEEDS)]
    for name, tensor in ours.tensors(rule).items():
        error = (tensor.double() - exact.tensors(rule)[name].double()).abs().max()
        assert error < 1e-6, name


def test_a_state_that_begins_elsewhere_is_refused(device: torch.device) -> None:
    rule = UpdateRule(clip="none")
    start, gradients, costs = draw(33, device)
    state = UpdateState(rule, start).part(slice(1, SEEDS))
    with pytest.raises(ValueError, match="begin at 16 bytes"):
        gpu.update(rule, state, gradients[0][1:], costs[1:], rates_on(device)[1:])


def draw(size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights [SEEDS, size], four gradients of them, and costs [SEEDS, 2]."""
    rng = torch.Generator().manual_seed(size)
    drawn = torch.randn(5, SEEDS, size, generator=rng).to(device)
    return drawn[0], drawn[1:], torch.rand(SEEDS, 2, generator=rng).to(device)


def rates_on(device: torch.device) -> torch.Tensor:
    """A rate of its own for every seed, [SEEDS]."""
    return torch.linspace(2e-3, 1e-2, SEEDS, device=device)
