"""`tapehead sweep`: what is asked, printed and refused. `tests/sweep` has what sweeps do."""

import io
import json

import pytest
from rich.console import Console
from tiny import BASE

from tapehead import cli
from tapehead.commands import sweep_table
from tapehead.commands.sweep_table import SweepProgress, summary
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.plan import read_jobs
from tapehead.sweep.state import JobState, Snapshot, Watch
from tapehead.sweep.work import Assignment, work

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A sweep of two jobs in the working directory."""
    monkeypatch.chdir(tmp_path)
    text = BASE.with_values({"training.episodes": 100}).to_toml()
    (tmp_path / "pair.toml").write_text(f"{text}\n[grid]\nmodel.memory_width = [4, 5]\n")
    return tmp_path / "pair.toml"


def sweep(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", *map(str, arguments)])
    return stop.value.code, *capsys.readouterr()


def by_hand(file, capsys):
    """The sweep's folder, its jobs carried out in this process."""
    sweep(capsys, file.name, "--plan")
    folder = SweepFolder.create(file.parent / "runs" / "pair", read_jobs(file))
    work(Assignment(str(folder.path), "driver"))
    return folder


def test_a_plan_lists_the_jobs_and_makes_nothing(file, capsys):
    code, out, err = sweep(capsys, file.name, "--plan")
    assert code == 0
    assert [line.rpartition("-")[0] for line in out.splitlines()] == [
        "copy-ntm-memory_width-4-seed-0",
        "copy-ntm-memory_width-5-seed-0",
    ]
    assert err == "2 jobs, 2 seeds.\n"
    assert [path.name for path in file.parent.iterdir()] == ["pair.toml"]
    assert sweep(capsys, "run", file.name, "--plan")[1] == out  # the whole form of the same command


def test_a_finished_sweep_is_reported_packed_and_unpacked(file, capsys):
    by_hand(file, capsys)
    code, out, err = sweep(capsys, file.name)
    assert (code, err) == (0, "")
    assert "copy ntm memory_width 5" in out
    assert "2 of 2 jobs finished, 0 of 2 seeds solved. Runs: runs/pair/jobs" in out
    assert sweep(capsys, "runs/pair") == (0, out, "")
    code, out, _ = sweep(capsys, "status", "runs/pair", "--json")
    values = json.loads(out)
    assert [one["state"] for one in values] == ["finished"] * 2
    assert values[1]["values"] == {"model.memory_width": 5}
    assert list(values[0]["costs"]) == ["Length 2", "Length 5"]
    assert "Length 5: " in sweep(capsys, "status", "runs/pair")[1]
    code, out, _ = sweep(capsys, "pack", "runs/pair", "pair.zip")
    assert (code, out.partition(":")[0]) == (0, "pair.zip")
    code, out, _ = sweep(capsys, "unpack", "pair.zip", "there")
    assert out == "there: 2 of 2 jobs finished, 0 of 2 seeds solved. Go on with: tapehead sweep there\n"
    assert len(list((file.parent / "there").glob("jobs/*/run/result.json"))) == 2


def test_a_failed_job_is_named_with_its_reason(file, capsys):
    folder = by_hand(file, capsys)
    job = folder.jobs[1]
    (folder.run_folder(job) / "result.json").unlink()
    folder.write_failure(job, "it cannot\nwork.")
    code, out, _ = sweep(capsys, file.name)
    assert code == 1
    assert f"failed: {job.name}: it cannot work." in out
    assert "1 of 2 jobs finished, 1 failed" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent.toml"], "absent.toml cannot be read"),
        (["pair.txt"], "neither a TOML file nor a sweep's folder"),
        (["pair.toml", "--device", "cuda:77"], "--device is 'cuda:77'"),
        (["pair.toml", "--workers", "0"], "workers is 0"),
        (["pair.toml", "--engine", "rey"], "rey"),
        (["pair.toml", "--out", "full"], "has files in it, but no sweep"),
        (["status", "full"], "holds no sweep"),
        (["pack", "full", "x.zip"], "holds no sweep"),
        (["unpack", "pair.toml", "there"], "is no packed sweep"),
        (["statos", "full"], "Did you mean 'status'?"),
        (["nothing"], "Or give a TOML file or a sweep's folder"),
        ([], "needs a TOML file or a sweep's folder"),
    ],
)
def test_mistakes_are_one_sentence(file, capsys, arguments, words):
    (file.parent / "full").mkdir()
    (file.parent / "full" / "thing").touch()
    code, out, err = sweep(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in file.parent.iterdir()) == ["full", "pair.toml"]


# --- what is seen while it runs --------------------------------------------------------------------------------------


@pytest.fixture
def moments(file):
    """A sweep at three moments: nothing done; one job half way; all settled."""
    folder = SweepFolder.create(file.parent / "runs" / "pair", read_jobs(file))
    one, other = folder.jobs
    progress = {"episodes": 50, "expected": 100, "solved": 0, "bits": 2.5}
    before = Watch(folder).snapshot()
    during = Snapshot((JobState(one, "running", progress), JobState(other, "waiting")))
    work(Assignment(str(folder.path), "driver"))
    after = Snapshot((Watch(folder).snapshot()[0], JobState(other, "failed", failure="a reason.")))
    return folder, (before, during, after)


def test_plain_lines_where_there_is_no_terminal(moments, capsys, monkeypatch):
    folder, (before, during, after) = moments
    monkeypatch.setattr(sweep_table, "LINE_SECONDS", -1)
    with SweepProgress() as progress:
        progress.begin(folder, 3)
        for states in (before, during, after):
            progress.update(states)
        progress.died("signal 9")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{folder.path}: 2 jobs, 3 workers."
    assert lines[1] == "0 of 2 jobs finished, 2 waiting"
    assert lines[2].startswith("0 of 2 jobs finished, 1 running, 1 waiting, about ")
    assert lines[3].startswith("copy ntm memory_width 4, seed 0: 0 of 1 solved; bits: Length 2: ")
    assert lines[4] == "copy ntm memory_width 5, seed 0: failed: a reason."
    assert lines[5] == summary(after) == "1 of 2 jobs finished, 1 failed, 0 of 1 seeds solved"
    assert lines[6] == "A worker died (signal 9); its job is taken up again."


def test_a_live_table_on_a_terminal(moments, monkeypatch):
    folder, (_, during, after) = moments
    screen = io.StringIO()
    monkeypatch.setattr(
        sweep_table, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100, height=30)
    )
    with SweepProgress() as progress:
        progress.begin(folder, 3)
        progress.update(during)
        shown = screen.getvalue()
        progress.update(after)
    for words in ("memory_width 4, seed 0", "50 of 100", "2.5", "0 of 1", "1 running"):
        assert words in shown
    assert "failed: a reason." in screen.getvalue()
