"""The folder of a sweep: made once, extended, refused when it is another's."""

import counted
import pytest

from tapehead.sweep.folder import LIST, SweepFolder
from tapehead.sweep.plan import read_jobs


@pytest.fixture
def jobs(tmp_path):
    return read_jobs(counted.write_file(tmp_path, numbers=4))


def test_a_sweep_is_found_again(tmp_path, jobs):
    made = SweepFolder.create(tmp_path / "a" / "sweep", jobs)
    before = (made.path / LIST).read_bytes()
    again = SweepFolder.create(made.path, jobs)
    assert SweepFolder(made.path).jobs == again.jobs == jobs
    assert (made.path / LIST).read_bytes() == before


def test_jobs_may_be_added_but_not_left_out(tmp_path, jobs):
    path = tmp_path / "sweep"
    SweepFolder.create(path, jobs[:2])
    assert SweepFolder.create(path, jobs).jobs == jobs
    with pytest.raises(ValueError, match=f"holds a sweep with the job {jobs[1].name}"):
        SweepFolder.create(path, (jobs[0], *jobs[2:]))
    assert SweepFolder(path).jobs == jobs


def test_other_folders_are_refused(tmp_path, jobs):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").touch()
    with pytest.raises(ValueError, match="has files in it, but no sweep"):
        SweepFolder.create(tmp_path / "full", jobs)
    with pytest.raises(ValueError, match="is a file, but a sweep needs a folder"):
        SweepFolder.create(tmp_path / "full" / "thing", jobs)
    with pytest.raises(ValueError, match="holds no sweep"):
        SweepFolder(tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thing"]


@pytest.mark.parametrize("change", [lambda text: text[:-9], lambda text: text.replace(b"Counted", b"counted", 1)])
def test_a_damaged_list_is_refused(tmp_path, jobs, change):
    sweep = SweepFolder.create(tmp_path / "sweep", jobs)
    (sweep.path / LIST).write_bytes(change((sweep.path / LIST).read_bytes()))
    with pytest.raises(ValueError, match=r"sweep.json is damaged"):
        SweepFolder(sweep.path)


def test_results_of_other_seeds_and_damaged_ones_are_none(tmp_path, jobs):
    sweep = SweepFolder.create(tmp_path / "sweep", jobs)
    folder = sweep.run_folder(jobs[0])
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    assert sweep.result(jobs[0]) is None
    (sweep.job_folder(jobs[0]) / "failure.json").write_text("{}")
    assert "damaged" in sweep.failure(jobs[0])
