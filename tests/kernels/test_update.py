"""One optimiser step for a population: the formulas in scalar loops, both kernels, and seeds that must not mix."""

import copy
import math

import pytest
import torch

from tapehead.kernels import dispatch
from tapehead.kernels.update import cpu, reference
from tapehead.kernels.update.contract import UpdateRule, UpdateState
from tapehead.kernels.update.optimisers import Adam, Graves
from tapehead.optim import RMSpropGraves

F64 = torch.float64
KERNELS = {"reference": reference.update, "cpu": cpu.update}
kernels = pytest.mark.parametrize("update", KERNELS.values(), ids=KERNELS.keys())
optimisers = pytest.mark.parametrize("optimiser", [Graves(), Adam()], ids=["graves", "adam"])
clips = pytest.mark.parametrize(
    ("clip", "at"), [("elementwise", 10.0), ("elementwise", 0.5), ("norm", 3.0), ("none", 10.0)]
)


def draw(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def gradient_of(step, seeds, count, dtype=F64):
    """Gradients of very different sizes, some beyond the clip, with a mean that the centring must notice."""
    size = 10 ** (2 * draw(seeds, count, seed=99))
    return (size * (draw(seeds, count, seed=100 + step) + 0.7)).to(dtype)


def rates(seeds, rate=1e-2, dtype=F64):
    """Of every seed its own: rate, 2 rate, 3 rate..."""
    return rate * torch.arange(1, seeds + 1, dtype=dtype)


def run(update, rule, seeds=3, count=11, steps=40, dtype=F64, chosen=None, rate=1e-2):
    """`steps` updates of `seeds` machines, or of those `chosen` among them"""
    chosen = list(range(seeds)) if chosen is None else chosen
    state = UpdateState(rule, draw(seeds, count, dtype=dtype)[chosen].clone())
    costs, own = torch.ones(len(chosen), 2, dtype=dtype), rates(seeds, rate, dtype)[chosen]
    for step in range(steps):
        skipped = update(rule, state, gradient_of(step, seeds, count, dtype)[chosen].clone(), costs, own)
        assert skipped.tolist() == [False] * len(chosen)
    return state.tensors(rule)


# --- the formulas ----------------------------------------------------------------------------------------------------


def clip_oracle(gradient, clip, at):
    if clip == "elementwise":
        return [min(max(g, -at), at) for g in gradient]
    if clip == "norm":
        norm = math.sqrt(math.fsum(g * g for g in gradient))
        return [g * at / norm if norm > at else g for g in gradient]
    return gradient


def graves_oracle(w, gradients, rate):
    """Section 4.6 with Graves (2013), one number at a time."""
    n = m = d = 0.0
    for g in gradients:
        n = 0.95 * n + 0.05 * g**2
        m = 0.95 * m + 0.05 * g
        d = 0.9 * d - rate * g / math.sqrt(n - m**2 + 1e-4)
        w = w + d
    return {"parameters": w, "mean_square": n, "mean": m, "delta": d}


def adam_oracle(w, gradients, rate):
    first = second = 0.0
    for k, g in enumerate(gradients, start=1):
        first = 0.9 * first + 0.1 * g
        second = 0.999 * second + 0.001 * g**2
        w -= rate * (first / (1 - 0.9**k)) / (math.sqrt(second / (1 - 0.999**k)) + 1e-8)
    return {"parameters": w, "first_moment": first, "second_moment": second}


@kernels
@optimisers
@clips
def test_against_scalar_loops(update, optimiser, clip, at):
    """300 steps in float64; errors seen: below 1e-12 relative."""
    rule = UpdateRule(optimiser, clip, at, average=0.9)
    steps, seeds, count, rate = 300, 2, 5, 1e-2
    ours = run(update, rule, seeds, count, steps, rate=rate)
    oracle = {Graves: graves_oracle, Adam: adam_oracle}[type(optimiser)]
    for s in range(seeds):
        clipped = [clip_oracle(gradient_of(k, seeds, count)[s].tolist(), clip, at) for k in range(steps)]
        for i in range(count):
            expected = oracle(float(draw(seeds, count)[s, i]), [g[i] for g in clipped], rate * (1 + s))
            for name, value in expected.items():
                assert float(ours[name][s, i]) == pytest.approx(value, rel=1e-10, abs=1e-13), name
        assert int(ours["applied"][s]) == steps


@kernels
def test_average(update):
    """An exponential mean of the weights after each update, from the initial weights on."""
    rule = UpdateRule(Graves(), average=0.8)
    expected = draw(3, 11)
    for steps in range(1, 6):
        expected = 0.8 * expected + 0.2 * run(update, rule, steps=steps)["parameters"]
    torch.testing.assert_close(run(update, rule, steps=5)["average"], expected, rtol=1e-14, atol=1e-15)
    assert "average" not in run(update, UpdateRule(Graves()), steps=1)


def test_it_is_not_torchs_rmsprop():
    """torch's centred RMSprop has its epsilon outside the root: with the same constants it goes elsewhere."""
    ours, theirs = (torch.nn.Parameter(draw(5)) for _ in range(2))
    graves = RMSpropGraves([ours], lr=1e-3, clip=None)
    settings = {"alpha": 0.95, "momentum": 0.9, "centered": True}
    rmsprop = torch.optim.RMSprop([theirs], lr=1e-3, eps=1e-4, **settings)
    outside = torch.optim.RMSprop([third := torch.nn.Parameter(draw(5))], lr=1e-3, eps=1e-2, **settings)  # sqrt(1e-4)
    for step in range(20):
        for parameter in (ours, theirs, third):
            parameter.grad = 0.02 * draw(5, seed=step)
        graves.step()
        rmsprop.step()
        outside.step()
    moved = (ours - draw(5)).abs().max()
    assert (ours - theirs).abs().max() > 0.1 * moved
    assert (ours - third).abs().max() > 0.1 * moved


@kernels
def test_adam_is_torchs(update):
    rule, rate = UpdateRule(Adam(), "none"), 1e-2
    ours = run(update, rule, seeds=1, steps=200, rate=rate)
    parameter = torch.nn.Parameter(draw(1, 11))
    adam = torch.optim.Adam([parameter], lr=rate, betas=(0.9, 0.999), eps=1e-8)
    for step in range(200):
        parameter.grad = gradient_of(step, 1, 11)
        adam.step()
    torch.testing.assert_close(ours["parameters"], parameter.detach(), rtol=1e-11, atol=1e-13)


@kernels
@pytest.mark.parametrize("size", [9.7, 10.0, 3.3])
def test_a_steady_gradient_does_not_make_nan(update, size):
    """A constant gradient has no variance: in float32 that comes out as down to -1e-4, which the root must not see."""
    rule = UpdateRule(Graves())
    state = UpdateState(rule, torch.zeros(1, 50))
    gradient = size * torch.linspace(0.9, 1.1, 50).unsqueeze(0)
    for _ in range(600):
        update(rule, state, gradient, torch.zeros(1, 1), torch.tensor([1e-4]))
    assert torch.isfinite(state.parameters).all()
    assert (state.moments[2] < 0).all()


# --- two kernels, one result -----------------------------------------------------------------------------------------


@optimisers
@clips
@pytest.mark.parametrize("average", [0.0, 0.99])
@pytest.mark.parametrize(("dtype", "tolerance"), [(F64, 1e-12), (torch.float32, 3e-5)], ids=["float64", "float32"])
def test_kernels_agree(optimiser, clip, at, average, dtype, tolerance):
    """float32: 1.3e-5 seen with Adam, whose 1 - 0.999 has five digits; 2e-6 with Graves."""
    rule = UpdateRule(optimiser, clip, at, average)
    expected = run(reference.update, rule, count=67, dtype=dtype)
    ours = run(cpu.update, rule, count=67, dtype=dtype)
    assert (
        ours.keys()
        == expected.keys()
        == {"parameters", "applied", *optimiser.moments, *(["average"] if average else [])}
    )
    for name, value in expected.items():
        assert ours[name].dtype == value.dtype
        difference = (ours[name] - value).abs().max()
        assert difference <= tolerance * max(1.0, float(value.abs().max())), name


@optimisers
def test_dispatch(optimiser):
    assert dispatch.update_kernel("reference", torch.device("cpu"), optimiser) is reference.update
    assert dispatch.update_kernel("cpu", torch.device("cpu"), optimiser) is cpu.update
    assert dispatch.update_kernel("gpu", torch.device("meta"), optimiser) is reference.update


@optimisers
def test_a_subclass_of_a_fused_optimiser_is_not_fused(optimiser):
    """Its `step` may be another one."""
    other = type("Other", (type(optimiser),), {})()
    assert other.kernel == optimiser.kernel
    assert dispatch.update_kernel("cpu", torch.device("cpu"), other) is reference.update


def test_hyper_parameters_arrive_in_the_kernels():
    for mine, usual in (
        (Graves(decay=0.5, momentum=0.2, epsilon=1e-2), Graves()),
        (Adam(beta1=0.5, beta2=0.7, epsilon=0.1), Adam()),
    ):
        results = {name: run(update, UpdateRule(mine), count=67)["parameters"] for name, update in KERNELS.items()}
        torch.testing.assert_close(results["cpu"], results["reference"], rtol=1e-12, atol=1e-12)
        assert (results["cpu"] - run(cpu.update, UpdateRule(usual), count=67)["parameters"]).abs().max() > 1e-3


# --- seeds do not mix ------------------------------------------------------------------------------------------------


@kernels
@optimisers
@clips
def test_a_seed_alone_is_the_seed_among_others(update, optimiser, clip, at):
    """To the bit, in float32, in a population wide enough for vector instructions across it."""
    rule = UpdateRule(optimiser, clip, at, average=0.9)
    together = run(update, rule, seeds=17, count=131, steps=10, dtype=torch.float32)
    for chosen in ([4], [16], [2, 9, 11]):
        alone = run(update, rule, seeds=17, count=131, steps=10, dtype=torch.float32, chosen=chosen)
        for name, value in together.items():
            assert torch.equal(alone[name], value[chosen]), name


@kernels
@optimisers
@clips
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["gradient", "cost"])
def test_a_broken_seed_is_left_as_it_was(update, optimiser, clip, at, bad, where):
    rule = UpdateRule(optimiser, clip, at, average=0.9)
    state = UpdateState(rule, draw(4, 7).clone())
    for step in range(3):
        update(rule, state, gradient_of(step, 4, 7), torch.ones(4, 2, dtype=F64), rates(4))
    healthy, before = copy.deepcopy(state), copy.deepcopy(state)
    gradient, costs = gradient_of(5, 4, 7), torch.ones(4, 2, dtype=F64)
    assert not update(rule, healthy, gradient.clone(), costs.clone(), rates(4)).any()
    (gradient if where == "gradient" else costs)[2, 1] = bad
    skipped = update(rule, state, gradient, costs, rates(4))
    assert skipped.tolist() == [False, False, True, False]
    for name, value in state.tensors(rule).items():
        others = [0, 1, 3]
        assert torch.equal(value[2], before.tensors(rule)[name][2]), name
        assert torch.equal(value[others], healthy.tensors(rule)[name][others]), name
        assert not torch.equal(value[others], before.tensors(rule)[name][others]), name
    update(rule, state, gradient_of(6, 4, 7), torch.ones(4, 2, dtype=F64), rates(4))  # and it can go on
    assert state.applied.tolist() == [5, 5, 4, 5]


@optimisers
def test_selection_and_return(optimiser):
    rule = UpdateRule(optimiser, average=0.9)
    state = UpdateState(rule, draw(5, 7).clone())
    reference.update(rule, state, gradient_of(0, 5, 7), torch.ones(5, 1, dtype=F64), rates(5))
    before, index = copy.deepcopy(state), torch.tensor([1, 4])
    part = state.select(index)
    reference.update(rule, part, gradient_of(1, 5, 7)[index], torch.ones(2, 1, dtype=F64), rates(2))
    for name, value in state.tensors(rule).items():
        assert torch.equal(value, before.tensors(rule)[name])  # a selection is a copy
    state.put(index, part)
    for name, value in state.tensors(rule).items():
        assert torch.equal(value[index], part.tensors(rule)[name])
        assert torch.equal(value[[0, 2, 3]], before.tensors(rule)[name][[0, 2, 3]])


# --- the optimiser of torch's kind -----------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [10.0, 0.5, None])
def test_optimiser_against_scalar_loops(clip):
    """Several parameters, groups with rates of their own, and one without a gradient, which stays."""
    one, two, still = (torch.nn.Parameter(draw(*shape, seed=7)) for shape in ((3,), (2, 2), (2,)))
    optimiser = RMSpropGraves([{"params": [one, still]}, {"params": [two], "lr": 1e-3}], lr=1e-2, clip=clip)
    steps = 200
    for step in range(steps):
        one.grad, two.grad = gradient_of(step, 1, 3)[0], gradient_of(step, 2, 2)
        optimiser.step()
    cases = [(one, 1e-2, [gradient_of(k, 1, 3)[0] for k in range(steps)])]
    cases += [(two, 1e-3, [gradient_of(k, 2, 2) for k in range(steps)])]
    for parameter, rate, gradients in cases:
        start = draw(*parameter.shape, seed=7).flatten()
        for i, ours in enumerate(parameter.detach().flatten().tolist()):
            seen = [float(g.flatten()[i]) for g in gradients]
            seen = seen if clip is None else [min(max(g, -clip), clip) for g in seen]
            assert ours == pytest.approx(graves_oracle(float(start[i]), seen, rate)["parameters"], rel=1e-10)
    assert torch.equal(still, draw(2, seed=7))
    assert not optimiser.state[still]


def test_optimiser_state_dict_round_trip():
    """Saved in the middle, loaded into a new one, it goes on to the same bits."""

    def build():
        parameter = torch.nn.Parameter(draw(6))
        return parameter, RMSpropGraves([parameter], lr=1e-2, clip=1.0)

    def steps(parameter, optimiser, which):
        for step in which:
            parameter.grad = gradient_of(step, 1, 6)[0]
            optimiser.step()

    whole, optimiser = build()
    steps(whole, optimiser, range(10))
    first, optimiser = build()
    steps(first, optimiser, range(5))
    saved, weights = copy.deepcopy(optimiser.state_dict()), first.detach().clone()
    second, optimiser = build()
    with torch.no_grad():
        second.copy_(weights)
    optimiser.load_state_dict(saved)
    steps(second, optimiser, range(5, 10))
    assert torch.equal(second, whole)
    assert saved["param_groups"][0]["clip"] == 1.0
    fresh, optimiser = build()
    with torch.no_grad():
        fresh.copy_(weights)
    steps(fresh, optimiser, range(5, 10))
    assert not torch.equal(fresh, whole)  # the state matters


def test_optimiser_closure_and_learning():
    parameter = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
    optimiser = RMSpropGraves([parameter], lr=1e-2)

    def closure():
        optimiser.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return loss

    assert optimiser.step(closure).item() == 13.0
    for _ in range(500):
        optimiser.step(closure)
    assert closure().item() < 1e-2


@pytest.mark.parametrize(
    ("options", "message"),
    [({"lr": -1.0}, "lr is -1.0"), ({"lr": math.nan}, "lr is nan"), ({"clip": 0.0}, "clip is 0.0")],
)
def test_optimiser_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        RMSpropGraves([torch.nn.Parameter(torch.zeros(1))], **options)
