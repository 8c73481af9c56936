"""`tapehead runs`."""

import json

import pytest
from tiny import tiny, train_some_blocks

import tapehead as package
from tapehead import cli
from tapehead.sweep import lease

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of each of two models, one that was broken off, and a damaged one."""
    folder = tmp_path_factory.mktemp("runs")
    package.train(tiny(episodes=100), folder / "ntm")
    package.train(tiny(episodes=100, model="lstm", **{"model.hidden_size": 8}), folder / "lstm")
    train_some_blocks(tiny(), folder / "part", 1)
    (folder / "bad").mkdir()
    (folder / "bad" / "config.json").write_text("{")
    return folder


def runs(capsys, *arguments):
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["runs", *map(str, arguments)])
    return stop.value.code, *capsys.readouterr()


def test_the_list_shows_all_runs_also_damaged_ones(folder, capsys):
    code, out, err = runs(capsys, folder)
    assert code == 0
    for words in (
        "ntm-lstm",
        "broken off",
        "damaged",
        "Length 2: ",
        "Length 5: ",
        f"damaged: {folder}/bad: config.json",
    ):
        assert words in out
    assert "…" not in out
    assert err == f"4 of 4 runs below {folder}.\n"


FILTERS = {
    "--task copy": {"ntm", "lstm", "part"},
    "--task parity": set(),
    "--model lstm": {"lstm"},
    "--model ntm": {"ntm", "part"},
    "--model ntm-lstm --state finished": {"ntm"},
    "--state broken-off": {"part"},
    "--state damaged": {"bad"},
    "--recipe cust": {"ntm", "lstm", "part"},
    "--solved": set(),
    "--unsolved": {"ntm", "lstm"},
}


@pytest.mark.parametrize("flags", FILTERS)
def test_filters(folder, capsys, flags):
    code, out, err = runs(capsys, folder, "--json", *flags.split())
    assert (code, err) == (0, "")
    assert {info["folder"].rpartition("/")[2] for info in json.loads(out)} == FILTERS[flags]


def test_a_run_that_a_worker_of_another_machine_has_is_running(tmp_path, monkeypatch, capsys):
    train_some_blocks(tiny(), tmp_path / "job" / "run", 1)
    with monkeypatch.context() as patch:
        patch.setattr(lease, "kernel_identity", lambda: "another kernel")
        held = lease.claim(tmp_path / "job")
    _, out, _ = runs(capsys, tmp_path, "--json")
    assert json.loads(out)[0]["state"] == "running"
    held.release("interrupted")
    _, out, _ = runs(capsys, tmp_path, "--json")
    assert json.loads(out)[0]["state"] == "broken off"


def test_two_runs_are_compared(folder, capsys):
    code, out, _ = runs(capsys, "--compare", folder / "ntm", folder / "lstm")
    assert code == 0
    assert "model.hidden_size" in out
    assert "bits at Length 5" in out
    assert "training.episodes" not in out
    _, out, _ = runs(capsys, "--compare", folder / "ntm", folder / "part", "--json")
    values = json.loads(out)
    assert values["settings"] == {"training.episodes": [100, 600]}
    assert values["results"]["state"] == ["finished", "broken off"]
    assert values["results"]["episodes"] == [100, 100]
    _, out, _ = runs(capsys, "--compare", folder / "ntm", folder / "ntm")
    assert "none" in out
    _, out, _ = runs(capsys, "--compare", folder / "ntm", folder / "part", folder / "lstm", "--json")
    assert json.loads(out)["settings"]["training.episodes"] == [100, 600, 100]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--compare", "one"], "compares 2 to 10"),
        ([".", "--task", "copi"], "unknown task 'copi'. Did you mean 'copy'?"),
        ([".", "--model", "ntn"], "unknown model 'ntn'. Did you mean 'ntm'?"),
        ([".", "--curves", "here"], "there is nothing to draw"),
        (["--compare", "absent", "absent"], "holds no run that can be read"),
        (["--solved", "--unsolved"], "give one of them"),
        (["absent"], "is no folder"),
        (["--state", "happy"], "happy"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, monkeypatch, capsys, flags, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = runs(capsys, *flags)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
