"""What is shown while a run trains."""

import pytest
from rich.console import Console
from tiny import BASE, tiny, trained

import tapehead
from tapehead.commands.progress import Progress
from tapehead.experiment.run import Status

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


def test_progress_is_plain_lines_where_there_is_no_terminal(capsys):
    train(tiny(episodes=50, seeds=(0, 1)))
    said = capsys.readouterr()
    assert said.out == ""
    first, last = said.err.splitlines()
    assert "seeds 0 to 1, cpu backend on cpu" in first
    assert last.startswith("50 of 50 episodes, ")
    assert "episodes/s" in last
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
    assert "8 episodes/s" in said  # of three seeds: 100 updates in the last 39 seconds


def test_a_run_that_is_shown_has_the_bits_of_one_that_is_not(capsys):
    assert train(tiny(episodes=200)).sha256 == tapehead.train(tiny(episodes=200)).sha256
    assert trained(tiny(episodes=200)).updates == 200
