"""Records of machines that were trained apart, in the jobs of a sweep, and differ in their seeds alone."""

import copy
import shutil

import pytest
from tiny_laboratory import tapehead

from tapehead import files
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


def join(sweep, out, *more):
    return tapehead("sweep", "records", sweep, "--out", out, "--sequences", 1, "--join", *more)


def seeds_in(path):
    return records.read(path)["seeds"]


def made(tmp_path, *groups, name="sweep"):
    """A sweep whose jobs are all trained; a group is a label, an experiment, seeds and how many are side by side."""
    folder = SweepFolder.create(tmp_path / name, [job for group in groups for job in with_seeds(*group)])
    for job in folder.jobs:
        train(job.experiment, folder.run_folder(job), scored=False)
    return folder.path


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
    assert join(sweep, tmp_path, "--quiet") == 0
    assert capsys.readouterr().out == ""  # there is nothing new
    assert join(sweep, tmp_path, "--sequences", 2) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2  # scored on others


def test_jobs_behind_an_unfinished_one_are_left_out_and_come_in_later(sweep, tmp_path, capsys):
    assert join(sweep, tmp_path) == 0
    said = "other-small: 1 of 3 jobs, because that of seed 4 is not finished; 1 finished jobs behind it are left out."
    assert said in capsys.readouterr().err
    assert seeds_in(tmp_path / "other-small.json") == [3]
    whole = tmp_path / "whole"
    shutil.copytree(sweep, whole)
    folder = SweepFolder(whole)
    train(folder.jobs[3].experiment, folder.run_folder(folder.jobs[3]), scored=False)
    assert join(whole, tmp_path) == 0
    assert seeds_in(tmp_path / "other-small.json") == list(SEEDS)
    assert join(sweep, tmp_path) == 0
    assert "stays: it has 3 machines, and other-small of this sweep 1." in capsys.readouterr().err
    assert seeds_in(tmp_path / "other-small.json") == list(SEEDS)
    (tmp_path / "other-small.json").write_text('{"a": 1}')
    assert join(sweep, tmp_path) == 2
    assert "other-small.json is no record of a confirmation" in capsys.readouterr().err


def test_configurations_are_told_apart_by_their_experiments(tmp_path, capsys):
    """Not by their labels, which may be alike, nor by their places in the list; a row's name is for the row alone."""
    shorter, longer = (row_experiment("copy-ntm-lstm", "once", {"training.episodes": n}) for n in (10, 20))
    small = row_experiment("copy-ntm-lstm", changes=QUICK)
    groups = [("x", shorter, [seed], 1) for seed in (1, 2)]
    groups += [("x", longer, [seed], 1) for seed in (1, 2)]
    groups += [("copy-ntm-lstm", small, [1], 1)]
    path = made(tmp_path, groups[0], groups[2], groups[1], groups[3], groups[4])
    assert join(path, tmp_path / "out") == 0
    found = {path.stem: seeds_in(path) for path in (tmp_path / "out").glob("*.json")}
    one, *two = sorted(found, key=lambda name: "once" in name)
    assert one == "copy-ntm-lstm-custom"
    assert all(name.startswith("copy-ntm-lstm-once-") for name in two)
    assert [found[name] for name in two] == [[1, 2], [1, 2]]


def test_one_that_cannot_be_joined_does_not_keep_the_others_from_it(tmp_path, capsys):
    small, other = (row_experiment("copy-ntm-lstm", changes=QUICK | {"task.width": width}) for width in (2, 3))
    path = made(tmp_path, ("a", small, [1, 2], 1), ("b", other, [1], 1))
    folder = SweepFolder(path)
    place = folder.run_folder(folder.jobs[0]) / "env.json"
    values = files.unseal(files.read(place))
    files.replace(place, files.seal(values | {"torch": "2.11.0", "threads": 7}))
    assert join(path, tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "make no one record, because their torch differs (2.11.0 and" in said
    assert [path.name for path in (tmp_path / "out").glob("*.json")] == ["b.json"]
    files.replace(place, files.seal(values | {"threads": 7, "commit": "another"}))
    assert join(path, tmp_path / "out") == 0
    commit = records.read(tmp_path / "out/a.json")["environment"]["commit"]
    assert commit == f"another, {values['commit']}"


def test_a_seed_counts_once(tmp_path, capsys):
    small = row_experiment("copy-ntm-lstm", changes=QUICK)
    path = made(tmp_path, ("a", small, [1, 2], 2), ("a", small, [1, 2, 3], 3))
    assert join(path, tmp_path / "out") == 2
    assert "cannot be joined: its seeds are not those of its machines." in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*.json"))


def test_what_is_no_sweep(tmp_path, capsys):
    assert join(tmp_path, tmp_path / "out") == 2
    assert "holds no sweep (no sweep.json): give the folder of a sweep" in capsys.readouterr().err


def test_records_of_other_machines_are_not_joined(sweep, tmp_path):
    assert join(sweep, tmp_path) == 0
    one = records.read(tmp_path / "other-small.json")
    one.pop("summary")
    assert records.join([one]) == one
    for path, value, name in (
        (("environment", "torch"), "2.11.0", "environment.torch"),
        (("experiment", "training"), {}, "experiment"),
        (("points",), [], "points"),
    ):
        other = copy.deepcopy(one)
        table = other if len(path) == 1 else other[path[0]]
        table[path[-1]] = value
        with pytest.raises(ValueError, match=rf"cannot be joined: {name} is not the same in all of them\.$"):
            records.join([one, other])
