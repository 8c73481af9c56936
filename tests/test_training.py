"""Training runs: to the bit whatever interrupts them, and never a number that is not one."""

import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tapehead.training import checkpoint, events, loop, population, stepping, teaching
from tapehead.training.config import RunConfig
from tapehead.training.loop import Interrupted, Trainer
from tapehead.training.progress import Progress
from tapehead.training.runs import Run, read_config

import tapehead
from tapehead import files
from tapehead.commands.train import finish
from tapehead.streams import stream
from tapehead.tasks import Batch
from tapehead.tasks.copy import Copy

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"controller_size": 8, "memory_slots": 8, "memory_width": 4}
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tapehead.commands.train"])


def tiny(**changes):
    """A run of six blocks, a small part of a second each."""
    settings = {
        "task": "copy",
        "task_options": {"length": (1, 3), "width": 2},
        "model_options": SMALL,
        "episodes": 600,
        "learning_rate": 1e-3,
        "early_stop": False,
    }
    return RunConfig(**settings | changes)


# Between them: both optimisers, both clips, schedule, average, varying slots, a population that thins out.
PLAIN = tiny()
RICH = tiny(
    seeds=(3, 7, 9),
    batch_size=8,
    episodes=6400,
    optimiser="adam",
    clip="norm",
    clip_at=1.0,
    schedule="cosine",
    average=0.9,
    slots=(3, 8),
    learning_rate=3e-3,
    early_stop=True,
)
QUICKLY_SOLVED = 2.2


def quick_tasks(patch):
    """Score a little, at small sizes, and call a machine solved early."""
    patch.setattr(Copy, "generalisation", ({"length": 2}, {"length": 5}))
    patch.setattr(Copy, "solved_bits", QUICKLY_SOLVED)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    quick_tasks(monkeypatch)


def complete(folder, config):
    """What the command does, without its pictures."""
    run = Run(folder, config)
    try:
        trainer = Trainer(config, run)
        trainer.restore()
        with Progress() as progress:
            progress.start(trainer)
            trainer.train(progress)
        return finish(trainer, 0.0)
    finally:
        run.close()


def outcome(folder):
    """All of a finished run that must not depend on its interruptions."""
    result = json.loads((folder / "result.json").read_text())
    del result["seconds_of_last_session"], result["seal"]
    newest = checkpoint.folders(folder / "checkpoints")[0]
    return (
        result,
        (folder / "metrics.jsonl").read_bytes(),
        (folder / "tensorboard" / events.FILE).read_bytes(),
        {path.name: path.read_bytes() for path in newest.iterdir()},
    )


CONFIGS = {"plain": PLAIN, "long": tiny(episodes=4000), "rich": RICH}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Uninterrupted runs, made once."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        quick_tasks(patch)
        for name, config in CONFIGS.items():
            folder = tmp_path_factory.mktemp("finished") / name
            complete(folder, config)
            made[name] = folder
        yield made


# --- resume ----------------------------------------------------------------------------------------------------------


def train_and_die(folder, name, block, delay, ahead):
    """In another process: train, and be gone some time after a block begins, wherever that is."""
    with pytest.MonkeyPatch.context() as patch:
        quick_tasks(patch)
        patch.setattr(loop, "SAVE_SECONDS", 0.05 if ahead else 0.0)  # at 0 every block is saved, and none is ahead
        torch.set_num_threads(1)
        original, count = Trainer._launch, [0]

        def counted(self, *given):
            self.asynchronous = ahead
            count[0] += 1
            if count[0] == block:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, delay)  # nobody handles it: the kernel ends the process
            return original(self, *given)

        patch.setattr(Trainer, "_launch", counted)
        complete(folder, CONFIGS[name])


@pytest.mark.parametrize(("name", "ahead"), [("long", False), ("rich", False), ("long", True)])
def test_killed_at_random_moments_and_rerun_it_ends_in_the_same_bits(tmp_path, finished, name, ahead):
    source, folder, ends = random.Random(name), tmp_path / "run", []
    for _ in range(6):
        delay = source.choice((1e-6, source.uniform(0, 0.05)))
        child = SERVER.Process(target=train_and_die, args=(folder, name, source.randrange(1, 4), delay, ahead))
        child.start()
        child.join(60)
        ends.append(child.exitcode)
    assert set(ends) <= {0, -signal.SIGALRM}
    assert ends.count(0) < 4
    complete(folder, CONFIGS[name])
    assert outcome(folder) == outcome(finished[name])
    assert not [path for path in folder.rglob(".*")]


@pytest.mark.parametrize("moment", ["save", "append_metrics", "write_json", "begin"])
def test_stopped_inside_any_write_and_rerun_it_ends_in_the_same_bits(tmp_path, finished, monkeypatch, moment):
    original, count = getattr(Run, moment), [0]

    def stop(self, *arguments):
        count[0] += 1
        original(self, *arguments)
        if count[0] in (1, 3):
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, moment, stop)
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    for _ in range(4):
        try:
            complete(tmp_path / "run", PLAIN)
            break
        except KeyboardInterrupt:
            continue
    assert outcome(tmp_path / "run") == outcome(finished["plain"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("block", [1, 3, 6])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_signal_saves_the_block_and_the_rest_follows_later(tmp_path, finished, monkeypatch, number, block, ahead):
    original, count = Trainer._launch, [0]

    def signalled(self, *given):
        self.asynchronous = ahead
        count[0] += 1
        if count[0] == block:
            os.kill(os.getpid(), number)
        return original(self, *given)

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_launch", signalled)
        with pytest.raises(Interrupted) as stop:
            complete(tmp_path / "run", PLAIN)
    assert stop.value.exit_code == 128 + number
    assert signal.getsignal(number) == before
    assert checkpoint.load_newest(tmp_path / "run" / "checkpoints").step == 100 * block
    complete(tmp_path / "run", PLAIN)
    assert outcome(tmp_path / "run") == outcome(finished["plain"])


def test_a_second_ctrl_c_does_not_wait(tmp_path, monkeypatch):
    def impatient(self, *_):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "_launch", impatient)
    with pytest.raises(KeyboardInterrupt):
        complete(tmp_path / "run", PLAIN)


def test_a_damaged_checkpoint_costs_time_only(tmp_path, finished, capsys):
    folder = tmp_path / "run"
    run = Run(folder, PLAIN)
    trainer = Trainer(PLAIN, run)
    trainer.restore()
    for _ in range(4):
        trainer.block()
        trainer.save()
    run.close()
    newest, _ = checkpoint.folders(folder / "checkpoints")
    data = bytearray((newest / "state.safetensors").read_bytes())
    data[-5] ^= 1
    (newest / "state.safetensors").write_bytes(data)
    capsys.readouterr()
    complete(folder, PLAIN)
    assert f"refused a damaged checkpoint: {newest.name}/state.safetensors" in capsys.readouterr().err
    assert outcome(folder) == outcome(finished["plain"])
    for path in checkpoint.folders(folder / "checkpoints"):
        (path / "state.json").write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"no checkpoint in .* is whole"):
        complete(folder, PLAIN)


def test_kill_nine_through_the_command_line(tmp_path):
    """The real thing, once: the whole program, `kill -9`, SIGTERM, then the rest."""
    command = [sys.executable, "-m", "tapehead.cli", "train", "copy", "--episodes", "3000", "--no-early-stop"]
    command += ["--task-options", "length", "[1,3]", "width", "2", "--model-options"]
    command += [word for name, value in SMALL.items() for word in (name, str(value))]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(tapehead.__file__).parents[1])}

    def start(out):
        return subprocess.Popen(
            [*command, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True
        )

    def wait_for_a_block(process, folder):
        while process.poll() is None:
            metrics = folder / "metrics.jsonl"
            if metrics.exists() and metrics.stat().st_size:
                return
            time.sleep(0.02)
        raise AssertionError(process.communicate()[0])

    folder = tmp_path / "run"
    killed = start(folder)
    wait_for_a_block(killed, folder)
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    stopped = start(folder)
    (folder / "metrics.jsonl").unlink()
    wait_for_a_block(stopped, folder)
    stopped.terminate()
    said = stopped.communicate()[0]
    assert stopped.returncode == 143, said
    assert "stopped by SIGTERM; saved in" in said
    assert checkpoint.load_newest(folder / "checkpoints") is not None
    config = read_config(folder)
    whole = complete(folder, config)
    assert whole["sha256"] == complete(tmp_path / "other", config)["sha256"]


# --- the same numbers, whoever else is there -------------------------------------------------------------------------


def test_the_same_seed_twice_is_equal_and_another_is_not(tmp_path, finished):
    again = complete(tmp_path / "again", PLAIN)
    assert outcome(tmp_path / "again") == outcome(finished["plain"])
    other = complete(tmp_path / "other", tiny(seeds=(1,)))
    assert other["sha256"]["weights"] != again["sha256"]["weights"]  # the control


def rows_of_seed(folder, seed):
    """A seed's part of a finished run's state, metrics and scores."""
    config = read_config(folder)
    place = config.seeds.index(seed)
    point = checkpoint.load_newest(folder / "checkpoints")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    mine = [
        (line["episodes"], line["bits"][line["seeds"].index(seed)], line["skipped"][line["seeds"].index(seed)])
        for line in lines
        if seed in line["seeds"]
    ]
    scores = json.loads((folder / "result.json").read_text())["generalisation"]
    judged = [(score["label"], *(score[name][place] for name in ("bits", "wrong_bits", "perfect"))) for score in scores]
    return {name: tensor[place] for name, tensor in point.tensors.items()}, mine, judged


@pytest.mark.parametrize("seed", RICH.seeds)
def test_a_seed_alone_equals_the_same_seed_among_others(tmp_path, finished, seed):

    complete(tmp_path / "alone", replace(RICH, seeds=(seed,)))
    alone, among = rows_of_seed(tmp_path / "alone", seed), rows_of_seed(finished["rich"], seed)
    assert alone[1:] == among[1:]
    assert alone[0].keys() == among[0].keys()
    for name, tensor in alone[0].items():
        assert torch.equal(tensor, among[0][name]), name


def test_seeds_leave_at_different_times_and_stay_as_they_were(finished):
    result = json.loads((finished["rich"] / "result.json").read_text())
    assert len(set(result["solved_at"])) > 1  # or the test above proves less than it says
    lines = [json.loads(line) for line in (finished["rich"] / "metrics.jsonl").read_text().splitlines()]
    for seed, solved_at in zip(RICH.seeds, result["solved_at"], strict=True):
        assert [line["episodes"] for line in lines if seed in line["seeds"]][-1] == solved_at
    assert all(bits < QUICKLY_SOLVED for bits in result["last_window_bits"])


def test_early_stop_freezes_a_solved_seed(monkeypatch):
    trainer = Trainer(RICH)
    frozen = {}
    while not trainer.finished:
        trainer.block()
        now = trainer.population.tensors()
        for place, active in enumerate(trainer.population.active.tolist()):
            row = {name: tensor[place].clone() for name, tensor in now.items()}
            if not active:
                before = frozen.setdefault(place, row)
                assert all(torch.equal(before[name], row[name]) for name in row)
    assert set(frozen) == {0, 1, 2}


def test_no_early_stop_notes_the_time_and_goes_on():

    trainer = Trainer(replace(RICH, early_stop=False))
    while not trainer.finished:
        trainer.block()
    assert trainer.updates == RICH.updates
    assert bool((trainer.population.solved_at > 0).all())
    assert bool(trainer.population.active.all())


@pytest.mark.parametrize("model", ["ntm", "lstm"])
def test_one_and_two_threads_are_equal(model):
    options = SMALL if model == "ntm" else {"hidden_size": 8, "num_layers": 2}
    config = tiny(model=model, model_options=options, seeds=(1, 2), batch_size=4, episodes=80, clip="norm")
    made = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        trainer = Trainer(config)
        trainer.block()
        made.append((trainer.population.tensors(), trainer.metrics))
    assert made[0][1] == made[1][1]
    for name, tensor in made[0][0].items():
        assert torch.equal(tensor, made[1][0][name]), name


@pytest.mark.parametrize("name", ["sum", "norm"])
def test_metrics_of_a_seed_do_not_depend_on_the_layout_of_its_neighbours(name):
    """A block's mean cost is a sum: its order must not change with the number of seeds."""
    lines = []
    for seeds in ((5,), (5, 6, 7, 8, 9)):
        trainer = Trainer(tiny(seeds=seeds, clip="elementwise" if name == "sum" else "norm"))
        trainer.block()
        lines.append(json.loads(trainer.metrics[0])["bits"][0])
    assert lines[0] == lines[1]


# --- numbers that are none -------------------------------------------------------------------------------------------


def poison(trainer, monkeypatch, where, when, value):
    """Put a value into one place of seed 1 of a trainer at its when-th update."""
    original, count = trainer.model.loss_and_gradient, [0]

    def poisoned(flat, *rest):
        costs, gradient, squares = original(flat, *rest)
        if count[0] == when:
            target = {"cost": costs, "gradient": gradient, "parameter": flat}[where]
            target[1, 0] = value
        count[0] += 1
        return costs, gradient, squares

    monkeypatch.setattr(trainer.model, "loss_and_gradient", poisoned)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["cost", "gradient"])
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_bad_cost_or_gradient_skips_that_update_of_that_seed(monkeypatch, where, value, average):
    trainers = [Trainer(tiny(seeds=(0, 1, 2), average=average)) for _ in range(2)]
    poison(trainers[1], monkeypatch, where, 40, value)
    for trainer in trainers:
        trainer.block()
    clean, hit = (trainer.population for trainer in trainers)
    assert hit.skipped.tolist() == [0, 1, 0]
    assert hit.state.applied.tolist() == [100, 99, 100]
    assert json.loads(trainers[1].metrics[0])["skipped"] == [0, 1, 0]
    for name, tensor in hit.tensors().items():
        if name not in ("recent", "kept_cost"):
            assert bool(torch.isfinite(tensor).all()), name
        for seed in (0, 2):
            assert torch.equal(tensor[seed], clean.tensors()[name][seed]), name  # the neighbours noticed nothing
    assert not torch.equal(hit.state.parameters[1], clean.state.parameters[1])
    assert None not in json.loads(trainers[1].metrics[0])["bits"]


@pytest.mark.parametrize("when", [0, 40, 99])
@pytest.mark.parametrize("optimiser", ["graves", "adam"])
def test_weights_that_are_no_numbers_are_put_back_and_never_saved(tmp_path, monkeypatch, when, optimiser):
    config = tiny(seeds=(0, 1, 2), episodes=300, optimiser=optimiser)
    run = Run(tmp_path / "run", config)
    trainer, clean = Trainer(config, run), Trainer(config)
    trainer.restore()
    start = trainer.population.state.parameters.clone()
    poison(trainer, monkeypatch, "parameter", when, float("nan"))
    trainer.block()
    trainer.save()
    clean.block()
    point = run.newest()
    assert bool(torch.isfinite(point.tensors["update.parameters"]).all())
    assert torch.equal(point.tensors["update.parameters"][1], start[1])  # as at the beginning of the block
    assert point.tensors["skipped"].tolist() == [0, 100, 0]
    for seed in (0, 2):
        assert torch.equal(point.tensors["update.parameters"][seed], clean.population.state.parameters[seed])
    trainer.block()  # and it goes on
    assert trainer.population.skipped.tolist() == [0, 100, 0]
    assert not torch.equal(trainer.population.state.parameters[1], start[1])
    run.close()


def test_an_overflow_of_the_weights_is_never_saved():
    trainer = Trainer(tiny(learning_rate=1e38, clip="none", episodes=200))
    while not trainer.finished:
        trainer.block()
    for name, tensor in trainer.population.tensors().items():
        assert name in ("recent", "kept_cost") or bool(torch.isfinite(tensor).all()), name
    assert int(trainer.population.skipped) > 0


def test_metrics_stay_json_when_nothing_is_a_number(monkeypatch):
    trainer = Trainer(tiny(episodes=100))
    original = trainer.model.loss_and_gradient
    nan = float("nan")
    monkeypatch.setattr(
        trainer.model, "loss_and_gradient", lambda *given: (*(part * nan for part in original(*given)[:2]), None)
    )
    trainer.block()
    assert json.loads(trainer.metrics[0], parse_constant=pytest.fail)["bits"] == [None]
    assert trainer.population.skipped.tolist() == [100]
    assert events._line(trainer.metrics[0])  # and TensorBoard gets what there is


# --- records ---------------------------------------------------------------------------------------------------------


def test_the_best_weights_of_a_full_window_are_kept():
    trainer = Trainer(tiny(seeds=(0, 1), early_stop=True))
    people = trainer.population
    width = people.state.parameters.shape[1]

    def record(first, second, weight):
        people.working.parameters.copy_(torch.full((len(people.index), width), float(weight)))
        costs = torch.tensor([first, second], dtype=torch.float64).unsqueeze(1).expand(2, 500)[people.index]
        people.record(costs, torch.zeros(len(people.index), dtype=torch.int64))
        people.judge(500 * weight, 0.1, True, people.working.weights, torch.ones(len(people.index), dtype=torch.bool))

    record(0.05, 4.0, 1)  # half a window: nobody is judged
    assert people.solved_at.tolist() == [-1, -1]
    assert torch.isinf(people.kept_cost).all()
    assert people.delivered()[:, 0].tolist() == [1.0, 1.0]  # so far the latest
    record(0.25, 2.0, 2)  # means 0.15 and 3
    record(0.45, 6.0, 3)  # worse: 0.35 and 4
    assert people.kept_cost.tolist() == pytest.approx([0.15, 3.0])
    assert people.delivered()[:, 0].tolist() == [2.0, 2.0]
    record(0.0, 3.0, 4)
    record(0.0, 1.0, 5)  # seed 0 is solved and leaves
    assert people.solved_at.tolist() == [2500, -1]
    assert people.active.tolist() == [False, True]
    record(9.0, 0.0, 6)
    assert people.delivered()[:, 0].tolist() == [5.0, 6.0]
    assert people.tensors()["update.parameters"][:, 0].tolist() == [5.0, 6.0]
    record(9.0, float("nan"), 7)  # a cost that is none spoils the window
    assert people.kept_cost.tolist() == [0.0, 0.5]
    assert people.solved_at.tolist() == [2500, -1]


def test_the_average_is_what_is_kept_and_delivered():
    trainer = Trainer(tiny(average=0.5, episodes=100))
    trainer.block()
    assert torch.equal(trainer.population.delivered(), trainer.population.state.average)
    assert not torch.equal(trainer.population.delivered(), trainer.population.state.parameters)


def test_a_restored_population_is_the_same_in_every_part():
    trainer = Trainer(RICH)
    for _ in range(4):
        trainer.block()
    saved = {name: tensor.clone() for name, tensor in trainer.population.tensors().items()}
    other = Trainer(RICH)
    other.population.restore(saved)
    assert all(torch.equal(tensor, saved[name]) for name, tensor in other.population.tensors().items())
    assert torch.equal(other.population.index, trainer.population.index)
    for wrong in (saved | {"more": saved["kept"]}, saved | {"kept": saved["kept"][:, :-1]}, {"kept": saved["kept"]}):
        with pytest.raises(ValueError, match="other tensors"):
            Trainer(RICH).population.restore(wrong)


def test_excess_is_measured_against_the_best_possible():
    task = tapehead.make_task("ngrams", length=20)
    batch = task.sample(stream(0, "x", 0), batch_size=3)
    costs = torch.tensor([20.0, 10.0, 5.0]) * math.log(2)
    excess = population.excess_bits(task, batch, costs)
    assert torch.allclose(excess, torch.tensor([20.0, 10.0, 5.0]).double() - task.optimal_bits(batch))


def data_of(trainer, seeds, span):
    """What seeds in their first attempt learn from."""
    return trainer.teacher.data(seeds, [span.start] * len(seeds), span)


def sample(trainer, seeds, span):
    """The same, not from stock, and without the slots."""
    return trainer.teacher.sample(seeds, [span.start] * len(seeds), span)


def test_training_data_and_slots_are_addressed():
    trainer = Trainer(RICH)
    seeds, span = [9, 3], range(200, 203)
    data, slots = sample(trainer, seeds, span), trainer.teacher.sample_slots(seeds, span)
    assert slots.shape == (3, 2, 8)
    assert (int(slots.min()), int(slots.max())) == (3, 8)
    for k, update in enumerate(span):
        for s, seed in enumerate(seeds):
            alone = trainer.teacher.sample_slots([seed], range(update, update + 1))
            assert torch.equal(slots[k, s], alone[0, 0])
            one = sample(trainer, [seed], range(update, update + 1))
            steps = one.inputs.shape[2]
            assert torch.equal(data.inputs[k, s, :steps], one.inputs[0, 0])
            assert torch.equal(data.lengths[k, s], one.lengths[0, 0])
    assert Trainer(PLAIN).teacher.sample_slots([0], range(3)) is None


def test_every_update_sees_its_own_batch_and_rate(monkeypatch):
    trainer = Trainer(tiny(schedule="cosine", episodes=200))
    seen = []

    def step(batch, slots, rates, group):
        seen.append((batch, rates))
        return torch.zeros(1, 1), torch.zeros(1, dtype=torch.bool)

    monkeypatch.setattr(trainer.population, "step", step)
    while not trainer.finished:
        trainer.block()
    wanted = torch.tensor([trainer.config.rate(update) for update in range(200)])
    assert torch.equal(torch.cat([rates for _, rates in seen]), wanted)
    direct = trainer.task.sample(stream([0], "training/copy", 150), batch_size=1)
    batch = seen[150][0]
    assert isinstance(batch, Batch)
    assert torch.equal(batch.inputs[:, : direct.inputs.shape[1]], direct.inputs)


def test_the_last_block_is_cut_short():
    trainer = Trainer(tiny(episodes=130, batch_size=4))
    assert trainer.config.updates == 33
    trainer.block()
    assert trainer.finished
    assert json.loads(trainer.metrics[-1])["episodes"] == 132


def test_schedules():
    constant = tiny(learning_rate=0.5)
    assert {constant.rate(update) for update in (0, 300, 600)} == {0.5}
    cosine = tiny(learning_rate=0.5, schedule="cosine", final_rate=0.1)
    assert cosine.rate(0) == 0.5
    assert cosine.rate(300) == pytest.approx(0.5 * 0.55)
    assert cosine.rate(600) == pytest.approx(0.05)
    rates = [cosine.rate(update) for update in range(601)]
    assert rates == sorted(rates, reverse=True)


# --- the folder ------------------------------------------------------------------------------------------------------


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder, config, message):
    """The run is refused, and not a byte of the folder has changed."""
    before = contents(folder)
    with pytest.raises(ValueError, match=message) as refusal:
        complete(folder, config)
    assert "\n" not in str(refusal.value)
    assert contents(folder) == before


@pytest.fixture
def used(tmp_path, finished):

    return Path(shutil.copytree(finished["plain"], tmp_path / "used"))


def test_a_finished_run_again_changes_nothing_that_counts(used):
    before = outcome(used)
    complete(used, PLAIN)
    assert outcome(used) == before


def test_another_configuration_is_refused_by_the_setting_that_differs(used):
    refused(used, tiny(episodes=700), "episodes = 600, not 700")
    refused(used, tiny(learning_rate=1), r"learning_rate = 0.001, not 1")
    refused(used, tiny(seeds=(0, 1)), r"seeds = \(0,\), not \(0, 1\)")
    refused(used, tiny(task_options={"length": (1, 4), "width": 2}), "task_options")
    refused(used, tiny(model_options=SMALL | {"memory_slots": 9}), "model_options")


def test_where_a_run_happens_may_change(used):

    Run(used, replace(PLAIN, backend="reference")).close()


def test_checkpoints_of_another_run_are_refused(used, finished):

    shutil.rmtree(used / "checkpoints")
    shutil.copytree(finished["rich"] / "checkpoints", used / "checkpoints")
    refused(used, PLAIN, "belong to another configuration")
    with pytest.raises(ValueError, match="belong to another configuration"):
        tapehead.load(used)


@pytest.mark.parametrize(
    "forged",
    [
        {"facts": {"updates": "600"}},
        {"facts": {}},
        {"files": {}},
        {"tensors": {}},
        {"tensors": {"kept": torch.zeros(1, 3)}},
        {"tensors": {name: torch.zeros(1, 3) for name in ("kept", "kept_cost", "update.parameters")}},
        {"tensors": {name: torch.zeros(2) for name in ("kept", "kept_cost", "update.parameters")}},
    ],
)
def test_a_checkpoint_with_right_hashes_and_wrong_contents_is_refused(used, forged):
    point = checkpoint.load_newest(used / "checkpoints")
    forged = dict(forged)
    if "facts" in forged:
        forged["facts"] = {"config": PLAIN.hash} | forged["facts"]
    shutil.rmtree(used / "checkpoints")
    checkpoint.save(used / "checkpoints", point._replace(**forged))
    refused(used, PLAIN, "another version")
    with pytest.raises(ValueError, match="another version"):
        tapehead.load(used)


def test_two_processes_on_one_folder(used):
    first = Run(used, PLAIN)
    before = contents(used)
    try:
        with pytest.raises(ValueError, match="another process is training in"):
            Run(used, PLAIN)
    finally:
        first.close()
    assert contents(used) == before
    Run(used, PLAIN).close()


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_configuration_is_refused(used, seed):
    good, source = (used / "config.json").read_bytes(), random.Random(seed)
    for _ in range(50):
        changed = bytearray(good)
        kind = source.randrange(3)
        place = source.randrange(len(good))
        if kind == 0:
            changed[place] ^= 1 << source.randrange(8)
        elif kind == 1:
            del changed[place:]
        else:
            changed[place : place + 16] = bytes(16)
        (used / "config.json").write_bytes(changed)
        with pytest.raises(ValueError, match=r"config.json is damaged \(.*\): restore it"):
            read_config(used)
    refused(used, PLAIN, "config.json is damaged")


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 100_000, '{"config": []}', '{"config": {"task": 3}}', "{}"])
def test_a_hostile_configuration_is_refused(used, text):
    (used / "config.json").write_text(text)
    refused(used, PLAIN, "config.json is damaged")


def test_a_result_that_cannot_be_read_is_made_again(used):
    before = outcome(used)
    for text in ("", "[]", "{}", "\0"):
        (used / "result.json").write_text(text)
        run = Run(used, PLAIN)
        assert run.result is None
        run.close()
        complete(used, PLAIN)
        assert outcome(used) == before


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    refused(tmp_path, PLAIN, "has files in it, but no run")


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / ("n" * 300), tmp_path / "a" / ("n" * 300)):
        with pytest.raises(ValueError, match=r"is a file|cannot write to"):
            Run(folder, PLAIN)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_trained_leaves_no_folder(tmp_path):
    for config in (
        tiny(task_options={"length": (3, 1)}),
        tiny(task_options={"lenght": 3}),
        tiny(model_options={"memory_slots": 0}),
        tiny(model_options={"memory_slot": 1}),
        tiny(task="copi", task_options={}),
    ):
        with pytest.raises(ValueError):
            Run(tmp_path / "a" / "run", config)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("leftover", ["nothing", "lock", "half a configuration"])
def test_a_process_killed_in_its_first_moments_can_be_run_again(tmp_path, leftover):
    folder = tmp_path / "run"
    folder.mkdir()
    if leftover != "nothing":
        (folder / "run.lock").touch()
    if leftover == "half a configuration":
        files.temporary_name(folder / "config.json").write_text("{")
    complete(folder, tiny(episodes=100))
    assert not list(folder.glob(".*"))


def test_leftovers_of_a_killed_save_are_cleared_away(used):
    half = files.temporary_name(used / "checkpoints" / "step-000000700")
    half.mkdir()
    (half / "state.json").write_text("{")
    files.temporary_name(used / "checkpoints" / "step-000000100").mkdir()
    (used / "figures").mkdir()
    names = ("env.json", "metrics.jsonl", "result.json", f"tensorboard/{events.FILE}", "figures/memory.png")
    for name in names:
        files.temporary_name(used / name).write_text("{")
    (used / ".mine").write_text("other hidden files stay")
    complete(used, PLAIN)
    assert list(used.rglob(".*")) == [used / ".mine"]


@pytest.mark.parametrize("where", ["write_new", "replace", "events"])
def test_a_full_disk_is_one_sentence_and_the_last_checkpoint_stays(used, monkeypatch, where):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    run = Run(used, PLAIN)
    trainer = Trainer(PLAIN, run)
    with monkeypatch.context() as patch:
        patch.setattr(*((events, "append") if where == "events" else (files, where)), full)
        act = {
            "write_new": lambda: run.save(checkpoint.Checkpoint(900, trainer.population.tensors(), {}, {})),
            "replace": lambda: run.write_json("result.json", {}),
            "events": lambda: run.append_metrics("{}"),
        }[where]
        with pytest.raises(ValueError, match=r"No space left on device.*run the same command again") as refusal:
            act()
        assert "\n" not in str(refusal.value)
    run.close()
    complete(used, PLAIN)


def test_a_deleted_folder_is_one_sentence(used, tmp_path):
    run = Run(used, PLAIN)
    used.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"cannot write to .*No such file"):
        run.append_metrics("{}")
    run.close()


def test_loading_a_trained_machine(finished, tmp_path):
    model = tapehead.load(finished["rich"], seed=7)
    point = checkpoint.load_newest(finished["rich"] / "checkpoints")
    assert torch.equal(model.flat_parameters(), point.tensors["kept"][1])
    assert not model.training
    assert torch.equal(tapehead.load(str(finished["rich"])).flat_parameters(), point.tensors["kept"][0])
    with pytest.raises(ValueError, match=r"seed 8 is not in .*: it has 3, 7, 9"):
        tapehead.load(finished["rich"], seed=8)
    with pytest.raises(ValueError, match="holds no run"):
        tapehead.load(tmp_path)
    Run(tmp_path / "new", PLAIN).close()
    with pytest.raises(ValueError, match="no checkpoint yet"):
        tapehead.load(tmp_path / "new")


# --- configurations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": ()}, "seeds are"),
        ({"seeds": (1, 1)}, "all different"),
        ({"seeds": (-1,)}, "seed is -1"),
        ({"seeds": (2**64,)}, r"seed is 18446744073709551616.*2\^64"),
        ({"episodes": 0}, "episodes is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"clip_at": float("inf")}, "clip_at is inf"),
        ({"average": 1.0}, "average is 1.0"),
        ({"final_rate": 2.0}, "final_rate is 2.0"),
        ({"slots": (0, 3)}, "slots are"),
        ({"slots": (5, 4)}, "slots are"),
        ({"optimiser": "adm"}, "Did you mean 'adam'"),
        ({"model": "nmt"}, "Did you mean 'ntm'"),
        ({"clip": "nrom"}, "Did you mean 'norm'"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match="Did you mean 'episodes'"):
        RunConfig.from_dict({"task": "copy", "episode": 3})
    with pytest.raises(ValueError, match="tape has 8"):
        Trainer(tiny(slots=(1, 9)))
    with pytest.raises(ValueError, match="has no memory"):
        Trainer(tiny(model="lstm", model_options={}, slots=(1, 9)))


def test_a_configuration_survives_json_and_its_hash_ignores_the_place():

    again = RunConfig.from_dict(json.loads(json.dumps(RICH.to_dict())))
    assert again.hash == RICH.hash
    assert (again.seeds, again.slots) == (RICH.seeds, RICH.slots)
    assert replace(RICH, backend="reference", device="cuda").hash == RICH.hash
    assert len({replace(RICH, **change).hash for change in ({}, {"seeds": (3,)}, {"average": 0.5})}) == 3


# --- TensorBoard -----------------------------------------------------------------------------------------------------


def crc32c(data):
    """Bit by bit, from the polynomial 0x1EDC6F41 (reversed 0x82F63B78)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


def unmask(masked):
    turned = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return ((turned >> 17) | (turned << 15)) & 0xFFFFFFFF


def fields(data):
    """A protocol buffer as (number, value) pairs."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            yield number, varint()
        elif kind == 2:
            size = varint()
            yield number, data[at : at + size]
            at += size
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[kind]
            yield number, struct.unpack(form, data[at : at + size])[0]
            at += size
    assert at == len(data)


def records(data):
    at = 0
    while at < len(data):
        head = data[at : at + 8]
        size = struct.unpack("<Q", head)[0]
        assert unmask(struct.unpack("<I", data[at + 8 : at + 12])[0]) == crc32c(head)
        body = data[at + 12 : at + 12 + size]
        assert unmask(struct.unpack("<I", data[at + 12 + size : at + 16 + size])[0]) == crc32c(body)
        yield dict(fields(body))
        at += size + 16
    assert at == len(data)


def test_checksum_vector():
    assert crc32c(b"123456789") == 0xE3069283
    assert unmask(events._masked_crc(b"123456789")) == 0xE3069283


@pytest.mark.parametrize("name", CONFIGS)
def test_tensorboard_shows_the_metrics(finished, name):
    (path,) = (finished[name] / "tensorboard").iterdir()
    assert ".tfevents." in path.name  # or TensorBoard does not look at it
    head, *rest = records(path.read_bytes())
    assert head[3] == b"brain.Event:2"
    lines = [json.loads(line) for line in (finished[name] / "metrics.jsonl").read_text().splitlines()]
    assert len(rest) == len(lines) > 3
    for event, line in zip(rest, lines, strict=True):
        assert event[2] == line["episodes"]
        values = [dict(fields(value)) for number, value in fields(event[5]) if number == 1]
        shown = {value[1].decode(): value[2] for value in values}
        wanted = {f"bits/seed-{seed}": bits for seed, bits in zip(line["seeds"], line["bits"], strict=True)}
        assert shown == pytest.approx(wanted | {"rate": line["rate"]}, rel=1e-6)


# --- progress --------------------------------------------------------------------------------------------------------


def test_progress_is_a_bar_on_a_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Console, "is_terminal", True)
    complete(tmp_path / "run", tiny(episodes=150))
    said = capsys.readouterr().err
    assert "training" in said
    assert "150/150" in said
    assert " of 150 episodes" not in said


def test_progress_is_plain_lines_where_there_is_no_terminal(tmp_path, capsys):
    complete(tmp_path / "run", tiny(episodes=50, seeds=(0, 1)))
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("50 of 50 episodes, ")
    assert "episodes/s" in line
    assert "0 of 2 seeds solved" in line
    assert "inf" not in line
    assert line.isprintable()  # no escape codes


@pytest.mark.parametrize("stocked", [1, 1000, 4_000_000])
def test_the_stock_changes_no_data(monkeypatch, stocked):
    monkeypatch.setattr(teaching, "STOCKED_STEPS", stocked)
    trainer = Trainer(RICH)
    for seeds, span in (
        ([3, 7], range(100)),
        ([3, 7], range(100, 200)),
        ([7], range(200, 300)),
        ([7], range(50)),
    ):
        data, slots = data_of(trainer, seeds, span)
        direct = sample(trainer, seeds, span)
        steps = direct.inputs.shape[2]
        assert torch.equal(data.inputs[:, :, :steps], direct.inputs)
        assert torch.equal(data.targets[:, :, :steps], direct.targets)
        assert torch.equal(data.mask[:, :, :steps], direct.mask)
        assert not any(part[:, :, steps:].any() for part in data[:3])
        assert torch.equal(data.lengths, direct.lengths)
        assert torch.equal(slots, trainer.teacher.sample_slots(seeds, span))


def test_the_stock_is_bounded_and_used(monkeypatch):
    trainer, drawn = Trainer(tiny(episodes=5000)), []
    monkeypatch.setattr(
        trainer.teacher,
        "sample",
        lambda seeds, done, span: drawn.append(span) or teaching.Teacher.sample(trainer.teacher, seeds, done, span),
    )
    for first in range(0, 1200, 100):
        data_of(trainer, [0], range(first, first + 100))
    assert drawn == [range(100), range(100, 1100), range(1100, 2100)]


def test_a_curriculum_holds_in_training_alone():
    trainer = Trainer(tiny(curriculum={"density": [0.0, 0.0], "length": (2, 2)}))
    data, _ = data_of(trainer, [0], range(100))
    assert not data.targets.any()
    assert set(data.lengths.flatten().tolist()) == {5}
    assert trainer.task.length == (1, 3)
    with pytest.raises(ValueError, match="densty"):
        Trainer(tiny(curriculum={"densty": (0.0, 1.0)}))


def test_a_curriculum_that_ends_is_not_judged():
    easy = {"curriculum": {"density": [0.0, 0.0]}, "episodes": 2450, "early_stop": True}  # zeros: learned at once
    judged = Trainer(tiny(**easy))
    while not judged.finished:
        judged.block()
    assert 0 < judged.population.solved_at[0] < 2000
    trainer = Trainer(tiny(**easy, curriculum_share=0.5))
    assert trainer.config.taught_updates == 1200  # whole blocks
    for _ in range(12):
        trainer.block()
    assert trainer.updates == 1200
    assert all(json.loads(line)["curriculum"] for line in trainer.metrics)
    assert trainer.population.recent.mean() < 0.1
    assert trainer.population.solved_at[0] == -1
    assert not torch.isfinite(trainer.population.kept_cost[0])
    trainer.block()
    data, _ = data_of(trainer, [0], range(1200, 1300))
    assert data.targets.any()
    assert "curriculum" not in trainer.metrics[-1]
    assert torch.isfinite(trainer.population.recent).sum() == 100
    for _ in range(9):
        trainer.block()
    assert torch.isfinite(trainer.population.kept_cost[0])
    assert trainer.population.kept_cost[0] > 0.5


def test_resuming_at_the_end_of_a_curriculum_changes_nothing(tmp_path):
    config = tiny(curriculum={"density": [0.0, 0.0]}, curriculum_share=0.5, episodes=400)
    whole, first = Trainer(config), Trainer(config, Run(tmp_path / "run", config))
    for _ in range(4):
        whole.block()
    first.block()
    first.block()
    first.save()
    assert first.run is not None
    first.run.close()
    second = Trainer(config, Run(tmp_path / "run", config))
    assert second.restore()
    second.block()
    second.block()
    assert torch.equal(second.population.recent, whole.population.recent)
    assert torch.equal(second.population.state.parameters, whole.population.state.parameters)


def test_a_curriculum_of_all_updates_has_no_end():
    trainer = Trainer(tiny(curriculum={"density": [0.0, 0.0]}, curriculum_share=0.9998, episodes=1400))
    assert trainer.config.taught_updates == trainer.config.updates
    while not trainer.finished:
        trainer.block()
    assert trainer.population.solved_at[0] > 0
    assert tiny(curriculum={"density": [0.0, 0.0]}, curriculum_share=0).taught_updates == 0


def test_the_stock_is_bounded_when_a_curriculum_of_short_sequences_ends():
    options = {"length": 2000, "width": 2}
    trainer = Trainer(
        tiny(task_options=options, curriculum={"length": (1, 1)}, curriculum_share=0.5, seeds=tuple(range(8)))
    )
    seeds = list(range(8))
    for first in range(0, 300, 100):
        data_of(trainer, seeds, range(first, first + 100))
    assert len(trainer.teacher._stock[2].lengths) == 200  # up to the end of the curriculum
    data_of(trainer, seeds, range(300, 400))
    assert trainer.teacher._stock[2].inputs[..., 0].numel() <= teaching.STOCKED_STEPS


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_of_a_curriculum_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="curriculum_share"):
        tiny(curriculum_share=share)


@pytest.mark.parametrize("curriculum", [{"width": 3}, {"paper_channels": True}])
def test_a_curriculum_that_changes_channels_is_refused(curriculum):
    with pytest.raises(ValueError, match=r"not channels"):
        Trainer(tiny(curriculum=curriculum))


def test_data_with_other_channels_are_refused_by_every_backend():
    for backend in ("cpu", "reference"):
        trainer = Trainer(tiny(backend=backend))
        data, _ = data_of(Trainer(tiny(task_options={"length": (1, 3), "width": 3})), [0], range(100))
        with pytest.raises(ValueError, match=r"inputs|input"):
            trainer.population.step(Batch(*(part[0] for part in data)), None, 1e-4)


def test_a_run_without_a_curriculum_is_written_as_before_there_were_any():
    assert not {"curriculum", "curriculum_share"} & PLAIN.to_dict().keys()
    assert replace(PLAIN, curriculum_share=0.5).hash == PLAIN.hash  # there is nothing that could end
    # runs that were made before there were curricula, and before they could end
    assert RunConfig(task="copy").hash == "5f30210746b3cd4605d692ac925dd1c86eb6370a722b112897e1c6a6a8f1c496"
    old = RunConfig(task="copy", curriculum={"blanks": 0.05})
    assert old.hash == "114c68800dc22f7d37fa7f30c47a57e5d89954037957f328e79f124dd98e6616"
    assert RunConfig.from_dict(PLAIN.to_dict()) == PLAIN
    taught = tiny(curriculum={"blanks": 0.1})
    assert RunConfig.from_dict(taught.to_dict()) == taught
    assert taught.hash != PLAIN.hash


class _Counted:
    """A population that only counts, and a graph that only says that it is one."""

    def __init__(self):
        self.working, self.steps, self.replays, self.captures = object(), 0, 0, 0

    def step(self, batch, slots, rates, group):
        self.steps += 1
        return torch.zeros(1, 1), torch.zeros(1, dtype=torch.bool)


def test_what_has_come_often_enough_is_captured(monkeypatch):
    class Graph:
        def __init__(self, population, data, slots):
            population.captures += 1
            self.population = population

        def __call__(self, data, slots, rates):
            self.population.replays += 1
            return torch.ones(len(rates), 1, 1), torch.zeros(len(rates), 1, dtype=torch.bool)

    monkeypatch.setattr(stepping, "_Graph", Graph)
    counted, replaying = _Counted(), stepping.Replaying()

    def block(updates, steps=5):
        data = Batch(torch.zeros(updates, 1, steps, 1, 2), *[torch.zeros(updates, 1)] * 3)
        return replaying(counted, data, None, torch.full((updates, 1), 1e-4))[0]

    assert block(100).sum() == 0
    assert (counted.steps, counted.captures) == (100, 0)
    assert block(105).flatten().tolist() == [1.0] * 100 + [0.0] * 5  # what does not fill a graph runs one by one
    assert (counted.steps, counted.captures, counted.replays) == (105, 1, 2)
    block(100, steps=6)  # another shape waits again
    assert (counted.steps, counted.captures) == (205, 1)
    counted.working = object()  # and so do other seeds
    block(100, steps=6)
    assert (counted.steps, counted.captures) == (305, 1)
    block(100, steps=6)
    assert (counted.steps, counted.captures) == (305, 2)


@pytest.mark.parametrize(("parameters", "each"), [(8, 1), (6, 2), (7, 4)])
@pytest.mark.parametrize("seeds", [1, 3, 4, 7, 8, 9, 11, 20, 132])
def test_groups_are_all_seeds_in_order_and_aligned(seeds, parameters, each):
    groups = stepping.groups_of(seeds, parameters)
    assert [seed for group in groups for seed in range(seeds)[group]] == list(range(seeds))
    assert all(group.start * parameters % stepping.ALIGNED == 0 for group in groups)
    assert len(groups) == (2 if seeds >= 2 * stepping.FEWEST else 1)
    sizes = [len(range(seeds)[group]) for group in groups]
    assert max(sizes) - min(sizes) < 2 * each


def test_groups_of_seeds_are_updated_like_everyone():
    config = tiny(seeds=(3, 4, 5, 6, 7, 8), episodes=20)
    whole, parted = Trainer(config), Trainer(config)
    data, slots = data_of(whole, list(config.seeds), range(5))
    rates = torch.linspace(1e-4, 1e-2, 30).view(5, 6)
    costs, skips = stepping.one_by_one(whole.population, data, slots, rates)
    parts = [stepping.one_by_one(parted.population, data, slots, rates, group) for group in (slice(0, 4), slice(4, 6))]
    assert torch.equal(costs, torch.cat([part[0] for part in parts], dim=1))
    assert torch.equal(skips, torch.cat([part[1] for part in parts], dim=1))
    ours, theirs = whole.population.tensors(), parted.population.tensors()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


@pytest.fixture
def rising(monkeypatch):
    """Costs that rise after the first full window, so that the weights kept are not the last ones."""
    blocks = []

    def excess(task, batch, costs):
        blocks.append(None)
        return torch.full(costs.shape, abs(len(blocks) - 13.0), dtype=torch.float64)

    monkeypatch.setattr(teaching, "excess_bits", excess)
    return blocks


@pytest.mark.parametrize("early_stop", [False, True])
def test_walking_is_block_after_block(early_stop):
    """Also where a curriculum ends, where weights are kept on the way, and where the walk is held or cut."""
    config = tiny(
        seeds=(3, 4), task_options={"length": (1, 2)}, curriculum={"blanks": 0.2}, curriculum_share=0.2,
        episodes=1450, average=0.9, learning_rate=1e-3, early_stop=early_stop,
    )  # fmt: skip
    plain, walked = Trainer(config), as_on_a_gpu(config)
    while not plain.finished:
        plain.block()
    held = list(walked.walk(hold=lambda: walked.updates == 500))
    assert early_stop or held == [False] * 5 + [True] + [False] * 8 + [True]
    assert differences(walked, plain) == []
    assert walked.metrics == plain.metrics
    assert early_stop or bool(torch.isfinite(walked.population.kept_cost).any())

    part, cut = as_on_a_gpu(config), Trainer(config)
    assert list(part.walk(end=530)) == [early_stop] * 5 + [True]
    for updates in (100, 100, 100, 100, 100, 30):
        cut.block(updates)
    assert part.updates == 530
    assert differences(part, cut) == []


def test_the_weights_kept_are_those_of_their_block(rising):
    config = tiny(seeds=(3, 4), episodes=2000, average=0.9, learning_rate=1e-3, early_stop=False)
    plain, walked = Trainer(config), as_on_a_gpu(config)
    kept = []
    while not plain.finished:
        plain.block()
        kept.append(plain.population.kept.clone())
    assert not torch.equal(kept[-1], plain.population.working.weights)
    rising.clear()
    for number, _ in enumerate(walked.walk()):
        assert torch.equal(walked.population.kept, kept[number])
    assert differences(walked, plain) == []


def test_who_leaves_a_walk_finds_one_state():
    config = tiny(seeds=(3, 4), episodes=800, early_stop=False)
    walked, plain = as_on_a_gpu(config), Trainer(config)
    for _ in walked.walk():
        if walked.updates == 300:
            break
    assert walked.updates == 400  # what was under way is done
    for _ in range(4):
        plain.block()
    assert differences(walked, plain) == []
    for _ in walked.walk():
        pass
    while not plain.finished:
        plain.block()
    assert differences(walked, plain) == []
    assert walked.metrics == plain.metrics


def as_on_a_gpu(config):
    """A trainer that asks for the next block before it records one."""
    trainer = Trainer(config)
    trainer.asynchronous = True
    return trainer


def differences(one, other):
    ours, theirs = one.population.tensors(), other.population.tensors()
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]
