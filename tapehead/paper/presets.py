"""The fifteen rows of Tables 1 to 3 as presets, each in two recipes, and variants that are not in the paper.

`paper`: the optimiser, learning rate, clipping, heads, sizes and memory of the paper; what it leaves open is at our
defaults. `sure`: the best settings that we know, found by experiment (docs/recipes.md). The task and its scoring are
the paper's in both.
"""

import dataclasses
from typing import Any, Literal, get_args

from tapehead.training.config import BLOCK, WINDOW, RunConfig
from tapehead.words import unknown

Recipe = Literal["sure", "paper"]
Machine = Literal["ntm-lstm", "ntm-feedforward", "lstm"]

MACHINES: tuple[Machine, ...] = ("ntm-feedforward", "ntm-lstm", "lstm")

# Sizes of the tasks that make the channel counts of Table 3 (docs/architecture.md says how they were decoded).
PAPER_TASKS: dict[str, dict[str, Any]] = {
    "copy": {"paper_channels": True},
    "repeat-copy": {"width": 6},
    "associative-recall": {},
    "ngrams": {},
    "priority-sort": {},
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the paper's tables."""

    task: str
    machine: Machine
    size: int
    layers: int
    heads: int
    learning_rate: float
    printed: int
    """Number of parameters as printed."""

    @property
    def name(self) -> str:
        return f"{self.task}-{self.machine}"

    @property
    def cell(self) -> str:
        """Where it stands in the paper."""
        return f"Table {MACHINES.index(self.machine) + 1}, {self.task}"

    @property
    def model_options(self) -> dict[str, Any]:
        if self.machine == "lstm":
            return {"hidden_size": self.size, "num_layers": self.layers}
        return {
            "controller": self.machine.removeprefix("ntm-"),
            "controller_size": self.size,
            "controller_layers": self.layers,
            "num_heads": self.heads,
        }


ROWS = (
    # Table 1: NTM with feedforward controller
    Row("copy", "ntm-feedforward", 100, 1, 1, 1e-4, 17_162),
    Row("repeat-copy", "ntm-feedforward", 100, 1, 1, 1e-4, 16_712),
    Row("associative-recall", "ntm-feedforward", 256, 1, 4, 1e-4, 146_845),
    Row("ngrams", "ntm-feedforward", 100, 1, 1, 3e-5, 14_656),
    Row("priority-sort", "ntm-feedforward", 512, 1, 8, 3e-5, 508_305),
    # Table 2: NTM with LSTM controller
    Row("copy", "ntm-lstm", 100, 1, 1, 1e-4, 67_561),
    Row("repeat-copy", "ntm-lstm", 100, 1, 1, 1e-4, 66_111),
    Row("associative-recall", "ntm-lstm", 100, 1, 1, 1e-4, 70_330),
    Row("ngrams", "ntm-lstm", 100, 1, 1, 3e-5, 61_749),
    Row("priority-sort", "ntm-lstm", 100, 2, 5, 3e-5, 269_038),
    # Table 3: LSTM
    Row("copy", "lstm", 256, 3, 0, 3e-5, 1_352_969),
    Row("repeat-copy", "lstm", 512, 3, 0, 3e-5, 5_312_007),
    Row("associative-recall", "lstm", 256, 3, 0, 1e-4, 1_344_518),
    Row("ngrams", "lstm", 128, 3, 0, 1e-4, 331_905),
    Row("priority-sort", "lstm", 128, 3, 0, 3e-5, 384_424),
)

PRESETS: dict[str, Row] = {row.name: row for row in ROWS}


@dataclasses.dataclass(frozen=True)
class Variant:
    """A row on another form of its task; not in the paper."""

    name: str
    row: Row
    task_options: dict[str, Any]


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("repeat-copy-pulses-ntm-feedforward", PRESETS["repeat-copy-ntm-feedforward"], {"count": "pulses"}),
        Variant("repeat-copy-pulses-ntm-lstm", PRESETS["repeat-copy-ntm-lstm"], {"count": "pulses"}),
    )
}

MISPRINTS = {"priority-sort-lstm": "two digits swapped in print: the architecture of the other four rows has 348,424"}

# What `sure` changes, by preset: docs/recipes.md says why, docs/results/ what came of it on fresh seeds. Rows that are
# not here train as in the paper.
TANH = {"key_activation": "tanh", "add_activation": "tanh"}
READ_FIRST = TANH | {"order": "read_then_write"}
BY_CONTENT = {"strength_bias": 2.0, "read_gate_bias": 1.0}
ADDRESSES = {"initial_memory": "addresses", "initial_memory_scale": 1.0}
"""A controller without a state of its own has to tell one row from another before it has written any."""
FORGETFUL = {"forget_bias": -2.0}
"""A controller that starts without a memory of its own has to use the tape."""
LEARNED_READS = {"initial_reads": "learned"}
LEARNED_START = LEARNED_READS | {"initial_controller": "learned"}
"""What the controller knows at the first step, instead of zeros."""
SMOOTH = {"schedule": "cosine", "average": 0.998, "early_stop": False}
BY_NORM = {"clip": "norm", "clip_at": 1.0}

COPY = SMOOTH | {
    "learning_rate": 3e-4,
    "episodes": 40_000,
    "slots": (21, 48),
    "curriculum": {"blanks": 0.05},
    "model_options": FORGETFUL,
}
COPY_FEEDFORWARD = SMOOTH | {
    "learning_rate": 2e-4,
    "episodes": 40_000,
    "slots": (21, 128),
    "curriculum": {"density": [0.0, 1.0]},
    "model_options": TANH,
}
REPEAT = SMOOTH | BY_NORM | {"learning_rate": 7e-4, "episodes": 50_000, "slots": (16, 128)}
PULSES = REPEAT | {
    "learning_rate": 1e-3,
    "episodes": 80_000,
    "slots": (32, 128),
    "model_options": {"order": "read_then_write"} | LEARNED_START,
    "validation": {"length": 20, "repeats": 20},
    "validation_sequences": 800,
    "passing_bits": 0.002,
    "attempts": 3,
}
REPEAT_FEEDFORWARD = REPEAT | {
    "learning_rate": 5e-4,
    "episodes": 240_000,
    "slots": (40, 128),
    "model_options": READ_FIRST | BY_CONTENT | ADDRESSES | {"strength_bias": 5.0},
}
RECALL = SMOOTH | {
    "learning_rate": 2e-4,
    "episodes": 80_000,
    "slots": (28, 96),
    "model_options": READ_FIRST | BY_CONTENT,
}
RECALL_FEEDFORWARD = (
    RECALL
    | BY_NORM
    | {
        "learning_rate": 3e-4,
        "episodes": 80_000,
        "slots": (28, 128),
        "curriculum": {"density": [0.1, 0.9]},
        "model_options": READ_FIRST | BY_CONTENT | LEARNED_READS,
        "validation": {"items": 12},
        "validation_sequences": 1000,
        "passing_bits": 0.01,
        "attempts": 12,
        "patience": 10_000,
        "hopeful_bits": 1.0,
    }
)
NGRAMS = (
    SMOOTH
    | BY_NORM
    | {
        "learning_rate": 5e-4,
        "episodes": 135_000,
        "batch_size": 3,
        "model_options": READ_FIRST | BY_CONTENT,
    }
)
NGRAMS_FEEDFORWARD = NGRAMS | {
    "clip_at": 0.3,
    "episodes": 160_000,
    "batch_size": 4,
    "model_options": READ_FIRST
    | ADDRESSES
    | {"add_activation": "linear", "strength_bias": 3.0, "read_gate_bias": 3.0, "write_gate_bias": 3.0},
}
SORT = SMOOTH | {
    "learning_rate": 5e-4,
    "final_rate": 0.0,
    "clip": "norm",
    "clip_at": 100.0,
    "episodes": 600_000,
    "batch_size": 6,
    "curriculum": {"items": [2, 20]},
    "curriculum_share": 0.2,
    "model_options": TANH | LEARNED_START,
    "attempts": 2,
    "patience": 240_000,
    "hopeful_bits": 20.0,
}

SURE: dict[str, dict[str, Any]] = {
    "copy-ntm-lstm": COPY,
    "copy-ntm-feedforward": COPY_FEEDFORWARD,
    "repeat-copy-ntm-lstm": REPEAT | {"model_options": FORGETFUL},
    "repeat-copy-ntm-feedforward": REPEAT_FEEDFORWARD,
    "repeat-copy-pulses-ntm-lstm": PULSES,
    "repeat-copy-pulses-ntm-feedforward": REPEAT_FEEDFORWARD,
    "associative-recall-ntm-lstm": RECALL,
    "associative-recall-ntm-feedforward": RECALL_FEEDFORWARD,
    "ngrams-ntm-lstm": NGRAMS,
    "ngrams-ntm-feedforward": NGRAMS_FEEDFORWARD,
    "priority-sort-ntm-lstm": SORT,
}


# A lesson of a recipe that makes no sense without the task's own value of another option.
GOES_WITH = {"items": "outputs"}


def preset_name(task: str, machine: str, task_options: dict[str, Any]) -> str:
    """The preset of a machine on a task: a variant if these options make the task it is for, otherwise the row."""
    for variant in VARIANTS.values():
        wanted = variant.task_options.items() <= task_options.items()
        if (variant.row.task, variant.row.machine) == (task, machine) and wanted:
            return variant.name
    return f"{task}-{machine}"


def preset(name: str, recipe: Recipe = "sure", **changes: Any) -> RunConfig:
    """The run of a row of the tables or of a variant. `changes` are fields of `RunConfig` that replace the preset's."""
    if name not in PRESETS and name not in VARIANTS:
        raise ValueError(unknown("preset", name, [*PRESETS, *VARIANTS]))
    if recipe not in get_args(Recipe):
        raise ValueError(unknown("recipe", recipe, get_args(Recipe)))
    variant = VARIANTS.get(name)
    row = variant.row if variant else PRESETS[name]
    settings: dict[str, Any] = {
        "task": row.task,
        "task_options": variant.task_options if variant else {},
        "model": "lstm" if row.machine == "lstm" else "ntm",
        "model_options": row.model_options,
        "learning_rate": row.learning_rate,
        "episodes": 1_000_000,
        "preset": f"{name}/{recipe}",
    }
    if recipe == "paper":
        settings["task_options"] = PAPER_TASKS[row.task] | settings["task_options"]
    else:
        sure = dict(SURE.get(name, {}))
        settings["model_options"] = settings["model_options"] | sure.pop("model_options", {})
        settings |= sure
    changes = dict(changes)
    # a machine that stops when it is solved, or before anyone can tell, is not validated
    if changes.get("early_stop") or changes.get("episodes", WINDOW) < WINDOW:
        settings["validation"] = {}
    settings["model_options"] = settings["model_options"] | changes.pop("model_options", {})
    own = changes.pop("task_options", {})
    settings["task_options"] = settings["task_options"] | own
    lessons = {
        name: value
        for name, value in settings.get("curriculum", {}).items()
        if name not in own and GOES_WITH.get(name) not in own
    }
    settings["curriculum"] = lessons | changes.pop("curriculum", {})
    tape = settings["model_options"].get("memory_slots")
    if "slots" in settings and isinstance(tape, int) and tape > 0:  # a recipe's slots, on the tape asked for
        settings["slots"] = tuple(min(end, tape) for end in settings["slots"])
    return RunConfig(**_with_attempts(settings, changes))


def _with_attempts(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A recipe's settings with changes of them; of its validation, patience and attempts, what still makes sense.

    An attempt that is too short for the recipe's patience is the only one.
    """
    whole = settings | changes
    if "patience" in settings and "patience" not in changes:
        whole["patience"] = _patience(settings, whole)
        if not whole["patience"]:
            whole = _without(whole, changes, "attempts")
    if not whole.get("validation"):
        whole = _without(whole, changes, "validation_sequences", "passing_bits")
    if not whole.get("patience"):
        whole = _without(whole, changes, "hopeful_bits", *([] if whole.get("validation") else ["attempts"]))
    return whole


def _patience(settings: dict[str, Any], whole: dict[str, Any]) -> int:
    """A recipe's patience in a run with changes, or 0 if it does not fit there."""
    longer = whole["episodes"] / settings["episodes"] if whole.get("curriculum_share", 1) < 1 else 1
    patience = round(settings["patience"] * max(1, longer))  # lessons that end go on longer in a longer run
    plain = RunConfig(**whole | {"attempts": 1, "patience": 0, "hopeful_bits": 0.0})
    block = BLOCK * plain.batch_size
    plain = dataclasses.replace(plain, episodes=-(-plain.episodes // block) * block)
    return patience if whole["attempts"] > 1 and patience in plain.fitting_patience else 0


def _without(settings: dict[str, Any], changes: dict[str, Any], *names: str) -> dict[str, Any]:
    """Settings without some of the recipe's, unless they were asked for."""
    return {name: value for name, value in settings.items() if name in changes or name not in names}
