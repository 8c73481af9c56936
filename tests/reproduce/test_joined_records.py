"""Records of machines that were trained apart, in the jobs of a sweep, and differ in their seeds alone."""

import copy
import shutil

import pytest
from tiny_laboratory import tapehead

from tapehead.experiment.config import Experiment
from tapehead.experiment.run import train
from tapehead.lab import records
from tapehead.lab.confirmation import confirm
from tapehead.paper.recipes import row_experiment
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.jobs import with_seeds

SEEDS = (3, 4, 5)
QUICK = {"task.length": (1, 3), "training.episodes": 20, "model.controller_size": 8, "model.memory_slots": 8}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A row whose first job has two seeds and the second one, and an experiment that is no row."""
    path = tmp_path_factory.mktemp("joined") / "sweep"
    row = row_experiment("copy-ntm-lstm", "once", {"training.episodes": 20})
    other = row_experiment("copy-ntm-lstm", changes=QUICK)
    folder = SweepFolder.create(path, [*with_seeds("row", row, SEEDS, 2), *with_seeds("other, small", other, SEEDS, 1)])
    for job in folder.jobs[:3] + folder.jobs[4:]:  # of the second experiment seed 4 is not finished
        train(job.experiment, folder.run_folder(job), scored=False)
    return path


def join(sweep, out):
    return tapehead("sweep", "records", sweep, "--out", out, "--sequences", 1, "--join")


def test_they_are_those_of_one_run_with_all_seeds(sweep, tmp_path, capsys):
    assert join(sweep, tmp_path) == 0
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["copy-ntm-lstm-once.json", "other-small.json"]
    joined = records.read(tmp_path / "copy-ntm-lstm-once.json")
    experiment = Experiment.from_plain(joined["experiment"], "a record")
    assert experiment.seeds == SEEDS
    alone = confirm(experiment, tmp_path / "run", sequences=1)
    for name in set(alone) - {"seconds", "seeds_side_by_side", "environment"}:
        assert joined[name] == alone[name], name
    assert (joined["seeds_side_by_side"], joined["recipe"]) == (2, "once")
    assert joined["seconds"] > 0
    assert "copy-ntm-lstm-once.json" in (tmp_path / "README.md").read_text()
    capsys.readouterr()
    assert join(sweep, tmp_path) == 0
    assert capsys.readouterr().out == ""  # there is nothing new


def test_jobs_behind_an_unfinished_one_are_left_out_and_come_in_later(sweep, tmp_path):
    assert join(sweep, tmp_path) == 0
    assert records.read(tmp_path / "other-small.json")["seeds"] == [3]
    whole = tmp_path / "whole"
    shutil.copytree(sweep, whole)
    folder = SweepFolder(whole)
    train(folder.jobs[3].experiment, folder.run_folder(folder.jobs[3]), scored=False)
    assert join(whole, tmp_path) == 0
    assert records.read(tmp_path / "other-small.json")["seeds"] == list(SEEDS)


def test_machines_of_different_places_and_experiments_are_not_joined(sweep, tmp_path):
    assert join(sweep, tmp_path) == 0
    one = records.read(tmp_path / "other-small.json")
    one.pop("summary")
    assert records.join([one]) == one
    other = copy.deepcopy(one)
    other["environment"]["torch"] = "2.11.0"
    with pytest.raises(ValueError, match=r"trained with different torch \(.* and 2\.11\.0\).*: leave out --join\.$"):
        records.join([one, other])
    other = copy.deepcopy(one)
    other["experiment"]["training"]["episodes"] = 30
    with pytest.raises(ValueError, match="cannot be joined: its experiment differs"):
        records.join([one, other])
    other = copy.deepcopy(one)
    other["points"][0]["sequences"] = 7
    with pytest.raises(ValueError, match="cannot be joined: its points differs"):
        records.join([one, other])
