"""What is shown while a run trains."""

import re

import pytest
import torch
from rich.console import Console
from tiny import BASE, tiny, trained

import tapehead
from tapehead import terminal
from tapehead.commands import progress as progress_module
from tapehead.commands.progress import Progress, Steps
from tapehead.experiment.run import Status, _median_cost

pytestmark = pytest.mark.usefixtures("one_thread")

STATUS = Status(
    experiment=BASE, parameters=1000, backend="cpu", backend_reason="", updates=100, episodes=100, expected=600,
    active=1, solved=0, bits=2.5, attempts=(1, 1), may_restart=False, finished=False, resumed=False, note="",
)  # fmt: skip


def train(experiment):
    with Progress() as progress:
        return tapehead.train(experiment, observer=progress)


def test_progress_is_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(Console, "is_terminal", True)
    train(tiny(episodes=150))
    said = capsys.readouterr().err
    assert "training" in said
    assert "150/150" in said
    assert " of 150 episodes" not in said


def test_the_bar_keeps_every_word_in_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setenv("COLUMNS", "80")
    says = "12.345 bits (median seed, last 1,000 episodes), 123,456 episodes/s each, at most 3.5 h left"
    with Steps("training") as steps:
        steps.begin()
        steps.show(60_000, 160_000, says, "")
    said = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert "60000/160000" in said
    for word in says.split():
        assert word in said
    assert "…" not in said


def test_progress_is_plain_lines_where_there_is_no_terminal(capsys):
    train(tiny(episodes=50, seeds=(0, 1)))
    said = capsys.readouterr()
    assert said.out == ""
    first, last = said.err.splitlines()
    assert "seeds 0 to 1, cpu backend on cpu" in first
    assert last.startswith("50 of 50 episodes of each seed, ")
    assert "bits (median seed, last 50 episodes), 0 of 2 seeds solved, " in last
    assert "episodes/s each" in last
    assert "0 of 2 seeds solved" in last
    assert "inf" not in last
    assert said.err.replace("\n", "").isprintable()  # no escape codes


def test_it_says_how_a_run_was_resumed(capsys):
    Progress().begin(STATUS._replace(resumed=True, note="it goes on to other bits.", backend_reason="no kernel."))
    said = capsys.readouterr().err
    assert "No faster backend: no kernel." in said
    assert "Resumed at episode 100." in said
    assert "Note: it goes on to other bits." in said


def test_it_says_which_attempts_are_under_way_and_whether_there_may_be_more():
    experiment = tiny(seeds=(1, 2), episodes=1200, attempts=2, after=1100)
    status, progress = STATUS._replace(experiment=experiment, active=2, may_restart=True), Progress()
    assert "attempt 1, " in progress._says(status, 0.0)
    assert "left, more if a seed is restarted" in progress._says(status, 0.0)
    said = progress._says(status._replace(attempts=(1, 2), may_restart=False), 0.0)
    assert "attempts 1 to 2" in said
    assert "at most" in said


def test_the_pace_is_that_of_now():
    status, progress = STATUS._replace(experiment=tiny(seeds=(1, 2, 3)), active=3), Progress()
    progress._marks.append((0.0, 0))
    for second, episodes in ((100, 100), (101, 200), (140, 300)):  # one a second, then a hundred, then two and a half
        said = progress._says(status._replace(episodes=episodes), float(second))
    assert "3 episodes/s each" in said  # 100 of each seed in the last 39 seconds


def test_the_cost_is_the_median_of_the_seeds_means():
    """Not the mean of medians over the seeds of single episodes, which is far below where seeds fail in turn."""
    recent = torch.full((3, 1000), torch.inf, dtype=torch.float64)
    recent[:, -6:] = torch.tensor([[9.0, 0, 0, 9, 0, 0], [0, 9, 0, 0, 9, 0], [0, 0, 9, 0, 0, 0]])
    assert _median_cost(recent) == pytest.approx(3.0)
    assert _median_cost(recent[:2]) == pytest.approx(3.0)
    assert _median_cost(torch.full((2, 1000), torch.inf)) is None


def test_scores_and_steps_are_counted(capsys, monkeypatch):
    monkeypatch.setattr(progress_module, "LINE_SECONDS", -1.0)
    with Progress() as progress:
        tapehead.evaluate(trained(tiny(episodes=100)).model, BASE.task, {"length": 2}, sequences=20, observer=progress)
    assert capsys.readouterr().err == "scoring Length 2: 20 of 20 sequences\n"
    with Progress() as progress:  # of a population: the sequences of each seed, as with all other numbers
        tapehead.train(tiny(episodes=100, seeds=(1, 2)), observer=progress)
    scored = [line for line in capsys.readouterr().err.splitlines() if line.startswith("scoring")]
    assert scored[-1].endswith(": 20 of 20 sequences")


def test_quiet_shows_nothing(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "_quiet", True)
    monkeypatch.setattr(Console, "is_terminal", True)
    train(tiny(episodes=100))
    assert capsys.readouterr().err == ""


def test_a_run_that_is_shown_has_the_bits_of_one_that_is_not(capsys):
    assert train(tiny(episodes=200)).sha256 == tapehead.train(tiny(episodes=200)).sha256
    assert trained(tiny(episodes=200)).updates == 200
