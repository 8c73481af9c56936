"""`tapehead.train` and `tapehead.evaluate`, the entries to training and scoring."""

import dataclasses
import json
import multiprocessing
import shutil

import pytest
import torch
from tiny import BASE, EXPERIMENTS, SMALL, Recorded, contents, outcome, tiny, train_some_blocks, trained

import tapehead
from tapehead import notices
from tapehead.evaluation.generalisation import score
from tapehead.experiment import checkpoint, metrics
from tapehead.experiment.folder import RunFolder, delivered, read_config, read_metrics, read_result
from tapehead.experiment.loop import Trainer

pytestmark = pytest.mark.usefixtures("one_thread", "quickly_solved")

PLAIN, RICH = EXPERIMENTS["plain"], EXPERIMENTS["rich"]


def without_time(result):
    return dataclasses.replace(result, seconds=None)


# --- train -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "rich"])
def test_in_memory_and_in_a_folder_the_result_is_the_same(finished, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    result = tapehead.train(EXPERIMENTS[name])
    assert list(tmp_path.iterdir()) == []
    assert without_time(result) == without_time(read_result(finished[name]))
    assert result.seconds > 0


def test_a_result_says_what_came_of_the_run(finished):
    result, trainer = read_result(finished["rich"]), trained(RICH)
    assert result.seeds == (3, 7, 9)
    assert result.solved_at == tuple(trainer.seeds.solved_at.tolist())
    assert result.solved == 3
    assert result.episodes == trainer.episodes < 6400
    assert (result.attempts, result.passed, result.skipped_updates) == ((1,) * 3, (True,) * 3, (0,) * 3)
    assert (result.kept_by, result.backend, result.recipe) == ("window", "cpu", "custom")
    assert result.kept_bits == tuple(trainer.seeds.kept_cost.tolist())
    assert [one.sizes for one in result.generalisation] == [{"length": 2}, {"length": 5}]
    again = score(trainer.model, trainer.population.delivered(), trainer.task, {"length": 5}, 20)
    assert result.generalisation[1] == again
    assert result.median_seed() == sorted(zip(again.bits, RICH.seeds, strict=True))[1][1]


def test_the_sizes_of_the_evaluation_are_the_tasks_own_if_none_are_given(monkeypatch):
    monkeypatch.setattr(type(BASE.task), "generalisation", ({"length": 1}, {"length": 3}, {"length": 4}))
    result = tapehead.train(tiny(episodes=100, **{"evaluation.sizes": None}))
    assert [one.label for one in result.generalisation] == ["Length 1", "Length 3", "Length 4"]


def test_what_the_library_says_goes_to_the_observer_and_nothing_is_printed(monkeypatch, capfd):
    monkeypatch.setattr(Trainer, "prepare", lambda trainer: notices.tell("compiling"))

    class Listening(tapehead.Observer):
        def __init__(self):
            self.heard = []

        def notice(self, sentence):
            self.heard.append(sentence)

    observer = Listening()
    experiment = tiny(episodes=100)
    tapehead.train(experiment, observer=observer, scored=False)
    assert observer.heard == ["compiling"]
    tapehead.train(experiment, scored=False)
    assert capfd.readouterr() == ("", "")


def test_a_run_that_is_there_goes_on(tmp_path, finished):
    train_some_blocks(PLAIN, tmp_path / "run", 2)
    watched = Recorded()
    result = tapehead.train(PLAIN, str(tmp_path / "run"), observer=watched)
    assert [status.updates for status in watched.blocks] == [300, 400, 500, 600]
    assert (watched.began[0].updates, watched.began[0].resumed) == (200, True)
    assert without_time(result) == without_time(read_result(finished["plain"]))
    assert outcome(tmp_path / "run") == outcome(finished["plain"])


def test_a_finished_run_is_not_trained_again(used, monkeypatch):
    stored, before, watched = read_result(used), contents(used), Recorded()
    monkeypatch.setattr("sys.argv", ["elsewhere", "again"])
    monkeypatch.setattr(Trainer, "_launch", lambda *_: pytest.fail("it trains"))
    monkeypatch.setattr("tapehead.experiment.run.score", lambda *_: pytest.fail("it scores"))
    assert tapehead.train(PLAIN, used, observer=watched) == stored
    assert tapehead.train(PLAIN, used, scored=False) == stored
    assert (watched.began, watched.blocks) == ([], [])
    assert contents(used) == before  # also where it was trained


def test_a_run_that_was_not_scored_is_scored_without_training(tmp_path, finished, monkeypatch):
    bare = tapehead.train(PLAIN, tmp_path / "run", scored=False)
    assert bare.generalisation == ()
    assert read_result(tmp_path / "run") == bare
    whole = read_result(finished["plain"])
    assert without_time(bare) == dataclasses.replace(whole, generalisation=(), seconds=None)
    monkeypatch.setattr(Trainer, "_launch", lambda *_: pytest.fail("it trains"))
    scored = tapehead.train(PLAIN, tmp_path / "run")
    assert without_time(scored) == without_time(whole)
    assert scored.seconds == bare.seconds


def test_a_lost_result_is_made_again(used):
    stored = read_result(used)
    (used / "result.json").unlink()
    assert tapehead.train(PLAIN, used) == stored
    assert read_result(used) == stored


@pytest.mark.parametrize("folder", [False, True])
def test_nothing_is_printed(tmp_path, capfd, folder):
    tapehead.train(tiny(episodes=200), tmp_path / "run" if folder else None)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


def test_an_observer_sees_the_beginning_and_every_block():
    watched = Recorded()
    result = tapehead.train(RICH, observer=watched)
    (start,) = watched.began
    assert (start.updates, start.episodes, start.bits, start.active, start.solved) == (0, 0, None, 3, 0)
    assert (start.experiment, start.backend, start.resumed, start.finished, start.note) == (
        RICH,
        "cpu",
        False,
        False,
        "",
    )
    assert start.parameters == Trainer(RICH).model.flat_parameters().numel()
    assert start.expected == 6400
    updates = [status.updates for status in watched.blocks]
    assert updates == list(range(100, updates[-1] + 1, 100))
    assert [status.episodes for status in watched.blocks] == [8 * each for each in updates]
    assert [status.finished for status in watched.blocks] == [False] * (len(updates) - 1) + [True]
    assert [status.solved for status in watched.blocks] == [
        sum(at <= status.episodes for at in result.solved_at) for status in watched.blocks
    ]
    assert all(status.active == 3 - status.solved for status in watched.blocks)
    assert all(status.attempts == (1, 1) and not status.may_restart for status in watched.blocks)


def test_the_cost_that_is_shown_is_the_median_of_the_seeds_means():
    watched = Recorded()
    tapehead.train(tiny(seeds=(1, 2, 3), episodes=300), observer=watched)
    recent = trained(tiny(seeds=(1, 2, 3), episodes=300)).seeds.recent
    assert watched.blocks[-1].bits == float(recent[:, -300:].mean(dim=1).median())


class Broken(Exception):
    pass


class Breaks(Recorded):
    def block(self, status):
        super().block(status)
        if len(self.blocks) == 2:
            raise Broken


@pytest.mark.parametrize("there", [None, "a", "a/run"])
def test_an_error_before_the_first_checkpoint_leaves_no_folder(tmp_path, there):
    if there is not None:
        (tmp_path / there).mkdir(parents=True)
    with pytest.raises(Broken) as error:
        tapehead.train(PLAIN, tmp_path / "a" / "run", observer=Breaks())
    assert not hasattr(error.value, "__notes__")
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_dir()]
    assert [name for name in left if name in ("a", "a/run")] == {None: [], "a": ["a"], "a/run": ["a", "a/run"]}[there]


def test_an_error_after_a_checkpoint_keeps_it_and_says_where(tmp_path, finished):
    train_some_blocks(PLAIN, tmp_path / "run", 1)
    with pytest.raises(Broken) as error:
        tapehead.train(PLAIN, tmp_path / "run", observer=Breaks())
    assert error.value.__notes__ == [f"what was saved before is in {tmp_path / 'run'}"]
    tapehead.train(PLAIN, tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(finished["plain"])


def test_what_cannot_be_trained_leaves_no_folder(tmp_path):
    for experiment, message in (
        (tiny(slots=(1, 9)), "tape has 8"),
        (tiny(backend="gpu"), "backend 'gpu' cannot run"),
        (tiny(backend="fast"), "backend is 'fast'"),
    ):
        with pytest.raises(ValueError, match=message):
            tapehead.train(experiment, tmp_path / "a" / "run")
    assert list(tmp_path.iterdir()) == []


def train_in_worker(task):
    torch.set_num_threads(1)
    return tapehead.train(*task)


def test_a_worker_process_trains_and_returns_the_result(tmp_path):
    """Started as on macOS and Windows: nothing is inherited, everything is sent."""
    experiment = tiny(episodes=300)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        inside = pool.map(train_in_worker, [(experiment, None), (experiment, tmp_path / "run")])
    here = without_time(tapehead.train(experiment))
    assert [without_time(result) for result in inside] == [here, here]
    assert without_time(read_result(tmp_path / "run")) == here


def test_seconds_are_those_of_all_sessions(tmp_path):
    train_some_blocks(PLAIN, tmp_path / "run", 2)
    with RunFolderOf(tmp_path / "run", PLAIN) as folder:
        assert folder.seconds() > 0
        folder.write_json("time.json", {"seconds": 1000.0})
    assert tapehead.train(PLAIN, tmp_path / "run").seconds > 1000
    shutil.rmtree(tmp_path / "run")
    train_some_blocks(PLAIN, tmp_path / "run", 2)
    (tmp_path / "run" / "time.json").write_text("{}")
    assert tapehead.train(PLAIN, tmp_path / "run").seconds is None  # not known is not zero


class RunFolderOf(RunFolder):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# --- results and metrics as files ------------------------------------------------------------------------------------


def test_a_folder_holds_what_was_trained(finished):
    assert read_config(finished["rich"]) == RICH
    lines = read_metrics(finished["rich"])
    assert [line.to_json() for line in lines] == (finished["rich"] / "metrics.jsonl").read_text().splitlines()
    assert all(isinstance(line, metrics.Line) for line in lines)
    written = json.loads((finished["rich"] / "result.json").read_text())
    assert tapehead.Result.from_plain({k: v for k, v in written.items() if k != "seal"}) == read_result(
        finished["rich"]
    )


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
    RunFolder(tmp_path / "new", PLAIN).close()
    with pytest.raises(ValueError, match="no checkpoint yet"):
        tapehead.load(tmp_path / "new")


# --- evaluate --------------------------------------------------------------------------------------------------------


def test_a_folder_is_evaluated_as_after_training(finished):
    result = read_result(finished["rich"])
    assert tuple(tapehead.evaluate(finished["rich"], sizes=[{"length": 2}, {"length": 5}], sequences=20)) == (
        result.generalisation
    )


def test_a_model_is_evaluated_as_its_folder(finished):
    every = tapehead.evaluate(finished["rich"], sizes={"length": 4}, sequences=10)
    assert len(every) == 1
    assert (every[0].sizes, every[0].sequences, len(every[0].bits)) == ({"length": 4}, 10, 3)
    model = tapehead.load(finished["rich"], seed=9)
    (alone,) = tapehead.evaluate(model, RICH.task, {"length": 4}, sequences=10)
    assert alone.bits == every[0].bits[2:]
    assert (alone.wrong, alone.accuracy, alone.perfect) == (
        every[0].wrong[2:], every[0].accuracy[2:], every[0].perfect[2:]
    )  # fmt: skip
    other = tapehead.evaluate(model, RICH.task, {"length": 4}, sequences=11)
    assert other[0].bits != alone.bits


def test_other_sizes_tasks_and_backends(finished, monkeypatch):
    own = [score.label for score in read_result(finished["plain"]).generalisation]
    assert [one.label for one in tapehead.evaluate(finished["plain"], sequences=2)] == own
    model = tapehead.load(finished["plain"])
    monkeypatch.setattr(type(BASE.task), "generalisation", ({"length": 1}, {"length": 2}))
    assert [one.label for one in tapehead.evaluate(model, BASE.task, sequences=2)] == ["Length 1", "Length 2"]
    with pytest.raises(ValueError, match="a model is scored where it is"):
        tapehead.evaluate(model, BASE.task, device="cuda")
    with pytest.raises(ValueError, match="a model is evaluated on a task"):
        tapehead.evaluate(model, "copy")
    (ranged,) = tapehead.evaluate(finished["plain"], sizes={"length": (1, 6)}, sequences=5)
    assert ranged.label == "Length 1 to 6"
    zeros = tapehead.make_task("copy", width=2, density=(0.0, 0.0))
    assert tapehead.evaluate(finished["plain"], zeros, {"length": 3}, sequences=5) != tapehead.evaluate(
        finished["plain"], sizes={"length": 3}, sequences=5
    )
    cpu, reference = (
        tapehead.evaluate(finished["plain"], sizes={"length": 3}, sequences=5, backend=backend)[0]
        for backend in ("cpu", "reference")
    )
    assert cpu.bits == pytest.approx(reference.bits, rel=1e-7)  # 8e-9 seen


def test_evaluations_that_make_no_sense_are_refused(finished, tmp_path):
    model = tapehead.NTM(3, 2, **SMALL)
    for arguments, message in (
        ({"what": model}, "a model is evaluated on a task"),
        ({"what": model, "task": tapehead.make_task("copy")}, "task has 9 inputs and 8 outputs"),
        ({"what": finished["plain"], "task": tapehead.make_task("copy")}, "task has 9 inputs and 8 outputs"),
        ({"what": finished["plain"], "sequences": 0}, "sequences is 0"),
        ({"what": finished["plain"], "sizes": {"lenght": 3}}, "Did you mean 'length'"),
        ({"what": finished["plain"], "backend": "gpu"}, "cannot run"),
        ({"what": tmp_path}, "holds no run"),
    ):
        with pytest.raises(ValueError, match=message):
            tapehead.evaluate(**arguments)


def test_evaluation_does_not_disturb_training(finished):
    """Nor does it change a file."""
    before = contents(finished["plain"])
    weights = delivered(finished["plain"], PLAIN)
    tapehead.evaluate(finished["plain"], sizes={"length": 3}, sequences=5)
    assert contents(finished["plain"]) == before
    assert torch.equal(delivered(finished["plain"], PLAIN), weights)
