"""Draft and verify gives what plain decoding gives: the same tokens, or tokens of the same distribution."""

import math

import pytest
import torch

from tapehead.models.lstm import PaperLSTM
from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet
from tapehead.streams import stream
from tapehead.sublayers.decoding import Draft, decode, draft_and_verify, pick, verify

pytestmark = pytest.mark.usefixtures("one_thread")  # for tensors as small as these
F64 = torch.float64


def build(layers=3, tokens=5, seed=0, scale=0.7):
    model = Transformer(tokens, tokens, 8, layers, num_heads=2, dtype=F64).eval()
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((torch.rand(parameter.shape, generator=source, dtype=F64) * 2 - 1) * scale)
    return model


def prompts(count, tokens=5):
    return [stream(seed, "p", 0).integers(1, seed % 7, 0, tokens - 1)[0].tolist() for seed in range(count)]


@pytest.mark.parametrize(
    ("skip", "draft", "stop"),
    [
        (SkipSet(), 4, 0.0),
        (SkipSet(mlp=(1,)), 3, 0.0),
        (SkipSet(attention=(1,), mlp=(0, 1)), 6, 0.4),
        (SkipSet(attention=(0, 1, 2), mlp=(0, 1, 2)), 2, 0.0),
    ],
)
def test_greedy_output_is_that_of_plain_decoding(skip, draft, stop):
    """Four sets, 100 prompts in all; empty prompts, drafts that are all accepted and drafts that never are."""
    model = build()
    totals = torch.zeros(3)
    for prompt in prompts(25):
        plain = decode(model, prompt, 10)
        ours = draft_and_verify(model, skip, prompt, 10, draft=draft, stop_below=stop)
        assert ours.tokens == plain.tokens
        assert ours.rounds + ours.accepted == 10
        assert ours.evaluations == ours.drafted * (6 - len(skip)) + 6 * ours.rounds
        assert plain.evaluations == 60
        totals += torch.tensor([ours.rounds, ours.drafted, ours.accepted])
    if not len(skip):
        assert totals.tolist() == [50, 200, 200]  # rounds of 5 tokens
    else:
        assert 0 < totals[2] < totals[1]  # some are accepted and some are not: both ways were taken


def test_a_draft_of_a_model_that_skips_skips_that_too(monkeypatch):
    """The model's cache has no keys of what it skips: a draft that used them would be another model's."""
    model, skip = build().skipping(SkipSet(attention=(1,), mlp=(2,))), SkipSet(attention=(0,), mlp=(2,))
    used, run = [], Transformer.forward

    def forward(self, *arguments):
        used.append(self.skip)
        return run(self, *arguments)

    plain = decode(model, [1, 2], 12)
    monkeypatch.setattr(Transformer, "forward", forward)
    ours = draft_and_verify(model, skip, [1, 2], 12)
    assert ours.tokens == plain.tokens
    assert set(used) == {model.skip, SkipSet(attention=(0, 1), mlp=(2,))}
    assert ours.evaluations == sum(6 - len(each) for each in used[1:])  # the first is the prompt
    assert plain.evaluations == 12 * 4
    with pytest.raises(ValueError, match="attention of layer 3 is to be skipped"):
        draft_and_verify(model, SkipSet(attention=(3,)), [], 1)


def test_the_whole_model_alone_decides():
    """A draft of another opinion costs rounds, not tokens; the cache never holds what the draft computed."""
    model = build(seed=3)
    everything = SkipSet(attention=(0, 1, 2), mlp=(0, 1, 2))
    assert draft_and_verify(model, everything, [1, 2], 12).tokens == decode(model, [1, 2], 12).tokens


# --- sampling --------------------------------------------------------------------------------------------------------


def chi_square(counts, expected):
    """The statistic, and the bound that a right one exceeds once in 3.5 million times (five standard deviations)."""
    counts, expected = torch.as_tensor(counts, dtype=F64), torch.as_tensor(expected, dtype=F64)
    statistic = float(((counts - expected).square() / expected).sum())
    freedom = len(counts) - 1
    bound = freedom * (1 - 2 / (9 * freedom) + 5 * math.sqrt(2 / (9 * freedom))) ** 3  # Wilson and Hilferty
    return statistic, bound


P = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]], dtype=F64)
Q = torch.tensor([[0.2, 0.2, 0.5, 0.1]], dtype=F64)


def first_tokens(draw, times=4000):
    """How often each token comes first when one is drafted by `draw`, which gives the token and the q claimed of it."""
    counts = [0] * 4
    chances = stream(1, "verify", 0).uniform(times, 3).tolist()
    for one, *rest in chances:
        token, claimed = draw(one)
        counts[verify(P, Draft([token], claimed), rest)[0]] += 1
    return counts


def test_accepted_and_redrawn_tokens_are_distributed_as_the_whole_model_says():
    statistic, bound = chi_square(first_tokens(lambda u: (pick(Q[0], u), Q)), 4000 * P[0])
    assert statistic < bound


def test_the_wrong_q_is_found():
    """A draft that takes its likeliest token and claims to have drawn it from the whole of q is not lossless."""
    statistic, bound = chi_square(first_tokens(lambda u: (int(Q[0].argmax()), Q)), 4000 * P[0])
    assert statistic > 10 * bound
    right = torch.nn.functional.one_hot(Q.argmax(-1), 4).double()
    statistic, bound = chi_square(first_tokens(lambda u: (int(Q[0].argmax()), right)), 4000 * P[0])
    assert statistic < bound


def test_sampled_sequences_are_distributed_as_those_of_plain_decoding():
    """All sequences of two tokens after a prompt, against their exact probabilities."""
    model, skip, times = build(layers=2, tokens=3), SkipSet(attention=(1,), mlp=(0,)), 500
    start = torch.zeros(1, 1, 3, dtype=F64)
    eye = torch.eye(3, dtype=F64)
    with torch.no_grad():
        first = model(start)[0][-1, 0].softmax(-1)
        second = torch.stack([model(torch.cat([start, eye[a].view(1, 1, 3)]))[0][-1, 0].softmax(-1) for a in range(3)])
    expected = (first.unsqueeze(-1) * second).flatten()
    assert float(expected.min()) * times > 3  # or the statistic is none
    counts = torch.zeros(9)
    accepted = 0
    for seed in range(times):
        found = draft_and_verify(model, skip, [], 2, draft=2, seed=seed)
        counts[3 * found.tokens[0] + found.tokens[1]] += 1
        accepted += found.accepted
    statistic, bound = chi_square(counts, times * expected)
    assert statistic < bound
    assert 0.2 * times < accepted < times


def test_a_seed_gives_the_same_tokens_again_and_another_one_others():
    model = build()
    some = {seed: draft_and_verify(model, SkipSet(mlp=(1,)), [2], 12, seed=seed).tokens for seed in (1, 2)}
    assert some[1] == draft_and_verify(model, SkipSet(mlp=(1,)), [2], 12, seed=1).tokens
    assert some[1] != some[2]
    assert decode(model, [2], 12, seed=1).tokens == decode(model, [2], 12, seed=1).tokens
    cold = decode(model, [2], 12, seed=1, temperature=1e-6).tokens
    assert cold == decode(model, [2], 12).tokens


def test_an_impossible_token_is_never_picked():
    p = torch.tensor([0.5, 0.5 - 1e-17, 0.0], dtype=F64)
    assert [pick(p, u) for u in (0.0, 0.499, 0.5, 1 - 2**-53)] == [0, 0, 1, 1]


@pytest.mark.parametrize("temperature", [0, -1.0, math.nan, math.inf, "hot"])
@pytest.mark.parametrize("seed", [None, 1])
def test_temperatures_that_are_none(temperature, seed):
    for call in (
        lambda **how: decode(build(), [], 1, **how),
        lambda **how: draft_and_verify(build(), SkipSet(), [], 1, **how),
    ):
        with pytest.raises(ValueError, match=r"temperature is .*, but it must be (above 0|a finite number)[^.]*\.$"):
            call(seed=seed, temperature=temperature)


def test_what_cannot_decode():
    with pytest.raises(ValueError, match="PaperLSTM has 3 inputs and 3 outputs, but decoding needs a Transformer"):
        decode(PaperLSTM(3, 3, 4), [], 1)
    with pytest.raises(ValueError, match="an input for every token"):
        decode(Transformer(2, 3, 8, 1), [], 1)
    with pytest.raises(ValueError, match="a token of the prompt is 5, but it must be at most 4"):
        decode(build(), [1, 5], 1)
    with pytest.raises(ValueError, match=r"a token of the prompt is 1\.9, but it must be a whole number"):
        decode(build(), [1.9], 1)
    with pytest.raises(ValueError, match="tokens is -3"):
        decode(build(), [], -3)
    for name, wrong in (("draft", 0), ("draft", 2.5), ("tokens", 2.5), ("stop_below", math.nan), ("stop_below", "a")):
        with pytest.raises(ValueError, match=f"{name} is"):
            draft_and_verify(build(), SkipSet(), [], **{"tokens": 1, name: wrong})
    with pytest.raises(TypeError, match="skip is of type dict, but it must be a SkipSet"):
        draft_and_verify(build(), {"mlp": [1]}, [], 1)
    with pytest.raises(ValueError, match=r"temperature is 0.5, but without a seed decoding is greedy"):
        decode(build(), [], 1, temperature=0.5)


def test_a_model_whose_batch_comes_first_decodes_too():
    model, skip = build(), SkipSet(attention=(1,))
    twin = Transformer(5, 5, 8, 3, num_heads=2, batch_first=True, dtype=F64)
    twin.load_state_dict(model.state_dict())
    twin.eval()
    assert decode(twin, [1, 4], 6).tokens == decode(model, [1, 4], 6).tokens
    assert draft_and_verify(twin, skip, [1, 4], 6).tokens == draft_and_verify(model, skip, [1, 4], 6).tokens
