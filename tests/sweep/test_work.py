"""A worker: what it takes, what it leaves, and what becomes of a job that fails, is stopped or is lost. All in this
process."""

import fcntl
import os
import signal
import threading
import time

import counted
import pytest
from tiny import contents, outcome

from tapehead.experiment import run as run_module
from tapehead.experiment.loop import Trainer
from tapehead.sweep import work as work_module
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.lease import Lease, LeaseLost, claim, latest
from tapehead.sweep.plan import read_jobs
from tapehead.sweep.state import Watch
from tapehead.sweep.work import MOST_DEATHS, Assignment, work

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def begun(tmp_path):
    """Begin a sweep of a file: the folder, and what a worker is told."""

    def begin(**options):
        jobs = read_jobs(counted.write_file(tmp_path, **options))
        sweep = SweepFolder.create(tmp_path / "sweep", jobs)
        return sweep, Assignment(str(sweep.path), "driver")

    return begin


def states(sweep):
    return [one.state for one in Watch(sweep).snapshot()]


def test_every_job_is_carried_out_once(begun, tmp_path):
    sweep, assignment = begun(numbers=2, seeds=2)
    assert states(sweep) == ["waiting"] * 4
    assert work(assignment) == 4
    assert states(sweep) == ["finished"] * 4
    assert counted.scorings(tmp_path) == [0, 0, 1, 1]
    assert work(assignment) == 0
    assert len(counted.scorings(tmp_path)) == 4
    results = [one.result for one in Watch(sweep).snapshot()]
    assert results[0].sha256["weights"] == results[2].sha256["weights"] != results[1].sha256["weights"]
    assert results[1].seeds == (1,)


def test_what_others_have_is_left_to_them(begun):
    sweep, assignment = begun(numbers=3)
    folder = sweep.job_folder(sweep.jobs[1])
    folder.mkdir()
    held = claim(folder)
    assert work(assignment) == 2
    assert states(sweep) == ["finished", "running", "finished"]
    held.release("interrupted")
    assert work(assignment) == 1
    assert states(sweep) == ["finished"] * 3


@pytest.mark.parametrize("in_time", [True, False])
def test_a_run_that_another_program_trains_is_left_to_it(begun, monkeypatch, in_time):
    """in_time: the other program was there before the job was looked at."""
    sweep, assignment = begun(numbers=1)
    job = sweep.jobs[0]
    sweep.run_folder(job).mkdir(parents=True)
    lock = os.open(sweep.run_folder(job) / "run.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert states(sweep) == ["running"]
    if not in_time:
        monkeypatch.setattr(SweepFolder, "is_trained_outside", lambda *_: False)
        monkeypatch.setattr(work_module, "STOP_SECONDS", 0.001)
        monkeypatch.setattr(work_module, "_taken", _one(work_module._taken))
    assert work(assignment) == (0 if in_time else 1)
    monkeypatch.undo()
    assert states(sweep) == ["running"]
    os.close(lock)
    assert states(sweep) == ["waiting"]
    assert work(assignment) == 1
    assert states(sweep) == ["finished"]


def test_a_mistake_in_a_class_fails_its_job_alone_until_it_is_tried_again(begun, tmp_path):
    sweep, assignment = begun(numbers=3, task="Faulty")
    assert work(assignment) == 3
    assert states(sweep) == ["finished", "failed", "finished"]
    reason = sweep.failure(sweep.jobs[1])
    assert reason.startswith("KeyError: 'a mistake' (counted.py, line ")
    assert latest(sweep.job_folder(sweep.jobs[1])).ended == "failed"
    assert work(assignment) == 0
    (tmp_path / "mended").touch()
    assert sweep.forget_failures() == 1
    assert work(assignment) == 1
    assert states(sweep) == ["finished"] * 3


def test_a_worker_without_the_classes_of_a_job_ends_and_the_job_has_not_failed(begun, monkeypatch):
    sweep, assignment = begun(numbers=1)
    with monkeypatch.context() as patch:
        patch.setattr(counted, "Counted", counted.Faulty)
        with pytest.raises(ValueError, match="was made by another version of tapehead or of its classes"):
            work(assignment)
        patch.delattr(counted, "Counted")
        with pytest.raises(ValueError, match="the task 'counted:Counted' is not there"):
            work(assignment)
    assert states(sweep) == ["waiting"]
    assert work(assignment) == 1


def test_a_job_with_which_workers_die_fails_in_the_end(begun):
    sweep, assignment = begun(numbers=2)
    folder = sweep.job_folder(sweep.jobs[0])
    folder.mkdir()
    for _ in range(MOST_DEATHS):
        held = claim(folder)
        held._over.set()
        os.close(held._lock)  # as if it had been killed
    assert work(assignment) == 1
    assert states(sweep) == ["failed", "finished"]
    assert f"{MOST_DEATHS} workers died" in sweep.failure(sweep.jobs[0])


def interrupting(monkeypatch, block, act):
    """Do something when so many blocks of a job are done."""
    seen = []
    before = work_module._Heart.block

    def after(self, status):
        before(self, status)
        seen.append(status)
        if len(seen) == block:
            act()

    monkeypatch.setattr(work_module._Heart, "block", after)


@pytest.mark.parametrize("how", ["signal", "request"])
def test_a_worker_that_is_asked_to_stop_saves_and_the_next_one_ends_with_the_same_bytes(
    begun, tmp_path, monkeypatch, how
):
    sweep, assignment = begun(numbers=2, episodes=600)
    job, other = sweep.jobs
    monkeypatch.setattr(work_module, "STOP_SECONDS", 0.001)

    def act():
        if how == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
            return
        sweep.stop_request("driver").touch()
        while any(thread.name == "tapehead-stop" for thread in threading.enumerate()):  # it ends with its signal
            time.sleep(0.001)

    interrupting(monkeypatch, 3, act)
    work(assignment)
    assert states(sweep) == ["stopped", "waiting"]
    assert latest(sweep.job_folder(job)).ended == "interrupted"
    monkeypatch.undo()
    sweep.stop_request("driver").unlink(missing_ok=True)
    assert work(assignment) == 2
    assert states(sweep) == ["finished"] * 2
    plain, interrupted = outcome(sweep.run_folder(other)), outcome(sweep.run_folder(job))
    assert plain[1] == interrupted[1]
    assert plain[0]["sha256"]["weights"] == interrupted[0]["sha256"]["weights"]


def test_a_worker_that_has_lost_its_lease_leaves_the_run_as_it_is(begun, monkeypatch):
    sweep, assignment = begun(numbers=1)

    def lose(self):
        raise LeaseLost

    monkeypatch.setattr(Lease, "check", lose)
    monkeypatch.setattr(work_module, "STOP_SECONDS", 0.001)
    monkeypatch.setattr(work_module, "_taken", _one(work_module._taken))
    work(assignment)
    run = sweep.run_folder(sweep.jobs[0])
    assert (run / "config.json").exists()
    assert not (run / "result.json").exists()
    assert sweep.failure(sweep.jobs[0]) is None


@pytest.mark.parametrize("after", [0, 1, None])
def test_a_worker_whose_lease_was_taken_while_it_was_suspended_writes_nothing_more(begun, monkeypatch, after):
    """after: blocks that it has trained before; None: in the middle of scoring."""
    sweep, assignment = begun(numbers=1)
    job = sweep.jobs[0]
    run, found, blocks = sweep.run_folder(job), {}, []

    def lose():
        """As if the process had been suspended beyond the expiry, and a worker elsewhere had taken the job."""
        (sweep.job_folder(job) / "lease-000002.json").write_text("{}")
        monkeypatch.setattr(time, "time", lambda now=time.time: now() + 2 * assignment.expiry)
        found.update(contents(run))

    step, score = Trainer.iter_blocks, run_module.score

    def stepping(self, **options):
        for whole in step(self, **options):
            if len(blocks) == after:
                lose()
            blocks.append(whole)
            yield whole

    def scoring(*arguments, **options):
        lose()
        return score(*arguments, **options)

    monkeypatch.setattr(Trainer, "iter_blocks", stepping)
    if after is None:
        monkeypatch.setattr(run_module, "score", scoring)
    monkeypatch.setattr(work_module, "STOP_SECONDS", 0.001)
    monkeypatch.setattr(work_module, "_taken", _one(work_module._taken))
    work(assignment)
    assert found
    assert contents(run) == found
    assert not (run / "result.json").exists()
    assert len(found["metrics.jsonl"].splitlines()) == (len(blocks) if after is None else after)
    assert sweep.failure(job) is None


def test_progress_is_in_the_lease(begun, monkeypatch):
    _, assignment = begun(numbers=1)
    seen = []
    monkeypatch.setattr(Lease, "release", lambda self, ended: (seen.append(self.progress), os.close(self._lock)))
    monkeypatch.setattr(work_module, "_taken", _one(work_module._taken))
    work(assignment)
    assert seen[0]["episodes"] == seen[0]["expected"] == 200
    assert (seen[0]["solved"], seen[0]["backend"]) == (0, "cpu")


def _one(taken):
    def first(*arguments):
        yield next(taken(*arguments))

    return first
