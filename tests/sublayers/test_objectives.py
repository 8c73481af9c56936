"""Agreement on a window, and speeds."""

import copy

import pytest
import torch

from tapehead.losses import Loss
from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet
from tapehead.streams import stream
from tapehead.sublayers import objectives
from tapehead.sublayers.decoding import decode, token_inputs
from tapehead.sublayers.objectives import agreement, expected_speedup, generated_window, prompts_of, task_window
from tapehead.tasks import make_task

pytestmark = pytest.mark.usefixtures("one_thread")
SOME = SkipSet(attention=(1,), mlp=(0, 2))


def build(task, layers=3):
    model = Transformer(task.input_size, task.output_size, 8, layers, num_heads=2, dtype=torch.float64).eval()
    model.reset_parameters(torch.Generator().manual_seed(3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2
    return model


@pytest.mark.parametrize("name", ["copy", "reverse"])
def test_agreement_counts_the_answers_that_stay_the_same(name):
    task = make_task(name, length=(1, 6))
    model = build(task)
    window = task_window(model, task, 12)
    batch = task.sample(stream(0, "sublayers", 0), batch_size=12)
    same = asked = 0
    for b, length in enumerate(batch.lengths.tolist()):
        x = batch.inputs[:length, b].double()
        whole, draft = (each(x)[0].detach() for each in (model, model.skipping(SOME)))
        for t in range(length):
            if batch.mask[t, b]:
                decided = [
                    each[t].argmax(-1, keepdim=True) if name == "reverse" else each[t] > 0 for each in (whole, draft)
                ]
                for one, other in zip(*decided, strict=True):
                    asked += 1
                    same += bool(one == other)
    assert agreement(model, SOME, window) == pytest.approx(same / asked, abs=1e-12)
    assert 0.1 < same / asked < 0.99  # or the test proves little
    assert agreement(model, SkipSet(), window) == 1


def test_a_generated_window_holds_what_the_model_writes():
    task = make_task("text", length=12)
    model = build(task)
    prompts = prompts_of(task, 3, 5)
    window = generated_window(model, task, prompts, 6)  # a round of four tokens and one of two
    assert window.inputs.shape == (4, 6, 256)
    assert window.scored.sum(0).tolist() == [4, 4, 4, 2, 2, 2]
    assert window.state.steps.tolist() == [5, 5, 5, 9, 9, 9]
    for b, prompt in enumerate(prompts):
        written = decode(model, prompt, 6).tokens
        answers = [*window.answers[:, b], *window.answers[:2, b + 3]]
        assert [int(one.argmax()) for one in answers] == written
        inputs = [*window.inputs[:, b], *window.inputs[:2, b + 3]]
        assert [int(one.argmax()) for one in inputs] == [prompt[-1], *written[:-1]]
    assert not window.inputs[2:, 3:].any()
    assert agreement(model, SkipSet(), window) == 1
    assert agreement(model, SkipSet(mlp=(0, 1, 2), attention=(0, 1, 2)), window) < 1
    with pytest.raises(ValueError, match="tokens is 0, but it must be a whole number of at least 1"):
        generated_window(model, task, prompts, 0)


def test_agreement_is_that_of_drafts_on_the_whole_models_keys_and_values():
    """Step by step: a round begins with the whole model's state, and the draft reads its own tokens after it."""
    task = make_task("text", length=12)
    model = build(task)
    prompts = prompts_of(task, 5, 4)
    sketch, same, alone = model.skipping(SOME), 0, 0
    for prompt in prompts:
        text = [*prompt, *decode(model, prompt, 10).tokens]
        x = torch.cat([torch.zeros(1, 1, 256, dtype=torch.float64), token_inputs(model, text[:-1])])
        alone += int((sketch(x)[0][4:, 0].argmax(-1) == torch.tensor(text[4:])).sum())
        for first in range(4, 14, 3):
            state = model(x[:first])[1]
            for t in range(first, min(first + 3, 14)):
                y, state = sketch(x[t : t + 1], state)
                same += int(y[0, 0].argmax()) == text[t]
    found = agreement(model, SOME, generated_window(model, task, prompts, 10, draft=3))
    assert found == pytest.approx(same / 50, abs=1e-12)
    assert same != alone  # or the test proves little
    turned = copy.copy(model)
    turned.batch_first = True
    assert agreement(turned, SOME, generated_window(turned, task, prompts, 10, draft=3)) == found
    assert agreement(turned, SOME, task_window(turned, task, 7)) == agreement(model, SOME, task_window(model, task, 7))


def test_prompts_are_pieces_of_the_text():
    task = make_task("text", length=12)
    first = task.sample(stream(0, "prompts", 0), batch_size=2, length=7)
    assert prompts_of(task, 2, 7) == first.targets.argmax(-1).T.tolist()


@pytest.mark.parametrize(("a", "c", "k"), [(0.95, 0.55, 4), (0.5, 0.1, 1), (0.0, 0.5, 3), (1.0, 0.25, 4)])
def test_expected_speedup(a, c, k):
    """Tokens of a round: one, and one more for every drafted token that all before it are accepted with."""
    tokens = sum(a**i for i in range(k + 1))
    assert expected_speedup(a, c, k) == pytest.approx(tokens / (k * c + 1))


def test_speedup_by_count_is_the_formula():
    task = make_task("reverse", length=(1, 6))
    model = build(task)
    window = task_window(model, task, 12)
    expected = expected_speedup(agreement(model, SOME, window), 0.5, 4)
    assert objectives.speedup_by_count(model, SOME, window) == expected
    assert objectives.speedup_by_count(model, SkipSet(), window) == 1


def test_tokens_a_second(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr("tapehead.sublayers.decoding.time.perf_counter", lambda: next(ticks) * 0.25)
    model = build(make_task("text"))
    assert objectives.tokens_a_second(model, SOME, [[1], [2, 3]], 4) == 4 / 0.25


def test_answers_of_another_loss():
    class Other(Loss):
        each = errors = None

    Other.__abstractmethods__ = frozenset()
    with pytest.raises(ValueError, match="the loss Other has no answers that agree or not"):
        objectives._answers(Other(), torch.zeros(1, 1, 1))
