"""Run folders: another run's or a damaged one is refused and not touched; a whole one is one process's at a time."""

import copy
import shutil

import pytest
import torch
from tiny import EXPERIMENTS, contents, outcome, tiny, trained

import tapehead
from tapehead import files
from tapehead.evaluation.generalisation import Score
from tapehead.experiment import checkpoint, events, folder
from tapehead.experiment.folder import RunFolder, read_config, read_result
from tapehead.experiment.loop import Trainer
from tapehead.experiment.results import Result
from tapehead.typed import hints

pytestmark = pytest.mark.usefixtures("one_thread", "quickly_solved")

PLAIN = EXPERIMENTS["plain"]


def refused(path, experiment, message):
    """The run is refused, and not a byte of the folder has changed."""
    before = contents(path)
    with pytest.raises(ValueError, match=message) as refusal:
        tapehead.train(experiment, path)
    assert "\n" not in str(refusal.value)
    assert contents(path) == before


# --- another run -----------------------------------------------------------------------------------------------------


def test_another_experiment_is_refused_by_the_value_that_differs(used):
    refused(used, tiny(episodes=500), r"training.episodes = 600, not 500: choose another folder")
    refused(used, tiny(learning_rate=1), r"optimiser.learning_rate = 0.001, not 1.0")
    refused(used, tiny(seeds=(0, 1)), r"seeds = \[0\], not \[0, 1\]")
    refused(used, tiny(**{"task.length": (1, 4)}), r"task.length = \[1, 3\], not \[1, 4\]")
    refused(used, tiny(**{"model.memory_slots": 9}), "model.memory_slots = 8, not 9")
    refused(used, tiny(optimiser="adam"), "optimiser.name = graves, not adam")


def test_where_a_run_happens_and_its_label_may_change(used):
    RunFolder(used, tiny(backend="reference", recipe="other")).close()


def test_checkpoints_of_another_run_are_refused(used, finished):
    shutil.rmtree(used / "checkpoints")
    shutil.copytree(finished["rich"] / "checkpoints", used / "checkpoints")
    refused(used, PLAIN, "belong to another experiment")
    with pytest.raises(ValueError, match="belong to another experiment"):
        tapehead.load(used)


WRONG = {name: torch.zeros(1, 3) for name in ("kept", "kept_cost", "update.parameters")}


@pytest.mark.parametrize(
    "forged",
    [
        {"facts": {"updates": "600"}},
        {"facts": {}},
        {"files": {}},
        {"tensors": {}},
        {"tensors": {"kept": torch.zeros(1, 3)}},
        {"tensors": WRONG},
        {"tensors": {name: torch.zeros(2) for name in WRONG}},
    ],
)
def test_a_checkpoint_with_right_hashes_and_wrong_contents_is_refused(used, forged):
    point = checkpoint.load_newest(used / "checkpoints")
    forged = dict(forged)
    if "facts" in forged:
        forged["facts"] = {"experiment": PLAIN.hash} | forged["facts"]
    shutil.rmtree(used / "checkpoints")
    checkpoint.save(used / "checkpoints", point._replace(**forged))
    refused(used, PLAIN, "another version")
    with pytest.raises(ValueError, match="another version"):
        tapehead.load(used)


@pytest.mark.parametrize("line", ["", "{}", '{"bits": [1]}', "[" * 50_000, "\x00"])
def test_metrics_of_a_checkpoint_that_another_version_wrote_are_refused(used, line):
    point = checkpoint.load_newest(used / "checkpoints")
    point.files["metrics.jsonl"] += line.encode() + b"\n"
    shutil.rmtree(used / "checkpoints")
    checkpoint.save(used / "checkpoints", point)
    refused(used, PLAIN, "metrics.jsonl")


def test_two_processes_on_one_folder(used):
    first = RunFolder(used, PLAIN)
    before = contents(used)
    try:
        with pytest.raises(ValueError, match="another process is training in"):
            RunFolder(used, PLAIN)
    finally:
        first.close()
    assert contents(used) == before
    RunFolder(used, PLAIN).close()


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    refused(tmp_path, PLAIN, "has files in it, but no run")


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / ("n" * 300), tmp_path / "a" / ("n" * 300)):
        with pytest.raises(ValueError, match=r"is a file|cannot write to"):
            RunFolder(path, PLAIN)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "[" * 100_000, '{"experiment": []}', '{"experiment": {"task": 3}}', "{}"]
)
def test_a_hostile_configuration_is_refused(used, text):
    (used / "config.json").write_text(text)
    refused(used, PLAIN, "config.json is damaged")


@pytest.mark.parametrize(
    "values", [None, [], 3, "x", {}, {"task": 3}, {"task": {"name": "copy"}, "more": {}}, {"task": {"name": "copi"}}]
)
def test_a_sealed_configuration_that_is_no_experiment_is_refused(used, values):
    (used / "config.json").write_bytes(files.seal({"experiment": values}))
    with pytest.raises(ValueError) as refusal:
        read_config(used)
    assert "\n" not in str(refusal.value)


def test_a_result_that_cannot_be_read_is_made_again(used):
    before = outcome(used)
    for text in ("", "[]", "{}", "\0"):
        (used / "result.json").write_text(text)
        assert read_result(used) is None
        tapehead.train(PLAIN, used)
        assert outcome(used) == before


def test_a_result_with_other_types_is_none(finished, tmp_path):
    """Sealed again, so that the seal does not tell."""
    path = tmp_path / "rich"
    shutil.copytree(finished["rich"], path)
    good = files.unseal((path / "result.json").read_bytes())
    for at in [*((name,) for name in hints(Result)), *(("generalisation", 0, name) for name in hints(Score))]:
        changed = copy.deepcopy(good)
        table = changed
        for key in at[:-1]:
            table = table[key]
        here = table[at[-1]]
        nullable = at[-1] == "seconds"
        for value in (None, True, 7, 1.5, "x", [], [7], ["x", "x"], [1, None], {}, {"x": 7}):
            same = type(value) is type(here) or {type(value), type(here)} == {int, float}
            allowed = (same and type(value) is not list and value != {"x": 7}) or (nullable and value is None)
            if allowed or (at[0] == "generalisation" and len(at) == 1 and value == []):
                continue
            if at[-1] == "sizes" and isinstance(value, dict):
                continue
            table[at[-1]] = value
            (path / "result.json").write_bytes(files.seal(changed))
            assert read_result(path) is None, (at, value)
        del table[at[-1]]
        (path / "result.json").write_bytes(files.seal(changed))
        assert read_result(path) is None, at
    (path / "result.json").write_bytes(files.seal(good))
    assert read_result(path).to_plain() == {name: value for name, value in good.items() if name != "seal"}


def test_lists_of_another_length_are_no_result(used):
    """Also where nothing was scored, so that the list of scores is as empty as the damaged one."""
    good = files.unseal((used / "result.json").read_bytes()) | {"generalisation": []}
    (used / "result.json").write_bytes(files.seal(good))
    assert read_result(used) is not None
    for name in ("solved_at", "attempts", "passed", "kept_bits", "skipped_updates", "last_window_bits"):
        (used / "result.json").write_bytes(files.seal(good | {name: []}))
        assert read_result(used) is None, name


def test_the_result_of_other_seeds_is_none(used, tmp_path):
    RunFolder(tmp_path / "other", tiny(seeds=(3,))).close()
    shutil.copy(used / "result.json", tmp_path / "other")
    assert read_result(tmp_path / "other") is None


# --- starts and ends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leftover", ["nothing", "lock", "half a configuration"])
def test_a_process_killed_in_its_first_moments_can_be_run_again(tmp_path, leftover):
    path = tmp_path / "run"
    path.mkdir()
    if leftover != "nothing":
        (path / "run.lock").touch()
    if leftover == "half a configuration":
        files.temporary_name(path / "config.json").write_text("{")
    tapehead.train(tiny(episodes=100), path)
    assert not list(path.glob(".*"))


def test_leftovers_of_a_killed_save_are_cleared_away(used):
    half = files.temporary_name(used / "checkpoints" / "step-000000700")
    half.mkdir()
    (half / "state.json").write_text("{")
    files.temporary_name(used / "checkpoints" / "step-000000100").mkdir()
    (used / "figures").mkdir()
    names = ("env.json", "metrics.jsonl", "result.json", f"tensorboard/{events.FILE}", "figures/memory.png")
    for name in names:
        files.temporary_name(used / name).write_text("{")
    (used / ".mine").write_text("other hidden files stay")
    tapehead.train(PLAIN, used)
    assert list(used.rglob(".*")) == [used / ".mine"]


@pytest.mark.parametrize("where", ["write_new", "replace", "events"])
def test_a_full_disk_is_one_sentence_and_the_last_checkpoint_stays(used, monkeypatch, where):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    place, trainer = RunFolder(used, PLAIN), Trainer(PLAIN)
    with monkeypatch.context() as patch:
        patch.setattr(*((events, "append") if where == "events" else (files, where)), full)
        act = {
            "write_new": lambda: place.save(checkpoint.Checkpoint(900, trainer.tensors(), {}, {})),
            "replace": lambda: place.write_json("result.json", {}),
            "events": lambda: place.append_metrics("{}"),
        }[where]
        with pytest.raises(ValueError, match=r"No space left on device.*run the same command again") as refusal:
            act()
        assert "\n" not in str(refusal.value)
    place.close()
    assert tapehead.train(PLAIN, used).sha256 == tapehead.train(PLAIN).sha256


def test_a_deleted_folder_is_one_sentence(used, tmp_path):
    place = RunFolder(used, PLAIN)
    used.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"cannot write to .*No such file"):
        place.append_metrics("{}")
    place.close()


@pytest.mark.parametrize("seeds", [1, 6])
def test_a_checkpoint_is_well_under_what_its_run_can_have(tmp_path, seeds):
    """Without the constant part, for the run with the most records."""
    experiment = tiny(
        seeds=tuple(range(10**9, 10**9 + seeds)), episodes=200, average=0.9, attempts=2, validation={"length": 2},
        optimiser="adam", **{"task.length": (1, 2), "validation.sequences": 1},
    )  # fmt: skip
    trainer = trained(experiment)
    lines = "".join(line + "\n" for line in trainer.metrics).encode()
    path = checkpoint.save(tmp_path, checkpoint.Checkpoint(1, trainer.tensors(), {}, {"metrics.jsonl": lines}))
    saved = sum(file.stat().st_size for file in path.iterdir())
    assert saved < 0.7 * (folder.most_bytes(experiment) - (64 << 20))
