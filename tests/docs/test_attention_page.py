"""The page that compares attention with memory: what its records say, and nothing where there is none."""

import json
import sys
from pathlib import Path

import pytest
from made_up_records import made_up

from tapehead.models.lstm import PaperLSTM
from tapehead.models.transformer.model import Transformer

sys.path.append(str(Path(__file__).parents[2] / "docs"))
import update_attention as page

COSTS = {"Length_20": [0.01, 0.02, 0.04], "Length_120": [0.5, 700.0, float("inf")]}


@pytest.fixture
def records(tmp_path):
    """Of an NTM, with its recipe and once, of an LSTM and of two Transformers on the copy task; and of an LSTM that was
    trained for longer."""
    results, attention = tmp_path / "results", tmp_path / "attention"
    results.mkdir()
    attention.mkdir()
    for recipe in ("tuned", "once"):
        record = made_up("copy-ntm-lstm", recipe=recipe, solved=[900, 800, 700], **COSTS)
        name = "copy-ntm-lstm-once" if recipe == "once" else "copy-ntm-lstm"
        (results / f"{name}.json").write_text(json.dumps(record))
    experiments = page.comparison.experiments("copy")
    longer = made_up("copy-lstm", solved=[40_000, 40_001, None], episodes=500_000, **COSTS)
    (results / "copy-lstm.json").write_text(json.dumps(longer))
    for system in ("lstm", "transformer-equal-rotary", "transformer-equal-none"):
        solved = [None, 3000, 5000] if system == "lstm" else [None, None, None]
        record = made_up("copy-lstm", solved=solved, episodes=40_000, **COSTS) | {
            "experiment": experiments[system].to_plain()
        }
        (attention / f"copy-{system}.json").write_text(json.dumps(record))
    return page.load(results, attention)


def test_the_page_is_what_the_records_make():
    """Run docs/update_attention.py."""
    text = page.PAGE.read_text()
    assert set(page.TABLES) == {name for _, name, _ in page.BLOCK.findall(text)}
    made = set(page.TABLES) - {"memory"}  # which takes seconds, and is in no record
    assert page.with_tables(text, page.load(), made) == text


def test_tables_of_records(records):
    assert {(task, system): record["path"].name for (task, system), record in records.items()} == {
        ("copy", "ntm"): "copy-ntm-lstm-once.json",
        ("copy", "lstm"): "copy-lstm.json",
        ("copy", page.OWN): "copy-lstm.json",
        ("copy", "transformer-equal-rotary"): "copy-transformer-equal-rotary.json",
        ("copy", "transformer-equal-none"): "copy-transformer-equal-none.json",
    }
    head, _, *rows = page.TABLES["copy"](records).splitlines()
    assert head == "| system | parameters | sequences | solved | sequences to solve | Length 20 | Length 120 |"
    assert [row.split(" | ")[1:6] for row in rows] == [
        ["62,260", "40,000", "3 of 3", "800", "0.020"],
        ["1,349,128", "40,000", "2 of 3", "4,000", "0.020"],
        ["1,349,128", "500,000", "2 of 3", "40,000", "0.020"],
        ["64,808", "40,000", "0 of 3", "-", "0.020"],
        ["64,808", "40,000", "0 of 3", "-", "0.020"],
    ]
    assert all(row.endswith(" | 700 |") for row in rows)
    solved = page.TABLES["solved"](records).splitlines()
    assert solved[2] == "| NTM | 3 of 3 | - | - | - | - |"
    assert page.share_within(records["copy", "lstm"], 4000) == "1 of 3"
    assert solved[4] == f"| {page.SYSTEMS[page.OWN]} | 1 of 3 | - | - | - | - |"  # in as many sequences as the others
    assert len(solved) == 2 + 5
    assert len(page.TABLES["solved-equal"](records).splitlines()) == 2 + 3
    assert page.TABLES["ngrams"](records) == page.NOTHING


def test_a_page_without_records_says_so(records):
    text = "before\n<!-- made: copy -->\nold\n<!-- end -->\nafter\n"
    nothing = page.with_tables(text, {})
    assert nothing == f"before\n<!-- made: copy -->\n\n{page.NOTHING}\n<!-- end -->\nafter\n"
    assert "62,260" in page.with_tables(nothing, records)
    assert page.with_tables(text, records, set()) == text
    alone = {("copy", system): records["copy", system] for system in ("ntm", page.OWN)}
    assert page.TABLES["copy"](alone) == page.TABLES["solved"](alone) == page.TABLES["picture"](alone) == page.NOTHING


def test_the_picture_has_the_tasks_that_have_sizes_beyond(records):
    figure = page.draw_costs(records)
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title(loc="left") for axes in shown] == ["Copy"]
    assert len(shown[0].get_legend_handles_labels()[1]) == 5
    assert "costs.svg" in page.TABLES["picture"](records)


def test_speeds(tmp_path):
    assert page.speed_table({}, tmp_path) == page.NOTHING
    row = {"task": "copy", "system": "ntm", "sequences_a_second": 12345, "batch_size": 1}
    whole = {"environment": {"device": "Made-up GPU", "date": "2026-01-02"}, "rows": [row]}
    (tmp_path / "speed.json").write_text(json.dumps(whole))
    said = page.speed_table({}, tmp_path)
    assert said.startswith("On Made-up GPU, 2026-01-02:")
    assert said.endswith("| NTM | 12,345 (1) | - | - | - | - |\n")


def test_state_is_measured():
    transformer = Transformer(9, 8, 8, 2, num_heads=2)
    assert page.state_bytes(transformer, 5) == 11 * 2 * 2 * 8 * 4 + 8  # keys and values, and an int64
    lstm = PaperLSTM(9, 8, 6, 2)
    assert page.state_bytes(lstm, 5) == page.state_bytes(lstm, 9) == 2 * 2 * 6 * 4


def test_every_system_is_trained_once_on_each_task_for_as_many_sequences():
    comparison = page.comparison
    planned = comparison.plan()
    systems = [system for system in page.SYSTEMS if system not in ("ntm", page.OWN)]
    assert sorted(planned) == sorted((task, system) for task in comparison.TASKS for system in systems)
    assert planned[:5] == [(task, "transformer-128-rotary") for task in comparison.TASKS]
    for task in comparison.TASKS:
        every = comparison.experiments(task)
        assert set(every) == set(page.SYSTEMS) - {page.OWN}
        assert len({one.training.episodes for one in every.values()}) == 1
        assert all(8_000 < one.updates < 13_500 for name, one in every.items() if name != "ntm")
        target = comparison.parameters(every["ntm"])
        for name, count in (
            ("lstm-equal", comparison.lstm_parameters),
            ("transformer-equal-rotary", comparison.transformer_parameters),
        ):
            own = comparison.parameters(every[name])
            assert own == count(
                every[name].model.options["hidden_size"], every[name].task.input_size, every[name].task.output_size
            )
            assert abs(own / target - 1) < 0.12
