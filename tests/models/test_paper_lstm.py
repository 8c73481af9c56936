"""The paper's LSTM baseline: its parameter counts, a loop in numpy, and the contract of a sequence model."""

import numpy as np
import oracles
import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from tapehead.models.lstm import LSTMState, PaperLSTM

F64 = torch.float64


def build(seed=0, layers=3, size=5, **options):
    model = PaperLSTM(4, 2, size, layers, dtype=F64, **options)
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():  # the initial states and biases too
            parameter.copy_(torch.rand(parameter.shape, generator=source, dtype=F64) * 2 - 1)
    return model


def inputs(*shape, seed=1):
    return torch.randn(*shape, 4, generator=torch.Generator().manual_seed(seed), dtype=F64)


def assert_same(ours, expected, tolerance=1e-14):
    if not isinstance(ours, torch.Tensor):
        for mine, theirs in zip(ours, expected, strict=True):
            assert_same(mine, theirs, tolerance)
        return
    assert ours.shape == expected.shape
    assert float((ours - expected).detach().abs().max()) <= tolerance * max(1.0, float(expected.detach().abs().max()))


def rows(state, chosen):
    return LSTMState(*(part[chosen] for part in state))


@pytest.mark.parametrize(
    ("h", "x", "y", "printed"),
    [
        (256, 10, 9, 1_352_969),
        (512, 8, 7, 5_312_007),
        (256, 8, 6, 1_344_518),
        (128, 1, 1, 331_905),
        (128, 10, 8, 348_424),  # printed as 384,424
    ],
)
def test_table_3(h, x, y, printed):
    count = sum(parameter.numel() for parameter in PaperLSTM(x, y, h, device="meta").parameters())
    assert count == 4 * h * (3 * x + 5 * h + 3) + 6 * h + y * (3 * h + 1) == printed


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_count_of_other_depths(layers):
    h, x, y = 5, 4, 2
    count = sum(parameter.numel() for parameter in build(layers=layers).parameters())
    assert count == 4 * h * (layers * x + (2 * layers - 1) * h + layers) + 2 * layers * h + y * (layers * h + 1)


@pytest.mark.parametrize("layers", [1, 3])
def test_against_loops(layers):
    """The input reaches every layer, every layer the output, the start is learned."""
    model = build(layers=layers)
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}
    x = inputs(6, 2)
    y, state = model(x)
    for b in range(2):
        hidden, cell = list(p["initial_hidden"]), list(p["initial_cell"])
        for t in range(6):
            seen = x[t, b].numpy()
            below = seen
            for layer in range(layers):
                weight = np.concatenate([p[f"weight_input_{layer}"], p[f"weight_hidden_{layer}"]], axis=1)
                hidden[layer], cell[layer] = oracles.lstm_step(
                    below, hidden[layer], cell[layer], weight, p[f"bias_{layer}"]
                )
                below = np.concatenate([seen, hidden[layer]])
            logits = p["output_weight"] @ np.concatenate(hidden) + p["output_bias"]
            assert_same(y[t, b], torch.from_numpy(logits))
        assert_same(state.hidden[b], torch.from_numpy(np.stack(hidden)))
        assert_same(state.cell[b], torch.from_numpy(np.stack(cell)))


def test_layouts():
    model, first = build(), build(batch_first=True)
    x = inputs(5, 3)
    y, state = model(x)
    y_first, state_first = first(x.transpose(0, 1))
    assert_same(y_first.transpose(0, 1), y, 0)
    assert_same(state_first, state, 0)
    for b in range(3):
        y_one, state_one = model(x[:, b])
        assert_same(y_one, y[:, b])
        assert_same(state_one, rows(state, b))


def test_lengths_and_garbage_in_the_padding():
    model = build()
    lengths = torch.tensor([2, 6, 4, 1])
    padding = torch.arange(6).unsqueeze(-1) >= lengths
    x = inputs(6, 4)
    clean = torch.where(padding.unsqueeze(-1), 0.0, x)
    dirty = torch.where(padding.unsqueeze(-1), float("nan"), x).requires_grad_()
    (y, state, trace), (y_dirty, state_dirty) = (
        model(clean, lengths=lengths, return_trace=True),
        model(dirty, lengths=lengths),
    )
    assert_same([y_dirty, *state_dirty], [y, *state], 0)
    for b, length in enumerate(lengths.tolist()):
        y_one, state_one = model(x[:length, b])
        assert_same(y[:length, b], y_one)
        assert not y[length:, b].any()
        assert_same(rows(state, b), state_one)
        assert_same(trace.hidden[length - 1, b], state.hidden[b])
        assert not trace.hidden[length:, b].any()
    slopes = torch.autograd.grad(y_dirty.sum() + sum(part.sum() for part in state_dirty), [dirty, *model.parameters()])
    assert all(torch.isfinite(slope).all() for slope in slopes)
    assert not slopes[0][padding].any()


def test_split_run_is_the_whole_run():
    model = build()
    x, lengths = inputs(7, 3), torch.tensor([7, 5, 4])
    y, state = model(x, lengths=lengths)
    y_1, middle = model(x[:3])
    y_2, final = model(x[3:], middle, lengths - 3)
    assert_same(torch.cat([y_1, y_2]), y)
    assert_same(final, state)


def test_interleaved_sequences():
    model = build()
    x, z = inputs(4, 2), inputs(4, 2, seed=5)
    state_x = state_z = None
    for t in range(4):
        y_x, state_x = model(x[t : t + 1], state_x)
        y_z, state_z = model(z[t : t + 1], state_z)
        assert_same(y_x[0], model(x)[0][t])
        assert_same(y_z[0], model(z)[0][t])


def test_gradients():
    """Of everything, the learned initial states included, against finite differences."""
    model = build(layers=2, size=3)
    names, values = zip(
        *((name, value.detach().requires_grad_()) for name, value in model.named_parameters()), strict=True
    )
    lengths = torch.tensor([3, 1])

    def run(x, *values):
        y, state = functional_call(model, dict(zip(names, values, strict=True)), (x, None, lengths))
        return y, *state

    assert torch.autograd.gradcheck(run, (inputs(3, 2).requires_grad_(), *values))


def test_learned_initial_states_get_gradients():
    model = PaperLSTM(4, 2, 5)  # as it starts in training
    model(inputs(4, 3).float())[0].square().sum().backward()
    for parameter in (model.initial_hidden, model.initial_cell):
        assert (parameter.grad.abs().amax(dim=-1) > 0).all()  # every layer's


def test_vmap_over_machines():
    models = [build(seed) for seed in range(3)]
    stacked, _ = stack_module_state(models)
    x = inputs(4, 2)
    y, state = vmap(lambda p, x: functional_call(models[0], p, (x,)), in_dims=(0, None))(stacked, x)
    for k, model in enumerate(models):
        y_one, state_one = model(x)
        assert_same(y[k], y_one)
        assert_same(rows(state, k), state_one)


def test_vmap_over_batches():
    model, x = build(), inputs(3, 4, 2)
    y, _ = vmap(model)(x)
    for k in range(3):
        assert_same(y[k], model(x[k])[0])


def test_state_dict_is_strict():
    model, other = build(0), build(1)
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other(inputs(3, 2))[0], model(inputs(3, 2))[0])
    with pytest.raises(RuntimeError, match="weight_input_2"):
        build(layers=2).load_state_dict(model.state_dict())


def test_population_is_each_by_itself():
    """Rows of flat parameters: logits and gradients are those of the single machines, to the bit."""
    model = build()
    flat = model.initial_population([3, 4, 5])
    x, lengths = inputs(3, 4, 2), torch.tensor([[4, 2], [3, 3], [1, 4]])
    targets = (inputs(3, 4, 2, seed=9)[..., :2] > 0).to(F64)
    mask = (torch.arange(4).view(1, 4, 1) < lengths.unsqueeze(1)).to(F64)
    costs, gradient, _ = model.loss_and_gradient(flat, x, targets, mask, lengths)
    for s in range(3):
        one = slice(s, s + 1)
        costs_one, gradient_one, _ = model.loss_and_gradient(flat[one], x[one], targets[one], mask[one], lengths[one])
        assert torch.equal(costs[one], costs_one)
        assert torch.equal(gradient[one], gradient_one)
        model.load_flat(flat[s])
        y, _ = model(x[s], lengths=lengths[s])
        p = torch.sigmoid(y)
        nats = -(targets[s] * p.log() + (1 - targets[s]) * (1 - p).log()) * mask[s].unsqueeze(-1)
        assert_same(costs[s], nats.sum(dim=(0, 2)).detach(), 1e-13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"num_layers": 1.5}, "num_layers is 1.5"),
        ({"input_size": True}, "True"),
        ({"hidden_size": 10**12}, "hidden_size is 1000000000000.*at most"),
        ({"hidden_size": 2**20}, r"make \d+ parameters.*at most"),
        ({"num_layers": 10**6}, "num_layers is 1000000.*at most 1024"),
        ({"batch_first": None}, "batch_first is None"),
        ({"dtype": torch.bool}, "dtype is torch.bool"),
    ],
)
def test_bad_sizes(options, message):
    with pytest.raises(ValueError, match=message):
        PaperLSTM(**{"input_size": 4, "output_size": 2, **options})


def test_no_memory_no_slots():
    with pytest.raises(ValueError, match=r"slots were given.*leave them out"):
        build()(inputs(3, 2), slots=torch.tensor([1, 1]))


def test_bad_input_and_state():
    model = build()
    state = model.initial_state(2)
    for x, given, message in (
        (None, None, "input is of type NoneType"),
        (inputs(0, 2), None, "no time steps"),
        (inputs(3, 2).to_sparse(), None, "input is torch.sparse_coo"),
        (inputs(3, 2), {"hidden": 1}, "state is a dict.*hidden, cell"),
        (inputs(3, 2), state[:1], "state is a tuple of 1"),
        (inputs(3, 2), model.initial_state(3), r"state.hidden has shape \(3, "),
        (inputs(3, 2), (state[0].half(), state[1]), "state.hidden is torch.float16"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            model(x, given)
    assert torch.equal(model(inputs(3, 2), list(state))[0], model(inputs(3, 2), state)[0])


def test_an_empty_batch():
    y, state, trace = build()(inputs(3, 0), lengths=torch.zeros(0, dtype=torch.int64), return_trace=True)
    assert y.shape[:2] == trace.hidden.shape[:2] == (3, 0)
    assert len(state.hidden) == 0
