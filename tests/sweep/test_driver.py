"""Drivers with worker processes: killed, interrupted, failing."""

import signal
import sys
import time

import counted
import pytest
from killing import driver

from tapehead import cli
from tapehead.sweep import driver as driver_module
from tapehead.sweep import local
from tapehead.sweep.driver import SweepObserver, run_sweep
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.plan import read_jobs

pytestmark = pytest.mark.usefixtures("one_thread")


class Told(SweepObserver):
    def __init__(self):
        self.workers, self.states, self.deaths = None, [], []

    def begin(self, sweep, workers):
        self.workers = workers

    def update(self, states):
        self.states.append([one.state for one in states])

    def died(self, reason):
        self.deaths.append(reason)


def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path, capsys):
    path, out = counted.write_file(tmp_path, numbers=1, episodes=1000, task="Slow"), tmp_path / "sweep"
    (tmp_path / "hold").touch()
    first = driver(path, out, 1, start_new_session=True)
    while not any(path.stat().st_size for path in out.glob("jobs/*/run/metrics.jsonl")) and first.poll() is None:
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    printed, said = first.communicate(timeout=300)
    assert first.returncode == 130, said
    assert "SIGINT: stopping after the present blocks" in said
    assert said.endswith(f"stopped by SIGINT; saved in {out}. The same command goes on from there.\n")
    assert printed == ""
    assert list(out.glob("jobs/*/run/checkpoints/step-*"))
    assert not list(out.glob("jobs/*/run/result.json"))
    (tmp_path / "hold").unlink()
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", str(path), "--out", str(out), "--workers", "1"])
    printed, said = capsys.readouterr()
    assert stop.value.code == 0, said
    assert "1 of 1 jobs finished" in printed
    assert "slow ntm number 0, seed 0: 0 of 1 solved" in said
    assert list(out.glob("stops/*")) == list(out.glob("logs/*")) == []


def test_workers_that_cannot_start_end_the_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "PROGRAM", "import nothing_of_this_name # {}")
    monkeypatch.setattr(driver_module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(driver_module, "FUTILE", 1)
    jobs = read_jobs(counted.write_file(tmp_path, numbers=1))
    with pytest.raises(ValueError, match=r"die before they take a job .*No module named 'nothing_of_this_name'"):
        run_sweep(jobs, tmp_path / "sweep", workers=1)


@pytest.mark.parametrize(("engine", "module"), [("ray", "ray"), ("slurm", "submitit")])
def test_an_engine_that_is_not_installed_says_how_it_is(tmp_path, monkeypatch, engine, module):
    monkeypatch.setitem(sys.modules, module, None)
    jobs = read_jobs(counted.write_file(tmp_path, numbers=1))
    with pytest.raises(ValueError, match=rf"not installed: pip install 'tapehead\[{engine}\]'"):
        run_sweep(jobs, tmp_path / "sweep", engine=engine)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "raey"}, "unknown engine 'raey'. Did you mean 'ray'"),
        ({"workers": 0}, "workers is 0"),
        ({"engine_options": {"address": "x"}}, "unknown option of the engine local 'address'"),
        ({"engine": "slurm", "engine_options": {"cluster": "local", "speed": "9"}}, "speed"),
        ({"engine": "slurm", "engine_options": {"cluster": "moon"}}, "cannot be used here"),
        ({"engine": "ray", "engine_options": {"speed": "9"}}, "unknown option of the engine ray 'speed'"),
        ({"engine": "ray", "engine_options": {"num_cpus": "many"}}, "num_cpus is 'many'"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(tmp_path, options, words):
    jobs = read_jobs(counted.write_file(tmp_path, numbers=1))
    with pytest.raises(ValueError) as error:
        run_sweep(jobs, tmp_path / "sweep", **options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_slurm_workers_carry_out_a_sweep_and_a_death_costs_one_restart(tmp_path):
    """With submitit's local executor, which starts the same programs as Slurm would. The first worker kills itself."""
    jobs, told = read_jobs(counted.write_file(tmp_path, numbers=2, task="Deadly")), Told()
    options = {"engine": "slurm", "engine_options": {"cluster": "local"}, "workers": 1}
    outcome = run_sweep(jobs, tmp_path / "sweep", observer=told, **options)
    assert (told.workers, len(told.deaths)) == (1, 1)
    assert (set(outcome.results), outcome.failures) == ({job.name for job in jobs}, {})
    assert sorted(counted.scorings(tmp_path)) == [0, 1]
    assert [cell.label for cell in outcome.cells] == [job.label for job in jobs]
    assert [(cell.seeds, cell.trained, cell.solved, cell.episodes) for cell in outcome.cells] == [(1, 1, 0, None)] * 2
    assert outcome.cells[0].costs == outcome.cells[1].costs
    again = Told()
    assert run_sweep(None, tmp_path / "sweep", observer=again).results == outcome.results
    assert again.workers is None  # a finished sweep needs none


def test_ray_workers_carry_out_a_sweep(tmp_path):
    """As a program of its own, because Ray leaves threads and warnings behind."""
    path, out = counted.write_file(tmp_path, numbers=2), tmp_path / "sweep"
    one = driver(path, out, 1, extra=["--engine", "ray", "--engine-options", "num_cpus", "1"])
    printed, said = one.communicate(timeout=600)
    assert one.returncode == 0, said
    assert "2 of 2 jobs finished" in printed
    assert len([job for job in SweepFolder(out).jobs if SweepFolder(out).result(job)]) == 2
    assert sorted(counted.scorings(tmp_path)) == [0, 1]
