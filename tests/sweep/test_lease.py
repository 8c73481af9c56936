"""Leases: one worker has a job, whatever happens to it and wherever the others are."""

import json
import os
import threading
import time

import pytest

from tapehead import files
from tapehead.sweep import lease
from tapehead.sweep.lease import LeaseLost, claim, holder, latest


@pytest.fixture
def elsewhere(monkeypatch):
    """Call a function as a process of another machine does."""

    def call(function, *arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr(lease, "kernel_identity", lambda: "another kernel")
            return function(*arguments, **options)

    return call


def vanish(held):
    """What is left of a lease when its process is killed: the file, and no lock."""
    held._over.set()
    held._thread.join()
    os.close(held._lock)


def age(folder, seconds):
    """Let the last heartbeat be so long ago."""
    path = lease._path(folder, latest(folder).number)
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_job_is_taken_once_and_again_when_it_is_released(tmp_path):
    held = claim(tmp_path)
    assert claim(tmp_path) is None
    assert holder(tmp_path).number == 1
    held.release("interrupted")
    assert (holder(tmp_path), latest(tmp_path).ended) == (None, "interrupted")
    again = claim(tmp_path)
    assert holder(tmp_path).number == 2
    assert again.deaths == 0
    again.release("finished")


def test_of_many_claims_at_one_moment_one_succeeds(tmp_path):
    assert sum(1 for held in _claims(tmp_path) if held is not None) == 1


def test_the_numbered_file_decides_where_locks_do_not_reach(tmp_path, monkeypatch):
    """As on a shared file system whose locks are local: every process gets the lock."""
    monkeypatch.setattr(files, "lock", lambda path: os.open(path, os.O_RDWR | os.O_CREAT))
    monkeypatch.setattr(lease, "_over", lambda entry: entry.ended is not None)
    assert sum(1 for held in _claims(tmp_path) if held is not None) == 1


def _claims(folder):
    """What sixteen threads get that claim a job at one moment."""
    start, found = threading.Barrier(16), []

    def take():
        start.wait()
        found.append(claim(folder))

    threads = [threading.Thread(target=take) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for held in found:
        if held is not None:
            held.release("finished")
    return found


def test_a_process_of_this_machine_that_is_gone_has_no_lease(tmp_path):
    vanish(claim(tmp_path))
    assert holder(tmp_path) is None
    again = claim(tmp_path)
    assert again.deaths == 1
    again.release("finished")


def test_a_process_of_another_machine_has_its_lease_until_its_heartbeat_is_old(tmp_path, elsewhere):
    held = elsewhere(claim, tmp_path, expiry=100)
    vanish(held)
    assert holder(tmp_path).number == 1
    assert claim(tmp_path) is None
    age(tmp_path, 90)
    assert claim(tmp_path) is None
    age(tmp_path, 110)
    assert holder(tmp_path) is None
    taken = claim(tmp_path)
    assert holder(tmp_path).number == 2
    taken.release("finished")


def test_who_was_suspended_learns_that_the_lease_is_lost(tmp_path, elsewhere, monkeypatch):
    held = elsewhere(claim, tmp_path, expiry=100)
    held.check()
    vanish(held)
    age(tmp_path, 110)
    other = claim(tmp_path)
    held.check()  # its own clock says that it is in time
    held._beaten_at -= 60
    with pytest.raises(LeaseLost):
        held.check()
    assert not issubclass(LeaseLost, Exception)
    before = latest(tmp_path).values
    held._lock = os.open(tmp_path, os.O_RDONLY)
    held.release("finished")  # says nothing about a job of another worker
    assert latest(tmp_path).values == before
    assert "finished" not in lease._path(tmp_path, 1).read_text()
    other.release("finished")


def test_the_heartbeat_carries_the_progress(tmp_path):
    held = claim(tmp_path, heartbeat=0.01)
    held.progress = {"episodes": 300}
    until = time.monotonic() + 10
    while not latest(tmp_path).progress and time.monotonic() < until:
        age(tmp_path, 50)
        time.sleep(0.005)
    assert holder(tmp_path).progress == {"episodes": 300}
    held.release("finished")
    assert latest(tmp_path).progress == {"episodes": 300}


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_a_lease_that_cannot_be_read_is_one_until_it_is_old(tmp_path, content):
    (tmp_path / lease.LOCK).touch()
    (tmp_path / "lease-000004.json").write_bytes(content)
    assert claim(tmp_path) is None
    age(tmp_path, lease.EXPIRY + 5)
    held = claim(tmp_path)
    assert latest(tmp_path).number == 5
    held.release("finished")


def test_deaths_are_counted_as_long_as_nothing_new_is_saved(tmp_path):
    for at in ("", "step-000000100", "step-000000100"):
        vanish(claim(tmp_path, at=at))
    held = claim(tmp_path, at="step-000000100")
    assert held.deaths == 2
    held.release("interrupted")
    held = claim(tmp_path, at="step-000000100")
    assert held.deaths == 0
    held.release("finished")


def test_a_lease_says_where_its_process_is(tmp_path):
    held = claim(tmp_path, expiry=7)
    values = json.loads(lease._path(tmp_path, 1).read_text())
    assert values["process"] == os.getpid()
    assert values["kernel"] == lease.kernel_identity() != ""
    assert values["expiry"] == 7
    held.release("finished")
