"""Run folders: one process at a time, nothing written or removed through a link, nothing damaged taken for whole."""

import copy
import multiprocessing
import os
import random
import shutil
from pathlib import Path

import pytest
from damage import HARMS

import tapehead
from tapehead import files
from tapehead.commands import figures
from tapehead.commands.train import finish
from tapehead.tasks.copy import Copy
from tapehead.training import checkpoint, events, runs
from tapehead.training.config import RunConfig
from tapehead.training.loop import Trainer
from tapehead.training.progress import Progress
from tapehead.training.results import Result, Scores
from tapehead.training.runs import Run, read_config, read_result

pytestmark = pytest.mark.usefixtures("one_thread")

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tapehead.commands.train"])
SIZES = ({"length": 2}, {"length": 3})
CONFIG = RunConfig(
    task="copy",
    task_options={"length": (1, 3), "width": 2},
    model_options={"controller_size": 8, "memory_slots": 8, "memory_width": 4},
    episodes=300,
    seeds=(3, 7),
)
OTHER = RunConfig(task="copy", episodes=200)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(Copy, "generalisation", SIZES)


def complete(folder):
    """What the command does, without its pictures."""
    run = Run(folder, CONFIG)
    try:
        trainer = Trainer(CONFIG, run)
        trainer.restore()
        with Progress() as progress:
            progress.start(trainer)
            trainer.train(progress)
        finish(trainer, 0.0)
    finally:
        run.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Copy, "generalisation", SIZES)
        complete(folder)
        figures.draw(folder, None)
    return folder


@pytest.fixture
def used(tmp_path, finished):
    return Path(shutil.copytree(finished, tmp_path / "used"))


def contents(folder):
    """Every path below a folder: where a link leads, the bytes of a file."""
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }


# --- starts at the same moment ---------------------------------------------------------------------------------------


def start_together(work, rounds, barrier, answers, fails):
    """In another process: start runs just when others do, and tell what became of each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "machine", lambda _: barrier.wait(60))  # the last thing before the folder is looked at
        if fails:
            patch.setattr(runs, "_sealed", lambda _: 1 / 0)  # what config.json would hold
        for number in range(rounds):
            folder, run = work / str(number) / "run", None
            try:
                run = Run(folder, CONFIG)
                end = "started"
            except ZeroDivisionError:
                end = "failed"
            except ValueError as error:
                end = "lost" if "another process is training" in str(error) else str(error)
            barrier.wait(60)  # now all have started or not
            if run is not None and not is_held(run):
                end = "started, but does not hold the folder"
            barrier.wait(60)
            if run is not None:
                run.close()
            answers.put((number, end))


def is_held(run):
    """Whether the folder of a run is whole and locked by it."""
    try:
        here = (run.folder / "run.lock").lstat()
        return os.path.samestat(os.fstat(run._lock), here) and (run.folder / "config.json").stat().st_size > 0
    except FileNotFoundError:
        return False


def ends_of(work, rounds, starts):
    """How the processes of each round ended; starts: whether each of them fails once it holds the lock."""
    barrier, answers = SERVER.Barrier(len(starts)), SERVER.Queue()
    children = [SERVER.Process(target=start_together, args=(work, rounds, barrier, answers, fails)) for fails in starts]
    for child in children:
        child.start()
    ends = [[] for _ in range(rounds)]
    for _ in range(rounds * len(starts)):
        number, end = answers.get(timeout=60)
        ends[number].append(end)
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    return [sorted(each) for each in ends]


def test_of_two_starts_at_the_same_moment_one_trains(tmp_path):
    rounds = 60
    assert ends_of(tmp_path, rounds, [False, False]) == [["lost", "started"]] * rounds
    for number in range(rounds):
        assert read_config(tmp_path / str(number) / "run").hash == CONFIG.hash


def test_a_start_that_fails_harms_no_other(tmp_path):
    rounds = 60
    ends = ends_of(tmp_path, rounds, [False, True])
    assert all(end in (["failed", "started"], ["failed", "lost"], ["lost", "started"]) for end in ends)
    for number, end in enumerate(ends):
        files_left = [path.name for path in (tmp_path / str(number)).rglob("*") if path.is_file()]
        assert sorted(files_left) == (["config.json", "run.lock"] if "started" in end else [])


def test_who_does_not_get_the_lock_removes_nothing(tmp_path, monkeypatch):
    """It has made the folder, and another process is faster with the lock."""
    folder, original, first = tmp_path / "a" / "run", files.make_folders, []

    def overtaken(path):
        made = original(path)
        monkeypatch.setattr(files, "make_folders", original)
        first.append(Run(folder, CONFIG))
        return made

    monkeypatch.setattr(files, "make_folders", overtaken)
    with pytest.raises(ValueError, match="another process is training in"):
        Run(folder, CONFIG)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "run.lock"]
    first[0].close()
    Run(folder, CONFIG).close()


def test_a_folder_that_another_process_removes_is_made_again(tmp_path, monkeypatch):
    folder, original = tmp_path / "a" / "run", files.make_folders

    def removed(path):
        made = original(path)
        monkeypatch.setattr(files, "make_folders", original)
        shutil.rmtree(tmp_path / "a")
        return made

    monkeypatch.setattr(files, "make_folders", removed)
    Run(folder, CONFIG).close()
    assert read_config(folder).hash == CONFIG.hash


def test_a_run_that_comes_between_look_and_lock_is_refused(tmp_path, monkeypatch):
    folder, original = tmp_path / "run", files.lock

    def overtaken(path):
        monkeypatch.setattr(files, "lock", original)
        Run(folder, OTHER).close()
        return original(path)

    monkeypatch.setattr(files, "lock", overtaken)
    with pytest.raises(ValueError, match="holds a run with"):
        Run(folder, CONFIG)
    assert read_config(folder).hash == OTHER.hash


@pytest.mark.parametrize("there", [None, "a", "a/run", "a/other"])
def test_a_start_that_cannot_write_leaves_what_was_there(tmp_path, monkeypatch, there):
    if there is not None:
        (tmp_path / there).mkdir(parents=True)
    before = contents(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"cannot write to .*a/run \(No space left on device\)"):
        Run(tmp_path / "a" / "run", CONFIG)
    assert contents(tmp_path) == before


# --- links and pipes -------------------------------------------------------------------------------------------------

STEP = f"checkpoints/step-{150:09d}"  # an older checkpoint, which a save removes
WRITTEN = (
    *("config.json", "run.lock", "env.json", "metrics.jsonl", "training.json", "result.json", "checkpoints", STEP),
    *("tensorboard", f"tensorboard/{events.FILE}", "figures"),
)


def move_out(path, outside):
    """Put a link in the place of a path; what was there is outside now."""
    if path.exists():
        path.rename(outside)
    elif path.parent.name == "checkpoints":
        outside.mkdir()
        (outside / "thesis.tex").write_text("years of work")
    else:
        outside.write_text("years of work")
    path.symlink_to(outside)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_run_with_a_link_in_its_folder_is_refused(used, tmp_path, name):
    move_out(used / name, tmp_path / "outside")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"{name} is a symbolic link, not a (plain file|folder)") as refusal:
        complete(used)
    assert "\n" not in str(refusal.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("metrics.jsonl", lambda run, _: run.append_metrics("{}")),
        ("tensorboard", lambda run, line: run.append_metrics(line)),
        (f"tensorboard/{events.FILE}", lambda run, line: run.append_metrics(line)),
        ("result.json", lambda run, _: run.write_json("result.json", {})),
        ("training.json", lambda run, _: run.write_json("training.json", {})),
        ("checkpoints", lambda run, _: run.save(run.newest()._replace(step=900))),
        (STEP, lambda run, _: run.save(run.newest()._replace(step=900))),
        ("checkpoints/step-000000900", lambda run, _: run.save(run.newest()._replace(step=900))),
    ],
)
def test_a_link_that_comes_while_a_run_trains_is_not_followed(used, tmp_path, name, act):
    line = (used / "metrics.jsonl").read_text().splitlines()[0]
    run = Run(used, CONFIG)
    move_out(used / name, tmp_path / "outside")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"{name} is a symbolic link, not a (plain file|folder)"):
        act(run, line)
    run.close()
    after = contents(tmp_path)
    after.pop("used/metrics.jsonl")  # the line was appended there first
    assert after == {path: data for path, data in before.items() if path != "used/metrics.jsonl"}
    assert not (tmp_path / "outside").is_file() or after["outside"] == before["outside"]


@pytest.mark.parametrize("name", ["figures", "figures/memory.png", "figures/memory.svg"])
def test_pictures_are_not_drawn_through_links(used, tmp_path, name):
    move_out(used / name, tmp_path / "outside")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"{name} is a symbolic link"):
        figures.draw(used, None)
    assert contents(tmp_path) == before  # those that were drawn before it are the same again


def test_the_folder_itself_may_be_reached_through_a_link(used, tmp_path):
    (tmp_path / "link").symlink_to(used)
    before = contents(used)
    complete(tmp_path / "link")
    assert figures.draw(tmp_path / "link", None)
    tapehead.load(tmp_path / "link")
    after = contents(used)
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] != before[name]] in ([], ["env.json"])


def meet_pipes(folders, answers):
    """In another process: use runs that have a pipe in the place of a file or folder; folders: {its name: the run}."""
    for name, folder in folders.items():
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        for act in (figures.draw,) if name.startswith("figures/") else (complete, tapehead.load, read_result):
            try:
                act(folder, None) if act is figures.draw else act(folder)
                answers.put((name, act.__name__, "done"))
            except ValueError as error:
                answers.put((name, act.__name__, str(error)))
    answers.put(None)


def test_a_pipe_is_not_waited_for(finished, tmp_path):
    state = "checkpoints/step-000000300/state.safetensors"
    names = [*WRITTEN, "figures/memory.png", state]
    folders = {name: Path(shutil.copytree(finished, tmp_path / str(i))) for i, name in enumerate(names)}
    answers = SERVER.Queue()
    child = SERVER.Process(target=meet_pipes, args=(folders, answers), daemon=True)
    child.start()
    said = {}
    while (answer := answers.get(timeout=60)) is not None:
        said[answer[:2]] = answer[2]
    for (name, act), words in said.items():
        assert words == "done" or f"{name.removeprefix('checkpoints/')} is a named pipe, not a" in words
        assert "\n" not in words
        if act in ("complete", "draw"):
            assert words != "done", name
    assert {name for name, act in said if act == "load" and said[name, act] != "done"} == {
        "config.json", "checkpoints", state
    }  # fmt: skip


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_result_is_none(used, harm):
    good, source = (used / "result.json").read_bytes(), random.Random(harm.__name__)
    assert read_result(used) is not None
    for _ in range(200):
        (used / "result.json").write_bytes(harm(good, source))
        assert read_result(used) is None


def test_a_result_with_other_types_is_none(used):
    """Sealed again, so that the seal does not tell."""
    good = files.unseal((used / "result.json").read_bytes())
    named = [name for name in Result.__annotations__ if name in good]
    inside = [("generalisation", 0, name) for name in Scores.__annotations__]
    for at in [*((name,) for name in named), *inside]:
        changed = copy.deepcopy(good)
        table = changed
        for key in at[:-1]:
            table = table[key]
        here = table[at[-1]]
        for value in (None, True, 7, 1.5, "x", [], [7], ["x", "x"], {}, {"x": 7}):
            if type(value) is type(here) and type(value) is not list and value != {"x": 7}:
                continue
            table[at[-1]] = value
            (used / "result.json").write_bytes(files.seal(changed))
            assert read_result(used) is None, (at, value)
        del table[at[-1]]
        (used / "result.json").write_bytes(files.seal(changed))
        assert (read_result(used) is None) == (at != ("best_window_bits",))  # which a run with a validation has not
    (used / "result.json").write_bytes(files.seal(good))
    assert read_result(used) == good


def test_the_result_of_other_seeds_is_none(used, tmp_path):
    Run(tmp_path / "other", RunConfig(task="copy", seeds=(3,))).close()
    shutil.copy(used / "result.json", tmp_path / "other")
    assert read_result(tmp_path / "other") is None


@pytest.mark.parametrize("name", ["config.json", "result.json", "checkpoints/step-000000300/state.safetensors"])
def test_an_enormous_file_is_refused_unread(used, name, capsys):
    shutil.copytree(used / "checkpoints" / "step-000000300", used / STEP)
    os.truncate(used / name, 128 << 30)  # sparse
    if name == "config.json":
        with pytest.raises(ValueError, match=r"config.json has 137,438,953,472 bytes, but at most 16,777,216 are read"):
            complete(used)
    elif name == "result.json":
        assert read_result(used) is None
    else:
        tapehead.load(used)
        assert "state.safetensors has 137,438,953,472 bytes, but at most" in capsys.readouterr().err


def test_a_checkpoint_that_is_larger_than_its_run_can_be_is_refused(used):
    assert checkpoint.load_newest(used / "checkpoints", limit=100_000) is not None
    path = used / "checkpoints" / "step-000000300"
    large = runs.most_bytes(CONFIG) + 1
    os.truncate(path / "state.safetensors", large)
    listed = files.unseal((path / "manifest.json").read_bytes())["files"]
    listed["state.safetensors"]["size"] = large
    (path / "manifest.json").write_bytes(files.seal({"files": listed}))
    with pytest.raises(ValueError, match=r"step-000000300 has .* bytes, but such a run has at most"):
        tapehead.load(used)


@pytest.mark.parametrize("seeds", [1, 6])
def test_a_checkpoint_is_well_under_what_its_run_can_have(tmp_path, monkeypatch, seeds):
    """Without the constant part, for the run with the most records."""
    config = RunConfig(
        task="copy", task_options={"length": (1, 2), "width": 2}, model_options=CONFIG.model_options, episodes=200,
        seeds=tuple(range(10**9, 10**9 + seeds)), average=0.9, attempts=2, validation={"length": 2}, optimiser="adam",
        validation_sequences=1, early_stop=False,
    )  # fmt: skip
    run = Run(tmp_path / "run", config)
    trainer = Trainer(config, run)
    while not trainer.finished:
        trainer.block()
    saved = sum(path.stat().st_size for path in trainer.save().iterdir())
    run.close()
    assert saved < 0.7 * (runs.most_bytes(config) - (64 << 20))
