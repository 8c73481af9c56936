"""Runs below a folder, whatever state they are in. Nothing in them can break the list."""

import fcntl
import json
import os
import time

import pytest
from tiny import tiny, train_some_blocks

import tapehead
from tapehead import files
from tapehead.experiment.listing import find_runs, read_run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run of two seeds, and one that was broken off after two of its blocks."""
    folder = tmp_path_factory.mktemp("runs")
    tapehead.train(tiny(seeds=(3, 4), episodes=1000), folder / "b" / "finished")
    train_some_blocks(tiny(), folder / "a", 2)
    return folder


@pytest.fixture
def copy(runs, tmp_path):
    """A copy of the finished run's files that may be damaged."""
    target = tmp_path / "run"
    target.mkdir()
    for path in (runs / "b" / "finished").iterdir():
        if path.is_file():
            (target / path.name).write_bytes(path.read_bytes())
    return target


def test_a_finished_run_and_one_that_was_broken_off(runs):
    broken, finished = find_runs(runs)
    assert (broken.folder, broken.state, broken.episodes, broken.solved) == (runs / "a", "broken off", 200, None)
    assert broken.bits > 0
    result = json.loads((runs / "b/finished/result.json").read_text())
    assert (finished.state, finished.task, finished.model, finished.recipe) == (
        "finished",
        "copy",
        "ntm-lstm",
        "custom",
    )
    assert (finished.seeds, finished.solved, finished.episodes) == ([3, 4], 0, 1000)
    assert finished.bits == pytest.approx(sum(result["last_window_bits"]) / 2)
    assert list(finished.costs) == ["Length 2", "Length 5"]
    assert finished.costs["Length 5"] == pytest.approx(sum(result["generalisation"][1]["bits"]) / 2)
    assert finished.settings()["model.memory_slots"] == 8
    assert 0 <= time.time() - finished.changed < 3600
    assert json.loads(json.dumps(finished.to_plain()))["hash"] == finished.hash


def test_the_cost_of_a_short_run_is_the_mean_of_all_that_it_had(tmp_path):
    experiment = tiny(episodes=250, seeds=(1, 2, 3))
    result = tapehead.train(experiment, tmp_path)
    assert result.last_window_bits == (None, None, None)  # no window is full
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    means = [sum(line["bits"][s] * n for line, n in zip(lines, (100, 100, 50), strict=True)) / 250 for s in range(3)]
    assert read_run(tmp_path).bits == pytest.approx(sorted(means)[1])


def test_the_cost_of_a_run_that_was_broken_off_is_that_of_the_last_window(tmp_path):
    train_some_blocks(tiny(episodes=4000), tmp_path, 13)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert read_run(tmp_path).bits == pytest.approx(sum(line["bits"][0] for line in lines[-10:]) / 10)


def test_a_run_that_is_being_trained(copy):
    (copy / "result.json").unlink()
    lock = os.open(copy / "run.lock", os.O_RDWR | os.O_CREAT)
    assert read_run(copy).state == "broken off"
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert read_run(copy).state == "running"
    os.close(lock)


DAMAGE = {
    "half a configuration": ("config.json", lambda data: data[:100]),
    "no JSON in the configuration": ("config.json", lambda data: b"\xff\x00"),
    "an empty configuration": ("config.json", lambda data: b""),
    "another configuration": ("config.json", lambda data: files.seal({"experiment": [], "sha256": ""})),
    "a result with a flipped bit": ("result.json", lambda data: data.replace(b"solved_at", b"solved_bt")),
    "half a result": ("result.json", lambda data: data[:-30]),
    "another result": ("result.json", lambda data: files.seal({"seeds": [3, 4]})),
    "a result of other seeds": ("result.json", lambda data: files.seal(json.loads(data) | {"seeds": [1]})),
    "scores of another kind": ("result.json", lambda data: files.seal(json.loads(data) | {"generalisation": [{}]})),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_run_is_shown_as_such(copy, name):
    file, damage = DAMAGE[name]
    (copy / file).write_bytes(damage((copy / file).read_bytes()))
    (info,) = find_runs(copy.parent)
    assert info.state == "damaged"
    assert info.reason.startswith(f"{file}: ")
    assert "\n" not in info.reason
    json.dumps(info.to_plain(), allow_nan=False)


def test_links_pipes_and_half_lines_do_not_stop_the_list(copy):
    (copy / "result.json").unlink()
    (copy / "metrics.jsonl").write_bytes((copy / "metrics.jsonl").read_bytes()[:-20])
    assert read_run(copy).episodes == 900
    (copy / "metrics.jsonl").unlink()
    os.mkfifo(copy / "metrics.jsonl")
    assert (read_run(copy).state, read_run(copy).episodes) == ("broken off", None)
    (copy / "config.json").unlink()
    (copy / "config.json").symlink_to("/etc/passwd")
    assert "a symbolic link" in read_run(copy).reason
    (copy.parent / "loop").symlink_to(copy.parent)
    assert len(list(find_runs(copy.parent))) == 1


def test_classes_that_are_not_there_are_not_needed(copy):
    config = files.unseal((copy / "config.json").read_bytes())
    config["experiment"]["task"]["name"] = "gone:Task"
    (copy / "config.json").write_bytes(files.seal(config))
    assert (read_run(copy).task, read_run(copy).state) == ("gone:Task", "finished")


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        list(find_runs(tmp_path / "absent"))
    assert list(find_runs(tmp_path)) == []
