"""A finished run goes on to more episodes: with the bytes of one that had so many from the start, or not at all."""

import json

import pytest
from tiny import contents, outcome, tiny

import tapehead
from tapehead import cli
from tapehead.experiment import checkpoint
from tapehead.experiment.extension import extends, why_not
from tapehead.tasks.copy import Copy

pytestmark = pytest.mark.usefixtures("one_thread")

RICH = {"seeds": (3, 7), "optimiser": "adam", "average": 0.9, "slots": (3, 8)}


@pytest.mark.parametrize(
    ("changes", "first", "then"),
    [({}, 300, 600), ({}, 250, 430), (RICH, 250, 400), ({"batch_size": 3}, 400, 1300)],
)
def test_an_extended_run_is_one_that_was_longer_from_the_start(tmp_path, changes, first, then):
    tapehead.train(tiny(episodes=first, **changes), tmp_path / "extended")
    for name in ("extended", "whole"):
        tapehead.train(tiny(episodes=then, **changes), tmp_path / name)
    assert outcome(tmp_path / "extended") == outcome(tmp_path / "whole")


def test_a_folder_with_other_settings_is_left_alone_and_that_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tapehead.train(tiny(episodes=300), "given")
    before = contents(tmp_path / "given")
    for episodes, said in (
        (200, "given has other settings: a new run begins in runs/copy-"),
        (400, "Resumed at episode 300"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["train", "given", "--episodes", str(episodes)])
        assert not ended.value.code
        assert said in capsys.readouterr().err
        assert (contents(tmp_path / "given") == before) == (episodes == 200)


def test_less_than_a_block_is_no_beginning_of_a_longer_run(tmp_path):
    tapehead.train(tiny(episodes=50), tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(ValueError, match="its last block of updates is not whole"):
        tapehead.train(tiny(episodes=200), tmp_path / "run")
    assert contents(tmp_path / "run") == before


def test_it_can_be_extended_again_and_killed_on_the_way(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    tapehead.train(tiny(episodes=150), folder)
    with monkeypatch.context() as patch:
        patch.setattr(tapehead.experiment.run.Trainer, "prepare", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tapehead.train(tiny(episodes=350), folder)
    assert not (folder / "result.json").exists()
    assert [path.name for path in checkpoint.folders(folder / "checkpoints")] == ["step-000000100"]
    tapehead.train(tiny(episodes=350), folder)
    result = tapehead.train(tiny(episodes=500), folder)
    assert result.sha256 == tapehead.train(tiny(episodes=500)).sha256
    config = json.loads((folder / "config.json").read_text())
    assert config["extends"] == [tiny(episodes=150).hash, tiny(episodes=350).hash]
    assert tapehead.load(folder) is not None
    with pytest.raises(ValueError, match="episodes = 500, not 350"):
        tapehead.train(tiny(episodes=350), folder)


def test_what_is_solved_and_stopped_stays_so(tmp_path, monkeypatch):
    monkeypatch.setattr(Copy, "solved_bits", 100.0)
    assert tapehead.train(tiny(episodes=1200, early_stop=True), tmp_path / "run").solved_at == (1000,)
    result = tapehead.train(tiny(episodes=1500, early_stop=True), tmp_path / "run")
    assert (result.solved_at, result.episodes) == ((1000,), 1000)


REFUSED = {
    "Cosine schedule of the learning rate depends on their number": {"schedule": "cosine"},
    "the curriculum lasts for a share of them": {"curriculum": {"blanks": 0.5}, "share": 0.5},
    "machines are validated at times that depend on their number": {"validation": {"length": 5}},
    "seeds are restarted at the end": {"validation": {"length": 5}, "attempts": 2},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_depends_on_the_number_of_episodes_is_refused(reason, tmp_path):
    changes = REFUSED[reason]
    tapehead.train(tiny(episodes=300, **changes), tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(ValueError, match=reason) as refusal:
        tapehead.train(tiny(episodes=6000, **changes), tmp_path / "run")
    assert "holds this run with 300 episodes, which cannot go on exactly to 6,000" in str(refusal.value)
    assert contents(tmp_path / "run") == before


def test_a_curriculum_of_all_episodes_has_no_end():
    short, long = (tiny(episodes=n, curriculum={"blanks": 0.5}) for n in (300, 600))
    assert why_not(long, short, 300) == ""


def test_more_episodes_and_nothing_else():
    assert extends(tiny(episodes=700), tiny())
    assert extends(tiny(episodes=700, backend="reference"), tiny())
    assert not extends(tiny(), tiny())
    assert not extends(tiny(episodes=500), tiny())
    assert not extends(tiny(episodes=700, learning_rate=1), tiny())
