"""Records and figures of runs whose seeds were restarted, each at its own time."""

import pytest
from scripted import AFTER, ATTEMPT, restarted, validated
from tiny import trained

import tapehead
from tapehead.experiment import metrics
from tapehead.experiment.folder import read_metrics
from tapehead.experiment.parts import WINDOW
from tapehead.figures import curves
from tapehead.lab import tables
from tapehead.lab.blocks import attempt_solved_at, blocks_of, worst_after
from tapehead.lab.confirmation import record_of
from tapehead.lab.summary import summarise
from tapehead.tasks.copy import Copy

pytestmark = pytest.mark.usefixtures("one_thread", "solved_at_once")


def record(experiment, folder):
    result = tapehead.train(experiment, folder, scored=False)
    made = record_of(experiment, folder, result, sequences=2)
    return made | {"summary": summarise(made)}


def test_the_record_shows_the_attempts(script, tmp_path):
    costs, _ = script
    costs += [[0.5, 0.001, 0.3]] * 3 + [[0.0, 0.4]] * 3
    made = record(validated(seeds=(1000, 1001, 1002), attempts=2, recipe="copy-ntm-lstm/tuned"), tmp_path / "run")
    machines = made["machines"]
    assert [machine["attempts"] for machine in machines] == [2, 1, 2]
    assert [machine["episodes"] for machine in machines] == [2 * ATTEMPT, ATTEMPT, 2 * ATTEMPT]
    assert [machine["validation_bits"] for machine in machines] == [0.0, 0.001, 0.3]
    # the last one delivers its first attempt: how its second began is not its falling back
    blocks = blocks_of(1002, read_metrics(tmp_path / "run"))
    own = machines[2]["worst_window_after_solving_bits"]
    assert own == worst_after(blocks[:12], WINDOW)
    assert own < worst_after(blocks, WINDOW)
    page = tables.readme([made])
    assert "| 1 x 1, 2 x 2; 2 passed |" in page
    assert "| 1,200, at most 2 times |" in page
    assert "attempts: 1 x 1, 2 x 2; 2 passed" in tables.describe(made)


def test_without_a_validation_too_the_record_shows_the_attempts(monkeypatch, tmp_path):
    monkeypatch.setattr(Copy, "solved_bits", 0.0)
    made = record(restarted(validation={}, attempts=2, recipe="copy-ntm-lstm/tuned"), tmp_path / "run")
    assert [machine["attempts"] for machine in made["machines"]] == [2, 2, 2]
    assert all(machine["best_window_bits"] > 0 for machine in made["machines"])
    assert "| 3 x 2 |" in tables.readme([made])
    assert "attempts: 3 x 2\n" in tables.describe(made)


def test_the_record_and_the_figure_know_each_seeds_own_attempts(solved_by):
    solved_by({1000: 1, 1001: 3, 1002: 2})
    trainer = trained(restarted(seeds=(1000, 1001, 1002)))
    lines = metrics.read(trainer.metrics)
    own = attempt_solved_at(blocks_of(1001, lines), int(trainer.seeds.solved_at[1]))
    assert [block.end for block in own] == [2 * AFTER + done for done in range(100, ATTEMPT + 1, 100)]
    drawn = curves.curves(lines, trainer.task.solved_bits)
    again = {seed: curve.episodes[curve.restarted].tolist() for seed, curve in drawn.items()}
    assert again == {1000: [], 1001: [AFTER, 2 * AFTER], 1002: [AFTER]}
    words = [text.get_text() for text in curves.draw_curves(trainer.task, lines).axes[0].get_legend().get_texts()]
    assert "restarted (3 times)" in words


def test_the_figure_shows_the_machine_that_was_delivered(script):
    costs, _ = script
    costs += [[0.5, 0.3]] * 3 + [[0.4, 0.9]] * 3
    trainer = trained(validated(seeds=(1, 2), attempts=2))
    lines = metrics.read(trainer.metrics)
    drawn = curves.curves(lines, trainer.task.solved_bits)
    solved = [int(drawn[seed].episodes[drawn[seed].solved]) for seed in (1, 2)]
    assert solved == trainer.seeds.solved_at.tolist() == [ATTEMPT + WINDOW, WINDOW]
    first = drawn[1].episodes == ATTEMPT + 100  # a window does not reach back into another attempt
    assert drawn[1].mean[first] == drawn[1].bits[first]
    assert [drawn[seed].episodes[drawn[seed].restarted].tolist() for seed in (1, 2)] == [[ATTEMPT], [ATTEMPT]]
    words = [text.get_text() for text in curves.draw_curves(trainer.task, lines).axes[0].get_legend().get_texts()]
    assert "restarted (2 times)" in words


def test_the_figure_shows_where_the_curricula_of_all_seeds_ended():
    taught = {"curriculum": {"blanks": 0.5}, "share": 0.25, "episodes": 2000, "after": 1700}
    trainer = trained(restarted(seeds=(5, 6), validation={}, above_bits=0.0, **taught), 7)
    assert curves.curriculum_ends(metrics.read(trainer.metrics)) == [500]
