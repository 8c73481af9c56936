"""Populations of Transformers in batched products, as on a GPU: against one seed after the other."""

import pytest
import torch
from tiny import tiny

import tapehead
from tapehead.experiment.cuda_graphs import one_by_one
from tapehead.experiment.loop import Trainer
from tapehead.losses import BINARY, CATEGORICAL, Binary
from tapehead.models.side_by_side import filled, groups
from tapehead.models.transformer import model as transformer
from tapehead.models.transformer import population
from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet

pytestmark = pytest.mark.usefixtures("one_thread")
F64 = torch.float64
CLOSE = {"rtol": 0, "atol": 1e-14}
"""Seen: 3.6e-15, on costs of size 8 and gradients of size 3."""


def problem(seeds=3, dtype=F64, **options):
    """A model with an odd number of parameters, and what a population of it is trained on."""
    source = torch.Generator().manual_seed(5)
    model = Transformer(5, 3, 12, 3, num_heads=2, dtype=dtype, **options)
    steps, batch, count = 7, 4, model.flat_parameters().numel()
    assert count % 4 == 3
    flat = 0.3 * torch.randn(seeds, count, generator=source, dtype=dtype)
    inputs = torch.randn(seeds, steps, batch, 5, generator=source, dtype=dtype)
    answers = torch.randint(0, 3, (seeds, steps, batch), generator=source)
    lengths = torch.randint(1, steps + 1, (seeds, batch), generator=source)
    mask = (torch.arange(steps).view(1, -1, 1) < lengths.unsqueeze(1)).to(dtype)
    return model, flat, inputs, torch.nn.functional.one_hot(answers, 3).to(dtype), mask, lengths


@pytest.mark.parametrize("loss", [BINARY, CATEGORICAL])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("skip", [SkipSet(), SkipSet(attention=(1,), mlp=(0,))])
@pytest.mark.parametrize("positions", ["rotary", "alibi", "none"])
def test_batched_products_compute_what_one_seed_after_the_other_does(positions, skip, dropout, loss):
    model, *given, lengths = problem(positions=positions, dropout=dropout)
    model = model.skipping(skip)
    draws = [tapehead.stream(seed, "noise", 4) for seed in range(3)] if dropout else None
    costs, gradient, _ = model.loss_and_gradient(*given, lengths, loss=loss, draws=draws)
    ours = population.loss_and_gradient(model, *given, loss, draws)
    torch.testing.assert_close(ours, (costs, gradient), **CLOSE)


def test_sums_in_pieces(monkeypatch):
    assert population._pieces(10, 384, 128, 3200, 16) == 4
    assert population._pieces(1, 768, 256, 8192, 32) == 8
    assert population._pieces(10, 384, 128, 164, 4) == 1
    assert population._pieces(1, 8, 8, 10_000, 6) == 2
    model, *given, lengths = problem()
    costs, gradient, _ = model.loss_and_gradient(*given, lengths)
    monkeypatch.setattr(population, "FEWEST_TOKENS", 1)
    assert population._pieces(10, 36, 12, 28, 4) == 4
    torch.testing.assert_close(population.loss_and_gradient(model, *given, BINARY, None), (costs, gradient), **CLOSE)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_seed_alone_is_the_seed_among_others(dropout):
    model, *given, _ = problem(seeds=12, dtype=torch.float32, dropout=dropout)  # a whole group, and one of two
    draws = [tapehead.stream(seed, "noise", 4) for seed in range(12)]
    costs, gradient = population.loss_and_gradient(model, *given, BINARY, draws if dropout else None)
    for s in (0, 7, 11):
        alone = [part[s : s + 1] for part in given]
        cost, own = population.loss_and_gradient(model, *alone, BINARY, draws[s : s + 1] if dropout else None)
        assert torch.equal(cost[0], costs[s])
        assert torch.equal(own[0], gradient[s])


def test_a_group_is_as_many_seeds_whatever_the_population():
    assert groups(12, 5) == [slice(0, 5), slice(5, 10), slice(10, 12)]
    assert filled(torch.tensor([[1], [2]]), 4).flatten().tolist() == [1, 2, 2, 2]
    assert population.seeds_of_a_group(800_000) == population.MOST_SEEDS
    assert population.seeds_of_a_group(31_700_000) == 1
    assert Transformer(5, 3, 16, 1).seeds_together == population.MOST_SEEDS


@pytest.mark.parametrize("positions", ["rotary", "alibi", "none"])
def test_nothing_waits_for_the_device(positions):
    """On a device without numbers whatever looks at one is an error: so it is for one seed after the other."""
    model, flat, inputs, _, _, lengths = (part.to("meta") for part in problem(positions=positions, dtype=torch.float32))
    own = flat.requires_grad_()
    y = population.logits(model, own, inputs)
    assert torch.autograd.grad(y.sum(), own)[0].shape == flat.shape
    with pytest.raises(RuntimeError, match="meta"):
        model.loss_and_gradient(flat, inputs, y.detach(), y[..., 0].detach(), lengths)


def test_what_a_graph_reads_is_kept_and_told():
    model, flat, inputs, *_ = problem(positions="rotary")
    assert model.constants() == []
    population.logits(model, flat, inputs)
    kept = model.constants()
    assert len(kept) == 4
    population.logits(model, flat, inputs)
    assert all(one is other for one, other in zip(kept, model.constants(), strict=True))
    for steps in range(1, 2 * transformer.MOST_TABLES):
        model.tables(steps, flat)
    assert len(model._tables) <= transformer.MOST_TABLES


def test_what_can_be_captured(monkeypatch):
    class Own(Binary):
        """Of which nothing is known."""

    assert not Transformer(5, 3, 16, 1).capturable(BINARY)
    assert not tapehead.NTM(5, 3).capturable(BINARY)
    assert not tapehead.PaperLSTM(5, 3).capturable(BINARY)
    monkeypatch.setattr(transformer, "_side_by_side", lambda flat: True)
    assert Transformer(5, 3, 16, 1).capturable(CATEGORICAL)
    assert not Transformer(5, 3, 16, 1).capturable(Own())
    assert not Transformer(5, 3, 16, 1, dropout=0.1).capturable(BINARY)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_training_side_by_side(monkeypatch, dropout):
    """Seeds that are alone end where they end among others, and near where a CPU takes them one by one."""
    settings = {"model": "transformer", "optimiser": "adam", "clip": "norm", "limit": 1.0, "learning_rate": 1e-3}
    settings |= {"model.hidden_size": 12, "model.num_layers": 2, "model.num_heads": 2, "model.dropout": dropout}

    def trained(*seeds):
        trainer = Trainer(tiny(seeds=seeds, batch_size=4, episodes=160, **settings))
        trainer._step = one_by_one
        trainer.block()
        return trainer.tensors()

    apart = trained(5, 6, 7)
    monkeypatch.setattr(transformer, "_side_by_side", lambda flat: True)
    together, alone = trained(5, 6, 7), trained(7)
    for name, tensor in alone.items():
        assert torch.equal(tensor[0], together[name][2]), name
    weights = [tensors["update.parameters"] for tensors in (apart, together)]
    torch.testing.assert_close(*weights, rtol=0, atol=6e-6)  # seen: 3e-6
    assert not torch.equal(*weights)
