"""Scores are those of a model in eval mode, and leave every module in the mode that it was in."""

import pytest
import torch
from torch import nn

import tapehead
from tapehead.evaluation.generalisation import score


class Dropping(tapehead.SequenceModel):
    """A layer behind dropout."""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.input_size, self.output_size = input_size, output_size
        self.drop, self.layer = nn.Dropout(0.5), nn.Linear(input_size, output_size)

    def run(self, x, state, lengths):
        return self.layer(self.drop(x)), state


def test_dropout_is_off_while_a_model_is_scored():
    task = tapehead.make_task("copy", length=3, width=2)
    model = Dropping(task.input_size, task.output_size)
    model.layer.eval()
    one, other = (tapehead.evaluate(model, task, {"length": 3}, sequences=20) for _ in range(2))
    assert one == other
    assert (model.training, model.drop.training, model.layer.training) == (True, True, False)


def test_the_mode_comes_back_after_an_error():
    task = tapehead.make_task("copy", length=3, width=2)
    model = Dropping(task.input_size, task.output_size)
    model.layer.weight = nn.Parameter(torch.zeros(1, 1))
    with pytest.raises(RuntimeError):
        score(model, torch.zeros(1, 3), task, {"length": 3}, 5)
    assert model.training
