"""`tapehead eval` of a run and of the zoo, at any sizes; `tapehead figures` of the zoo and of several runs."""

import json
from pathlib import Path

import pytest
from tiny import tiny

import tapehead as package
from tapehead import cli
from tapehead.figures import draw

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, seeds in (("one", (0,)), ("two", (1, 2, 3))):
        package.train(tiny(episodes=250, seeds=seeds), folder / name)
    return folder


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_pictures(monkeypatch):
    """They take longer than the training."""
    monkeypatch.setattr(draw, "draw_run", lambda folder: [])


def tapehead(capsys, *arguments):
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return stop.value.code, *capsys.readouterr()


def test_a_machine_of_the_zoo_at_sizes_of_ones_own(capsys):
    words = ("eval", "copy-ntm-feedforward", "--sizes", "length=3,7", "--episodes", 5)
    code, out, err = tapehead(capsys, *words, "--json")
    assert (code, err) == (0, "")
    scores = json.loads(out)["generalisation"]  # alone on standard output
    assert [score["sizes"] for score in scores] == [{"length": 3}, {"length": 7}]
    assert [score["sequences"] for score in scores] == [5, 5]
    code, out, _ = tapehead(capsys, *words)
    assert "Length 7" in out
    assert "{" not in out


def test_sizes_of_several_names_are_combined(capsys):
    words = ("eval", "repeat-copy-ntm-lstm", "--sizes", "length=2,3", "repeats=[1,2],4", "--episodes", 2, "--json")
    code, out, err = tapehead(capsys, *words)
    assert code == 0, err
    sizes = [score["sizes"] for score in json.loads(out)["generalisation"]]
    assert sizes == [{"length": a, "repeats": b} for a in (2, 3) for b in ([1, 2], 4)]


MISTAKES = {
    "eval one --sizes lenght=3": "unknown size of copy 'lenght'. Did you mean 'length'?",
    "eval one --sizes length=long": "--sizes length is 'long', but it must be a whole number",
    "eval one --sizes length=0": "length is 0",
    "eval copy-ntm": "copy-ntm holds no run, and the zoo has none of that name",
    "figures copy-ntm-lstm --seed 3": "--seed is 3, but copy-ntm-lstm is one machine of the zoo",
    "figures one two --seed 3": "--seed goes with one run, but 2 are given",
    "figures one copy-ntm-lstm": "copy-ntm-lstm is a machine of the zoo, which has no learning curve here",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_one_sentence(line, runs, capsys):
    words = [runs / word if word in ("one", "two") else word for word in line.split()]
    code, out, err = tapehead(capsys, *words)
    assert (code, out) == (2, "")
    assert MISTAKES[line] in err
    assert list(Path().iterdir()) == []


@pytest.mark.usefixtures("no_pictures")
def test_quiet_leaves_results_and_errors(runs, capsys):
    words = ("train", runs / "one" / "config.json", "--seed", 9, "--out")
    _, loud, said = tapehead(capsys, *words, "loud")
    assert "of 250 episodes" in said
    assert tapehead(capsys, *words, "quiet", "--quiet") == (0, loud, "")
    assert tapehead(capsys, "-q", "eval", "nowhere")[2] != ""
    assert tapehead(capsys, "runs", runs)[2] == f"2 of 2 runs below {runs}.\n"  # and is forgotten


def test_a_dry_run_is_a_file_that_trains_the_same_and_writes_nothing(capsys, runs):
    code, out, _ = tapehead(capsys, "train", runs / "one", "--episodes", "1e3", "--dry-run")
    assert code == 0
    assert "# 1,000 episodes of each seed: 1,000 updates of 1\n" in out
    assert f"# folder: {runs / 'one'} (finished, 250 episodes so far)\n" in out
    Path("mine.toml").write_text(out)
    assert (
        package.Experiment.from_plain(package.experiment.config.read_toml(Path("mine.toml"))).training.episodes == 1000
    )
    assert tapehead(capsys, "confirm", "copy-ntm-lstm", "--dry-run")[1].startswith("# copy-ntm-lstm/tuned: 62,260 ")
    assert [path.name for path in Path().iterdir()] == ["mine.toml"]


@pytest.mark.usefixtures("no_pictures")
def test_a_runs_folder_is_extended_in_its_place(capsys, tmp_path):
    package.train(tiny(episodes=200), tmp_path / "mine")
    code, _, err = tapehead(capsys, "train", "mine", "--episodes", 300)
    assert code == 0
    assert "Resumed at episode 200." in err
    assert [path.name for path in Path().iterdir()] == ["mine"]
    assert tapehead(capsys, "train", "mine", "--episodes", 300)[2].startswith("This run is finished")


def test_figures_of_the_zoo_and_of_several_runs(capsys, runs):
    code, out, _ = tapehead(capsys, "figures", "copy-ntm-feedforward", "--figure", "memory")
    assert code == 0
    folder = "tapehead-results/copy-ntm-feedforward"
    assert out.split() == [f"{folder}/memory.svg", f"{folder}/memory.png"]
    code, out, _ = tapehead(capsys, "figures", runs / "one", runs / "two")
    assert out.split() == ["tapehead-results/comparison.svg", "tapehead-results/comparison.png"]
    picture = Path("tapehead-results/comparison.svg").read_text()
    assert "one (0 of 1 solved)" in picture
    assert "two (0 of 3 solved)" in picture
    _, out, _ = tapehead(capsys, "runs", runs, "--curves", "new/curves")
    assert out.splitlines()[-2:] == ["new/curves.svg", "new/curves.png"]
    _, out, _ = tapehead(capsys, "figures", runs / "one", "--figure", "learning-curve", "--out", "elsewhere")
    assert out.split() == ["elsewhere/learning-curve.svg", "elsewhere/learning-curve.png"]
