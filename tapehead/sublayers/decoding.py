"""Decoding with a draft: the model without some sub-layers proposes tokens, the whole model checks them in one pass.

A token model has a logit for each of V tokens, and takes a token one-hot in its first V inputs; a sequence begins with
a step of zeros, as in the text task. Only the whole model's keys and values are kept from one round to the next.

Greedy: what agrees with the whole model's own choices is accepted, and its next choice comes on top, so that the output
is that of plain decoding. Sampling: a token that was drawn from q is accepted with probability min(1, p / q), and
otherwise drawn again from the positive part of p - q, normalised; the output is then distributed as p. This holds
only if q is the distribution that the token was really drawn from.

Legend: V tokens, k drafted tokens of a round, n tokens of a prompt.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tapehead import checks
from tapehead.models.transformer.attention import TransformerState, cut
from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet
from tapehead.streams import stream

DRAFT = 4
"""Tokens drafted in a round, unless asked otherwise."""


class Decoded(NamedTuple):
    """Tokens, and what they took."""

    tokens: list[int]
    rounds: int
    """Passes of the whole model after the prompt."""
    drafted: int
    accepted: int
    """Drafted tokens that were taken over."""
    evaluations: int
    """Calls of sub-layers after the prompt, each over one or several steps."""
    seconds: float


class Draft(NamedTuple):
    tokens: list[int]
    drawn_from: Tensor  # q of each, [k, V]


def check_token_model(model: Transformer) -> None:
    if not isinstance(model, Transformer) or model.input_size < model.output_size:
        raise ValueError(
            f"{type(model).__name__} has {model.input_size} inputs and {model.output_size} outputs, but decoding needs "
            "a Transformer with an input for every token that it answers."
        )


def _check_sampling(seed: int | None, temperature: float) -> None:
    if checks.real("temperature", temperature) <= 0:
        raise ValueError(f"temperature is {temperature}, but it must be above 0: for greedy decoding give no seed.")
    if seed is None and temperature != 1:
        raise ValueError(f"temperature is {temperature}, but without a seed decoding is greedy: give a seed to sample.")


def token_inputs(model: Transformer, tokens: Sequence[int]) -> Tensor:
    """Tokens one-hot, [n, 1, I]."""
    weight = model.output.weight
    places = torch.as_tensor(list(tokens), dtype=torch.int64, device=weight.device)
    return one_hot(places, model.input_size).to(weight.dtype).unsqueeze(1)


def _begin(model: Transformer, prompt: Sequence[int]) -> tuple[TransformerState, Tensor]:
    """The cache after all inputs of a prompt but the last, and that one, [1, 1, I]."""
    for token in prompt:
        checks.whole("a token of the prompt", token, 0, model.output_size - 1)
    start = model.output.weight.new_zeros(1, 1, model.input_size)
    inputs = torch.cat([start, token_inputs(model, prompt)])
    state = model.initial_state(1) if len(inputs) == 1 else model(inputs[:-1])[1]
    return state, inputs[-1:]


def _distribution(logits: Tensor, temperature: float) -> Tensor:
    """Logits [k, 1, V] as probabilities [k, V], in float64."""
    return (logits[:, 0].double() / temperature).softmax(dim=-1)


def pick(p: Tensor, u: float | None) -> int:
    """A token of a distribution [V]: the likeliest, or the one at u in its cumulative sum."""
    if u is None:
        return int(p.argmax())
    return min(int((p.cumsum(-1) <= u).sum()), int(p.nonzero()[-1]))  # rounding must not give an impossible one


def _uniforms(seed: int | None, step: int, count: int) -> list[float | None]:
    """Numbers in [0, 1) at an address of their own; without a seed, None."""
    if seed is None:
        return [None] * count
    return list(stream(seed, "decoding", step).uniform(1, count)[0].tolist())


def _sublayers(model: Transformer) -> int:
    """How many sub-layers a pass of the model calls."""
    return 2 * model.num_layers - len(model.skip)


@torch.no_grad()
def decode(
    model: Transformer, prompt: Sequence[int], tokens: int, *, seed: int | None = None, temperature: float = 1.0
) -> Decoded:
    """Plain decoding: a pass of the model for every token. Greedy without a seed."""
    check_token_model(model)
    _check_sampling(seed, temperature)
    tokens, model = checks.whole("tokens", tokens, 0), model.steps_first()
    state, pending = _begin(model, prompt)
    started, made = time.perf_counter(), list[int]()
    for step in range(tokens):
        y, state = model(pending, state)
        made.append(pick(_distribution(y, temperature)[0], _uniforms(seed, step, 1)[0]))
        pending = token_inputs(model, made[-1:])
    seconds = time.perf_counter() - started
    return Decoded(made, tokens, 0, 0, tokens * _sublayers(model), seconds)


@torch.no_grad()
def draft_and_verify(
    model: Transformer,
    skip: SkipSet,
    prompt: Sequence[int],
    tokens: int,
    *,
    draft: int = DRAFT,
    stop_below: float = 0.0,
    seed: int | None = None,
    temperature: float = 1.0,
) -> Decoded:
    """The same as `decode`, in fewer passes of the whole model. Greedy without a seed.

    skip: what a draft skips beside what the model itself skips. draft: tokens of a round at most. stop_below: a draft
    ends with a token to which it gives a lower probability.
    """
    check_token_model(model)
    _check_sampling(seed, temperature)
    tokens, draft = checks.whole("tokens", tokens, 0), checks.whole("draft", draft, 1)
    if not isinstance(skip, SkipSet):
        raise TypeError(f"skip is of type {type(skip).__name__}, but it must be a SkipSet.")
    if not 0 <= checks.real("stop_below", stop_below) <= 1:
        raise ValueError(f"stop_below is {stop_below}, but it is a probability: give 0 to 1.")
    model = model.steps_first()
    sketch = model.skipping(model.skip | skip)
    state, pending = _begin(model, prompt)
    started, made = time.perf_counter(), list[int]()
    rounds = drafted = accepted = 0
    while len(made) < tokens:
        many = min(draft, tokens - len(made) - 1)  # the whole model adds one by itself
        chances = _uniforms(seed, rounds, 2 * draft + 1)
        proposed = make_draft(sketch, state, pending, many, chances[:draft], stop_below, temperature)
        y, longer = model(torch.cat([pending, token_inputs(model, proposed.tokens)]), state)
        taken = verify(_distribution(y, temperature), proposed, chances[draft:])
        state = cut(longer, state.keys.shape[3] + len(taken))
        pending = token_inputs(model, taken[-1:])
        made += taken
        rounds, drafted, accepted = rounds + 1, drafted + len(proposed.tokens), accepted + len(taken) - 1
    seconds = time.perf_counter() - started
    evaluations = drafted * _sublayers(sketch) + rounds * _sublayers(model)
    return Decoded(made, rounds, drafted, accepted, evaluations, seconds)


def make_draft(
    sketch: Transformer,
    state: TransformerState,
    pending: Tensor,
    tokens: int,
    chances: Sequence[float | None],
    stop_below: float = 0.0,
    temperature: float = 1.0,
) -> Draft:
    """So many tokens of the model that skips; its own keys and values end here."""
    made, distributions = list[int](), list[Tensor]()
    for u in chances[:tokens]:
        y, state = sketch(pending, state)
        q = _distribution(y, temperature)[0]
        made.append(pick(q, u))
        distributions.append(q)
        if float(q[made[-1]]) < stop_below:
            break
        pending = token_inputs(sketch, made[-1:])
    return Draft(made, torch.stack(distributions) if made else torch.empty(0))


def verify(p: Tensor, proposed: Draft, chances: Sequence[float | None]) -> list[int]:
    """The drafted tokens that are accepted, and one more of the whole model: p [k + 1, V] are its distributions.

    chances: uniform numbers, one for every drafted token and one for the last; None for greedy acceptance.
    """
    taken: list[int] = []
    for i, token in enumerate(proposed.tokens):
        u, last = chances[i], chances[-1]
        if u is None:
            if int(p[i].argmax()) != token:
                return [*taken, int(p[i].argmax())]
        elif u * float(proposed.drawn_from[i, token]) >= float(p[i, token]):
            rest = (p[i] - proposed.drawn_from[i]).clamp(min=0.0)
            return [*taken, pick(rest / rest.sum(), last)]
        taken.append(token)
    return [*taken, pick(p[len(taken)], chances[-1])]
