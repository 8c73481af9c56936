"""Every equation against loops in float64, at values that the paper names, and at inputs that break careless code."""

import itertools

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given, settings

from tapehead import equations

F64 = torch.float64
LEADS = [(), (3,), (2, 3)]
SIZES = [(1, 1, 1), (2, 5, 3), (3, 7, 4)]  # heads, slots, width


def generator(*numbers):
    return torch.Generator().manual_seed(hash(numbers) % 2**31)


def normal(lead, *shape, seed=0, dtype=F64):
    return torch.randn(*lead, *shape, generator=generator(seed, *shape), dtype=F64).to(dtype)


def not_small(lead, *shape, seed=0):
    """Entries of at least 0.3, so that the epsilon in a squared norm does not show."""
    drawn = normal(lead, *shape, seed=seed)
    return drawn + 0.3 * drawn.sign()


def weightings(lead, heads, slots, seed=0):
    return torch.softmax(2 * normal(lead, heads, slots, seed=seed), dim=-1)


def over_lead(lead, function, *tensors):
    """`function` on numpy arrays, once for every index of the leading dimensions, stacked again."""
    arrays = [tensor.numpy() for tensor in tensors]
    first = [function(*(array[index] for array in arrays)) for index in np.ndindex(*lead)]
    return torch.from_numpy(np.stack(first).reshape(*lead, *np.shape(first[0])))


def per_head(function):
    """An oracle for one head made into one for arrays with a leading head."""
    return lambda *parts: np.stack([function(*(part[h] for part in parts)) for h in range(len(parts[0]))])


def assert_near(ours, expected, tolerance=1e-14):
    """Equal shapes and, relative to the largest expected value (at least 1), equal numbers."""
    assert ours.shape == expected.shape
    assert ours.dtype == F64
    scale = max(1.0, float(expected.abs().max()))
    assert float((ours - expected).abs().max()) <= tolerance * scale


everywhere = pytest.mark.parametrize(
    ("lead", "sizes"), list(itertools.product(LEADS, SIZES)), ids=lambda value: "x".join(map(str, value)) or "none"
)


@everywhere
class TestAgainstLoops:
    """Errors seen: a few units of the last place."""

    def test_read(self, lead, sizes):
        heads, slots, width = sizes
        memory, w = normal(lead, slots, width), weightings(lead, heads, slots)
        expected = over_lead(lead, lambda m, w: np.stack([oracles.read(m, one) for one in w]), memory, w)
        assert_near(equations.read(memory, w), expected)

    def test_erase(self, lead, sizes):
        heads, slots, width = sizes
        memory, w = normal(lead, slots, width), weightings(lead, heads, slots)
        e = torch.sigmoid(normal(lead, heads, width, seed=1))
        assert_near(equations.erase(memory, w, e), over_lead(lead, oracles.erase, memory, w, e))

    def test_add(self, lead, sizes):
        heads, slots, width = sizes
        memory, w = normal(lead, slots, width), weightings(lead, heads, slots)
        a = normal(lead, heads, width, seed=1)
        assert_near(equations.add(memory, w, a), over_lead(lead, oracles.add, memory, w, a))

    def test_cosine_similarity(self, lead, sizes):
        heads, slots, width = sizes
        keys, memory = 3 * not_small(lead, heads, width), not_small(lead, slots, width, seed=1)
        memory[..., 0, :] = 0

        def oracle(keys, memory):
            return np.array([[oracles.cosine(k, row) for row in memory] for k in keys])

        assert_near(equations.cosine_similarity(keys, memory), over_lead(lead, oracle, keys, memory), 5e-12)
        assert not equations.cosine_similarity(keys, memory)[..., 0].any()

    def test_content_weighting(self, lead, sizes):
        heads, slots, width = sizes
        keys, memory = not_small(lead, heads, width), not_small(lead, slots, width, seed=1)
        beta = 20 * torch.rand(*lead, heads, generator=generator(2), dtype=F64)

        def oracle(keys, beta, memory):
            return np.stack([oracles.content(k, b, memory) for k, b in zip(keys, beta, strict=True)])

        ours = equations.content_weighting(keys, beta, memory)
        assert_near(ours, over_lead(lead, oracle, keys, beta, memory), 5e-11)
        assert_near(ours.sum(-1), torch.ones(*lead, heads, dtype=F64))

    def test_interpolate(self, lead, sizes):
        heads, slots, _ = sizes
        new, previous = weightings(lead, heads, slots), weightings(lead, heads, slots, seed=1)
        g = torch.rand(*lead, heads, generator=generator(2), dtype=F64)
        ours = equations.interpolate(g, new, previous)
        assert_near(ours, over_lead(lead, per_head(oracles.interpolate), g, new, previous))
        assert_near(ours.sum(-1), torch.ones(*lead, heads, dtype=F64))

    @pytest.mark.parametrize("r", [0, 1, 2, 4])  # r = 4 has nine entries, more than there are slots
    def test_shift(self, lead, sizes, r):
        heads, slots, _ = sizes
        w, s = weightings(lead, heads, slots), weightings(lead, heads, 2 * r + 1, seed=1)
        ours = equations.shift(w, s)
        assert_near(ours, over_lead(lead, per_head(oracles.shift), w, s))
        assert_near(ours.sum(-1), torch.ones(*lead, heads, dtype=F64))

    def test_scalar_shift(self, lead, sizes):
        heads, slots, _ = sizes
        w, amount = weightings(lead, heads, slots), 9 * normal(lead, heads, seed=1)
        ours = equations.scalar_shift(w, amount)
        assert_near(ours, over_lead(lead, per_head(oracles.scalar_shift), w, amount))
        assert_near(ours.sum(-1), torch.ones(*lead, heads, dtype=F64))

    def test_sharpen(self, lead, sizes):
        heads, slots, _ = sizes
        w = weightings(lead, heads, slots)
        gamma = 1 + 20 * torch.rand(*lead, heads, generator=generator(2), dtype=F64)
        ours = equations.sharpen(w, gamma)
        assert_near(ours, over_lead(lead, per_head(oracles.sharpen), w, gamma), 1e-13)
        assert_near(ours.sum(-1), torch.ones(*lead, heads, dtype=F64))


# --- values that the paper or the documentation names ----------------------------------------------------------------


def one_hot(slots, at):
    return torch.nn.functional.one_hot(torch.tensor([at % slots]), slots).to(F64)


def test_scalar_shift_of_the_paper():
    moved = equations.scalar_shift(one_hot(20, 0), torch.tensor([6.7], dtype=F64))
    assert_near(moved, 0.3 * one_hot(20, 6) + 0.7 * one_hot(20, 7), 1e-15)


@pytest.mark.parametrize(
    ("amount", "near", "far", "part"),
    [
        (0.0, 0, 1, 0.0),
        (-0.3, -1, 0, 0.7),
        (-2.0, -2, -1, 0.0),
        (-7.25, -8, -7, 0.75),
        (4.5, 4, 5, 0.5),
        (1e6 + 0.5, 1e6, 1, 0.5),
    ],
)
def test_scalar_shift_amounts(amount, near, far, part):
    far = int(near) + 1
    moved = equations.scalar_shift(one_hot(5, 2), torch.tensor([amount], dtype=F64))
    assert_near(moved, (1 - part) * one_hot(5, 2 + int(near)) + part * one_hot(5, 2 + far), 1e-15)


@pytest.mark.parametrize("slots", [1, 2, 5, 8])
@pytest.mark.parametrize("r", [1, 3])
def test_shift_entry_j_moves_by_j_minus_r(slots, r):
    for start, j in itertools.product(range(slots), range(2 * r + 1)):
        moved = equations.shift(one_hot(slots, start), one_hot(2 * r + 1, j))
        assert torch.equal(moved, one_hot(slots, start + j - r))


def test_scalar_shift_agrees_with_shift():
    w = weightings((4,), 2, 6)
    amount = torch.linspace(-2, 1, 8, dtype=F64).view(4, 2)
    low = amount.floor()
    offsets = torch.arange(-2, 3)
    spread = torch.where(offsets == low[..., None], 1 - (amount - low)[..., None], 0.0)
    spread = spread + torch.where(offsets == low[..., None] + 1, (amount - low)[..., None], 0.0)
    assert_near(equations.scalar_shift(w, amount), equations.shift(w, spread), 1e-15)


def test_shift_refuses_an_even_number_of_entries():
    with pytest.raises(ValueError, match=r"shifts has 4 entries.*odd"):
        equations.shift(weightings((), 1, 5), weightings((), 1, 4))


def test_erase_and_add_of_a_full_stroke():
    """A head fully on a slot, erasing all: the slot holds what was added, the others what they held."""
    memory = normal((), 4, 3)
    w, all_of_it, a = one_hot(4, 2), torch.ones(1, 3, dtype=F64), normal((), 1, 3, seed=1)
    written = equations.add(equations.erase(memory, w, all_of_it), w, a)
    assert torch.equal(written[2], a[0])
    assert torch.equal(written[[0, 1, 3]], memory[[0, 1, 3]])


def test_order_of_heads_does_not_matter():
    memory, w = normal((2,), 5, 3), weightings((2,), 3, 5)
    e, a = torch.sigmoid(normal((2,), 3, 3)), normal((2,), 3, 3, seed=4)
    turned = [2, 0, 1]
    assert_near(equations.erase(memory, w, e), equations.erase(memory, w[:, turned], e[:, turned]), 1e-15)
    assert_near(equations.add(memory, w, a), equations.add(memory, w[:, turned], a[:, turned]), 1e-15)


@pytest.mark.parametrize(
    ("ones", "zeros", "p"), [(0, 0, 1 / 2), (1, 0, 3 / 4), (0, 1, 1 / 4), (3, 2, 3.5 / 6), (0, 195, 0.5 / 196)]
)
def test_bayes_ngram(ones, zeros, p):
    ours = equations.bayes_ngram(torch.tensor([[float(ones)]], dtype=F64), torch.tensor([[float(zeros)]], dtype=F64))
    assert_near(ours, torch.tensor([[p]], dtype=F64), 1e-16)
    assert equations.bayes_ngram(torch.tensor(ones), torch.tensor(zeros)).item() == pytest.approx(p, rel=1e-7)


# --- finite everywhere -----------------------------------------------------------------------------------------------


def assert_finite(function, *inputs, weighting=False):
    """Finite value and finite gradients of all inputs for a random weight on every output; weightings sum to one."""
    inputs = [value.clone().requires_grad_() for value in inputs]
    out = function(*inputs)
    assert torch.isfinite(out).all()
    if weighting:
        assert (out >= 0).all()
        assert (out.sum(-1) - 1).abs().max() < (1e-6 if out.dtype == torch.float32 else 1e-14)
    picked = torch.randn(out.shape, generator=generator(9), dtype=F64).to(out.dtype)
    for gradient in torch.autograd.grad((out * picked).sum(), inputs):
        assert torch.isfinite(gradient).all()


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, F64], ids=["float32", "float64"])
MAGNITUDES = [0.0, 1e-38, 1e-30, 1e-12, 1e-6, 1.0, 1e4, 1e19, 1e30]


@DTYPES
@pytest.mark.parametrize("slots", [1, 4])
def test_content_is_finite(dtype, slots):
    """Keys and rows of all sizes with each other, one row in each memory zero, at several strengths: as one batch."""
    size = torch.tensor(MAGNITUDES, dtype=F64)
    lead = (len(size), len(size), 4)
    keys = normal(lead, 2, 3) * size.view(-1, 1, 1, 1, 1)
    memory = normal(lead, slots, 3, seed=1) * size.view(1, -1, 1, 1, 1)
    memory[..., -1, :] = 0
    beta = torch.tensor([0.0, 1.0, 100.0, 1e4], dtype=F64).view(4, 1).expand(*lead, 2)
    given = keys.to(dtype), beta.to(dtype), memory.to(dtype)
    assert_finite(equations.content_weighting, *given, weighting=True)
    assert_finite(equations.cosine_similarity, given[0], given[2])
    assert equations.cosine_similarity(given[0], given[2]).abs().max() <= 1 + 4e-7


@DTYPES
def test_cosine_of_any_size_is_the_same(dtype):
    """From rows of 1e-3 to rows of 1e30: the epsilon in the norms, and squares that overflow, must not show."""
    keys, memory = normal((), 2, 5), normal((), 3, 5, seed=1)
    expected = equations.cosine_similarity(keys, memory)
    for by in (1e-3, 1.0, 1e10, 1e30):
        ours = equations.cosine_similarity((by * keys).to(dtype), (by * memory).to(dtype))
        assert (ours.to(F64) - expected).abs().max() < 2e-6


@DTYPES
def test_strength_chooses_the_row_that_fits(dtype):
    memory = torch.eye(4, dtype=dtype)
    w = equations.content_weighting(memory[1:2] * 7, torch.tensor([1e4], dtype=dtype), memory)
    assert torch.equal(w, memory[1:2])


@DTYPES
@pytest.mark.parametrize("gamma", [1.0, 1.5, 100.0, 1e4])
@pytest.mark.parametrize("slots", [1, 2, 7])
@pytest.mark.parametrize("kind", ["uniform", "one_hot", "zeros_and_more", "tiny", "all_zero", "near_tie"])
def test_sharpen_is_finite(dtype, gamma, slots, kind):
    w = {
        "uniform": torch.full((1, slots), 1 / slots, dtype=F64),
        "one_hot": one_hot(slots, 0),
        "zeros_and_more": torch.softmax(normal((), 1, slots), -1) * (torch.arange(slots) % 2 == 0),
        "tiny": 1e-30 * torch.rand(1, slots, generator=generator(3), dtype=F64),
        "all_zero": torch.zeros(1, slots, dtype=F64),
        "near_tie": torch.full((1, slots), 1 / slots, dtype=F64) * (1 + 1e-6 * normal((), 1, slots)),
    }[kind].to(dtype)
    assert_finite(equations.sharpen, w, torch.tensor([gamma], dtype=dtype), weighting=True)


@DTYPES
def test_sharpen_of_exact_zeros(dtype):
    """A slot without weight stays without weight; gamma = 1 changes nothing."""
    w = torch.tensor([[0.0, 0.25, 0.75, 0.0]], dtype=dtype)
    close = {"rtol": 0, "atol": 1e-7 if dtype == torch.float32 else 1e-15}
    torch.testing.assert_close(equations.sharpen(w, torch.ones(1, dtype=dtype)), w, **close)
    expected = torch.tensor([[0.0, 0.1, 0.9, 0.0]], dtype=dtype)
    torch.testing.assert_close(equations.sharpen(w, torch.tensor([2.0], dtype=dtype)), expected, **close)
    assert equations.sharpen(w, torch.tensor([100.0], dtype=dtype))[0, 2] == 1


@DTYPES
@pytest.mark.parametrize("size", MAGNITUDES)
def test_memory_is_finite(dtype, size):
    """Reading, erasing (two heads erasing the same slot fully) and adding, at any size of memory."""
    memory = (size * normal((), 4, 3)).to(dtype)
    w = torch.stack([one_hot(4, 1)[0], one_hot(4, 1)[0]]).to(dtype)
    full, some = torch.ones(2, 3, dtype=dtype), (size * normal((), 2, 3)).to(dtype)
    assert_finite(equations.read, memory, w)
    assert_finite(equations.erase, memory, w, full)
    assert_finite(equations.add, memory, w, some)


@DTYPES
@pytest.mark.parametrize("amount", [0.0, -0.0, 1.0, -1e-30, 1e-30, 0.9999999, 1e4, -1e4, 1e30, -1e30])
@pytest.mark.parametrize("slots", [1, 2, 7])
def test_scalar_shift_is_finite(dtype, amount, slots):
    given = one_hot(slots, 0).to(dtype), torch.tensor([amount], dtype=dtype)
    assert_finite(equations.scalar_shift, *given, weighting=True)


def values(limit):
    """Finite float32 numbers up to a limit, with those that hurt drawn often."""
    ends = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 1e-30, 1e-20, 1e-12, 1e-6, limit, -limit]
    return st.one_of(st.sampled_from(ends), st.floats(-limit, limit, width=32, allow_nan=False))


def arrays(count, limit):
    return st.lists(values(limit), min_size=count, max_size=count).map(lambda v: torch.tensor(v, dtype=torch.float32))


@st.composite
def machines(draw, limit):
    """Memory, keys, strengths, gates, shifts, sharpenings and a previous weighting for one to three slots and heads."""
    heads, slots, width = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    memory = draw(arrays(slots * width, limit)).view(slots, width)
    keys = draw(arrays(heads * width, limit)).view(heads, width)
    beta = draw(arrays(heads, 1e4)).abs()
    gate = draw(arrays(heads, 50.0)).sigmoid()
    shifts = torch.softmax(draw(arrays(heads * 3, 1e4)).view(heads, 3), -1)
    gamma = 1 + draw(arrays(heads, 99.0)).abs()
    previous = torch.softmax(draw(arrays(heads * slots, 1e4)).view(heads, slots), -1)
    return keys, beta, memory, gate, shifts, gamma, previous


def weighting(keys, beta, memory, gate, shifts, gamma, previous):
    """Eqs. 5 to 9 in one chain."""
    content = equations.content_weighting(keys, beta, memory)
    return equations.sharpen(equations.shift(equations.interpolate(gate, content, previous), shifts), gamma)


@pytest.mark.parametrize(("heads", "slots", "width"), SIZES)
def test_addressing_is_finite_for_thousands(heads, slots, width):
    """Sizes drawn log-uniformly from 1e-40 to 1e30, a fifth of all entries exactly zero."""
    lead, source = (1000,), generator(slots)

    def extreme(*shape, top=30.0):
        size = 10 ** (torch.rand(*lead, *shape, generator=source, dtype=F64) * (top + 40) - 40)
        keep = torch.rand(*lead, *shape, generator=source) > 0.2
        return (size * normal(lead, *shape).sign() * keep).float()

    gates = extreme(heads, top=2).sigmoid()
    spread = [torch.softmax(extreme(heads, n, top=4), -1) for n in (3, slots)]
    beta, gamma = extreme(heads, top=4).abs(), 1 + extreme(heads, top=2).abs()
    drawn = extreme(heads, width), beta, extreme(slots, width), gates, spread[0], gamma, spread[1]
    assert_finite(weighting, *drawn, weighting=True)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(machines(float(np.float32(1e30))))
def test_addressing_is_finite_for_anything(drawn):
    assert_finite(weighting, *drawn, weighting=True)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(machines(float(np.float32(1e15))))
def test_reading_is_finite_for_anything(drawn):
    """A memory of 1e15, because its entries are the slopes of what is read: they multiply those of the cosine."""
    assert_finite(lambda *parts: equations.read(parts[2], weighting(*parts)), *drawn)


# --- gradients -------------------------------------------------------------------------------------------------------

LEAD = (2,)
W, V = weightings(LEAD, 2, 4), weightings(LEAD, 2, 4, seed=5)
MEMORY, KEYS = normal(LEAD, 4, 3), normal(LEAD, 2, 3, seed=1)
ZERO_ROW = MEMORY.clone()
ZERO_ROW[:, 1] = 0
DIFFERENTIABLE = {
    "read": (equations.read, MEMORY, W),
    "erase": (equations.erase, MEMORY, W, torch.sigmoid(KEYS)),
    "erase, exact zeros": (
        equations.erase,
        MEMORY,
        one_hot(4, 1).expand(2, 2, 4).clone(),
        torch.ones(2, 2, 3, dtype=F64),
    ),
    "add": (equations.add, MEMORY, W, KEYS),
    "cosine_similarity": (equations.cosine_similarity, KEYS, MEMORY),
    "cosine_similarity, large": (equations.cosine_similarity, 50 * KEYS, 9 * MEMORY),
    "content_weighting": (
        equations.content_weighting,
        KEYS,
        3 * torch.rand(2, 2, generator=generator(6), dtype=F64),
        MEMORY,
    ),
    "interpolate": (equations.interpolate, torch.rand(2, 2, generator=generator(7), dtype=F64), W, V),
    "shift": (equations.shift, W, weightings(LEAD, 2, 3, seed=8)),
    "shift, more entries than slots": (equations.shift, W[..., :2], weightings(LEAD, 2, 5, seed=8)),
    "scalar_shift": (equations.scalar_shift, W, torch.tensor([[0.3, -1.6], [6.7, 2.4]], dtype=F64)),
    "sharpen": (equations.sharpen, W, 1 + 3 * torch.rand(2, 2, generator=generator(9), dtype=F64)),
    "bayes_ngram": (
        equations.bayes_ngram,
        torch.rand(5, dtype=F64, generator=generator(1)),
        torch.full((5,), 2.0, dtype=F64),
    ),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name):
    function, *inputs = DIFFERENTIABLE[name]
    inputs = tuple(value.clone().requires_grad_() for value in inputs)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_a_zero_row_attracts_its_key():
    """The slope of the cosine at a zero row is finite and points along the key, so that learning can leave it."""
    memory = ZERO_ROW.clone().requires_grad_()
    (slope,) = torch.autograd.grad(equations.cosine_similarity(KEYS, memory)[:, :, 1].sum(), memory)
    for b in range(2):
        along = sum(KEYS[b, h] / KEYS[b, h].norm() for h in range(2)) / equations.NORM_EPSILON**0.5
        torch.testing.assert_close(slope[b, 1], along, rtol=1e-10, atol=0)
