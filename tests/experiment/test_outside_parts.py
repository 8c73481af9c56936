"""Losses, optimisers and schedules from outside: they train, resume to the bit, and are not taken for built-in ones."""

import subprocess
import sys
from pathlib import Path

import outside
import pytest
import torch
from tiny import BASE, Recorded, lines_of, outcome, tiny, train_some_blocks, trained

import tapehead
from tapehead.experiment.config import Experiment
from tapehead.experiment.folder import read_config
from tapehead.experiment.loop import Trainer
from tapehead.kernels import dispatch
from tapehead.losses import BINARY, CATEGORICAL

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {"length": (1, 3), "width": 2}


def on(task, **changes):
    """A tiny experiment on a task from outside."""
    return tiny(task={"name": f"outside:{task}", **SIZES}, **{"episodes": 200, **changes})


# --- losses ----------------------------------------------------------------------------------------------------------


def bits_of(experiment):
    return [line["bits"][0] for line in lines_of(trained(experiment))]


def test_a_loss_from_outside_trains_to_the_same_numbers_on_every_backend():
    cpu, reference = (bits_of(on("CopySquares", backend=name, learning_rate=1e-2)) for name in ("cpu", "reference"))
    assert cpu[-1] < 0.9 * cpu[0]  # it learns
    assert cpu == pytest.approx(reference, rel=1e-5)  # 2.6e-6 seen, after 200 updates of float32


def test_a_loss_from_outside_trains_a_model_without_kernels():
    bits = bits_of(on("CopySquares", model="lstm", optimiser="adam", learning_rate=1e-3, **{"model.hidden_size": 16}))
    assert bits[-1] < 0.97 * bits[0]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_cost_and_gradient_are_those_of_the_loss_from_outside(backend):
    trainer = Trainer(on("CopySquares", backend=backend))
    data, _ = trainer.source.data([0], [0], range(1))
    batch = [part[0] for part in data]
    flat = trainer.population.working.parameters
    costs, gradient, _ = trainer.model.loss_and_gradient(flat, *batch, loss=trainer.task.loss)
    with torch.enable_grad():
        own = flat.clone().requires_grad_()
        logits = trainer.model.population(own, batch[0], batch[3])
        errors = (logits.sigmoid() - batch[1]) ** 2 * batch[2].unsqueeze(-1)
        (wanted,) = torch.autograd.grad(errors.sum(), own)
    assert costs.item() == pytest.approx(errors.sum().item(), rel=1e-7)
    assert torch.equal(gradient, wanted)
    assert gradient.abs().max() > 1e-3


def test_a_subclass_of_a_built_in_loss_is_not_taken_for_the_fused_one():
    for backend in ("cpu", "gpu"):
        assert dispatch.is_fused(backend, BINARY)
        assert not dispatch.is_fused(backend, outside.Doubled())
        assert not dispatch.is_fused(backend, outside.Plain())
        assert not dispatch.is_fused(backend, outside.Squares())
    assert not dispatch.is_fused("reference", BINARY)
    one, twice, fused = (
        lines_of(trained(experiment, 1))[0]["bits"][0]
        for experiment in (
            on("CopyPlain", learning_rate=1e-30),
            on("CopyDoubled", learning_rate=1e-30),
            tiny(learning_rate=1e-30),
        )
    )
    assert twice == pytest.approx(2 * one, rel=1e-12)
    assert one == pytest.approx(fused, rel=1e-8)  # 9e-10 seen


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_categorical_task_trains(backend):
    """On the cpu backend whether or not its kernels know the loss."""
    assert type(outside.CopySymbols.loss) is type(CATEGORICAL)
    watched = Recorded()
    experiment = on("CopySymbols", backend=backend, episodes=600, batch_size=2, learning_rate=1e-2)
    result = tapehead.train(experiment, observer=watched)
    first, *_, last = (status.bits for status in watched.blocks)
    assert first == pytest.approx(4, rel=0.3)  # chance: two symbols of two bits
    assert last < 0.9 * first
    assert all(0 < value <= 1 for one in result.generalisation for value in one.accuracy)


def test_a_categorical_task_has_the_same_numbers_on_every_backend():
    cpu, reference = (bits_of(on("CopySymbols", backend=backend)) for backend in ("cpu", "reference"))
    assert cpu == pytest.approx(reference, rel=3e-7)  # 3e-8 seen


@pytest.mark.parametrize("task", ["CopySquares", "CopySymbols"])
def test_with_another_loss_too_a_seed_is_not_changed_by_others_and_resumes_to_the_bit(tmp_path, task):
    experiment = on(task, seeds=(4, 5))
    everyone, alone = trained(experiment), trained(on(task, seeds=(5,)))
    for name, tensor in alone.tensors().items():
        assert torch.equal(tensor[0], everyone.tensors()[name][1]), name
    train_some_blocks(experiment, tmp_path / "parts", 1)
    tapehead.train(experiment, tmp_path / "parts")
    tapehead.train(experiment, tmp_path / "whole")
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


# --- optimisers and schedules ----------------------------------------------------------------------------------------

MOMENTUM = {"optimiser": "outside:Momentum", "learning_rate": 1e-3, "clip": "norm", "limit": 1}
WARMUP = {"schedule": "outside:Warmup", "schedule.updates": 150}


@pytest.mark.parametrize("changes", [MOMENTUM, WARMUP, MOMENTUM | WARMUP | {"average": 0.9, "seeds": (3, 4)}])
def test_an_optimiser_and_a_schedule_from_outside_resume_to_the_bit(tmp_path, changes):
    experiment = tiny(episodes=400, **changes)
    train_some_blocks(experiment, tmp_path / "parts", 1)
    train_some_blocks(experiment, tmp_path / "parts", 2)
    tapehead.train(experiment, tmp_path / "parts")
    tapehead.train(experiment, tmp_path / "whole")
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    assert read_config(tmp_path / "parts") == experiment
    assert tapehead.load(tmp_path / "parts").flat_parameters().isfinite().all()


@pytest.mark.parametrize("model", ["ntm", "lstm"])
def test_an_optimiser_from_outside_is_computed_as_it_says(model):
    """Against torch.optim.SGD, update by update, with clipping by norm."""
    experiment = tiny(model=model, episodes=20, **MOMENTUM)
    trainer = trained(experiment)
    model = experiment.build()
    model.load_flat(Trainer(experiment).population.state.parameters[0])
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    data, _ = trainer.source.data([0], [0], range(20))
    for k in range(20):
        inputs, targets, mask, lengths = (part[k, 0] for part in data)
        logits, _ = model(inputs, lengths=lengths)
        optimiser.zero_grad()
        BINARY.nats(logits, targets, mask).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    moved = (model.flat_parameters() - Trainer(experiment).population.state.parameters[0]).abs().max()
    apart = (model.flat_parameters() - trainer.population.state.parameters[0]).abs().max()
    assert moved > 1e-3
    assert apart < 2e-5 * moved  # 2.6e-6 seen
    assert trainer.tensors()["update.velocity"].abs().max() > 0


def test_a_schedule_from_outside_sets_the_rate_of_every_update():
    experiment = tiny(learning_rate=0.5, **WARMUP)
    assert [experiment.rate(update) for update in (0, 74, 149, 400)] == [0.5 / 150, 0.25, 0.5, 0.5]
    rates = [line["rate"][0] for line in lines_of(trained(tiny(episodes=300, learning_rate=1e-3, **WARMUP)))]
    assert rates == pytest.approx([1e-3 * 100 / 150, 1e-3, 1e-3])


def test_parts_from_outside_are_in_files_by_the_name_of_their_class():
    experiment = on("CopySymbols", **MOMENTUM, **WARMUP)
    plain = experiment.to_plain()
    assert [plain[part]["name"] for part in ("task", "optimiser", "schedule")] == [
        "outside:CopySymbols", "outside:Momentum", "outside:Warmup"
    ]  # fmt: skip
    assert Experiment.from_plain(plain).hash == experiment.hash
    direct = Experiment(
        task=outside.CopySymbols(**SIZES),
        optimiser=outside.Momentum(learning_rate=1e-3),
        schedule=outside.Warmup(updates=150),
    )
    assert (direct.task, direct.optimiser, direct.schedule) == (
        experiment.task, experiment.optimiser, experiment.schedule
    )  # fmt: skip
    with pytest.raises(ValueError, match="momentun"):
        tiny(**MOMENTUM, **{"optimiser.momentun": 0.5})


def test_another_process_finds_parts_from_outside(tmp_path):
    """A run is taken up in a process that knows no more than the folder and the path of the module."""
    experiment = on("CopySymbols", episodes=300, **MOMENTUM, **WARMUP)
    train_some_blocks(experiment, tmp_path / "run", 1)
    code = "import sys, tapehead, torch; torch.set_num_threads(1); from tapehead.experiment.folder import read_config; "
    code += "from pathlib import Path; p = Path(sys.argv[1]); tapehead.train(read_config(p), p, scored=False)"
    paths = [str(Path(tapehead.__file__).parents[1]), str(Path(__file__).parent)]
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        check=True,
        env={"PYTHONPATH": ":".join(paths)},
        timeout=120,
    )
    assert tapehead.train(experiment, tmp_path / "run").sha256 == tapehead.train(experiment).sha256


def test_the_built_in_optimiser_is_not_taken_for_one_that_inherits_from_it():
    class_of = type(BASE.optimiser)
    other = type("Other", (class_of,), {"__module__": "outside"})
    reference = dispatch.update_kernel("reference", torch.device("cpu"), BASE.optimiser)
    assert dispatch.update_kernel("cpu", torch.device("cpu"), other()) is reference
    assert dispatch.update_kernel("cpu", torch.device("cpu"), BASE.optimiser) is not reference
