"""Mistakes in tasks, models and losses from outside: one sentence that names the class, before anything is trained."""

import dataclasses
from typing import ClassVar

import pytest
import torch
from tiny import BASE
from torch import nn

import tapehead
from tapehead.experiment.loop import Trainer
from tapehead.tasks.copy import Copy


class Recurrent(tapehead.SequenceModel):
    """A GRU with a readout, and room for a mistake."""

    def __init__(self, input_size: int, output_size: int, hidden_size: int = 4) -> None:
        super().__init__()
        self.input_size, self.output_size = input_size, output_size
        self.gru, self.readout = nn.GRU(input_size, hidden_size), nn.Linear(hidden_size, output_size)

    def run(self, x, state, lengths):
        hidden, state = self.gru(x, state)
        return self.readout(hidden), state


class Dropping(Recurrent):
    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(input_size, output_size)
        self.drop = nn.Dropout(0.1)


class Normed(Recurrent):
    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(input_size, output_size)
        self.norm = nn.BatchNorm1d(3)


class LastStep(Recurrent):
    def run(self, x, state, lengths):
        y, state = super().run(x, state, lengths)
        return y[-1], state


class NoState(Recurrent):
    def run(self, x, state, lengths):
        return super().run(x, state, lengths)[0]


class WithForward(Recurrent):
    def forward(self, x):
        return self.gru(x)


def of(model):
    return tapehead.Experiment(task=BASE.task, model=tapehead.Model(name=f"{__name__}:{model.__name__}"))


def test_the_model_without_a_mistake_trains():
    Trainer(of(Recurrent)).block(2)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Dropping, r"Dropping has dropout \(drop\)"),
        (Normed, r"Normed keeps running statistics \(norm\)"),
        (LastStep, r"LastStep.run returned logits of shape"),
        (NoState, "NoState.run must return logits and state"),
        (WithForward, "has a `forward`, which is SequenceModel's own"),
    ],
)
def test_a_model_with_a_mistake_is_refused(model, says):
    with pytest.raises(ValueError, match=says):
        Trainer(of(model)).block(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Broken(Copy):
    """The copy task with a mistake in what it draws."""

    mistake: str = "none"

    def draw(self, draws, rows, sizes):
        batch = super().draw(draws, rows, sizes)
        return {
            "none": batch,
            "nothing": None,
            "transposed": batch._replace(inputs=batch.inputs.transpose(-3, -2)),
            "mask": batch._replace(mask=batch.mask.transpose(-2, -1)),
            "width": batch._replace(targets=batch.targets[..., :-1]),
            "lengths": batch._replace(lengths=batch.lengths + 1),
            "impure": batch._replace(inputs=torch.rand_like(batch.inputs)),
        }[self.mistake]


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ("nothing", "Broken.draw returned NoneType"),
        ("transposed", "Broken.draw gives inputs of shape"),
        ("mask", "Broken.draw gives mask of shape"),
        ("width", "Broken.draw gives targets of shape"),
        ("impure", "Broken.draw gives other sequences the second time"),
    ],
)
def test_a_task_that_draws_something_else_is_refused(mistake, says):
    Trainer(tapehead.Experiment(task=Broken()))
    with pytest.raises(ValueError, match=says):
        Trainer(tapehead.Experiment(task=Broken(mistake=mistake)))


def test_lengths_that_the_sequences_do_not_have_are_refused():
    trainer = Trainer(tapehead.Experiment(task=Broken(mistake="lengths")))
    with pytest.raises(ValueError, match=r"Broken.draw gives lengths from"):
        trainer.block(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoSymbol(Copy):
    loss: ClassVar[tapehead.Loss] = tapehead.CATEGORICAL


def test_a_symbol_without_a_target_is_refused():
    with pytest.raises(ValueError, match=r"NoSymbol.draw scores a step whose targets are all zero"):
        Trainer(tapehead.Experiment(task=NoSymbol(width=1, length=8, density=(0.0, 0.0))))


class Undecorated(Copy):
    extra: int = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadSizes(Copy):
    generalisation: ClassVar[object] = {"length": 6}


def test_a_task_without_its_decorator_or_with_wrong_sizes_is_refused():
    with pytest.raises(ValueError, match="'extra', but it is no dataclass"):
        Undecorated()
    with pytest.raises(ValueError, match="must be a tuple of sizes"):
        tapehead.Experiment(task=BadSizes())


class Flat(tapehead.Loss):
    """Without the last dimension."""

    def each(self, logits, targets):
        return (logits - targets).square().sum(dim=-1)

    def errors(self, logits, targets):
        return (logits - targets).abs() > 0.5


def test_a_loss_without_its_last_dimension_is_refused():
    logits = torch.zeros(5, 2, 3)
    with pytest.raises(ValueError, match=r"Flat.each returned \[5, 2\], but it must return"):
        Flat().nats(logits, logits, torch.ones(5, 2))


def test_a_class_that_no_other_process_can_find_gets_no_folder(tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Inside(Copy):
        pass

    with pytest.raises(ValueError, match="is not there"):
        tapehead.train(tapehead.Experiment(task=Inside()), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_defaults_are_not_shared():
    one = tapehead.Experiment(task=BASE.task)
    one.curriculum.options["blanks"] = 0.5
    one.model.options["memory_slots"] = 7
    other = tapehead.Experiment(task=BASE.task)
    assert other.curriculum.options == {}
    assert other.model.options["memory_slots"] == 128


def test_a_model_at_its_defaults_is_one_model_however_it_is_written():
    forms = ({}, {"memory_slots": 128}, {"interface_clip": None}, {"read_heads": 1}, {"controller": "lstm"})
    experiments = [tapehead.Experiment(task=BASE.task, model=tapehead.Model(options=options)) for options in forms]
    assert len({experiment.hash for experiment in experiments}) == 1
    back = tapehead.Experiment.from_plain(experiments[2].to_plain())
    assert back == experiments[0]


def test_a_changed_row_is_no_longer_that_row():
    row = tapehead.row_experiment("copy-ntm-lstm")
    assert row.with_values({"training.batch_size": 4}).recipe == "custom"
    assert row.with_values({"seeds": (5,), "place.backend": "reference"}).recipe == row.recipe
