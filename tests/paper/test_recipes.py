"""The fifteen rows of the paper's tables, and the experiments that recipes make of them."""

import json

import pytest

from tapehead.experiment.config import Experiment
from tapehead.kernels.update.optimisers import Adam, Graves
from tapehead.paper.properties import parameter_count
from tapehead.paper.recipes import TUNED, general_experiment, row_experiment, rows
from tapehead.paper.tables import MACHINES, MISPRINTS, PAPER_TASKS, ROWS, TABLES, VARIANTS, row_name
from tapehead.registry import TASKS
from tapehead.streams import stream

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
recipes = pytest.mark.parametrize("recipe", ["tuned", "paper"])


@pytest.mark.parametrize(
    ("machine", "table", "number"), [("ntm-feedforward", TABLE_1, 1), ("ntm-lstm", TABLE_2, 2), ("lstm", TABLE_3, 3)]
)
def test_rows_are_the_papers(machine, table, number):
    found = {row.task: row for row in ROWS if row.machine == machine}
    assert found.keys() == table.keys() == PAPER_TASKS.keys()
    assert found.keys() <= TASKS.keys()
    for task, row in found.items():
        assert (row.heads, f"{row.layers}x{row.size}", row.learning_rate, row.printed) == table[task]
        assert row.cell == f"Table {number}, {task}"


def test_there_are_fifteen():
    assert len(ROWS) == len(TABLES) == 15
    assert TABLES.keys() == {f"{task}-{machine}" for task in PAPER_TASKS for machine in MACHINES}
    assert rows() == [*TABLES, *VARIANTS]
    assert TUNED.keys() <= set(rows())


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
def test_every_row_builds(row, recipe):
    experiment = row_experiment(row.name, recipe)
    task, model = experiment.task, experiment.model.build(experiment.task, "reference" if row.heads else "auto")
    assert (model.input_size, model.output_size) == (task.input_size, task.output_size)
    assert experiment.recipe == f"{row.name}/{recipe}"
    if recipe == "paper":
        assert (task.input_size, task.output_size) == CHANNELS[row.task]
        assert experiment.optimiser == Graves(learning_rate=row.learning_rate)
        assert (experiment.clipping.kind, experiment.clipping.limit) == ("elementwise", 10.0)
        assert {experiment.rate(update) for update in (0, 500_000, 999_999)} == {row.learning_rate}
        assert (experiment.training.batch_size, experiment.training.episodes) == (1, 1_000_000)
    if row.machine == "lstm":
        assert (experiment.model.name, model.hidden_size, model.num_layers) == ("lstm", row.size, 3)
    else:
        options = model.config
        assert experiment.model.name == "ntm"
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
    experiment = row_experiment(row.name, recipe, {"seeds": (3, 5), "training.slots": (8, 16)})
    again = Experiment.from_plain(json.loads(json.dumps(experiment.to_plain())))
    assert again == experiment
    assert again.hash == experiment.hash


def test_variants_of_a_task_are_rows_on_another_form_of_it():
    assert not VARIANTS.keys() & TABLES.keys()
    for name, variant in VARIANTS.items():
        if not variant.task:
            assert row_name(variant.row.task, variant.row.machine, {}) == variant.row.name
            continue
        for recipe in ("tuned", "paper"):
            experiment = row_experiment(name, recipe)
            assert experiment.recipe == f"{name}/{recipe}"
            assert experiment.task.count == "pulses"
            plain = experiment.to_plain()["model"]
            assert plain | variant.row.model == plain
        own = (variant.row.task, variant.row.machine)
        assert row_name(*own, {"count": "pulses", "width": 3}) == name
        assert row_name(*own, {}) == variant.row.name
        assert row_name(*own, {"count": "scalar"}) == variant.row.name
    assert row_name("repeat-copy", "lstm", {"count": "pulses"}) == "repeat-copy-lstm"
    assert row_name("reverse", "ntm-lstm", {}) is None
    assert VARIANTS["repeat-copy-pulses-ntm-lstm"].task == {"count": "pulses"}  # nothing was changed for others


def test_changes_replace_and_merge():
    changes = {"training.episodes": 7, "model.memory_slots": 9, "task.width": 3}
    experiment = row_experiment("copy-ntm-lstm", "paper", changes)
    assert experiment.training.episodes == 7
    wanted = TABLES["copy-ntm-lstm"].model | {"memory_slots": 9}
    assert experiment.to_plain()["model"].items() >= wanted.items()
    assert (experiment.task.paper_channels, experiment.task.width) == (True, 3)
    assert row_experiment("copy-ntm-lstm", "paper").task.width == 8  # nothing was changed for others
    assert changes == {"training.episodes": 7, "model.memory_slots": 9, "task.width": 3}


def test_an_unknown_row_names_the_nearest():
    with pytest.raises(ValueError, match=r"unknown row 'copy-ntm-lsm'.*'copy-ntm-lstm'"):
        row_experiment("copy-ntm-lsm")


@pytest.mark.parametrize("recipe", ["papers", "sure"])  # `sure` is a word of the command line alone
def test_an_unknown_recipe_is_refused(recipe):
    with pytest.raises(ValueError, match=f"unknown recipe '{recipe}'"):
        row_experiment("copy-ntm-lstm", recipe)


# --- what a change does to the rest of a recipe ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "options", "left"),
    [
        ("priority-sort-ntm-lstm", {"outputs": 3}, {}),
        ("priority-sort-ntm-lstm", {"items": 5, "outputs": 5}, {}),
        ("priority-sort-ntm-lstm", {"width": 5}, {"items": (2, 20)}),
        ("copy-ntm-lstm", {"length": 5}, {"blanks": 0.05}),
        ("copy-ntm-lstm", {"blanks": 0.0}, {}),
    ],
)
def test_a_curriculum_that_does_not_go_with_the_task_asked_for_is_left_out(row, options, left):
    experiment = row_experiment(row, changes={f"task.{name}": value for name, value in options.items()})
    assert experiment.curriculum.options == left
    experiment.curriculum_task.sample(stream(0, "t", 0), batch_size=1)  # what is left can be drawn


def test_a_curriculum_is_added_to_the_recipes():
    experiment = row_experiment("copy-ntm-lstm", changes={"curriculum.options": {"density": (0.1, 0.9)}})
    assert experiment.curriculum.options == {"blanks": 0.05, "density": (0.1, 0.9)}


def test_a_machine_that_stops_when_it_is_solved_is_not_validated():
    assert row_experiment("repeat-copy-pulses-ntm-lstm").validation
    for changes in ({"training.early_stop": True}, {"training.episodes": 900}):  # or that stops before anyone can tell
        stopping = row_experiment("repeat-copy-pulses-ntm-lstm", changes=changes)
        assert not stopping.validation
        assert stopping.restarts.attempts == 1
        assert Experiment.from_plain(stopping.to_plain()) == stopping


SORT, RECALL, PULSES = "priority-sort-ntm-lstm", "associative-recall-ntm-feedforward", "repeat-copy-pulses-ntm-lstm"


@pytest.mark.parametrize(
    ("name", "changes", "wanted"),
    [
        (SORT, {}, (2, 240_000, 20.0)),
        (SORT, {"training.early_stop": True}, (2, 240_000, 20.0)),
        (SORT, {"training.episodes": 1_200_000}, (2, 480_000, 20.0)),  # all of it takes twice as long
        (SORT, {"training.episodes": 300_000}, (2, 240_000, 20.0)),
        (SORT, {"training.episodes": 240_000}, (1, 0, 0.0)),  # no seed could be restarted
        (SORT, {"training.episodes": 900}, (1, 0, 0.0)),
        (SORT, {"curriculum.share": 0.5}, (1, 0, 0.0)),
        (SORT, {"restarts.attempts": 1}, (1, 0, 0.0)),
        (SORT, {"restarts.after": 0}, (1, 0, 0.0)),
        (SORT, {"restarts.after": 300_000, "restarts.attempts": 5}, (5, 300_000, 20.0)),
        (SORT, {"training.episodes": 480_006, "curriculum.share": 0.4978}, (1, 0, 0.0)),
        (RECALL, {"training.episodes": 160_000}, (12, 10_000, 1.0)),
        (RECALL, {"training.episodes": 10_050}, (12, 10_000, 1.0)),  # an attempt is 10,100
        (RECALL, {"training.episodes": 10_000}, (1, 0, 0.0)),
        (RECALL, {"restarts.after": 0}, (12, 0, 0.0)),  # its validation says which seeds are restarted
        (RECALL, {"training.early_stop": True}, (12, 10_000, 1.0)),
        (PULSES, {"restarts.after": 0, "training.early_stop": True}, (1, 0, 0.0)),
        (PULSES, {"training.episodes": 3000}, (3, 0, 0.0)),
    ],
)
def test_restarts_go_with_what_is_changed(name, changes, wanted):
    experiment = row_experiment(name, changes=changes)
    restarts = experiment.restarts
    assert (restarts.attempts, restarts.after, restarts.above_bits) == wanted
    assert Experiment.from_plain(experiment.to_plain()) == experiment


@pytest.mark.parametrize("setting", ["training.batch_size", "training.episodes", "restarts.attempts"])
def test_a_wrong_setting_of_a_recipe_with_restarts_is_one_sentence(setting):
    with pytest.raises(ValueError, match=f"{setting.partition('.')[2]} is 0, but it must be at least 1"):
        row_experiment("priority-sort-ntm-lstm", changes={setting: 0})


def test_slots_of_a_recipe_fit_the_tape_that_is_asked_for():
    assert row_experiment("copy-ntm-lstm").training.slots == (21, 128)
    assert row_experiment("copy-ntm-lstm", changes={"model.memory_slots": 30}).training.slots == (21, 30)
    assert row_experiment("copy-ntm-lstm", changes={"model.memory_slots": 8}).training.slots == (8, 8)
    own = {"model.memory_slots": 8, "training.slots": (2, 3)}
    assert row_experiment("copy-ntm-lstm", changes=own).training.slots == (2, 3)


def test_another_optimiser_has_its_own_hyper_parameters():
    experiment = row_experiment("copy-ntm-lstm", changes={"optimiser.name": "adam"})
    assert experiment.optimiser == Adam(learning_rate=3e-4)  # the recipe's rate, Adam's own decays
    changes = {"optimiser.name": "adam", "optimiser.beta2": 0.99}
    assert row_experiment("copy-ntm-lstm", changes=changes).optimiser.beta2 == 0.99


def test_another_schedule_has_its_own_values():
    experiment = row_experiment("priority-sort-ntm-lstm", changes={"schedule.name": "constant"})
    assert experiment.rate(0) == experiment.rate(99_999) == 5e-4
    assert row_experiment("priority-sort-ntm-lstm").rate(99_999) < 1e-6


# --- tasks and models without a row ----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [name for name in TASKS if name not in PAPER_TASKS])
@pytest.mark.parametrize("model", ["ntm", "lstm"])
def test_a_task_without_a_row_has_general_settings(task, model):
    options = {} if model == "ntm" else {"model.hidden_size": 16}
    experiment = general_experiment(task, model, options)
    assert experiment.recipe == "general"
    assert (experiment.task.name, experiment.model.name) == (task, model)
    assert experiment.to_plain()["schedule"]["name"] == "cosine"
    assert experiment.training.average == 0.998
    if model == "ntm":
        assert experiment.model.options["order"] == "read_then_write"
        assert type(experiment.optimiser) is Graves
        assert (experiment.clipping.kind, experiment.training.batch_size) == ("norm", 4)
    else:
        assert type(experiment.optimiser) is Adam
        assert (experiment.clipping.kind, experiment.training.batch_size) == ("norm", 16)
    assert Experiment.from_plain(experiment.to_plain()) == experiment


def test_a_controller_without_a_state_has_addresses_if_there_is_room():
    def memory(controller, **changes):
        given = {"model.controller": controller} | {f"model.{name}": value for name, value in changes.items()}
        return general_experiment("reverse", "ntm", given).model.options["initial_memory"]

    assert memory("feedforward") == memory("feedforward", memory_width=7) == "addresses"
    assert memory("lstm") == memory("feedforward", memory_width=6) == "constant"
    assert memory("feedforward", initial_memory="random") == "random"
    with pytest.raises(ValueError, match="have 7 digits, but memory_width is 6"):
        memory("feedforward", memory_width=6, initial_memory="addresses")


def test_a_transformer_has_a_warm_up():
    experiment = general_experiment("copy", "transformer", {"model.hidden_size": 32})
    assert experiment.to_plain()["schedule"] == {"name": "warmup-cosine", "final": 0.05, "warmup": 0.05}
    assert type(experiment.optimiser) is Adam
    assert experiment.rate(0) < 0.01 * experiment.optimiser.learning_rate


def test_general_settings_are_changed_as_a_recipe_is():
    changes = {"optimiser.name": "graves", "training.episodes": 5, "curriculum.options": {"length": 3}}
    experiment = general_experiment("parity", "lstm", changes | {"model.hidden_size": 4})
    assert experiment.optimiser == Graves(learning_rate=1e-3)
    assert experiment.training.episodes == 5
    assert experiment.curriculum_task.length == 3
    assert experiment.task.length == (1, 20)
