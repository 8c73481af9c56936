"""What an experiment is: typed data by composition. Each part (parts.py) checks itself; an experiment checks that they
fit together.

    Experiment
      task         a task with its training sizes             optimiser    with its hyper-parameters
      model        a model's name and options                 schedule     of the learning rate
      training     episodes, batch, slots, average            clipping     of the gradients
      curriculum   task options in training alone             restarts     which seeds are restarted, how often
      validation   sizes by which weights are chosen          evaluation   sizes at which a trained machine is scored
      seeds        one machine each                           place        device and backend: where, not what

It goes to and from plain values (JSON, TOML). Two experiments are the same if their `hash` is.
"""

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tapehead import checks
from tapehead.experiment.parts import (
    BLOCK,
    NAMED,
    PARTS,
    VALIDATIONS,
    WINDOW,
    Clipping,
    Curriculum,
    Evaluation,
    Model,
    Place,
    Restarts,
    Training,
    Validation,
    make_part,
)
from tapehead.experiment.schedules import Constant, Schedule
from tapehead.kernels.update.optimisers import Graves, Optimiser
from tapehead.models import SequenceModel
from tapehead.suggest import unknown
from tapehead.tasks import Task
from tapehead.typed import Typed, to_toml


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(Typed):
    """S machines of one configuration, one per seed, trained on one task."""

    task: Task
    model: Model = dataclasses.field(default_factory=Model)
    optimiser: Optimiser = dataclasses.field(default_factory=Graves)
    schedule: Schedule = dataclasses.field(default_factory=Constant)
    clipping: Clipping = dataclasses.field(default_factory=Clipping)
    training: Training = dataclasses.field(default_factory=Training)
    curriculum: Curriculum = dataclasses.field(default_factory=Curriculum)
    restarts: Restarts = dataclasses.field(default_factory=Restarts)
    validation: Validation = dataclasses.field(default_factory=Validation)
    evaluation: Evaluation = dataclasses.field(default_factory=Evaluation)
    seeds: tuple[int, ...] = (0,)
    place: Place = dataclasses.field(default_factory=Place)
    recipe: str = "custom"
    """Where the settings came from; a label, not a part of what is computed."""

    def check(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds are {list(self.seeds)}, but a run needs one or more, all different.")
        for seed in self.seeds:
            if not 0 <= seed < 2**64:
                raise ValueError(f"seed is {seed}, but it must lie in 0 to 2^64 - 1.")
        self._make_sizes_canonical()
        self._check_curriculum()
        self._check_restarts()

    def _make_sizes_canonical(self) -> None:
        """Options and sizes of the task in the form that the task has them; those that it does not have are refused."""
        taught = self.curriculum_task
        own = {name: getattr(taught, name) for name in self.curriculum.options}
        object.__setattr__(self, "curriculum", dataclasses.replace(self.curriculum, options=own))
        validated = self.task.canonical_sizes(self.validation.sizes)
        object.__setattr__(self, "validation", dataclasses.replace(self.validation, sizes=validated))
        for sizes in self.task.generalisation:
            if not isinstance(sizes, Mapping):
                raise ValueError(
                    f"{type(self.task).__name__}.generalisation is {self.task.generalisation!r}, but it must be a "
                    "tuple of sizes, such as ({'length': 20},)."
                )
            self.task.ranges(**sizes)
        if self.evaluation.sizes is not None:
            scored = tuple(map(self.task.canonical_sizes, self.evaluation.sizes))
            object.__setattr__(self, "evaluation", dataclasses.replace(self.evaluation, sizes=scored))

    def _check_curriculum(self) -> None:
        channels, taught = ((task.input_size, task.output_size) for task in (self.task, self.curriculum_task))
        if taught != channels:
            raise ValueError(
                f"the curriculum {self.curriculum.options} makes {taught[0]} inputs and {taught[1]} outputs of the "
                f"task's {channels[0]} and {channels[1]}: it may change sizes and bits, not channels."
            )

    def _check_restarts(self) -> None:
        restarts = self.restarts
        if restarts.attempts > 1 and not (self.validation or restarts.after):
            raise ValueError(
                f"attempts is {restarts.attempts}, but nothing says which seeds to restart: give validation sizes, or "
                "`after`."
            )
        if self.validation and self.training.early_stop:
            raise ValueError("a seed that stops when it is solved is not validated: give validation or early_stop.")
        fitting = self.restart_range
        if restarts.after and restarts.after not in fitting:
            says = (
                f"must lie in {fitting.start:,} to {fitting[-1]:,}"
                if fitting
                else "does not fit: the attempts are too short"
            )
            raise ValueError(
                f"restarts after {restarts.after} episodes: that {says}. Seeds are judged by {WINDOW:,} episodes, not "
                "in a curriculum that ends, and at least a block of updates before the end."
            )

    # --- what happens when -------------------------------------------------------------------------------------------

    @property
    def curriculum_task(self) -> Task:
        """The task that is trained on while the curriculum holds."""
        return dataclasses.replace(self.task, **_known(self.curriculum.options, self.task))

    @property
    def updates(self) -> int:
        """Updates of one attempt; whole blocks, where seeds are restarted each at its own time."""
        episodes, batch = self.training.episodes, self.training.batch_size
        return _blocks(episodes, batch) if self.restarts.after else -(-episodes // batch)

    @property
    def restart_updates(self) -> int:
        """The update of an attempt after which `restarts.after` holds; 0 if it is disabled."""
        return _blocks(self.restarts.after, self.training.batch_size)

    @property
    def restart_range(self) -> range:
        """What `restarts.after` may be: when seeds can be judged, and before the last block."""
        batch = self.training.batch_size
        unjudged = self.curriculum_updates if self.curriculum_updates < self.updates else 0
        return range(unjudged * batch + WINDOW, (self.updates - BLOCK) * batch + 1)

    @property
    def all_updates(self) -> int:
        """Updates of a seed that needs every attempt."""
        return self.restarts.attempts * self.updates

    @property
    def curriculum_updates(self) -> int:
        """How many updates of an attempt are trained on the curriculum."""
        if not self.curriculum.options:
            return 0
        if self.curriculum.share == 1:
            return self.updates
        return min(round(self.curriculum.share * self.updates / BLOCK) * BLOCK, self.updates)

    def validates_at(self, done: int) -> bool:
        """Whether a machine is validated when so many updates of its attempt are done."""
        each = -(-self.updates // (VALIDATIONS * BLOCK)) * BLOCK
        return bool(self.validation) and (done % each == 0 or done == self.updates)

    def rate(self, update: int) -> float:
        """The learning rate of an update of an attempt, counted from 0."""
        return self.optimiser.learning_rate * self.schedule.factor(update, self.updates)

    def build(self) -> SequenceModel:
        """The model, on the place's device and backend; refuses a backend that cannot run there."""
        model = self.model.build(self.task, self.place.backend).to(self.place.device)
        model.backend_in_use()
        if self.training.slots is not None:
            model.check_slots(self.training.slots[1])
        if self.validation.slots is not None and model.memory_slots is None:
            model.check_slots(self.validation.slots)  # says that there is no memory
        return model

    # --- plain values ------------------------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        values = super().to_plain()
        for part, registry in NAMED.items():
            own = getattr(self, part)
            values[part] = {"name": registry.name_of(type(own))} | own.to_plain()
        return {name: values[name] for name in ("recipe", "seeds", *values)}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any], where: str = "the experiment") -> Self:
        known = PARTS | {"recipe": str, "seeds": tuple[int, ...]}
        if not isinstance(values, Mapping):
            raise ValueError(f"{where} is {checks.shown(values)}, but it must be a table of parts.")
        for name, value in values.items():
            if name not in known:
                raise ValueError(unknown(f"part of {where}", str(name), known))
            if name in PARTS and not isinstance(value, Mapping):
                raise ValueError(f"{name} is {value!r}, but it must be a table of names and values.")
        if "task" not in values:
            raise ValueError(f"{where} has no task: give one, as in task = {{ name = 'copy' }}.")
        parts: dict[str, Any] = {
            name: make_part(name, values[name]) if name in PARTS else values[name] for name in values
        }
        return cls(**parts)

    def with_values(self, changes: Mapping[str, Any]) -> Self:
        """The same experiment with other values, by "part.name" or by a top-level name.

        One that computes something else for the same seeds no longer has the recipe's label. Where a part is given
        another name (another optimiser, say), those of its values go that the new one does not have."""
        other = type(self).from_plain(changed(self.to_plain(), changes))
        same = dataclasses.replace(other, seeds=self.seeds).hash == self.hash
        return (
            other
            if same or "/" not in other.recipe or "recipe" in changes
            else dataclasses.replace(other, recipe="custom")
        )

    def to_toml(self) -> str:
        """A file from which `tapehead train` makes this experiment."""
        return to_toml(self.to_plain())

    @property
    def hash(self) -> str:
        """SHA-256 of what the run computes: everything but its label and the place where it runs."""
        identity = {name: value for name, value in self.to_plain().items() if name not in ("place", "recipe")}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of an experiment with some of them replaced, by "part.name" or top-level name."""
    result = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    for path in changes:
        part, dot, _ = path.partition(".")
        if dot and not isinstance(result.get(part, {}), dict):
            raise ValueError(f"{path} was given, but {part} has no values of its own: give {part} itself.")
    for path, value in changes.items():  # names first: what belongs to the old one goes
        part, _, name = path.partition(".")
        if name == "name" and result.get(part, {}).get("name") not in (None, value):
            kept = ("learning_rate",) if part == "optimiser" else ()
            result[part] = {key: old for key, old in result[part].items() if key in kept}
            result[part]["name"] = value
    for path, value in changes.items():
        part, _, name = path.partition(".")
        if name:
            result.setdefault(part, {})[name] = value
        else:
            result[part] = value
    return result


def _known(options: Mapping[str, Any], task: Task) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(task)]
    for name in options:
        if name not in names:
            raise ValueError(unknown(f"option of {task.name} in the curriculum", name, names))
    return dict(options)


def _blocks(episodes: int, batch_size: int) -> int:
    """The updates of the fewest whole blocks that have so many episodes."""
    return -(-episodes // (batch_size * BLOCK)) * BLOCK


def read_toml(path: Path, of: str = "an experiment") -> dict[str, Any]:
    """The plain values of a TOML file, or one sentence why there are none. of: what the file is to describe."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): give the TOML file of {of}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        way = ", or write one with --write-config" if of == "an experiment" else ""
        raise ValueError(f"{path} is not TOML ({error}): mend it{way}.") from error
