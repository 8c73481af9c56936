"""`tapehead train --model transformer`, then `tapehead sublayers` on what came of it."""

import json

import pytest

from tapehead import cli
from tapehead.commands.sublayers import milestones

pytestmark = pytest.mark.usefixtures("one_thread")


def tapehead(*words):
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    return stop.value.code or 0


MODEL = ("--model.hidden-size", 8, "--model.num-layers", 4, "--model.num-heads", 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "copy"
    settings = ("--seeds", 2, "--episodes", 400, "--batch-size", 4, "--evaluation.sequences", 5)
    task = ("--task.length", "[1,3]", "--task.width", 2)
    assert tapehead("train", "copy", "--model", "transformer", *MODEL, *settings, *task, "--out", folder) == 0
    return folder


def test_a_map_of_a_run(run, tmp_path, capsys):
    out = tmp_path / "maps"
    words = ("--search", "all", "--share", 0.5, "--sequences", 10, "--moments", 2, "--seed", 1, "--out", out)
    assert tapehead("sublayers", run, *words) == 0
    said = capsys.readouterr().out
    assert "bits added" in said
    assert "of the answers agree" in said
    kinds = ("svg", "png", "json")
    names = {f"{name}.{kind}" for name in ("sublayers", "enumeration", "over-training") for kind in kinds} | {
        "skip.json"
    }
    assert {path.name for path in out.iterdir()} == names
    skip = json.loads((out / "skip.json").read_text())
    whole = json.loads((out / "sublayers.json").read_text())
    assert sorted(skip) == ["attention", "mlp"]
    assert (whole["skip"], whole["layers"]) == (skip, 4)
    assert len(skip["attention"] + skip["mlp"]) == 2
    assert set(skip["attention"] + skip["mlp"]) <= {1, 2}
    over = json.loads((out / "over-training.json").read_text())
    assert list(over) == ["0", "400"]
    assert over["400"]["whole"] != over["0"]["whole"]
    compared = json.loads((out / "enumeration.json").read_text())
    assert len(compared["skipped"]) == 16


def test_what_takes_long_is_counted(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tapehead.commands.progress.LINE_SECONDS", -1.0)
    words = ("--search", "random", "--evaluations", 4, "--sequences", 5, "--moments", 2, "--out", tmp_path / "maps")
    assert tapehead("sublayers", run, *words) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("skipping each alone")][:9] == [
        f"skipping each alone: {done} of 9" for done in range(1, 10)
    ]
    assert [line for line in said if line.startswith("trying sets")] == [f"trying sets: {i} of 4" for i in range(1, 5)]
    assert said[-1] == "training again: 100 of 100"
    assert tapehead("sublayers", run, "--search", "all", "--sequences", 5, "--out", tmp_path / "all") == 0
    assert capsys.readouterr().err.splitlines()[-1] == "trying all sets: 16 of 16"


def test_stopped_while_it_measures_it_leaves_no_folder(run, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tapehead.commands.sublayers.map_sublayers", stop)
    assert tapehead("sublayers", run, "--out", tmp_path / "new" / "maps") == 130
    assert list(tmp_path.iterdir()) == []


def test_by_default_the_map_is_in_the_runs_folder(run, capsys):
    assert tapehead("sublayers", run, "--sequences", 5) == 0
    assert (run / "sublayers" / "sublayers.svg").exists()


def test_a_language_model_also_decodes(tmp_path, capsys):
    folder = tmp_path / "text"
    settings = ("--episodes", 4, "--batch-size", 2, "--evaluation.sequences", 2, "--task.length", 24)
    assert tapehead("train", "text", "--model", "transformer", *MODEL, *settings, "--out", folder) == 0
    assert tapehead("sublayers", folder, "--sequences", 2, "--prompts", 2, "--search", "swift", "--evaluations", 3) == 0
    said = capsys.readouterr().out
    assert "2 of 2, 64 tokens each" in said
    assert "sub-layer calls saved" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nowhere",), "nowhere is no folder of a run, nor in the zoo"),
        (("copy-ntm-lstm",), "the model is a NTM, but only a Transformer has sub-layers to skip"),
        (("RUN", "--prompts", 2), "--prompts is 2, but a model of copy does not generate tokens"),
        (("RUN", "--sequences", 0), "--sequences is 0"),
        (("RUN", "--share", 0), "share is 0.0, but it must be above 0"),
        (("RUN", "--seed", 7), "seed 7 is not in"),
        (("RUN", "--judge", "speedup"), "the judge is 'speedup', but 'worth' tries no sets"),
        (("RUN", "--search", "swift", "--judge", "tokens"), "a model of copy does not generate tokens"),
    ],
)
def test_mistakes_are_one_sentence(run, words, why, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tapehead("sublayers", *(run if word == "RUN" else word for word in words)) == 2
    said = capsys.readouterr().err
    assert why in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "sublayers").exists()


def test_moments_double():
    assert milestones(1600, 6) == [0, 100, 200, 400, 800, 1600]
    assert milestones(1600, 3) == [0, 800, 1600]
    assert milestones(1600, 1) == [1600]
    assert milestones(150, 6) == [0, 150]
    assert milestones(500, 9) == [0, 100, 200, 500]
