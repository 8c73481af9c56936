"""Settings that train: of every row of the paper's tables some recipes, and general settings for everything else.

`paper`: the optimiser, learning rate, clipping, heads, sizes and memory of the paper; what it leaves open is at our
defaults. `tuned`: the best settings that we know, found by experiment (docs/recipes.md). The task and its scoring are
the paper's in both. `once`: as `tuned`, but nothing is selected: one attempt, and no validation; for claims about what
training alone gives. `general`: for a task or model without a row.

Settings are values of an `Experiment` by "part.name". `experiment_of` puts them together with those that a user
changes."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, get_args

from tapehead.experiment.config import Experiment, changed
from tapehead.experiment.parts import BLOCK, DEFAULT_NAMES, WINDOW
from tapehead.models import check_model
from tapehead.models.config import ADDRESS_DIGITS
from tapehead.paper.tables import ABLATIONS, PAPER_TASKS, TABLES, VARIANTS, Variant, row_name
from tapehead.registry import CONTROLLERS, MODELS, TASKS
from tapehead.suggest import unknown

Recipe = Literal["tuned", "once", "paper"]
RECIPES: tuple[str, ...] = ("tuned", "paper")
"""Those that are compared everywhere."""
Values = dict[str, Any]
Start = Callable[[Mapping[str, Any]], Experiment]
"""Settings to start from: makes the experiment in which some of their values are changed."""

# Rows that are not here train as in the paper, variants that are not here as their rows. results/ has what came of each
# on held-out seeds.
TANH: Values = {"model.key_activation": "tanh", "model.add_activation": "tanh"}
READ_FIRST: Values = TANH | {"model.order": "read_then_write"}
BY_CONTENT: Values = {"model.strength_bias": 2.0, "model.read_gate_bias": 1.0}
ADDRESSES: Values = {"model.initial_memory": "addresses", "model.initial_memory_scale": 1.0}
"""Rows that can be told from one another before anything is written: for a controller without a state of its own, and
for tables that are read before they are written."""
FORGETFUL: Values = {"model.forget_bias": -2.0}
"""A controller that starts without a memory of its own has to use the tape."""
LEARNED_READS: Values = {"model.initial_reads": "learned"}
LEARNED_START: Values = LEARNED_READS | {"model.initial_controller": "learned"}
"""What the controller knows at the first step, instead of zeros."""
SMOOTH: Values = {"schedule.name": "cosine", "training.average": 0.998}
BY_NORM: Values = {"clipping.kind": "norm", "clipping.limit": 1.0}

# Machines that fail beyond the training lengths do so on a tape that is nearly full, or were slow to learn.
NEARLY_FULL: Values = {"validation.sequences": 400, "validation.below_bits": 0.01}

COPY_ONCE = SMOOTH | FORGETFUL
COPY_ONCE |= {"optimiser.learning_rate": 3e-4, "training.episodes": 40_000, "training.slots": (21, 48)}
COPY_ONCE |= {"curriculum.options": {"blanks": 0.05}}
"""For ablations: one attempt, and nothing chosen by another size."""
COPY = COPY_ONCE | NEARLY_FULL | {"validation.sizes": {"length": 120}, "validation.slots": 128}
COPY |= {"training.slots": (21, 128), "restarts.attempts": 5, "restarts.after": 8_000}

COPY_FEEDFORWARD = SMOOTH | TANH | NEARLY_FULL | {"validation.sizes": {"length": 120}, "validation.slots": 128}
COPY_FEEDFORWARD |= {"restarts.attempts": 6, "restarts.after": 6_000}
COPY_FEEDFORWARD |= {"optimiser.learning_rate": 2e-4, "training.episodes": 40_000, "training.slots": (21, 128)}
COPY_FEEDFORWARD |= {"curriculum.options": {"density": (0.0, 1.0)}}

REPEAT = SMOOTH | BY_NORM
REPEAT |= {"optimiser.learning_rate": 7e-4, "training.episodes": 50_000, "training.slots": (16, 128)}

REPEAT_LSTM = REPEAT | FORGETFUL | {"restarts.attempts": 4}
REPEAT_LSTM |= {"validation.sizes": {"length": 20, "repeats": 10}, "validation.sequences": 400}
REPEAT_LSTM |= {"validation.below_bits": 0.05}

PULSES = REPEAT | LEARNED_START | {"model.order": "read_then_write"}
PULSES |= {"optimiser.learning_rate": 1e-3, "training.episodes": 80_000, "training.slots": (32, 128)}
PULSES |= {"validation.sizes": {"length": 20, "repeats": 20}, "validation.sequences": 800}
PULSES |= {"validation.below_bits": 0.002, "restarts.attempts": 3}

REPEAT_FEEDFORWARD = SMOOTH | TANH | BY_CONTENT | LEARNED_READS | {"clipping.kind": "norm", "clipping.limit": 10.0}
# The write head goes by location, and can be held where it is, sharp and without writing.
REPEAT_FEEDFORWARD |= {"model.write_gate": True, "model.write_gate_bias": -6.0, "model.sharpen_bias": 2.0}
REPEAT_FEEDFORWARD |= {"optimiser.learning_rate": 3e-4, "training.episodes": 160_000, "training.batch_size": 4}
REPEAT_FEEDFORWARD |= {"training.slots": (16, 128), "validation.sizes": {"length": 20, "repeats": 10}}
REPEAT_FEEDFORWARD |= {"validation.sequences": 400, "validation.below_bits": 0.05}
REPEAT_FEEDFORWARD |= {"restarts.attempts": 4, "restarts.after": 60_000, "restarts.above_bits": 15.0}

PULSES_FEEDFORWARD = REPEAT | READ_FIRST | BY_CONTENT | ADDRESSES | {"model.strength_bias": 5.0}
PULSES_FEEDFORWARD |= {"optimiser.learning_rate": 5e-4, "training.episodes": 240_000, "training.slots": (40, 128)}

RECALL = SMOOTH | READ_FIRST | BY_CONTENT
RECALL |= {"optimiser.learning_rate": 2e-4, "training.episodes": 80_000, "training.slots": (28, 96)}
RECALL |= {"validation.sizes": {"items": 12}, "validation.sequences": 3000, "restarts.attempts": 4}

RECALL_FEEDFORWARD = SMOOTH | BY_NORM | READ_FIRST | BY_CONTENT | LEARNED_READS
RECALL_FEEDFORWARD |= {"optimiser.learning_rate": 3e-4, "training.episodes": 80_000, "training.slots": (28, 128)}
RECALL_FEEDFORWARD |= {"curriculum.options": {"density": (0.1, 0.9)}}
RECALL_FEEDFORWARD |= {"validation.sizes": {"items": 12}, "validation.sequences": 1000, "validation.below_bits": 0.01}
RECALL_FEEDFORWARD |= {"restarts.attempts": 12, "restarts.after": 10_000, "restarts.above_bits": 1.0}

NGRAMS = SMOOTH | BY_NORM | READ_FIRST | ADDRESSES
NGRAMS |= {"model.strength_bias": 3.0, "model.read_gate_bias": 3.0, "model.write_gate_bias": 3.0}
NGRAMS |= {"optimiser.learning_rate": 5e-4}

NGRAMS_LSTM = NGRAMS | {"training.episodes": 80_000, "training.batch_size": 3}
# Slow machines read one row with several contexts, and take these apart again even more slowly.
NGRAMS_LSTM |= {"restarts.attempts": 4, "restarts.after": 24_000, "restarts.above_bits": 2.5}

NGRAMS_FEEDFORWARD = NGRAMS | {"clipping.limit": 0.3, "model.add_activation": "linear"}
NGRAMS_FEEDFORWARD |= {"training.episodes": 160_000, "training.batch_size": 4}

SORT = SMOOTH | TANH | LEARNED_START | {"schedule.final": 0.0, "clipping.kind": "norm", "clipping.limit": 100.0}
SORT |= {"optimiser.learning_rate": 5e-4, "training.episodes": 600_000, "training.batch_size": 6}
SORT |= {"curriculum.options": {"items": (2, 20)}, "curriculum.share": 0.2}
SORT |= {"restarts.attempts": 2, "restarts.after": 240_000, "restarts.above_bits": 20.0}

LSTM = SMOOTH | BY_NORM
LSTM |= {"optimiser.name": "adam", "optimiser.learning_rate": 2e-3, "training.batch_size": 16}
LSTM_SORT = LSTM | {"optimiser.learning_rate": 1e-2}
LSTM_SORT |= {"curriculum.options": {"items": (2, 20)}, "curriculum.share": 0.2}

TUNED: dict[str, Values] = {
    "copy-ntm-lstm": COPY,
    "copy-ntm-feedforward": COPY_FEEDFORWARD,
    **dict.fromkeys(ABLATIONS, COPY_ONCE),
    "repeat-copy-ntm-lstm": REPEAT_LSTM,
    "repeat-copy-ntm-feedforward": REPEAT_FEEDFORWARD,
    "repeat-copy-pulses-ntm-lstm": PULSES,
    "repeat-copy-pulses-ntm-feedforward": PULSES_FEEDFORWARD,
    "associative-recall-ntm-lstm": RECALL,
    "associative-recall-ntm-feedforward": RECALL_FEEDFORWARD,
    "ngrams-ntm-lstm": NGRAMS_LSTM,
    "ngrams-ntm-feedforward": NGRAMS_FEEDFORWARD,
    "priority-sort-ntm-lstm": SORT,
    "copy-lstm": LSTM,
    "repeat-copy-lstm": LSTM | {"training.episodes": 200_000},
    "associative-recall-lstm": LSTM,
    "ngrams-lstm": LSTM | {"optimiser.learning_rate": 3e-3},
    "priority-sort-lstm": LSTM_SORT,
}

ONCE: dict[str, Values] = {"copy-ntm-lstm": COPY_ONCE}
"""Where it is more than `tuned` without the parts that select."""
SELECTING = ("validation", "restarts")

# What helped in most of the recipes above, and hurt in none, for tasks and models that have none of their own.
GENERAL: Values = SMOOTH | {"training.early_stop": False, "training.episodes": 100_000, "optimiser.learning_rate": 3e-4}
# What became of these and of other candidates on six tasks is in docs/recipes.md.
GENERAL_NTM: Values = GENERAL | READ_FIRST | BY_CONTENT | {"clipping.kind": "norm", "clipping.limit": 10.0}
GENERAL_NTM |= {"training.batch_size": 4, "training.episodes": 240_000}
GENERAL_FEEDFORWARD: Values = GENERAL_NTM | ADDRESSES
GENERAL_OTHERS: Values = GENERAL | BY_NORM | {"optimiser.name": "adam", "optimiser.learning_rate": 1e-3}
GENERAL_OTHERS |= {"training.batch_size": 16, "training.episodes": 400_000}
# Adam's first steps are of full size whatever the gradients are, which a Transformer takes worse than the others: on a
# small copy task, three seeds at a rate of 3e-3 ended at 0.1 to 1.2 bits with the warm-up and at 0.3 to 8.4 without.
GENERAL_TRANSFORMER: Values = GENERAL_OTHERS | {"schedule.name": "warmup-cosine"}
# Copying up to five vectors on 16 slots, one seed each: solved after some 700 updates at a rate of 3e-3, with one read
# head or four, and at 13 bits after 2,500 at 1e-3.
GENERAL_DNC: Values = GENERAL_OTHERS | {"optimiser.learning_rate": 3e-3}
GENERAL_SETTINGS: dict[str, Values] = {
    "ntm": GENERAL_NTM,
    "ntm-feedforward": GENERAL_FEEDFORWARD,
    "dnc": GENERAL_DNC,
    "transformer": GENERAL_TRANSFORMER,
}
"""By machine, or by model where they are those of any controller; all others have GENERAL_OTHERS."""

# An option of a curriculum that makes no sense without the task's own value of another option.
GOES_WITH = {"items": "outputs"}


def rows() -> list[str]:
    """Everything that has a recipe of its own."""
    return [*TABLES, *VARIANTS]


def row_experiment(name: str, recipe: str = "tuned", changes: Mapping[str, Any] | None = None) -> Experiment:
    """The experiment of a row of the tables or of a variant, with some of its values changed."""
    if name not in rows():
        raise ValueError(unknown("row", name, rows()))
    if recipe not in get_args(Recipe):
        raise ValueError(unknown("recipe", recipe, get_args(Recipe)))
    variant = VARIANTS.get(name) or Variant(name, TABLES[name])
    row, task = variant.row, variant.task
    values: Values = {"recipe": f"{name}/{recipe}", "task.name": row.task}
    values |= {f"model.{option}": value for option, value in row.model.items()}
    values |= {
        "optimiser.learning_rate": row.learning_rate,
        "training.episodes": 1_000_000,
        "training.early_stop": False,
    }
    if recipe == "paper":
        values |= {f"task.{option}": value for option, value in (PAPER_TASKS[row.task] | task).items()}
    else:
        values |= {f"task.{option}": value for option, value in task.items()}
        values |= _once(name) if recipe == "once" else _tuned(name)
    values |= {f"model.{option}": value for option, value in variant.model.items()}
    return _with_changes(values, dict(changes or {}))


def _tuned(name: str) -> Values:
    return TUNED.get(name) or TUNED.get(VARIANTS[name].row.name if name in VARIANTS else name, {})


def _once(name: str) -> Values:
    kept = {path: value for path, value in _tuned(name).items() if path.partition(".")[0] not in SELECTING}
    return ONCE.get(name, kept)


def general_experiment(task: str, model: str, changes: Mapping[str, Any] | None = None) -> Experiment:
    """A task and a model that have no row, with general settings: a start, not the best that is possible."""
    model = MODELS.name_of(check_model(MODELS.resolve(model), model))
    values: Values = {"recipe": "general", "task.name": task, "model.name": model}
    general = GENERAL_SETTINGS.get(_machine(model, changes or {})) or GENERAL_SETTINGS.get(model, GENERAL_OTHERS)
    whole = general | dict(changes or {})
    width = whole.get("model.memory_width")
    if isinstance(width, int) and width < ADDRESS_DIGITS:  # of a user, who did not ask for addresses
        general = {path: value for path, value in general.items() if path not in ADDRESSES}
    updates = whole["training.episodes"] / whole.get("training.batch_size", 1)
    if updates < 10 / (1 - general["training.average"]):  # the average would still be that of the initial weights
        values["training.average"] = 0.0
    return _with_changes(general | values, dict(changes or {}))


def task_start(task: str, recipe: str | None, names: Mapping[str, Any]) -> Start:
    """The settings of a task, by name or as module:Class: its row's recipe, or the general ones if there is no row.

    names: values by path that decide which row it is: model.name, model.controller, and the options of the task.
    """
    task = TASKS.name_of(TASKS.resolve(task))
    name = names.get("model.name", "ntm")
    model = MODELS.name_of(check_model(MODELS.resolve(name), name))
    machine = _machine(model, names)
    options = {path.removeprefix("task."): value for path, value in names.items() if path.startswith("task.")}
    row = row_name(task, machine, options)
    if row is not None:
        return partial(row_experiment, row, recipe or "tuned")
    if recipe is not None:
        raise ValueError(f"the recipe is {recipe}, but {machine} on {task} has no row in the paper: leave it out.")
    return partial(general_experiment, task, model)


def _machine(model: str, names: Mapping[str, Any]) -> str:
    """A model, of an NTM with its controller."""
    if model != "ntm":
        return model
    return f"ntm-{CONTROLLERS.name_of(CONTROLLERS.resolve(names.get('model.controller', 'lstm')))}"


def _with_changes(values: Values, changes: Values) -> Experiment:
    """Settings of a recipe with a user's changes; of its curriculum, validation and restarts what still makes sense."""
    values = {path: value for path, value in values.items() if not _replaced(path, values, changes)}
    # a machine that stops when it is solved, or before a window is full, is not validated
    if changes.get("training.early_stop") or changes.get("training.episodes", WINDOW) < WINDOW:
        values = {path: value for path, value in values.items() if not path.startswith("validation.")}
    own = {path.partition(".")[2] for path in changes if path.startswith("task.")}
    curriculum = {
        name: value
        for name, value in values.get("curriculum.options", {}).items()
        if name not in own and GOES_WITH.get(name) not in own
    }
    curriculum |= changes.pop("curriculum.options", {})
    values["curriculum.options"] = curriculum
    whole = _with_restarts(values, changes)
    tape = whole.get("model.memory_slots")
    if "training.slots" not in changes and whole.get("training.slots") and isinstance(tape, int) and tape > 0:
        low, high = whole["training.slots"]  # a recipe's slots, on the tape asked for
        whole["training.slots"] = (min(low, tape), min(high, tape))
    return Experiment.from_plain(changed({}, whole))


def _replaced(path: str, values: Values, changes: Values) -> bool:
    """Whether a value belongs to a part that is given another name: another optimiser has other hyper-parameters."""
    part = path.partition(".")[0]
    name = f"{part}.name"
    other = name in changes and changes[name] != values.get(name, DEFAULT_NAMES.get(part))
    return other and path not in (name, "optimiser.learning_rate")


def _with_restarts(values: Values, changes: Values) -> Values:
    """An attempt that is too short for the recipe's `restarts.after` is the only one."""
    whole = values | changes
    if "restarts.after" in values and "restarts.after" not in changes:
        whole["restarts.after"] = _restart_after(values, whole)
        if not whole["restarts.after"]:
            whole = _without(whole, changes, "restarts.attempts")
    if not whole.get("validation.sizes"):
        whole = _without(whole, changes, "validation.sequences", "validation.below_bits", "validation.slots")
    if not whole.get("restarts.after"):
        only = [] if whole.get("validation.sizes") else ["restarts.attempts"]
        whole = _without(whole, changes, "restarts.above_bits", *only)
    return whole


def _restart_after(values: Values, whole: Values) -> int:
    """A recipe's `restarts.after` in a run with changes, or 0 if it does not fit there."""
    longer = 1.0
    if whole.get("curriculum.share", 1) < 1:  # a curriculum that ends goes on longer in a longer run
        longer = max(1.0, whole["training.episodes"] / values["training.episodes"])
    after = round(values["restarts.after"] * longer)
    rest = {path: value for path, value in whole.items() if not path.startswith("restarts.")}
    once = Experiment.from_plain(changed({}, rest | {"curriculum.options": whole["curriculum.options"]}))
    block = BLOCK * once.training.batch_size
    training = dataclasses.replace(once.training, episodes=-(-once.training.episodes // block) * block)
    fitting = dataclasses.replace(once, training=training).restart_range
    return after if whole.get("restarts.attempts", 1) > 1 and after in fitting else 0


def _without(whole: Values, changes: Values, *names: str) -> Values:
    """Settings without some of the recipe's, unless they were asked for."""
    return {name: value for name, value in whole.items() if name in changes or name not in names}
