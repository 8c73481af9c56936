"""Signals: the first saves and stops after the block, a second SIGINT stops at once, other threads are left alone."""

import os
import pickle
import signal
import threading

import pytest
from tiny import EXPERIMENTS, Recorded, outcome, tiny

import tapehead
from tapehead.experiment import checkpoint
from tapehead.experiment.folder import RunFolder
from tapehead.experiment.loop import Trainer

pytestmark = pytest.mark.usefixtures("one_thread", "quickly_solved")

PLAIN = EXPERIMENTS["plain"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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
        with pytest.raises(tapehead.Interrupted, match=f"stopped by {number.name}") as stop:
            tapehead.train(PLAIN, tmp_path / "run")
    assert stop.value.exit_code == 128 + number
    assert signal.getsignal(number) == before
    assert checkpoint.load_newest(tmp_path / "run" / "checkpoints").step == 100 * block
    tapehead.train(PLAIN, tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(finished["plain"])


def test_a_run_without_a_folder_stops_too():
    watched = Recorded(stop_after=2, number=signal.SIGINT)
    with pytest.raises(tapehead.Interrupted):
        tapehead.train(PLAIN, observer=watched)
    assert len(watched.blocks) == 2


def test_a_second_ctrl_c_does_not_wait(tmp_path, monkeypatch):
    def impatient(self, *_):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "_launch", impatient)
    with pytest.raises(KeyboardInterrupt):
        tapehead.train(PLAIN, tmp_path / "run")


def test_a_second_ctrl_c_waits_for_a_checkpoint_that_is_being_written(tmp_path, finished, monkeypatch):
    original = RunFolder.save

    def save(self, point):
        os.kill(os.getpid(), signal.SIGINT)
        return original(self, point)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", save)
        with pytest.raises(tapehead.Interrupted):
            tapehead.train(PLAIN, tmp_path / "run", observer=Recorded(stop_after=2, number=signal.SIGINT))
    assert checkpoint.load_newest(tmp_path / "run" / "checkpoints").step == 200
    tapehead.train(PLAIN, tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(finished["plain"])


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        watched = Recorded(stop_after=1, number=signal.SIGHUP)
        tapehead.train(tiny(episodes=200), observer=watched)
        assert len(watched.blocks) == 2
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_thread_trains_and_leaves_signals_alone(tmp_path, finished):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    seen, results = [], []

    class Watch(Recorded):
        def block(self, status):
            seen.append({number: signal.getsignal(number) for number in handlers})

    thread = threading.Thread(target=lambda: results.append(tapehead.train(PLAIN, tmp_path / "run", observer=Watch())))
    thread.start()
    thread.join(120)
    assert seen == [handlers] * 6
    assert results[0].sha256 == tapehead.train(PLAIN, finished["plain"]).sha256
    assert outcome(tmp_path / "run") == outcome(finished["plain"])


def test_an_interruption_survives_the_way_out_of_a_worker():
    """A pool of processes sends exceptions as pickles, and waits for ever for one that cannot be read."""
    again = pickle.loads(pickle.dumps(tapehead.Interrupted(signal.SIGTERM)))
    assert isinstance(again, tapehead.Interrupted)
    assert (again.exit_code, str(again)) == (143, "stopped by SIGTERM")
