"""The fifteen rows of the paper's tables, and the configuration of a run that they make."""

import dataclasses
import json
import math

import pytest

from tapehead.commands.presets import parameter_count
from tapehead.models import make_model
from tapehead.paper.presets import MACHINES, MISPRINTS, PRESETS, ROWS, VARIANTS, preset, preset_name
from tapehead.registry import TASKS
from tapehead.tasks import make_task
from tapehead.training.config import RunConfig

# The tables once more, typed from the paper: task -> heads, size, rate, printed (Tables 1, 2); size, rate, printed (3).
TABLE_1 = {
    "copy": (1, "1x100", 1e-4, 17162),
    "repeat-copy": (1, "1x100", 1e-4, 16712),
    "associative-recall": (4, "1x256", 1e-4, 146845),
    "ngrams": (1, "1x100", 3e-5, 14656),
    "priority-sort": (8, "1x512", 3e-5, 508305),
}
TABLE_2 = {
    "copy": (1, "1x100", 1e-4, 67561),
    "repeat-copy": (1, "1x100", 1e-4, 66111),
    "associative-recall": (1, "1x100", 1e-4, 70330),
    "ngrams": (1, "1x100", 3e-5, 61749),
    "priority-sort": (5, "2x100", 3e-5, 269038),
}
TABLE_3 = {
    "copy": (0, "3x256", 3e-5, 1352969),
    "repeat-copy": (0, "3x512", 3e-5, 5312007),
    "associative-recall": (0, "3x256", 1e-4, 1344518),
    "ngrams": (0, "3x128", 1e-4, 331905),
    "priority-sort": (0, "3x128", 3e-5, 384424),
}
CHANNELS = {
    "copy": (10, 9),
    "repeat-copy": (8, 7),
    "associative-recall": (8, 6),
    "ngrams": (1, 1),
    "priority-sort": (10, 8),
}

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
recipes = pytest.mark.parametrize("recipe", ["sure", "paper"])


@pytest.mark.parametrize(
    ("machine", "table", "number"), [("ntm-feedforward", TABLE_1, 1), ("ntm-lstm", TABLE_2, 2), ("lstm", TABLE_3, 3)]
)
def test_rows_are_the_papers(machine, table, number):
    rows = {row.task: row for row in ROWS if row.machine == machine}
    assert rows.keys() == table.keys() == TASKS.keys()
    for task, row in rows.items():
        assert (row.heads, f"{row.layers}x{row.size}", row.learning_rate, row.printed) == table[task]
        assert row.cell == f"Table {number}, {task}"


def test_there_are_fifteen():
    assert len(ROWS) == len(PRESETS) == 15
    assert PRESETS.keys() == {f"{task}-{machine}" for task in TASKS for machine in MACHINES}


@every_row
def test_parameter_counts(row):
    """Table 3 exactly, but for the misprint; Tables 1 and 2 by our own formula, and not the printed numbers."""
    x, y = CHANNELS[row.task]
    h, heads, width, ours = row.size, row.heads, 20, parameter_count(row)
    if row.machine == "lstm":
        assert ours == 4 * h * (3 * x + 5 * h + 3) + 6 * h + y * (3 * h + 1)
        if row.name in MISPRINTS:
            assert (ours, row.printed) == (348_424, 384_424)
            assert "348,424" in MISPRINTS[row.name]
        else:
            assert ours == row.printed
        return
    below, controller = x + heads * width, 0
    for _ in range(row.layers):
        controller += 4 * h * (below + h + 1) if row.machine == "ntm-lstm" else h * (below + 1)
        below = h
    interface = heads * (2 * (width + 2 + 3 + 1) + 2 * width)
    assert ours == controller + interface * (h + 1) + y * (h + heads * width + 1)
    assert ours < row.printed


def test_one_misprint():
    assert list(MISPRINTS) == ["priority-sort-lstm"]


@every_row
@recipes
def test_every_preset_builds(row, recipe):
    config = preset(row.name, recipe)
    task = make_task(config.task, **config.task_options)
    model = make_model(config.model, task, "reference", **config.model_options)
    assert (model.input_size, model.output_size) == (task.input_size, task.output_size)
    assert config.preset == f"{row.name}/{recipe}"
    if recipe == "paper":
        assert (task.input_size, task.output_size) == CHANNELS[row.task]
        assert (config.optimiser, config.clip, config.clip_at) == ("graves", "elementwise", 10.0)
        assert (config.learning_rate, config.schedule, config.batch_size) == (row.learning_rate, "constant", 1)
    if row.machine == "lstm":
        assert (config.model, model.hidden_size, model.num_layers) == ("lstm", row.size, 3)
    else:
        options = model.config
        assert config.model == "ntm"
        assert (options.controller_size, options.controller_layers, options.num_heads) == (
            row.size,
            row.layers,
            row.heads,
        )
        assert f"ntm-{options.controller}" == row.machine
        if recipe == "paper":
            assert (options.memory_slots, options.memory_width) == (128, 20)


@every_row
@recipes
def test_json_round_trip(row, recipe):
    config = preset(row.name, recipe, seeds=(3, 5), slots=(8, 16))
    again = RunConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert again.hash == config.hash


def test_variants_are_rows_on_another_form_of_their_task():
    assert not VARIANTS.keys() & PRESETS.keys()
    for name, variant in VARIANTS.items():
        for recipe in ("sure", "paper"):
            config = preset(name, recipe)
            assert config.preset == f"{name}/{recipe}"
            assert variant.task_options.items() <= config.task_options.items()
            assert config.model_options.items() >= variant.row.model_options.items()
            assert make_task(config.task, **config.task_options).count == "pulses"
        assert preset_name(variant.row.task, variant.row.machine, config.task_options) == name
        assert preset_name(variant.row.task, variant.row.machine, {}) == variant.row.name
        assert preset_name(variant.row.task, variant.row.machine, {"count": "scalar"}) == variant.row.name
    assert preset_name("repeat-copy", "lstm", {"count": "pulses"}) == "repeat-copy-lstm"
    assert VARIANTS["repeat-copy-pulses-ntm-lstm"].task_options == {"count": "pulses"}  # nothing was changed for others


def test_changes_replace_and_merge():
    config = preset("copy-ntm-lstm", "paper", episodes=7, model_options={"memory_slots": 9}, task_options={"width": 3})
    assert config.episodes == 7
    assert config.model_options == {**PRESETS["copy-ntm-lstm"].model_options, "memory_slots": 9}
    assert config.task_options == {"paper_channels": True, "width": 3}
    assert preset("copy-ntm-lstm", "paper").task_options == {"paper_channels": True}  # nothing was changed for others


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(ValueError, match=r"unknown preset 'copy-ntm-lsm'.*'copy-ntm-lstm'"):
        preset("copy-ntm-lsm")


def test_an_unknown_recipe_is_refused():
    with pytest.raises(ValueError, match="recipe"):
        preset("copy-ntm-lstm", "papers")


# --- the configuration -----------------------------------------------------------------------------------------------


def test_hash_is_of_what_is_computed():
    config = RunConfig(task="copy")
    assert dataclasses.replace(config, backend="reference", device="cuda").hash == config.hash
    changes = dict(
        seeds=(1,), episodes=5, learning_rate=2e-4, model_options={"memory_slots": 9}, average=0.9, slots=(2, 3)
    )
    hashes = {dataclasses.replace(config, **{name: value}).hash for name, value in changes.items()}
    assert len(hashes | {config.hash}) == len(changes) + 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "copy", "episode": 5}, "unknown setting 'episode'.*'episodes'"),
        ({"task": "copy", "optimiser": "grave"}, "unknown optimiser 'grave'.*'graves'"),
        ({"task": "copy", "schedule": "linear"}, "unknown schedule 'linear'.*constant, cosine"),
        ({"task": "copy", "clip": "nrm"}, "unknown clip 'nrm'.*'norm'"),
        ({"task": "copy", "model": "gru"}, "unknown model 'gru'.*lstm, ntm"),
        ({"task": "copy", "seeds": [1, 1]}, r"seeds are \[1, 1\]"),
        ({"task": "copy", "seeds": []}, r"seeds are \[\]"),
        ({"task": "copy", "seeds": [-1]}, "-1"),
        ({"task": "copy", "episodes": 0}, "episodes is 0.*at least 1"),
        ({"task": "copy", "batch_size": -2}, "batch_size is -2.*at least 1"),
        ({"task": "copy", "learning_rate": 0.0}, "learning_rate is 0.0.*positive"),
        ({"task": "copy", "learning_rate": float("nan")}, "learning_rate is nan.*positive"),
        ({"task": "copy", "clip_at": float("inf")}, "clip_at is inf.*positive"),
        ({"task": "copy", "average": 1.0}, "average is 1.0"),
        ({"task": "copy", "final_rate": 1.5}, "final_rate is 1.5"),
        ({"task": "copy", "slots": [5, 4]}, r"slots are \(5, 4\)"),
    ],
)
def test_bad_settings(values, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.from_dict(values)


def test_rates():
    constant = RunConfig(task="copy", learning_rate=3e-4)
    assert {constant.rate(update) for update in (0, 1, 19_999)} == {3e-4}
    cosine = RunConfig(task="copy", learning_rate=2e-3, schedule="cosine", final_rate=0.1, episodes=999, batch_size=10)
    assert cosine.updates == 100
    assert cosine.rate(0) == 2e-3
    assert cosine.rate(50) == pytest.approx(2e-3 * 0.55)
    assert cosine.rate(25) == pytest.approx(2e-3 * (0.1 + 0.9 * 0.5 * (1 + math.sqrt(0.5))))
    assert cosine.rate(100) == pytest.approx(2e-4)
    rates = [cosine.rate(update) for update in range(101)]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(
    ("row", "options", "left"),
    [
        ("priority-sort-ntm-lstm", {"outputs": 3}, {}),
        ("priority-sort-ntm-lstm", {"items": 5, "outputs": 5}, {}),
        ("copy-ntm-lstm", {"length": 5}, {"blanks": 0.05}),
    ],
)
def test_lessons_that_do_not_go_with_the_task_asked_for_are_left_out(row, options, left):
    config = preset(row, task_options=options)
    assert config.curriculum == left
    make_task(config.task, **config.task_options | config.curriculum)


def test_a_machine_that_stops_when_it_is_solved_is_not_validated():
    assert preset("repeat-copy-pulses-ntm-lstm").validation
    for changes in ({"early_stop": True}, {"episodes": 900}):  # or that stops before anyone can tell
        stopping = preset("repeat-copy-pulses-ntm-lstm", **changes)
        assert not stopping.validation
        assert stopping.attempts == 1
        assert RunConfig.from_dict(stopping.to_dict()) == stopping


@pytest.mark.parametrize(
    ("name", "changes", "wanted"),
    [
        ("priority-sort-ntm-lstm", {}, (2, 240_000, 20.0)),
        ("priority-sort-ntm-lstm", {"early_stop": True}, (2, 240_000, 20.0)),
        ("priority-sort-ntm-lstm", {"episodes": 1_200_000}, (2, 480_000, 20.0)),  # all of it takes twice as long
        ("priority-sort-ntm-lstm", {"episodes": 300_000}, (2, 240_000, 20.0)),
        ("priority-sort-ntm-lstm", {"episodes": 240_000}, (1, 0, 0.0)),  # nobody could begin again
        ("priority-sort-ntm-lstm", {"episodes": 900}, (1, 0, 0.0)),
        ("priority-sort-ntm-lstm", {"curriculum_share": 0.5}, (1, 0, 0.0)),
        ("priority-sort-ntm-lstm", {"attempts": 1}, (1, 0, 0.0)),
        ("priority-sort-ntm-lstm", {"patience": 0}, (1, 0, 0.0)),
        ("priority-sort-ntm-lstm", {"patience": 300_000, "attempts": 5}, (5, 300_000, 20.0)),
        ("priority-sort-ntm-lstm", {"episodes": 480_006, "curriculum_share": 0.4978}, (1, 0, 0.0)),
        ("associative-recall-ntm-feedforward", {"episodes": 160_000}, (12, 10_000, 1.0)),
        ("associative-recall-ntm-feedforward", {"episodes": 10_050}, (12, 10_000, 1.0)),  # an attempt is 10,100
        ("associative-recall-ntm-feedforward", {"episodes": 10_000}, (1, 0, 0.0)),
        ("associative-recall-ntm-feedforward", {"patience": 0}, (12, 0, 0.0)),  # its validation says who begins again
        ("repeat-copy-pulses-ntm-lstm", {"patience": 0, "early_stop": True}, (1, 0, 0.0)),
        ("repeat-copy-pulses-ntm-lstm", {"episodes": 3000}, (3, 0, 0.0)),
        ("associative-recall-ntm-feedforward", {"early_stop": True}, (12, 10_000, 1.0)),
    ],
)
def test_attempts_and_patience_go_with_what_is_changed(name, changes, wanted):
    config = preset(name, **changes)
    assert (config.attempts, config.patience, config.hopeful_bits) == wanted
    assert RunConfig.from_dict(config.to_dict()) == config


def test_a_wrong_setting_of_a_recipe_with_patience_is_one_sentence():
    for changes in ({"batch_size": 0}, {"episodes": 0}, {"attempts": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(changes))} is 0, but it must be at least 1"):
            preset("priority-sort-ntm-lstm", **changes)
