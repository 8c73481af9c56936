"""Agreement on a window, and speeds."""

import pytest
import torch

from tapehead.losses import Loss
from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet
from tapehead.streams import stream
from tapehead.sublayers import objectives
from tapehead.sublayers.decoding import decode
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
    window = generated_window(model, task, prompts, 6)
    assert window.inputs.shape == (11, 3, 256)
    assert window.scored.sum(0).tolist() == [6, 6, 6]
    for b, prompt in enumerate(prompts):
        written = decode(model, prompt, 6).tokens
        assert window.answers[5:, b].argmax(-1).tolist() == written
        assert window.inputs[1:, b].argmax(-1).tolist() == [*prompt, *written[:-1]]
    assert not window.inputs[0].any()
    assert agreement(model, SkipSet(), window) == 1
    assert agreement(model, SkipSet(mlp=(0, 1, 2), attention=(0, 1, 2)), window) < 1


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
