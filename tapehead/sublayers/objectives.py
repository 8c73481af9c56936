"""What a set of skipped sub-layers is judged by: how often the draft agrees, and how much faster decoding gets.

Legend: T time, B batch, I inputs, O outputs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from tapehead import checks
from tapehead.losses import Loss
from tapehead.models.transformer.attention import TransformerState
from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet
from tapehead.streams import stream
from tapehead.sublayers.decoding import DRAFT, check_token_model, decode, draft_and_verify, token_inputs
from tapehead.tasks import Task


class Window(NamedTuple):
    """Sequences with the answers that the whole model gives; a draft should give the same.

    In a language model each is a round of drafting: a few of the tokens that the whole model wrote, which go on from
    the whole model's keys and values, as a draft does whose earlier tokens in the round were accepted.
    """

    inputs: Tensor  # [T, B, I]
    lengths: Tensor  # [B]
    scored: Tensor  # ones where an answer counts, [T, B]
    answers: Tensor  # [T, B, O], in the form of targets
    loss: Loss
    state: TransformerState | None = None  # of the whole model, before the sequences


def _answers(loss: Loss, logits: Tensor) -> Tensor:
    """The likeliest answers, in the form of targets."""
    if loss.kernel == "categorical":
        return one_hot(logits.argmax(dim=-1), logits.shape[-1]).to(logits.dtype)
    if loss.kernel == "binary":
        return (logits > 0).to(logits.dtype)
    raise ValueError(f"the loss {type(loss).__name__} has no answers that agree or not: use bits or symbols.")


@torch.no_grad()
def task_window(model: Transformer, task: Task, sequences: int) -> Window:
    """Sequences of a task at its training sizes; what is scored there counts."""
    weight = model.output.weight
    batch = task.sample(stream(0, "sublayers", 0, device=weight.device), batch_size=sequences)
    inputs = batch.inputs.to(weight.dtype)
    logits, _ = model.steps_first()(inputs, lengths=batch.lengths)
    return Window(inputs, batch.lengths, batch.mask.to(weight.dtype), _answers(task.loss, logits), task.loss)


@torch.no_grad()
def generated_window(
    model: Transformer, task: Task, prompts: Sequence[Sequence[int]], tokens: int, draft: int = DRAFT
) -> Window:
    """What the whole model writes after prompts of one length, greedily, in rounds of `draft` tokens; the last round
    may be shorter."""
    check_token_model(model)
    tokens, draft = checks.whole("tokens", tokens, 1), checks.whole("draft", draft, 1)
    written = [[*prompt, *decode(model, prompt, tokens).tokens] for prompt in prompts]
    known = len(written[0]) - tokens
    start = model.output.weight.new_zeros(1, len(written), model.input_size)
    inputs = torch.cat([start, torch.cat([token_inputs(model, row[:-1]) for row in written], dim=1)])
    answers = one_hot(torch.tensor(written, device=inputs.device).T, model.output_size).to(inputs.dtype)
    _, whole = model.steps_first()(inputs)
    rounds = [slice(first, min(first + draft, len(inputs))) for first in range(known, len(inputs), draft)]
    begun = torch.tensor([one.start for one in rounds], device=inputs.device).repeat_interleave(len(written))
    there = torch.arange(rounds[-1].start, device=inputs.device) < begun.unsqueeze(-1)  # [B, N]
    keys, values = (
        part[..., : there.shape[1], :].repeat(len(rounds), 1, 1, 1, 1).masked_fill(~there[:, None, None, :, None], 0.0)
        for part in (whole.keys, whole.values)
    )
    lengths = torch.tensor([one.stop - one.start for one in rounds], device=inputs.device)
    lengths = lengths.repeat_interleave(len(written))
    scored = (torch.arange(draft, device=inputs.device).unsqueeze(-1) < lengths).to(inputs.dtype)
    return Window(
        _as_rows(inputs, rounds, draft),
        lengths,
        scored,
        _as_rows(answers, rounds, draft),
        task.loss,
        TransformerState(keys, values, begun),
    )


def _as_rows(sequence: Tensor, rounds: list[slice], steps: int) -> Tensor:
    """Pieces of [T, P, X] as rows of one batch, [steps, R P, X], with zeros behind a shorter one."""
    pieces = [sequence[one] for one in rounds]
    return torch.cat([pad(piece, (0, 0, 0, 0, 0, steps - len(piece))) for piece in pieces], dim=1)


def prompts_of(task: Task, count: int, length: int) -> list[list[int]]:
    """Beginnings of sequences of a task whose targets are the tokens to come, as in the text task."""
    batch = task.sample(stream(0, "prompts", 0), batch_size=count, **dict.fromkeys(task.limits, length))
    tokens: list[list[int]] = batch.targets.argmax(dim=-1).T.tolist()
    return tokens


@torch.no_grad()
def agreement(model: Transformer, skip: SkipSet, window: Window) -> float:
    """Share of the answers of a window that the model without some sub-layers gives too, in one parallel pass."""
    sketch = model.steps_first().skipping(model.skip | skip)
    logits, _ = sketch(window.inputs, window.state, lengths=window.lengths)
    wrong = int(window.loss.wrong(logits, window.answers, window.scored).sum())
    return 1 - wrong / window.loss.answers(window.answers, window.scored)


def expected_speedup(agreement: float, cost: float, draft: int = DRAFT) -> float:
    """Speed of draft and verify, where plain decoding is 1: expected tokens of a round by what the round costs.

    agreement: the probability a that a drafted token is accepted, independent of the others. cost: of a draft's token,
    c, where a pass of the whole model is 1. (1 - a^(k + 1)) / ((1 - a) (k c + 1))
    """
    tokens = draft + 1 if agreement == 1 else (1 - agreement ** (draft + 1)) / (1 - agreement)
    return float(tokens / (draft * cost + 1))


def speedup_by_count(model: Transformer, skip: SkipSet, window: Window, draft: int = DRAFT) -> float:
    """The expected speed-up with the agreement on a window, and the share of sub-layers left as the cost of a draft.

    The same on every machine and in every run, unlike what a clock measures."""
    left = 1 - len(skip) / (2 * model.num_layers)
    return expected_speedup(agreement(model, skip, window), left, draft)


def tokens_a_second(
    model: Transformer, skip: SkipSet, prompts: Sequence[Sequence[int]], tokens: int = 32, draft: int = DRAFT
) -> float:
    """Measured speed of greedy decoding with a draft, after the prompts were read."""
    decoded = [draft_and_verify(model, skip, prompt, tokens, draft=draft) for prompt in prompts]
    return sum(len(each.tokens) for each in decoded) / sum(each.seconds for each in decoded)
