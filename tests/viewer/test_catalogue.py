"""Machines of runs and of the zoo, as a page gets them."""

import json
import os
import shutil

import pytest
import torch
from tiny import tiny

import tapehead
from tapehead import files, zoo
from tapehead.viewer import catalogue


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with two runs: `one`, and `deep/er/two` of an LSTM with two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    tapehead.train(tiny(episodes=200), folder / "one")
    lstm = tiny(episodes=200, seeds=(4, 5)).with_values({"model.name": "lstm", "model.hidden_size": 4})
    tapehead.train(lstm, folder / "deep" / "er" / "two")
    return folder


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_machines_of_a_run(runs):
    (machine,) = catalogue.run_machines(runs / "one")
    assert (machine.title, machine.group, machine.seed) == ("one", "run", 0)
    assert same(machine.weights(), dict(tapehead.load(runs / "one").named_parameters()))
    assert machine.task["name"] == "copy"
    assert machine.model["memory_slots"] == 8
    first, second = catalogue.run_machines(runs / "deep/er/two")
    assert (first.title, second.title) == ("two, seed 4", "two, seed 5")
    assert not same(first.weights(), second.weights())
    assert same(second.weights(), dict(tapehead.load(runs / "deep/er/two", 5).named_parameters()))
    assert json.loads(json.dumps(first.entry())) == first.entry()


def test_a_job_of_a_sweep_is_listed_by_its_name(runs, tmp_path):
    job = tmp_path / "runs" / "sizes" / "jobs" / "slots-8" / "run"
    shutil.copytree(runs / "one", job)
    assert [machine.title for machine in catalogue.runs_below(tmp_path)] == ["runs/sizes/jobs/slots-8/run"]
    assert [machine.title for machine in catalogue.run_machines(job)] == ["slots-8"]


def test_snapshots_of_a_run_are_its_beginning_and_its_checkpoints(runs):
    (machine,) = catalogue.run_machines(runs / "one")
    (_, none), *rest = machine.snapshots()
    assert none == 0
    assert [episodes for _, episodes in rest] == [200]
    initial, last = (machine.snapshot(key) for key, _ in machine.snapshots())
    assert not same(initial, last)
    assert all(value.dtype == torch.float16 for value in initial.values())
    model = tapehead.load(runs / "one")
    begun = model.split_flat(model.initial_population([0])[0])
    assert same(initial, {name: value.half() for name, value in begun.items()})
    with pytest.raises(ValueError, match="has no snapshot step-999999999"):
        machine.snapshot("step-999999999")


def test_machines_of_the_zoo():
    machines = {machine.id: machine for machine in catalogue.zoo_machines()}
    assert list(machines) == zoo.names()
    copy = machines["copy-ntm-lstm"]
    assert same(copy.weights(), dict(zoo.load("copy-ntm-lstm").named_parameters()))
    key, episodes = copy.snapshots()[3]
    assert episodes == zoo.card("copy-ntm-lstm").snapshots["episodes"][3]
    assert copy.snapshot(key).keys() == copy.weights().keys()
    assert copy.card["sha256"] == zoo.card("copy-ntm-lstm").sha256


def test_runs_below_a_folder_are_found(runs):
    found = catalogue.runs_below(runs)
    assert [machine.title for machine in found] == ["one", "deep/er/two, seed 4", "deep/er/two, seed 5"]
    assert [machine.id for machine in found] == [machine.id for machine in catalogue.runs_below(runs)]
    assert [machine.title for machine in catalogue.runs_below(runs / "one")] == ["one"]
    assert catalogue.runs_below(runs / "nowhere") == []


def test_what_is_damaged_or_leads_elsewhere_is_not_listed(runs, tmp_path):
    """Links, hidden folders, a broken seal, a class from outside (which would be imported), no checkpoint."""
    shutil.copytree(runs / "one", tmp_path / "good")
    (tmp_path / "link").symlink_to(runs)
    shutil.copytree(runs / "one", tmp_path / ".hidden")
    damaged = shutil.copytree(runs / "one", tmp_path / "damaged") / "config.json"
    damaged.write_text(damaged.read_text().replace('"length"', '"lenght"', 1))
    outside = shutil.copytree(runs / "one", tmp_path / "outside") / "config.json"
    values = files.unseal(outside.read_bytes())
    values["experiment"]["task"]["name"] = "os:remove"
    outside.write_bytes(files.seal(values))
    shutil.rmtree(shutil.copytree(runs / "one", tmp_path / "young") / "checkpoints")
    linked = shutil.copytree(runs / "one", tmp_path / "linked") / "config.json"
    linked.unlink()
    linked.symlink_to(runs / "one" / "config.json")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text("{}")
    assert [machine.title for machine in catalogue.runs_below(tmp_path)] == ["good"]


def test_a_link_inside_a_run_is_refused(runs, tmp_path):
    """A checkpoint that leads out of the folder is not read."""
    shutil.copytree(runs / "one", tmp_path / "run")
    (point,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    shutil.rmtree(point)
    (inside,) = (runs / "one" / "checkpoints").glob("step-*")
    point.symlink_to(inside)
    (machine,) = catalogue.run_machines(tmp_path / "run")
    with pytest.raises(ValueError, match="symbolic link"):
        machine.weights()


@pytest.mark.parametrize(
    ("what", "says"), [("nowhere", "is no folder of a run, nor in the zoo"), ("copy-ntm-lstn", "copy-ntm-lstm")]
)
def test_what_is_not_there_is_one_sentence(what, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=says):
        catalogue.find(what)
    with pytest.raises(ValueError, match="holds no run"):
        catalogue.find(".")


def test_weights_that_are_not_finite_are_not_sent():
    with pytest.raises(ValueError, match="not finite"):
        catalogue.to_safetensors({"x": torch.tensor([1.0, float("nan")])})
