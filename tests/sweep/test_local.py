"""Local workers: how many there are, and what each is told."""

import io
import json
import os

import counted
import pytest
import torch

from tapehead.sweep import local
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.local import LocalEngine
from tapehead.sweep.plan import read_jobs
from tapehead.sweep.work import Assignment


class Process:
    """A worker process that does nothing but listen."""

    started = ()

    def __init__(self, command, **options):
        self.command, self.options, self.returncode = command, options, None
        self.stdin = io.BytesIO()
        Process.started += (self,)

    @property
    def told(self):
        return json.loads(self.stdin.getvalue())

    def poll(self):
        return self.returncode


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """An engine with so many GPUs in the machine, whose workers are no processes."""

    def make(device, gpus):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(local.subprocess, "Popen", Process)
        monkeypatch.setattr(Process, "started", ())
        sweep = SweepFolder.create(tmp_path / "sweep", read_jobs(counted.write_file(tmp_path)))
        return LocalEngine(sweep, Assignment(str(sweep.path), "driver", device=device), {})

    return make


def test_there_is_a_worker_for_each_gpu_and_each_has_its_own(engine):
    made = engine("cuda", 2)
    assert made.default_workers() == 2
    for _ in range(3):
        made.start()
    assert [process.told["device"] for process in Process.started] == ["cuda:0", "cuda:1", "cuda:0"]
    assert made.running == 3


def test_the_next_worker_gets_the_gpu_of_the_one_that_died(engine):
    made = engine("cuda", 3)
    for _ in range(3):
        made.start()
    for dead in (1, 0, 1):
        alive = [each for each in Process.started if each.returncode is None]
        (process,) = [each for each in alive if each.told["device"] == f"cuda:{dead}"]
        told, process.returncode = process.told, -9
        assert made.ended() == ["signal 9"]
        made.start()
        assert Process.started[-1].told == told


@pytest.mark.parametrize(("device", "gpus", "told"), [("cuda", 1, "cuda"), ("cuda:1", 2, "cuda:1"), (None, 0, None)])
def test_a_device_that_was_named_is_the_device_of_all(engine, device, gpus, told):
    made = engine(device, gpus)
    assert made.default_workers() == (1 if device else len(os.sched_getaffinity(0)))
    made.start()
    assert Process.started[0].told["device"] == told


def test_a_worker_has_one_thread_and_no_module_of_the_working_directory(engine):
    made = engine(None, 0)
    made.start()
    (process,) = Process.started
    assert process.options["env"]["OMP_NUM_THREADS"] == process.options["env"]["NUMBA_NUM_THREADS"] == "1"
    assert "-P" in process.command
    assert process.options["start_new_session"]
    assert process.told["threads"] == 1
