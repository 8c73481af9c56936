"""A sweep's TOML file: which jobs it has, and which mistakes are refused before anything runs."""

import dataclasses
import tomllib
from pathlib import Path

import counted
import pytest

import tapehead
from tapehead.sweep import jobs as jobs_module
from tapehead.sweep.jobs import Job, slug
from tapehead.sweep.plan import jobs_of, read_jobs

EXAMPLES = Path(__file__).parents[2] / "examples"


def made(text, folder=Path()):
    return jobs_of(tomllib.loads(text), folder, "s.toml")


def test_a_grid_is_every_combination_in_order():
    jobs = made(
        """
        experiment = "copy-ntm-lstm"
        seeds = [4, 9, 2]
        side_by_side = 2
        training.episodes = 300
        [grid]
        "model.memory_slots" = [16, 64]
        optimiser.learning_rate = [1, 0.5]
        """
    )
    assert [(job.values["model.memory_slots"], job.values["optimiser.learning_rate"], job.seeds) for job in jobs] == [
        (slots, rate, seeds) for slots in (16, 64) for rate in (1.0, 0.5) for seeds in ((4, 9), (2,))
    ]
    wanted = tapehead.row_experiment(
        "copy-ntm-lstm",
        "tuned",
        {"training.episodes": 300, "model.memory_slots": 16, "optimiser.learning_rate": 0.5, "seeds": (2,)},
    )
    assert jobs[3].experiment.hash == wanted.hash
    assert jobs[3].label == "copy-ntm-lstm memory_slots 16 learning_rate 0.5"
    assert jobs[3].name == f"copy-ntm-lstm-memory_slots-16-learning_rate-0.5-seed-2-{wanted.hash[:12]}"
    assert len({job.name for job in jobs}) == 8


def test_a_list_of_jobs_is_combined_with_the_grid():
    jobs = made(
        """
        experiment = "copy-ntm-lstm"
        training.episodes = 300
        [grid]
        recipe = ["tuned", "paper"]
        [[job]]
        [[job]]
        experiment = "copy"
        model.name = "lstm"
        seeds = { first = 5, count = 2 }
        side_by_side = "all"
        """
    )
    assert [(job.plain["recipe"], job.seeds) for job in jobs] == [
        ("copy-ntm-lstm/tuned", (0,)),
        ("copy-ntm-lstm/paper", (0,)),
        ("copy-lstm/tuned", (5, 6)),
        ("copy-lstm/paper", (5, 6)),
    ]
    assert [job.plain["model"]["name"] for job in jobs] == ["ntm", "ntm", "lstm", "lstm"]
    assert jobs[2].experiment.hash == (
        tapehead.row_experiment("copy-lstm", "tuned", {"training.episodes": 300, "seeds": (5, 6)}).hash
    )


def test_a_whole_experiment_or_its_file_may_be_swept(tmp_path):
    path = counted.write_file(tmp_path, numbers=1)
    values = tomllib.loads(path.read_text())
    del values["grid"], values["seeds"]
    whole = jobs_of(values, tmp_path, "s.toml")
    (tmp_path / "base.toml").write_text(whole[0].experiment.to_toml())
    other = made('experiment = "base.toml"\n[grid]\ntask.number = [0, 3]', tmp_path)
    assert [job.hash for job in other] == [
        whole[0].hash,
        whole[0].experiment.with_values({"task.number": 3}).hash,
    ]
    assert other[1].label == "base number 3"
    assert whole[0].plain["task"]["name"] == "counted:Counted"


def test_equal_jobs_are_one_and_names_belong_to_files():
    jobs = made('experiment = "parity"\n[grid]\noptimiser.learning_rate = [1, 1.0, 0.5]')
    assert len(jobs) == 2
    assert slug("../a b/ü:c") == "a-b-c"
    assert len(slug("x" * 500)) == jobs_module.NAME_LETTERS


def test_none_is_what_toml_cannot_say():
    (job,) = made('experiment = "copy-ntm-lstm"\ntraining.slots = "none"')
    assert job.experiment.training.slots is None


MISTAKES = {
    "an unknown part": ('experiment = "copy"\nmodle.name = "lstm"', "Did you mean 'model'"),
    "an unknown part of the grid": ("[grid]\nmodle.name = [1]", "Did you mean 'model'"),
    "an unknown setting": ('experiment = "copy"\n[grid]\nmodel.memry_slots = [1]', "Did you mean 'memory_slots'"),
    "a value of another type": ('experiment = "copy"\n[grid]\nmodel.memory_slots = ["many"]', "must be a whole number"),
    "a value that does not fit": ('experiment = "copy"\n[grid]\ntraining.episodes = [0]', "episodes is 0"),
    "a machine that cannot be made": ('experiment = "copy"\nmodel.memory_slots = -3', "memory_slots is -3"),
    "slots that are not there": (
        'experiment = "copy"\nmodel.memory_slots = 8\ntraining.slots = [4, 9]',
        "copy",
    ),
    "an unknown row": ('experiment = "copy-ntm-lst"', "unknown task 'copy-ntm-lst'"),
    "an unknown recipe": ('experiment = "copy-lstm"\nrecipe = "best"', "unknown recipe 'best'"),
    "a recipe without a row": ('experiment = "parity"\nrecipe = "tuned"', "has no row in the paper"),
    "no list in the grid": ('experiment = "copy"\n[grid]\nmodel.memory_slots = 16', "must be a list of values"),
    "an empty list": ('experiment = "copy"\n[grid]\nmodel.memory_slots = []', "must be a list of values"),
    "a place in the grid": ('experiment = "copy"\n[grid]\nplace.device = ["cpu"]', "does not make another experiment"),
    "seeds in the grid": ('experiment = "copy"\n[grid]\nseeds = [1]', "give it outside the grid"),
    "seeds twice": ('experiment = "copy"\nseeds = [1, 1]', "all different"),
    "no seeds": ('experiment = "copy"\nseeds = { first = 3 }', "seeds.count is 0"),
    "a word for seeds": ('experiment = "copy"\nseeds = { start = 3 }', "unknown setting of seeds 'start'"),
    "none side by side": ('experiment = "copy"\nside_by_side = 0', "side_by_side is 0"),
    "no task": ("training.episodes = 3", "has no task"),
    "a table for jobs": ('experiment = "copy"\n[job]\nseeds = [1]', "write [[job]] above each"),
    "too many jobs": ('experiment = "copy"\nseeds = { count = 5001 }', "has 5,001 jobs"),
    "no file": ('experiment = "absent.toml"', "absent.toml cannot be read"),
    "a recipe for a file": ('experiment = "absent.toml"\nrecipe = "paper"', "has all settings"),
    "a number for a name": ("experiment = 3", "experiment is 3"),
    "a part that is no table": ('experiment = "copy"\nmodel = 3', "model is 3"),
    "an unknown class": ('experiment = "copy"\nmodel.name = "counted:Nothing"', "counted:Nothing"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence(name):
    text, words = MISTAKES[name]
    with pytest.raises(ValueError) as error:
        made(text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_class_of_the_main_program_is_refused():
    kind = dataclasses.make_dataclass("Own", [], bases=(tapehead.make_task("copy").__class__,), frozen=True)
    kind.__module__ = "__main__"
    with pytest.raises(ValueError, match="a class of the main program"):
        Job.of("own", tapehead.Experiment(task=kind()))


def test_the_example_has_a_cell_for_every_size_of_the_memory():
    jobs = read_jobs(EXAMPLES / "memory_size.toml")
    assert len(jobs) == 2 * 7 * 5
    assert {job.seeds for job in jobs} == {tuple(range(27000, 27020))}
    assert {job.plain["training"]["slots"] for job in jobs} == {None}
    assert {job.plain["task"]["name"] for job in jobs} == {"copy", "associative-recall"}


def test_a_job_comes_back_from_its_plain_values():
    (job,) = made('experiment = "parity"')
    again = Job.from_plain(job.to_plain())
    assert (again, again.name, again.experiment) == (job, job.name, job.experiment)
    forged = dataclasses.replace(job, plain=job.plain | {"seeds": [8]})
    with pytest.raises(ValueError, match="another version of tapehead or of its classes"):
        forged.experiment  # noqa: B018
