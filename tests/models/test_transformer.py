"""The Transformer: a loop in numpy, splits, padding, gradients, skipped sub-layers, addressed dropout."""

import math

import numpy as np
import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

import tapehead
from tapehead.losses import BINARY, CATEGORICAL
from tapehead.models.transformer.attention import TransformerState, make_scene, rotate
from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet

pytestmark = pytest.mark.usefixtures("one_thread")  # for tensors as small as these
F64 = torch.float64
POSITIONS = ("rotary", "alibi", "none")
CLOSE = {"rtol": 0, "atol": 2e-14}
"""Seen: 4e-15, on logits and keys of size 4."""

every_position = pytest.mark.parametrize("positions", POSITIONS)


def build(positions="rotary", layers=3, seed=0, **options):
    model = Transformer(4, 3, 8, layers, num_heads=2, mlp_ratio=3, positions=positions, dtype=F64, **options)
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too
            parameter.copy_(torch.rand(parameter.shape, generator=source, dtype=F64) * 2 - 1)
    return model


def inputs(*shape, seed=1):
    return torch.randn(*shape, 4, generator=torch.Generator().manual_seed(seed), dtype=F64)


def assert_close(ours, expected):
    torch.testing.assert_close(ours, expected, **CLOSE)


# --- an independent oracle -------------------------------------------------------------------------------------------


def norm(v, gain, bias):
    return (v - v.mean()) / math.sqrt(v.var() + 1e-5) * gain + bias


def turned(v, position):
    """Pairs (j, j + D / 2) as complex numbers, multiplied by e^(i angle)."""
    half = len(v) // 2
    pairs = v[:half] + 1j * v[half:]
    pairs = pairs * np.exp(1j * position * 10000.0 ** (-np.arange(half) / half))
    return np.concatenate([pairs.real, pairs.imag])


def oracle(model, x, skip):
    """One sequence [T, I], step by step, head by head, with lists for the cache."""
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}
    size = model.hidden_size // model.num_heads
    keys, values = ([[[] for _ in range(model.num_heads)] for _ in range(model.num_layers)] for _ in range(2))
    answers = []
    for t, seen in enumerate(x.numpy()):
        h = p["embed.weight"] @ seen + p["embed.bias"]
        for i in range(model.num_layers):
            part = {name.removeprefix(f"layers.{i}."): value for name, value in p.items()}
            if i not in skip.attention:
                n = norm(h, part["attention_norm.weight"], part["attention_norm.bias"])
                q, k, v = np.split(part["attention_in.weight"] @ n + part["attention_in.bias"], 3)
                read = []
                for head in range(model.num_heads):
                    mine = slice(head * size, (head + 1) * size)
                    rotary = model.positions == "rotary"
                    query, key = (turned(a[mine], t) if rotary else a[mine] for a in (q, k))
                    keys[i][head].append(key)
                    values[i][head].append(v[mine])
                    scores = np.array([query @ other for other in keys[i][head]]) / math.sqrt(size)
                    if model.positions == "alibi":
                        slope = 2 ** (-8 * (head + 1) / model.num_heads)
                        scores = scores - slope * np.arange(t, -1, -1)
                    weights = np.exp(scores - scores.max())
                    read.append(weights / weights.sum() @ np.array(values[i][head]))
                h = h + part["attention_out.weight"] @ np.concatenate(read) + part["attention_out.bias"]
            if i not in skip.mlp:
                n = norm(h, part["mlp_norm.weight"], part["mlp_norm.bias"])
                a = part["mlp_in.weight"] @ n + part["mlp_in.bias"]
                a = a * 0.5 * (1 + np.array([math.erf(value / math.sqrt(2)) for value in a]))
                h = h + part["mlp_out.weight"] @ a + part["mlp_out.bias"]
        answers.append(p["output.weight"] @ norm(h, p["norm.weight"], p["norm.bias"]) + p["output.bias"])
    return np.array(answers), keys, values


@every_position
@pytest.mark.parametrize(
    "skip", [SkipSet(), SkipSet(attention=(1,), mlp=(0, 1)), SkipSet(attention=(0, 1), mlp=(0, 1))]
)
def test_against_loops(positions, skip):
    model = build(positions, layers=2)
    x = inputs(6, 2)
    y, state = model.skipping(skip)(x)
    for b in range(2):
        answers, keys, values = oracle(model, x[:, b], skip)
        assert_close(y[:, b].detach(), torch.from_numpy(answers))
        for i in {0, 1} - set(skip.attention):
            assert_close(state.keys[b, i].detach(), torch.from_numpy(np.array(keys[i])))
            assert_close(state.values[b, i].detach(), torch.from_numpy(np.array(values[i])))
        for i in skip.attention:
            assert not state.keys[b, i].any()
    assert state.steps.tolist() == [6, 6]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rotary_positions_in_half_precision(dtype):
    """Vectors after thousands of steps are turned by their own angles. Seen: 2.1 eps; 5.8 with angles in `dtype`."""
    size, first, steps = 8, 4000, 300
    vectors = torch.randn(1, 1, steps, size, generator=torch.Generator().manual_seed(3)).to(dtype)
    cache = torch.zeros(1, 1, 1, first, size, dtype=dtype)
    past = TransformerState(cache, cache, torch.tensor([first]))
    ours = rotate(vectors, make_scene(past, steps, "rotary", even=True).angles)
    assert ours.dtype == dtype
    expected = np.stack([turned(v, first + t) for t, v in enumerate(vectors[0, 0].double().numpy())])
    limit = {"rtol": 0, "atol": 3 * torch.finfo(dtype).eps}
    torch.testing.assert_close(ours[0, 0].double(), torch.from_numpy(expected), **limit)


# --- the contract ----------------------------------------------------------------------------------------------------


@every_position
def test_split_and_stepwise_equal_the_whole(positions):
    model, x = build(positions), inputs(9, 2)
    whole, end = model(x)
    for pieces in ([4, 5], [1] * 9, [2, 1, 6]):
        state, parts = None, []
        for piece in x.split(pieces):
            y, state = model(piece, state)
            parts.append(y)
        assert_close(torch.cat(parts), whole)
        assert_close(tuple(state), tuple(end))


@pytest.mark.parametrize("padding", [1e3, math.nan, -math.inf])
@every_position
def test_rows_of_different_lengths_go_on_each_from_its_own_step(positions, padding):
    """And what lies in the padding does not matter."""
    model, first, second = build(positions), inputs(5, 3), inputs(4, 3, seed=2)
    lengths, more = torch.tensor([5, 2, 3]), torch.tensor([1, 4, 2])
    for x, counts in ((first, lengths), (second, more)):
        for b, count in enumerate(counts.tolist()):
            x[count:, b] = padding
    y, state = model(first, lengths=lengths)
    assert state.keys.shape == (3, 3, 2, 5, 4)
    y2, state2 = model(second, state, more)
    assert state2.steps.tolist() == [6, 6, 5]
    assert state2.keys.shape[3] == 6
    for b in range(3):
        n, m = int(lengths[b]), int(more[b])
        alone, end = model(torch.cat([first[:n, b], second[:m, b]]))
        assert_close(y[:n, b], alone[:n])
        assert_close(y2[:m, b], alone[n:])
        assert not y[n:, b].any()
        assert not y2[m:, b].any()
        assert_close(state2.keys[b, :, :, : n + m], end.keys)
        assert_close(state2.values[b, :, :, : n + m], end.values)
        assert not state2.keys[b, :, :, n + m :].any()


@pytest.mark.parametrize("steps", [[9, 4], [-3, 4]])
def test_steps_that_a_cache_does_not_have(steps):
    model = build()
    _, state = model(inputs(4, 2))
    with pytest.raises(ValueError, match=r"state.steps has -?\d to \d, but the cache has 4 columns: give 0 to 4"):
        model(inputs(2, 2), state._replace(steps=torch.tensor(steps)))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@every_position
def test_forward_derivatives(positions):
    model, x, v = build(positions), inputs(5, 2), inputs(5, 2, seed=4)
    y, along = torch.func.jvp(lambda x: model(x)[0], (x,), (v,))
    step = 1e-6
    expected = (model(x + step * v)[0] - model(x - step * v)[0]) / (2 * step)
    assert_close(y, model(x)[0])
    torch.testing.assert_close(along, expected, rtol=1e-6, atol=1e-8)


def test_state_is_a_value():
    """Two interleaved sequences through one module equal two separate runs; a list of tensors will do."""
    model, one, other = build(), inputs(6, 1), inputs(6, 1, seed=2)
    a = b = None
    ys = []
    for t in range(6):
        y, a = model(one[t : t + 1], a)
        _, b = model(other[t : t + 1], None if b is None else list(b))
        ys.append(y)
    assert_close(torch.cat(ys), model(one)[0])
    kept = [part.clone() for part in a]
    model(other, a)
    assert all(torch.equal(part, before) for part, before in zip(a, kept, strict=True))


@every_position
def test_gradients(positions):
    model = build(positions, layers=1)
    x = inputs(3, 2).requires_grad_()
    state = TransformerState(*(p.detach() for p in model(inputs(2, 2, seed=4))[1]))

    def f(x, keys, flat):
        past = TransformerState(keys, state.values, state.steps)
        y, after = functional_call(model, model.split_flat(flat), (x, past, torch.tensor([3, 2])))
        return torch.cat([part.flatten() for part in (y, after.keys, after.values)])

    given = (x, state.keys.clone().requires_grad_(), model.flat_parameters().requires_grad_())
    assert torch.autograd.gradcheck(f, given, fast_mode=True)


def test_the_trace_holds_what_was_attended_to():
    model, x = build(layers=2), inputs(5, 2)
    y, _, trace = model(x, return_trace=True)
    assert_close(y, model(x)[0])
    assert trace.attention.shape == (5, 2, 2, 2, 5)
    assert_close(trace.attention.sum(-1), torch.ones(5, 2, 2, 2, dtype=F64))
    assert not trace.attention[2, ..., 3:].any()
    _, state = model(x[:3])
    later = model(x[3:], state, torch.tensor([2, 1]), return_trace=True)[2].attention
    assert_close(later[:, 0], trace.attention[3:, 0])
    assert not later[1, 1].any()
    skipped = model.skipping(SkipSet(attention=(0,)))(x, return_trace=True)[2].attention
    assert not skipped[:, :, 0].any()
    assert bool((skipped[:, :, 1].sum(-1) > 0.5).all())


@every_position
def test_vmap_over_seeds(positions):
    models, x = [build(positions, seed=s) for s in range(3)], inputs(4, 2)
    parameters, _ = stack_module_state(models)
    lengths = torch.tensor([4, 3])
    ys = vmap(lambda p: functional_call(models[0], p, (x, None, lengths))[0])(parameters)
    for model, y in zip(models, ys, strict=True):
        assert_close(y, model(x, lengths=lengths)[0])


def test_batch_first_and_unbatched():
    model, x = build(), inputs(5, 2)
    y, state = model(x)
    first = build(batch_first=True)
    turned_y, turned_state = first(x.transpose(0, 1))
    assert_close(turned_y, y.transpose(0, 1))
    assert_close(tuple(turned_state), tuple(state))
    alone, alone_state = model(x[:, 0])
    assert_close(alone, y[:, 0])
    assert alone_state.steps.shape == ()
    assert_close(model(x[:2, 0], alone_state)[0], model(x[:2, :1], model(x[:, :1])[1])[0][:, 0])


@pytest.mark.parametrize("width", [32, 512])
def test_initial_scales(width):
    """At the start logits are of a size of about one, whatever the width and the depth."""
    for layers in (1, 3):
        model = Transformer(10, 8, width, layers)
        model.reset_parameters(torch.Generator().manual_seed(3))
        x = (torch.rand(16, 8, 10, generator=torch.Generator().manual_seed(1)) < 0.5).float()
        assert 0.2 < float(model(x)[0].detach().std()) < 2
    other = Transformer(10, 8, width, 3)
    other.reset_parameters(torch.Generator().manual_seed(3))
    assert torch.equal(other.flat_parameters(), model.flat_parameters())


def test_a_deep_model_learns_from_sequences_that_begin_with_zeros():
    model = Transformer(4, 3, 16, 40)
    model.reset_parameters(torch.Generator().manual_seed(0))
    x = inputs(5, 2).float()
    x[0] = 0

    def gradient():
        model.zero_grad()
        model(x)[0].square().sum().backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()

    beginning_with_zeros = gradient()
    with torch.no_grad():
        model.embed.bias.zero_()
    assert not torch.isfinite(gradient())  # what the bias is for
    x[0] = 1
    assert beginning_with_zeros < 6 * gradient()  # seen: 4.4 times


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"hidden_size": 10}, "hidden_size is 10, but 4 heads share it: give a multiple of 4"),
        ({"hidden_size": 12}, "a head has 3 values, but rotary positions turn pairs"),
        ({"positions": "sine"}, "positions 'sine'"),
        ({"dropout": 1.0}, "dropout is 1.0, but it is a probability"),
        ({"dropout": 0.1, "num_layers": 128}, "with dropout it must be at most 127"),
        ({"num_layers": 0}, "num_layers is 0, but it must be a whole number of at least 1"),
        ({"hidden_size": 2**20}, "parameters"),
    ],
)
def test_options_that_do_not_fit(options, why):
    with pytest.raises(ValueError, match=why):
        Transformer(3, 2, **options)


def test_calls_that_do_not_fit():
    model = build()
    with pytest.raises(ValueError, match="has no memory"):
        model(inputs(2, 1), slots=torch.tensor([1]))
    with pytest.raises(TypeError, match="keys, values, steps"):
        model(inputs(2, 1), (torch.zeros(1),))
    with pytest.raises(ValueError, match=r"state\.keys"):
        model(inputs(2, 1), model.initial_state(2))
    with pytest.raises(ValueError, match="attention of layer 3 is to be skipped, but the model's layers are 0 to 2"):
        model.skipping(SkipSet(attention=(3,)))


# --- sub-layers ------------------------------------------------------------------------------------------------------


def test_sub_layers_are_numbered_from_one_attention_first():
    skip = SkipSet(attention=(2, 0), mlp=[0])
    assert skip.attention == (0, 2)
    assert skip.numbers == (1, 2, 5)
    assert SkipSet.of_numbers([5, 2, 1]) == skip == SkipSet.of_bits([1, 1, 0, 0, 1, 0])
    assert skip.to_plain() == {"attention": [0, 2], "mlp": [0]}
    assert SkipSet.from_plain(skip.to_plain()) == skip
    assert (len(skip), len(SkipSet())) == (3, 0)
    for wrong in ({"attention": (-1,)}, {"mlp": (1, 1)}):
        with pytest.raises(ValueError, match="it must be different layers"):
            SkipSet(**wrong)
    with pytest.raises(ValueError, match="numbered from 1"):
        SkipSet.of_numbers([0])


def test_a_skipping_model_has_the_same_parameters_and_leaves_the_other_as_it_was():
    model, x = build(), inputs(4, 1)
    before, _ = model(x)
    twin = model.skipping(SkipSet(mlp=(1,)))
    assert not torch.equal(twin(x)[0], before)
    assert torch.equal(model(x)[0], before)
    with torch.no_grad():
        model.output.bias += 1
    assert torch.equal(twin.output.bias, model.output.bias)
    assert torch.equal(twin.skipping(SkipSet())(x)[0], model(x)[0])


# --- dropout ---------------------------------------------------------------------------------------------------------


def test_dropout_is_addressed():
    model, x = build(dropout=0.4), inputs(5, 2)
    source = tapehead.stream(3, "d", 7)
    y, _ = model.dropping(source)(x)
    source.bits(1, 1)
    assert torch.equal(model.dropping(source)(x)[0], y)  # whatever the stream has drawn before
    assert not torch.equal(model.dropping(tapehead.stream(3, "d", 8))(x)[0], y)
    assert_close(model.dropping(source)(x[:, :1])[0], y[:, :1])  # nor the other rows
    assert_close(model.dropping(source)(x[:3])[0], y[:3])  # nor later steps
    without = build()
    assert torch.equal(model.eval()(x)[0], without(x)[0])
    assert torch.equal(model.dropping(source)(x)[0], without(x)[0])
    with pytest.raises(ValueError, match=r"needs an address: call model.dropping"):
        model.train()(x)


def test_dropout_of_a_sequence_in_pieces_is_that_of_the_whole():
    model, x = build(dropout=0.4), inputs(9, 3)
    drops = model.dropping(tapehead.stream(3, "d", 7))
    whole, _ = drops(x)
    y, state = drops(x[:4])
    assert_close(torch.cat([y, drops(x[4:], state)[0]]), whole)
    lengths = torch.tensor([4, 1, 3])
    y, state = drops(x[:4], lengths=lengths)
    rest = torch.stack([x[n : n + 5, b] for b, n in enumerate(lengths.tolist())], dim=1)
    later, _ = drops(rest, state)
    for b, n in enumerate(lengths.tolist()):
        assert_close(torch.cat([y[:n, b], later[:, b]]), whole[: n + 5, b])


def test_dropout_drops_its_share_and_keeps_the_mean():
    model = build(dropout=0.25)
    ones = torch.ones(40, 50, 8, dtype=F64)
    dropped = model._dropped(ones, tapehead.stream(0, "d", 0), model.initial_state(40), True)
    assert set(dropped.unique().tolist()) == {0.0, 1 / 0.75}
    share = float((dropped == 0).double().mean())
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / ones.numel())


@pytest.mark.parametrize("loss", [BINARY, CATEGORICAL])
def test_gradients_of_a_population_with_dropout_are_those_of_each_seed(loss):
    model = Transformer(4, 3, 8, 2, num_heads=2, dropout=0.2)
    flat = model.initial_population([1, 2])
    x, mask, lengths = torch.rand(2, 4, 3, 4), torch.ones(2, 4, 3), torch.full((2, 3), 4)
    targets = torch.nn.functional.one_hot(torch.randint(0, 3, (2, 4, 3)), 3).float()
    draws = [tapehead.stream(seed, "d", 5) for seed in (1, 2)]
    costs, gradient, _ = model.loss_and_gradient(flat, x, targets, mask, lengths, loss=loss, draws=draws)
    for s in range(2):
        own = flat[s].clone().requires_grad_()
        y, _ = functional_call(model.dropping(draws[s]), model.split_flat(own), (x[s],))
        each = loss.nats(y, targets[s], mask[s])
        torch.testing.assert_close(costs[s], each.detach(), rtol=1e-6, atol=0)
        (expected,) = torch.autograd.grad(each.mean(), own)
        torch.testing.assert_close(gradient[s], expected, rtol=1e-5, atol=1e-7)
