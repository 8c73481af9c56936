"""`RMSpropGraves` on the fused update: the formulas' numbers for parameters of every kind, and a state by parameter."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tapehead import optim
from tapehead.models.ntm import NTM
from tapehead.optim import GRAVES, RMSpropGraves

SMALL = {"controller_size": 5, "memory_slots": 7, "memory_width": 3}
MODELS = {
    "NTM, in one piece": lambda: NTM(4, 2, **SMALL),
    "NTM, one parameter elsewhere": lambda: moved(NTM(4, 2, **SMALL)),
    "modules of torch": lambda: nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5), nn.Linear(5, 3)),
    "float64": lambda: nn.Linear(7, 5).double(),
    "two types": lambda: nn.ModuleList([nn.Linear(7, 5), nn.Linear(5, 3).double(), nn.Linear(2, 2)]),
    "half precision": lambda: nn.Linear(7, 5).bfloat16(),
    "not contiguous": lambda: strided(nn.Linear(7, 5)),
    "one number": lambda: nn.ParameterList([nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.ones(3))]),
}
models = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())


def moved(ntm):
    ntm.output.bias.data = ntm.output.bias.data.clone()
    return ntm


def strided(linear):
    linear.weight.data = linear.weight.data.t().contiguous().t()
    return linear


def set_gradients(parameters, step, without=()):
    """As one flat vector, as the scan's backward pass leaves them; of sizes beyond a clip, with a mean."""
    source = torch.Generator().manual_seed(step)
    for k, parameter in enumerate(parameters):
        drawn = 10 * torch.randn(parameter.shape, generator=source, dtype=torch.float64) + 3
        parameter.grad = None if k in without else drawn.to(parameter.dtype)


def weights(parameters):
    return [parameter.detach().clone() for parameter in parameters]


def train(make, steps=range(30), without=lambda step: (), **options):
    torch.manual_seed(0)
    parameters = list(make().parameters())
    optimiser = RMSpropGraves(parameters, lr=1e-2, **options)
    for step in steps:
        set_gradients(parameters, step, without(step))
        optimiser.step()
    return parameters, optimiser


def assert_close(ours, expected):
    """Errors seen: 3e-7 in float32, 4e-16 in float64; other types run the formulas themselves."""
    for one, other in zip(ours, expected, strict=True):
        tolerance = {torch.float64: 1e-15, torch.float32: 1e-6}.get(one.dtype, 0)
        assert one.dtype == other.dtype
        one, other = one.detach(), other.detach()
        error = float((one - other).abs().max()) / max(1.0, float(other.abs().max()))
        assert error <= tolerance


@models
@pytest.mark.parametrize("clip", [None, 5.0])
@pytest.mark.parametrize("gaps", [False, True], ids=["all", "some without gradients"])
def test_fused_is_the_formula(monkeypatch, make, clip, gaps):
    def without(step):
        return (step % 3,) if gaps else ()

    ours, fused = train(make, without=without, clip=clip)
    monkeypatch.setattr(optim, "_is_usual", lambda parameter: False)
    expected, plain = train(make, without=without, clip=clip)
    assert_close(ours, expected)
    for name in GRAVES.moments:
        for one, other in zip(ours, expected, strict=True):
            assert fused.state[one].keys() == plain.state[other].keys()
            if fused.state[one]:
                assert fused.state[one][name].shape == one.shape
                assert_close([fused.state[one][name]], [plain.state[other][name]])


def test_a_machine_is_one_launch(monkeypatch):
    calls = []
    kernel = optim.dispatch.update_kernel
    monkeypatch.setattr(
        optim.dispatch,
        "update_kernel",
        lambda *given: lambda *arguments: (calls.append(arguments[1].parameters), kernel(*given)(*arguments))[1],
    )
    ntm = NTM(4, 2, **SMALL)
    optimiser = RMSpropGraves(ntm.parameters(), lr=1e-2)
    for _ in range(3):
        ntm(torch.ones(3, 1, 4))[0].square().sum().backward()
        optimiser.step()
    assert [tensor.data_ptr() for tensor in calls] == 3 * [next(ntm.parameters()).data_ptr()]


def test_groups_have_their_own_rates_and_clips():
    torch.manual_seed(0)
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    both = RMSpropGraves([{"params": one.parameters(), "lr": 1e-3}, {"params": two.parameters(), "clip": 0.5}], lr=1e-2)
    twins = copy.deepcopy([one, two])
    alone = [
        RMSpropGraves(twins[0].parameters(), lr=1e-3),
        RMSpropGraves(twins[1].parameters(), lr=1e-2, clip=0.5),
    ]
    for step in range(5):
        if step == 3:  # a scheduler
            both.param_groups[1]["lr"] = alone[1].param_groups[0]["lr"] = 0.5
        for module in (one, two, *twins):
            set_gradients(module.parameters(), step)
        for optimiser in (both, *alone):
            optimiser.step()
    for ours, expected in zip((one, two), twins, strict=True):
        for a, b in zip(ours.parameters(), expected.parameters(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("clip", [None, 5.0])
def test_what_is_not_finite_is_carried_on(monkeypatch, bad, clip):
    """As in every optimiser of torch: where it was, and to the formulas' numbers everywhere else."""
    results = []
    for fused in (True, False):
        if not fused:
            monkeypatch.setattr(optim, "_is_usual", lambda parameter: False)
        torch.manual_seed(0)
        parameters = list(nn.Linear(3, 2).parameters())
        optimiser = RMSpropGraves(parameters, lr=1e-2, clip=clip)
        for step in range(4):
            set_gradients(parameters, step)
            if step == 2:
                parameters[0].grad[0, 1] = bad
            optimiser.step()
        results.append(weights(parameters))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert bool(torch.isfinite(results[0][0][0, 1])) == (bad == math.inf and clip is not None)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_alone(copied):
    parameters, optimiser = train(MODELS["modules of torch"], range(5))
    twin_parameters, twin = copied((parameters, optimiser))
    before = weights(parameters)
    set_gradients(twin_parameters, 5)
    twin.step()
    for one, other in zip(parameters, before, strict=True):
        assert torch.equal(one, other)
    set_gradients(parameters, 5)
    optimiser.step()
    for one, other in zip(parameters, twin_parameters, strict=True):
        assert torch.equal(one, other)
        for name in GRAVES.moments:
            assert torch.equal(optimiser.state[one][name], twin.state[other][name])


def test_a_replaced_state_counts():
    """Values written into the optimiser's state by hand are used."""
    parameters, optimiser = train(MODELS["modules of torch"], range(5))
    fresh = RMSpropGraves(list(copy.deepcopy(parameters)), lr=1e-2)
    for parameter in parameters:
        for name in GRAVES.moments:
            optimiser.state[parameter][name] = torch.zeros_like(parameter)
    (twins,) = (group["params"] for group in fresh.param_groups)
    for these, one in ((parameters, optimiser), (twins, fresh)):
        set_gradients(these, 9)
        one.step()
    for one, other in zip(parameters, twins, strict=True):
        assert torch.equal(one, other)


def test_a_backward_pass_after_the_step_is_refused():
    """The update writes to the parameters in its own way, and autograd has to know."""
    ntm = NTM(4, 2, backend="cpu", **SMALL)
    optimiser = RMSpropGraves(ntm.parameters())
    for _ in range(2):
        optimiser.zero_grad()
        loss = ntm(torch.ones(3, 2, 4))[0].sum()
        loss.backward(retain_graph=True)
        optimiser.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_hooks_closures_and_profiles():
    """A step without them goes past what torch puts around it."""
    _, optimiser = train(MODELS["modules of torch"], range(2))
    called = []
    handles = [
        optimiser.register_step_pre_hook(lambda *_: called.append("pre")),
        optimiser.register_step_post_hook(lambda *_: called.append("post")),
        register_optimizer_step_pre_hook(lambda *_: called.append("all")),
    ]
    assert optimiser.step(lambda: called.append("closure") or 3.0) == 3.0
    assert called == ["all", "pre", "closure", "post"]
    for handle in handles:
        handle.remove()
    assert optimiser.step(lambda: 4.0) == 4.0
    assert len(called) == 4
    with torch.autograd.profiler.profile() as profile:
        optimiser.step()
        optimiser.zero_grad()
    marks = {event.name for event in profile.function_events}
    assert {"Optimizer.step#RMSpropGraves.step", "Optimizer.zero_grad#RMSpropGraves.zero_grad"} <= marks


def test_gradients_are_cleared():
    parameters, optimiser = train(MODELS["modules of torch"], range(1))
    optimiser.zero_grad(set_to_none=False)
    assert all(not parameter.grad.any() for parameter in parameters)
    optimiser.zero_grad()
    assert all(parameter.grad is None for parameter in parameters)


def test_hyper_parameters_are_shown_and_used():
    """By group; a state that was saved before they had names has the defaults."""
    one, two = (torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    optimiser = RMSpropGraves(
        [{"params": [one]}, {"params": [two], "decay": 0.5, "momentum": 0.0}], lr=1e-2, epsilon=1e-3
    )
    assert "momentum: 0.9" in repr(optimiser)
    assert "decay: 0.5" in repr(optimiser)
    for parameter in (one, two):
        parameter.grad = torch.tensor([3.0, -1.0])
    optimiser.step()
    for parameter, decay in ((one, 0.95), (two, 0.5)):
        variance = (1 - decay) * parameter.grad**2 - ((1 - decay) * parameter.grad) ** 2
        expected = torch.tensor([1.0, -2.0]) - 1e-2 * parameter.grad / (variance + 1e-3).sqrt()
        torch.testing.assert_close(parameter.detach(), expected)
    optimiser.step()
    assert not torch.equal(optimiser.state[one]["delta"], optimiser.state[two]["delta"])
    saved = optimiser.state_dict()
    for group in saved["param_groups"]:
        del group["decay"], group["momentum"], group["epsilon"]
    optimiser.load_state_dict(saved)
    assert [group["decay"] for group in optimiser.param_groups] == [GRAVES.decay] * 2


@pytest.mark.parametrize(("name", "value"), [("decay", 1.0), ("momentum", -0.1), ("epsilon", 0.0), ("decay", "much")])
def test_wrong_hyper_parameters(name, value):
    with pytest.raises(ValueError, match=f"{name} is "):
        RMSpropGraves([torch.nn.Parameter(torch.zeros(1))], **{name: value})
