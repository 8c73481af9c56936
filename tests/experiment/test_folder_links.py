"""Run folders: of starts at the same moment one trains; nothing is written, removed or waited for through a link."""

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest
from tiny import EXPERIMENTS, contents, tiny

import tapehead
from tapehead import files
from tapehead.experiment import checkpoint, events, folder
from tapehead.experiment.folder import RunFolder, read_config, read_result
from tapehead.figures.draw import draw_run

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN, OTHER = EXPERIMENTS["plain"], tiny(learning_rate=0.5)
LAST = f"checkpoints/step-{600:09d}"
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tapehead.experiment.run"])


# --- starts at the same moment ---------------------------------------------------------------------------------------


def start_together(work, rounds, barrier, answers, fails):
    """In another process: open folders just when others do, and tell what became of each."""
    with pytest.MonkeyPatch.context() as patch:
        if fails:
            patch.setattr(folder, "_sealed", lambda _: 1 / 0)  # what config.json would hold
        for number in range(rounds):
            path, held = work / str(number) / "run", None
            barrier.wait(60)
            try:
                held = RunFolder(path, PLAIN)
                end = "started"
            except ZeroDivisionError:
                end = "failed"
            except ValueError as error:
                end = "lost" if "another process is training" in str(error) else str(error)
            barrier.wait(60)  # now all have started or not
            if held is not None and not is_held(held):
                end = "started, but does not hold the folder"
            barrier.wait(60)
            if held is not None:
                held.close()
            answers.put((number, end))


def is_held(held):
    """Whether a run's folder is whole and locked by it."""
    try:
        here = (held.path / "run.lock").lstat()
        return os.path.samestat(os.fstat(held._lock), here) and (held.path / "config.json").stat().st_size > 0
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
        assert read_config(tmp_path / str(number) / "run").hash == PLAIN.hash


def test_a_start_that_fails_harms_no_other(tmp_path):
    rounds = 60
    ends = ends_of(tmp_path, rounds, [False, True])
    assert all(end in (["failed", "started"], ["failed", "lost"], ["lost", "started"]) for end in ends)
    for number, end in enumerate(ends):
        files_left = [path.name for path in (tmp_path / str(number)).rglob("*") if path.is_file()]
        assert sorted(files_left) == (["config.json", "run.lock"] if "started" in end else [])


def test_who_does_not_get_the_lock_removes_nothing(tmp_path, monkeypatch):
    """It has made the folder, and another process is faster with the lock."""
    path, original, first = tmp_path / "a" / "run", files.make_folders, []

    def overtaken(given):
        made = original(given)
        monkeypatch.setattr(files, "make_folders", original)
        first.append(RunFolder(path, PLAIN))
        return made

    monkeypatch.setattr(files, "make_folders", overtaken)
    with pytest.raises(ValueError, match="another process is training in"):
        RunFolder(path, PLAIN)
    assert sorted(each.name for each in path.iterdir()) == ["config.json", "run.lock"]
    first[0].close()
    RunFolder(path, PLAIN).close()


def test_a_folder_that_another_process_removes_is_made_again(tmp_path, monkeypatch):
    path, original = tmp_path / "a" / "run", files.make_folders

    def removed(given):
        made = original(given)
        monkeypatch.setattr(files, "make_folders", original)
        shutil.rmtree(tmp_path / "a")
        return made

    monkeypatch.setattr(files, "make_folders", removed)
    RunFolder(path, PLAIN).close()
    assert read_config(path).hash == PLAIN.hash


def test_a_run_that_comes_between_look_and_lock_is_refused(tmp_path, monkeypatch):
    path, original = tmp_path / "run", files.lock

    def overtaken(given):
        monkeypatch.setattr(files, "lock", original)
        RunFolder(path, OTHER).close()
        return original(given)

    monkeypatch.setattr(files, "lock", overtaken)
    with pytest.raises(ValueError, match="holds a run with"):
        RunFolder(path, PLAIN)
    assert read_config(path).hash == OTHER.hash


@pytest.mark.parametrize("there", [None, "a", "a/run", "a/other"])
def test_a_start_that_cannot_write_leaves_what_was_there(tmp_path, monkeypatch, there):
    if there is not None:
        (tmp_path / there).mkdir(parents=True)
    before = contents(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"cannot write to .*a/run \(No space left on device\)"):
        tapehead.train(PLAIN, tmp_path / "a" / "run")
    assert contents(tmp_path) == before


# --- links and pipes -------------------------------------------------------------------------------------------------

STEP = f"checkpoints/step-{150:09d}"  # an older checkpoint, which a save removes
WRITTEN = (
    *("config.json", "run.lock", "env.json", "metrics.jsonl", "time.json", "result.json", "checkpoints", STEP),
    *("tensorboard", f"tensorboard/{events.FILE}", "figures"),
)


@pytest.fixture(scope="module")
def drawn(finished, tmp_path_factory):
    """A finished run with its figures."""
    path = Path(shutil.copytree(finished["plain"], tmp_path_factory.mktemp("drawn") / "run"))
    draw_run(path)
    return path


@pytest.fixture
def used(tmp_path, drawn):
    return Path(shutil.copytree(drawn, tmp_path / "used"))


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
        tapehead.train(PLAIN, used)
    assert "\n" not in str(refusal.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("metrics.jsonl", lambda run, _: run.append_metrics("{}")),
        ("tensorboard", lambda run, line: run.append_metrics(line)),
        (f"tensorboard/{events.FILE}", lambda run, line: run.append_metrics(line)),
        ("result.json", lambda run, _: run.write_json("result.json", {})),
        ("time.json", lambda run, _: run.write_json("time.json", {})),
        ("env.json", lambda run, _: run.write_environment("cpu")),
        ("checkpoints", lambda run, _: run.save(run.newest()._replace(step=900))),
        (STEP, lambda run, _: run.save(run.newest()._replace(step=900))),
        ("checkpoints/step-000000900", lambda run, _: run.save(run.newest()._replace(step=900))),
    ],
)
def test_a_link_that_comes_while_a_run_trains_is_not_followed(used, tmp_path, name, act):
    line = (used / "metrics.jsonl").read_text().splitlines()[0]
    run = RunFolder(used, PLAIN)
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
def test_figures_are_not_drawn_through_links(used, tmp_path, name):
    move_out(used / name, tmp_path / "outside")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"{name} is a symbolic link"):
        draw_run(used)
    assert contents(tmp_path) == before  # those that were drawn before it are the same again


def test_the_folder_itself_may_be_reached_through_a_link(used, tmp_path):
    (tmp_path / "link").symlink_to(used)
    before = contents(used)
    tapehead.train(PLAIN, tmp_path / "link")
    assert draw_run(tmp_path / "link")
    tapehead.load(tmp_path / "link")
    assert contents(used) == before


def meet_pipes(folders, answers):
    """In another process: use runs that have a pipe in the place of a file or folder; folders: {its name: the run}."""
    acts = {"train": lambda path: tapehead.train(PLAIN, path), "load": tapehead.load, "read": read_result}
    for name, path in folders.items():
        if (path / name).is_dir():
            shutil.rmtree(path / name)
        (path / name).unlink(missing_ok=True)
        os.mkfifo(path / name)
        for act, call in {"draw": draw_run}.items() if name.startswith("figures/") else acts.items():
            try:
                call(path)
                answers.put((name, act, "done"))
            except ValueError as error:
                answers.put((name, act, str(error)))
    answers.put(None)


def test_a_pipe_is_not_waited_for(drawn, tmp_path):
    state = f"{LAST}/state.safetensors"
    names = [*WRITTEN, "figures/memory.png", state]
    folders = {name: Path(shutil.copytree(drawn, tmp_path / str(i))) for i, name in enumerate(names)}
    answers = SERVER.Queue()
    child = SERVER.Process(target=meet_pipes, args=(folders, answers), daemon=True)
    child.start()
    said = {}
    while (answer := answers.get(timeout=60)) is not None:
        said[answer[:2]] = answer[2]
    for (name, act), words in said.items():
        assert words == "done" or f"{name.removeprefix('checkpoints/')} is a named pipe, not a" in words
        assert "\n" not in words
        if act in ("train", "draw"):
            assert words != "done", name
    assert {name for name, act in said if act == "load" and said[name, act] != "done"} == {
        "config.json", "checkpoints", state
    }  # fmt: skip


# --- enormous files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "result.json", f"{LAST}/state.safetensors"])
def test_an_enormous_file_is_refused_unread(used, name, capsys):
    shutil.copytree(used / LAST, used / STEP)
    os.truncate(used / name, 128 << 30)  # sparse
    if name == "config.json":
        with pytest.raises(ValueError, match=r"config.json has 137,438,953,472 bytes, but at most 16,777,216 are read"):
            tapehead.train(PLAIN, used)
    elif name == "result.json":
        assert read_result(used) is None
    else:
        tapehead.load(used)
        assert "state.safetensors has 137,438,953,472 bytes, but at most" in capsys.readouterr().err


def test_a_checkpoint_that_is_larger_than_its_run_can_be_is_refused(used):
    assert checkpoint.load_newest(used / "checkpoints", limit=100_000) is not None
    path, large = used / LAST, folder.most_bytes(PLAIN) + 1
    for older in checkpoint.folders(used / "checkpoints")[1:]:
        shutil.rmtree(older)
    os.truncate(path / "state.safetensors", large)
    listed = files.unseal((path / "manifest.json").read_bytes())["files"]
    listed["state.safetensors"]["size"] = large
    (path / "manifest.json").write_bytes(files.seal({"files": listed}))
    with pytest.raises(ValueError, match=rf"{path.name} has .* bytes, but such a run has at most"):
        tapehead.load(used)
