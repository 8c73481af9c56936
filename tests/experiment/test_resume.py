"""Runs that are interrupted anywhere and run again end in the same bytes as runs that were not. Killed ones: soak."""

import pytest
from tiny import EXPERIMENTS, Recorded, outcome, tiny, train_some_blocks

import tapehead
from tapehead.experiment import checkpoint, run
from tapehead.experiment.folder import RunFolder
from tapehead.experiment.loop import Trainer

pytestmark = pytest.mark.usefixtures("one_thread", "quickly_solved")

PLAIN = EXPERIMENTS["plain"]


@pytest.mark.parametrize("moment", ["save", "append_metrics", "write_json", "begin"])
def test_stopped_inside_any_write_and_run_again_it_ends_in_the_same_bytes(tmp_path, finished, monkeypatch, moment):
    original, count = getattr(RunFolder, moment), [0]

    def stop(self, *arguments):
        count[0] += 1
        original(self, *arguments)
        if count[0] in (1, 3):
            raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, moment, stop)
    monkeypatch.setattr(run, "SAVE_SECONDS", 0.0)
    interrupted = 0
    for _ in range(4):
        try:
            tapehead.train(PLAIN, tmp_path / "run")
            break
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted > 0
    assert outcome(tmp_path / "run") == outcome(finished["plain"])


@pytest.mark.parametrize("name", ["plain", "rich"])
def test_stopped_after_every_block_it_ends_in_the_same_bytes(tmp_path, finished, name):
    """Also with a moving average, momenta, varying slots, and seeds that have been retired."""
    folder, stops = tmp_path / "run", 0
    while True:
        try:
            tapehead.train(EXPERIMENTS[name], folder, observer=Recorded(stop_after=1))
            break
        except tapehead.Interrupted:
            stops += 1
    assert stops == len((folder / "metrics.jsonl").read_text().splitlines()) > 3
    assert outcome(folder) == outcome(finished[name])


def test_a_damaged_checkpoint_costs_time_only(tmp_path, finished, capsys):
    folder = tmp_path / "run"
    for _ in range(4):
        train_some_blocks(PLAIN, folder, 1)
    newest, _ = checkpoint.folders(folder / "checkpoints")
    data = bytearray((newest / "state.safetensors").read_bytes())
    data[-5] ^= 1
    (newest / "state.safetensors").write_bytes(data)
    observer = Recorded()
    tapehead.train(PLAIN, folder, observer=observer)
    assert f"refused a damaged checkpoint: {newest.name}/state.safetensors" in observer.began[0].note
    assert capsys.readouterr() == ("", "")
    assert outcome(folder) == outcome(finished["plain"])
    for path in checkpoint.folders(folder / "checkpoints"):
        (path / "state.json").write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"no checkpoint in .* is whole"):
        tapehead.train(PLAIN, folder)


def test_resuming_at_the_end_of_a_curriculum_changes_nothing(tmp_path):
    experiment = tiny(curriculum={"density": (0.0, 0.0)}, share=0.5, episodes=400)
    tapehead.train(experiment, tmp_path / "whole")
    train_some_blocks(experiment, tmp_path / "parts", 2)
    tapehead.train(experiment, tmp_path / "parts")
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_the_same_seed_twice_is_equal_and_another_is_not(tmp_path, finished):
    again = tapehead.train(PLAIN, tmp_path / "again")
    assert outcome(tmp_path / "again") == outcome(finished["plain"])
    other = tapehead.train(tiny(seeds=(1,)))
    assert other.sha256["weights"] != again.sha256["weights"]  # the control


# --- the compiled code that a run's bits come from -------------------------------------------------------------------


def kernels_of(folder):
    return {path.name: checkpoint.load(path).facts["kernel"] for path in checkpoint.folders(folder / "checkpoints")}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_every_checkpoint_names_the_compiled_code(tmp_path, backend):
    experiment = tiny(backend=backend, episodes=200, **{"task.length": 1})
    for _ in range(2):
        train_some_blocks(experiment, tmp_path / "run", 1)
        assert set(kernels_of(tmp_path / "run").values()) == {Trainer(experiment).kernel}
    assert len(kernels_of(tmp_path / "run")) == 2
    assert tapehead.train(experiment, tmp_path / "run").kernel == Trainer(experiment).kernel


def test_two_backends_have_two_identities():
    one, other = (Trainer(tiny(backend=backend)).kernel for backend in ("cpu", "reference"))
    assert one != other


def test_resuming_with_other_compiled_code_says_so(tmp_path):
    experiment, folder = tiny(backend="cpu"), tmp_path / "run"
    train_some_blocks(experiment, folder, 1)
    watched = Recorded(stop_after=1)
    with pytest.raises(tapehead.Interrupted):
        tapehead.train(experiment, folder, observer=watched)
    assert watched.began[0].resumed
    assert watched.began[0].note == ""  # the control: the same code
    before = kernels_of(folder)["step-000000200"]
    watched = Recorded(stop_after=1)
    with pytest.raises(tapehead.Interrupted):
        tapehead.train(experiment.with_values({"place.backend": "reference"}), folder, observer=watched)
    assert before in watched.began[0].note
    assert "other compiled code" in watched.began[0].note
    after = kernels_of(folder)["step-000000300"]
    assert after != before
    assert after in watched.began[0].note
    assert "\n" not in watched.began[0].note


def test_resuming_a_checkpoint_that_does_not_name_its_code_says_so(tmp_path):
    train_some_blocks(PLAIN, tmp_path / "run", 1)
    point = checkpoint.load_newest(tmp_path / "run" / "checkpoints")
    del point.facts["kernel"]
    checkpoint.save(tmp_path / "run" / "checkpoints", point)
    watched = Recorded()
    tapehead.train(PLAIN, tmp_path / "run", observer=watched)
    assert "(unknown, now " in watched.began[0].note
