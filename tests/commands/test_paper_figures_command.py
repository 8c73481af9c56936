"""`tapehead figures --paper`: which figures are written where, and what is refused."""

import pytest
from made_up_results import record, save

from tapehead import cli

CURVES = [[80.0, 8.0, 0.05], [90.0, 6.0, 0.2]]


def tapehead(*arguments):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return stop.value.code


@pytest.fixture
def results(tmp_path):
    made = record("copy-lstm", solved=[300, None], curves=CURVES, bits=[0.1, 5.0])
    save(tmp_path / "results", "copy-lstm", made)
    return tmp_path / "results"


def test_figures_of_the_paper_go_into_the_folder_of_results(results, capsys):
    assert tapehead("figures", "--paper", "--results", results, "--figure", "3", "7") == 0
    said = capsys.readouterr()
    assert said.out.split() == [str(results / "figures" / f"figure-03.{kind}") for kind in ("svg", "png")]
    assert "Figure 7 is not drawn. No record of Repeat copy" in said.err
    assert {path.name for path in (results / "figures").iterdir()} == {"figure-03.svg", "figure-03.png"}


def test_another_folder_can_be_asked_for(results, tmp_path):
    assert tapehead("figures", "--paper", "--results", results, "--figure", 3, "--out", tmp_path / "mine") == 0
    assert (tmp_path / "mine" / "figure-03.png").stat().st_size > 10_000
    assert not (results / "figures").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("figures",), "no run is given: name a run's folder, or draw the figures of the paper with --paper."),
        (("figures", "runs/mine", "--paper"), "a run is given, but --paper draws from a folder of results"),
        (("figures", "--paper", "--seed", "3"), "--seed is given, but --paper draws from a folder of results"),
        (("figures", "runs/mine", "--results", "here"), "--results goes with --paper"),
        (("figures", "--paper", "--results", "nowhere"), "nowhere is no folder of results"),
        (
            ("figures", "--paper", "--figure", "two"),
            "unknown figure of the paper 'two'. Valid: 3, 4, 5, 6, 7, 8, 9, 10, ",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(arguments, sentence, capsys):
    assert tapehead(*arguments) == 2
    assert sentence in capsys.readouterr().err
