"""Every equation of the DNC against loops in float64, its invariants on drawn weightings, and inputs that break
careless code: ties, zeros, ones, one slot."""

import hypothesis.strategies as st
import numpy as np
import oracles_dnc
import pytest
import torch
from hypothesis import given, settings

from tapehead import equations_dnc

F64 = torch.float64
LEADS = [(), (2, 3)]
SIZES = [(1, 1, 1), (3, 7, 4)]  # heads, slots, width
everywhere = pytest.mark.parametrize("lead", LEADS, ids=["none", "2x3"])
everywhere_sized = pytest.mark.parametrize("sizes", SIZES, ids=["1x1x1", "3x7x4"])


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def weightings(*shape, seed=0):
    """Numbers in [0, 1] that sum to less than one along the last dimension."""
    drawn = draw(*shape, seed=seed)
    return 0.9 * drawn / drawn.sum(dim=-1, keepdim=True) * draw(*shape[:-1], 1, seed=seed + 1)


def over_lead(lead, function, *tensors):
    """`function` on numpy arrays, once for every index of the leading dimensions, stacked again."""
    arrays = [tensor.numpy() for tensor in tensors]
    found = [np.asarray(function(*(array[index] for array in arrays))) for index in np.ndindex(*lead)]
    return torch.from_numpy(np.stack(found).reshape(*lead, *found[0].shape))


def per_head(function):
    """An oracle for one head on a shared first argument made into one for all heads."""

    def all_heads(shared, *parts):
        return np.stack([function(shared, *(part[h] for part in parts)) for h in range(len(parts[0]))])

    return all_heads


def assert_near(ours, expected):
    """Errors seen: a few units of the last place."""
    assert ours.shape == expected.shape
    assert float((ours - expected).abs().max()) <= 2e-15


@everywhere
@everywhere_sized
class TestAgainstLoops:
    def test_retention_and_usage(self, lead, sizes):
        heads, slots, _ = sizes
        free, read = draw(*lead, heads, seed=1), weightings(*lead, heads, slots, seed=2)
        psi = equations_dnc.retention(free, read)
        assert_near(psi, over_lead(lead, oracles_dnc.retention, free, read))
        before, written = draw(*lead, slots, seed=3), weightings(*lead, slots, seed=4)
        expected = over_lead(lead, oracles_dnc.usage, before, written, psi)
        assert_near(equations_dnc.usage(before, written, psi), expected)

    def test_allocation(self, lead, sizes):
        usage = draw(*lead, sizes[1], seed=5)
        assert_near(equations_dnc.allocation(usage), over_lead(lead, oracles_dnc.allocation, usage))

    def test_write_weighting(self, lead, sizes):
        a, c = weightings(*lead, sizes[1], seed=6), weightings(*lead, sizes[1], seed=7)
        gates = (draw(*lead, seed=8), draw(*lead, seed=9))
        expected = over_lead(lead, oracles_dnc.write_weighting, a, c, *gates)
        assert_near(equations_dnc.write_weighting(a, c, *gates), expected)

    def test_link_and_precedence(self, lead, sizes):
        slots = sizes[1]
        before = draw(*lead, slots, slots, seed=10)
        p, w = weightings(*lead, slots, seed=11), weightings(*lead, slots, seed=12)
        assert_near(equations_dnc.link(before, p, w), over_lead(lead, oracles_dnc.link, before, p, w))
        assert_near(equations_dnc.precedence(p, w), over_lead(lead, oracles_dnc.precedence, p, w))

    def test_forward_and_backward(self, lead, sizes):
        heads, slots, _ = sizes
        link, read = draw(*lead, slots, slots, seed=13), weightings(*lead, heads, slots, seed=14)
        forward, backward = per_head(oracles_dnc.forward), per_head(oracles_dnc.backward)
        assert_near(equations_dnc.forward_weighting(link, read), over_lead(lead, forward, link, read))
        assert_near(equations_dnc.backward_weighting(link, read), over_lead(lead, backward, link, read))

    def test_read_weighting(self, lead, sizes):
        heads, slots, _ = sizes
        b, c, f = (weightings(*lead, heads, slots, seed=seed) for seed in (15, 16, 17))
        modes = torch.softmax(draw(*lead, heads, 3, seed=18), dim=-1)
        expected = over_lead(
            lead,
            lambda *parts: np.stack([oracles_dnc.read_weighting(*(part[h] for part in parts)) for h in range(heads)]),
            *(b, c, f, modes),
        )
        assert_near(equations_dnc.read_weighting(b, c, f, modes), expected)

    def test_improvements(self, lead, sizes):
        heads, slots, width = sizes
        memory = draw(*lead, slots, width, seed=19) + 0.3  # so that the epsilon in a squared norm does not show
        keys, masks = draw(*lead, heads, width, seed=20) - 2, draw(*lead, heads, width, seed=21) + 0.1
        ours = equations_dnc.masked_similarity(keys, masks, memory)
        masked = per_head(lambda memory, key, mask: oracles_dnc.masked_similarity(key, mask, memory))
        assert_near(ours, over_lead(lead, masked, memory, keys, masks))
        psi = draw(*lead, slots, seed=22)
        expected = over_lead(lead, oracles_dnc.deallocate, memory, psi)
        assert_near(equations_dnc.deallocate(memory, psi), expected)
        d, s = weightings(*lead, heads, slots, seed=23), 1 + 3 * draw(*lead, heads, seed=24)
        sharp = np.vectorize(oracles_dnc.sharpen_link, signature="(n),()->(n)")(d.numpy(), s.numpy())
        assert_near(equations_dnc.sharpen_link(d, s), torch.from_numpy(sharp))


# --- invariants -------------------------------------------------------------------------------------------------------

levels = st.sampled_from([0.0, 1e-30, 1e-3, 0.25, 0.5, 1.0 - 1e-7, 1.0])
"""With zeros, ones and ties."""
MODES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.25, 0.5, 0.25))
"""Backward, content, forward."""


@st.composite
def histories(draws):
    """A few steps of a write head and read heads: gates, allocation gates and content of any kind."""
    slots, steps = draws(st.integers(1, 5)), draws(st.integers(1, 6))
    row = st.lists(levels, min_size=slots, max_size=slots)
    return [
        {
            "content": draws(row),
            "found": draws(row),
            "gates": draws(st.tuples(levels, levels, levels)),
            "modes": draws(st.sampled_from(MODES)),
            "sharpness": draws(st.sampled_from([1.0, 3.0, 50.0])),
        }
        for _ in range(steps)
    ]


def as_weighting(numbers):
    """Numbers divided by their sum, if they have one above 1."""
    values = torch.tensor(numbers, dtype=torch.float32)
    return values / values.sum().clamp_min(1.0)


@pytest.mark.parametrize("sharpened", [False, True])
@given(history=histories())
@settings(max_examples=150, deadline=None)
def test_invariants(sharpened, history):
    """Usage in [0, 1]; allocations, precedences, and rows and columns of links of at most 1 with a zero diagonal;
    forward, backward and read weightings of at most 1; the next step frees by the read weighting of this one.
    All of it in float32, to its rounding."""
    slots, rounding = len(history[0]["content"]), 1e-6
    used = written = precedence = torch.zeros(slots)
    link, read = torch.zeros(slots, slots), torch.zeros(1, slots)
    for moment in history:
        free, g_a, g_w = (torch.tensor(gate) for gate in moment["gates"])
        used = equations_dnc.usage(used, written, equations_dnc.retention(free.unsqueeze(0), read))
        assert 0 <= float(used.min()) <= float(used.max()) <= 1 + rounding
        allocation = equations_dnc.allocation(used)
        assert float(allocation.min()) >= 0
        assert float(allocation.sum()) <= 1 + rounding
        written = equations_dnc.write_weighting(allocation, as_weighting(moment["content"]), g_a, g_w)
        assert float(written.min()) >= 0
        assert float(written.sum()) <= 1 + rounding
        link = equations_dnc.link(link, precedence, written)
        precedence = equations_dnc.precedence(precedence, written)
        assert float(precedence.min()) >= -rounding
        assert float(precedence.sum()) <= 1 + rounding
        assert float(link.min()) >= -rounding
        assert float(link.sum(dim=0).max()) <= 1 + rounding
        assert float(link.sum(dim=1).max()) <= 1 + rounding
        assert float(link.diagonal().abs().max()) == 0
        forward = equations_dnc.forward_weighting(link, read)
        backward = equations_dnc.backward_weighting(link, read)
        if sharpened:
            sharpness = torch.tensor([moment["sharpness"]])
            forward, backward = (equations_dnc.sharpen_link(one.clamp_min(0), sharpness) for one in (forward, backward))
            assert abs(float(forward.sum()) - 1) <= rounding
        found, modes = as_weighting(moment["found"]).unsqueeze(0), torch.tensor([moment["modes"]])
        read = equations_dnc.read_weighting(backward, found, forward, modes)
        for weighting in (forward, backward, read):
            assert float(weighting.min()) >= -rounding
            assert float(weighting.sum()) <= 1 + rounding


@given(st.lists(levels, min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_allocation_with_ties_and_zeros_has_finite_gradients(numbers):
    """And everything that is free is given: what is missing to 1 is the product of all usages."""
    usage = torch.tensor(numbers, dtype=F64, requires_grad=True)
    allocation = equations_dnc.allocation(usage)
    free = 1 - float(usage.detach().prod())
    assert float(allocation.detach().sum()) == pytest.approx(free, abs=1e-15)
    weights = torch.arange(1.0, len(numbers) + 1, dtype=F64)
    (gradient,) = torch.autograd.grad((allocation * weights).sum(), usage)
    assert float(gradient.abs().max()) <= 2 * float(weights.max())


def test_the_first_of_equally_used_slots_is_allocated():
    assert equations_dnc.allocation(torch.zeros(4)).tolist() == [1, 0, 0, 0]
    assert equations_dnc.allocation(torch.tensor([1.0, 0.5, 0.5, 1.0])).tolist() == [0, 0.5, 0.25, 0]
    assert equations_dnc.allocation(torch.ones(4)).tolist() == [0, 0, 0, 0]


def test_gradient_at_zero_usage_is_that_of_the_formula():
    """a(0) = 1 - u(0), a(1) = (1 - u(1)) u(0), a(2) = (1 - u(2)) u(0) u(1): all are zero, in the order of slots."""
    found = torch.autograd.functional.jacobian(equations_dnc.allocation, torch.zeros(3, dtype=F64))
    assert found.tolist() == [[-1, 0, 0], [1, 0, 0], [0, 0, 0]]


def test_gradients_are_slopes_away_from_ties():
    usage = torch.tensor([0.7, 0.2, 0.0, 0.9, 0.45], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(equations_dnc.allocation, usage)  # differences go to both sides of zero
    link, p = draw(4, 4).requires_grad_(), weightings(4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(equations_dnc.link, (link, p, weightings(4, seed=2).requires_grad_()))


def test_no_link_is_sharpened_to_something_finite():
    d = torch.zeros(1, 4, dtype=F64, requires_grad=True)
    sharp = equations_dnc.sharpen_link(d, torch.tensor([50.0], dtype=F64))
    assert sharp.tolist() == [[0.25] * 4]
    (gradient,) = torch.autograd.grad(sharp[0, 0], d)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (equations_dnc.allocation, (torch.zeros(()),), "usage has shape"),
        (equations_dnc.link, (torch.zeros(3, 4), torch.zeros(3), torch.zeros(3)), "link has shape"),
        (equations_dnc.usage, (torch.zeros(3), torch.zeros(4), torch.zeros(3)), "write_weighting has shape"),
        (equations_dnc.read_weighting, [torch.zeros(2, 3)] * 3 + [torch.zeros(2, 2)], "modes"),
    ],
)
def test_wrong_shapes_are_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
