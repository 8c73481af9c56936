"""A package that tapehead does not know: its task, loss, model, optimiser, schedule and figure are trained, resumed,
evaluated, confirmed, drawn and timed, in Python and from the command line, without touching tapehead."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from task_checks import check_addressing

import tapehead
from tapehead import cli, registry
from tapehead.experiment.config import read_toml
from tapehead.experiment.run import Interrupted, Status
from tapehead.figures.draw import draw_run
from tapehead.lab import records
from tapehead.lab.confirmation import confirm
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.plan import jobs_of
from tapehead.sweep.state import Watch
from tapehead.sweep.work import Assignment, work

pytestmark = pytest.mark.usefixtures("one_thread")

HERE = Path(__file__).parent
PARTS = "laboratory_elsewhere.parts"
FILE = HERE / "elsewhere.toml"


@pytest.fixture(autouse=True)
def laboratory(tmp_path, monkeypatch):
    """An empty working directory. pytest has put this file's folder on the path, so that Python finds the package."""
    monkeypatch.chdir(tmp_path)


def experiment(**changes):
    values = tapehead.Experiment.from_plain(read_toml(FILE))
    return values.with_values({path.replace("__", "."): value for path, value in changes.items()})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of the experiment of the file."""
    folder = tmp_path_factory.mktemp("outside") / "run"
    return folder, tapehead.train(experiment(), folder)


def test_the_task_is_one(run):
    task = experiment().task
    check_addressing(task)
    batch = task.sample(tapehead.stream(1, "t", 0), batch_size=9)
    for t, b in batch.mask.nonzero().tolist():
        assert int(batch.targets[t, b].argmax()) == (int(batch.inputs[t, b].argmax()) + 1) % 4


def test_the_model_is_one():
    torch.manual_seed(0)
    model = experiment().build()
    x, lengths = torch.rand(5, 3, 4), torch.tensor([5, 2, 4])
    y, state = model(x, None, lengths)
    first, middle = model(x[:2])
    second, end = model(x[2:], middle)
    torch.testing.assert_close(torch.cat([first, second])[:, 0], y[:, 0])  # 6e-8 seen
    torch.testing.assert_close(end[0], state[0])
    torch.testing.assert_close(state[1], middle[1])  # the state of the row's last step
    alone, _ = model(x[:, 2])
    torch.testing.assert_close(alone[:4], y[:4, 2])


def test_it_learns(run):
    folder, result = run
    assert result.solved == 2
    assert result.backend == "torch"
    assert [score.label for score in result.generalisation] == ["Length 3", "Length 8"]
    assert max(result.generalisation[0].costs) < 0.5
    assert min(result.generalisation[0].accuracy) > 0.95
    assert result.episodes == 2000
    rates = [json.loads(line)["rate"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rates[0] == [0.01, 0.01]  # after the warm-up


def test_in_memory_it_is_the_same(run):
    assert tapehead.train(experiment()).sha256 == run[1].sha256


def test_a_seed_alone_is_the_seed_among_others(run):
    alone = tapehead.train(experiment(seeds=(4,)), "alone")
    assert alone.generalisation[0].bits[0] == run[1].generalisation[0].bits[1]
    assert torch.equal(tapehead.load("alone").flat_parameters(), tapehead.load(run[0], 4).flat_parameters())


class StopAfter(tapehead.Observer):
    """An observer that asks the process to stop, as SIGTERM does."""

    def __init__(self, blocks):
        self.blocks = blocks

    def block(self, status: Status) -> None:
        self.blocks -= 1
        if self.blocks == 0:
            os.kill(os.getpid(), 15)


def test_it_is_resumed_to_the_bit(run):
    with pytest.raises(Interrupted):
        tapehead.train(experiment(), "stopped", observer=StopAfter(2))
    assert not Path("stopped/result.json").exists()
    assert tapehead.train(experiment(), "stopped").sha256 == run[1].sha256
    assert Path("stopped/metrics.jsonl").read_bytes() == (run[0] / "metrics.jsonl").read_bytes()


def test_it_is_evaluated(run):
    folder, result = run
    (score,) = tapehead.evaluate(folder, sizes={"length": 3}, sequences=20)
    assert score == result.generalisation[0]
    model = tapehead.load(folder, 4)
    assert type(model).__name__ == "GRU"
    (alone,) = tapehead.evaluate(model, experiment().task, {"length": 3}, sequences=20)
    assert alone.bits[0] == score.bits[1]


def test_it_is_confirmed(run):
    shutil.copytree(run[0], "confirmed")
    record = confirm(experiment(), Path("confirmed"), sequences=5)
    assert (record["row"], record["recipe"], record["seeds"]) == ("successor-gru", "custom", [3, 4])
    assert [point["label"] for point in record["points"]] == ["Length 1 to 3", "Length 3", "Length 8"]
    assert record["criteria"][0]["says"] == "under 0.5 bit at Length 1 to 3"
    assert [machine["met"] for machine in record["machines"]] == [[True], [True]]
    path = records.write(record, Path("results"))
    assert tapehead.Experiment.from_plain(records.read(path)["experiment"]) == experiment()


def test_it_is_drawn(run):
    shutil.copytree(run[0], "drawn")
    names = [path.name for path in draw_run(Path("drawn"))]
    assert names == ["learning-curve.svg", "learning-curve.png", "answers.svg", "answers.png"]  # it has no memory
    (svg, _) = draw_run(Path("drawn"), 4, [f"{PARTS}:confusion"])
    assert svg.name == "confusion.svg"
    assert "seed 4" in svg.read_text()


def test_a_loss_that_only_torch_knows():
    """On the outside model, and on a Neural Turing Machine, whose kernels know two losses and not this one."""
    focal = {"task__name": f"{PARTS}:FocalSuccessor"}
    result = tapehead.train(experiment(**focal), "focal")
    assert result.solved == 2
    assert min(result.generalisation[0].accuracy) > 0.95
    (entropy,) = tapehead.evaluate("focal", experiment().task, {"length": 3}, sequences=20)
    assert all(mine < theirs for mine, theirs in zip(result.generalisation[0].bits, entropy.bits, strict=True))
    assert {path.name for path in draw_run(Path("focal"))} >= {"learning-curve.svg", "confusion.svg"}
    sizes = {"model__controller_size": 8, "model__memory_slots": 8, "model__memory_width": 4}
    short = {"training__episodes": 200, "seeds": (0,)}
    machine = experiment(model__name="ntm", **sizes, **focal, **short)
    fast, slow = (tapehead.train(machine.with_values({"place.backend": b})) for b in ("cpu", "reference"))
    for mine, theirs in zip(fast.generalisation, slow.generalisation, strict=True):
        assert mine.bits[0] == pytest.approx(theirs.bits[0], rel=1e-4)


def test_every_part_with_the_others_of_tapehead():
    """The outside optimiser and schedule train the package's machine, and the package's train the outside model."""
    small = {"model.controller_size": 8, "model.memory_slots": 8, "model.memory_width": 4, "training.episodes": 200}
    ours = tapehead.Experiment(task=tapehead.make_task("copy", length=2, width=2)).with_values(
        small | {"optimiser.name": f"{PARTS}:Lion", "schedule.name": f"{PARTS}:WarmUp", "schedule.updates": 7}
    )
    assert ours.rate(0) == pytest.approx(ours.optimiser.learning_rate / 7)
    fast, slow = (tapehead.train(ours.with_values({"place.backend": b})) for b in ("cpu", "reference"))
    assert fast.last_window_bits == slow.last_window_bits == (None,)  # fewer than 1,000 episodes
    assert fast.generalisation[0].bits[0] == pytest.approx(slow.generalisation[0].bits[0], rel=1e-3)
    theirs = experiment(optimiser__name="adam", schedule__name="cosine", training__episodes=400)
    assert tapehead.train(theirs).skipped_updates == (0, 0)


def test_a_controller():
    pytest.importorskip("tapehead.kernels.ntm_scan.controllers", reason="the list of controllers is not open yet")
    sizes = {"model.controller_size": 8, "model.memory_slots": 8, "model.memory_width": 4}
    machine = tapehead.Experiment(task=tapehead.make_task("copy", length=1, width=2)).with_values(
        sizes
        | {"model.controller": "laboratory_elsewhere.controllers:Elman", "optimiser.name": "adam"}
        | {"optimiser.learning_rate": 1e-2, "training.episodes": 1200, "training.batch_size": 4}
    )
    result = tapehead.train(machine, "elman")
    assert (result.backend, result.solved) == ("reference", 1)
    assert "controller" in result.backend_reason
    assert tapehead.load("elman").memory_slots == 8
    assert "memory.svg" in {path.name for path in draw_run(Path("elman"))}


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere():
    """The laboratory in a working directory, as a user would have it."""
    shutil.copytree(HERE / "laboratory_elsewhere", "laboratory_elsewhere")
    shutil.copy(FILE, "elsewhere.toml")


SESSION = """
import contextlib, io, json, sys
sys.path[:] = [sys.argv[1], *(path for path in sys.path if path not in ("", "."))]
from tapehead.cli import main
ended = []
for arguments in json.loads(sys.argv[2]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(arguments)
        except SystemExit as stop:
            ended.append([stop.code, said.getvalue()])
print(json.dumps(ended))
"""


def commands(*lines, code=0):
    """What `tapehead` prints for each of some command lines, in a process whose path does not have the working
    directory; one process for all, because most of the time of a command goes by while torch is imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["OMP_NUM_THREADS"] = "1"
    plain = json.dumps([[str(word) for word in line] for line in lines])
    done = subprocess.run(
        [sys.executable, "-I", "-c", SESSION, Path(tapehead.__file__).parents[1], plain],
        capture_output=True, text=True, check=True, timeout=300, env=environment,
    )  # fmt: skip
    ended = json.loads(done.stdout)
    assert [(found, said) for found, said in ended if found != code] == []
    return [said for _, said in ended]


def test_the_commands(elsewhere, run):
    trained, again, scored, drawn, confirmed, timed, described = commands(
        ("train", "elsewhere.toml", "--out", "run"),
        ("train", "elsewhere.toml", "--out", "run"),
        ("eval", "run", "--episodes", 5, "--json"),
        ("figures", "run", "--figure", f"{PARTS}:confusion"),
        ("confirm", "elsewhere.toml", "--seeds", 1, "--sequences", 4, "--work", "work", "--out", "out"),
        ("bench", "--experiment", "elsewhere.toml", "--rounds", 1, "--out", "speed"),
        ("tasks", f"{PARTS}:Successor"),
    )
    assert "2 of 2 seeds solved" in trained
    assert json.loads(Path("run/result.json").read_bytes())["sha256"] == run[1].sha256
    assert "This run is finished" in again
    assert '"Length 8"' in scored
    assert "confusion.svg" in drawn
    assert "1 of 1" in confirmed
    assert Path("out/elsewhere.json").exists()
    assert "GRU on" in timed
    assert f"{PARTS}:Successor   (4 inputs, 4 outputs)" in described


def test_by_names_alone(elsewhere):
    words = ["train", f"{PARTS}:Successor", "--model", f"{PARTS}:GRU", "--optimiser.name", f"{PARTS}:Lion"]
    words += ["--schedule.name", f"{PARTS}:WarmUp", "--schedule.updates", "7", "--model.hidden-size", "6"]
    words += ["--task.symbols", "3", "--episodes", "160"]
    written, _, again = commands((*words, "--write-config", "mine.toml"), words, ("train", "mine.toml"))
    assert written == "mine.toml\n"
    mine = tapehead.Experiment.from_plain(read_toml(Path("mine.toml")))
    assert (mine.task.symbols, mine.model.options["hidden_size"], mine.schedule.updates) == (3, 6, 7)
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("successor-")
    (repeated,) = commands(("train", folder / "config.json"))  # in a process that has not loaded the package yet
    assert "This run is finished" in again
    assert "This run is finished" in repeated


def test_mistakes_are_one_sentence(elsewhere):
    no_task, no_option, no_size = commands(
        ("train", f"{PARTS}:Sucessor"),
        ("train", f"{PARTS}:Successor", "--task.lenght", "3"),
        ("train", f"{PARTS}:Successor", "--model", f"{PARTS}:GRU", "--model.hiden-size", "3"),
        code=2,
    )
    assert no_task == f"tapehead: the task '{PARTS}:Sucessor' is not there: give module:Class.\n"
    assert "Did you mean 'length'" in no_option
    assert "Did you mean 'hidden_size'" in no_size
    assert no_size.count("\n") == 1


def test_main_searches_the_working_directory_last(monkeypatch):
    monkeypatch.setattr(registry, "SEARCH", [])
    Path("only_here_for_the_search.py").write_text("from tapehead.tasks.copy import Copy\n")
    with pytest.raises(SystemExit) as stop:
        cli.main(["tasks", "only_here_for_the_search:Copy"])
    assert stop.value.code == 0
    assert [Path.cwd()] == registry.SEARCH
    assert str(Path.cwd()) not in sys.path
    sys.modules.pop("only_here_for_the_search")


def test_a_sweep_takes_the_parts_of_the_package(tmp_path):
    values = read_toml(FILE) | {"seeds": [3], "grid": {"model.hidden_size": [4, 8]}}
    values["training"] = values["training"] | {"episodes": 400}
    jobs = jobs_of(values, tmp_path, "elsewhere.toml")
    sweep = SweepFolder.create(tmp_path / "sweep", jobs)
    assert work(Assignment(str(sweep.path), "driver")) == 2
    states = Watch(sweep).snapshot()
    assert [one.result.seeds for one in states] == [(3,), (3,)]
    assert [(one.job.plain["model"]["name"], one.job.plain["model"]["hidden_size"]) for one in states] == [
        (f"{PARTS}:GRU", 4),
        (f"{PARTS}:GRU", 8),
    ]
