"""What an experiment is: typed data by composition. Each part checks itself; an experiment checks that they fit
together.

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
from typing import Any, Literal, Self

from tapehead import checks
from tapehead.experiment.schedules import Constant, Schedule
from tapehead.kernels.update.optimisers import Graves, Optimiser
from tapehead.models import SequenceModel, check_model
from tapehead.registry import MODELS, OPTIMISERS, SCHEDULES, TASKS, Registry
from tapehead.suggest import unknown
from tapehead.tasks import Task
from tapehead.typed import Typed, canonical, plain, to_toml

BLOCK = 100
"""Updates between two records of the metrics. Part of what a run computes: seeds leave, curricula end and seeds are
restarted between blocks only."""

WINDOW = 1000
"""Episodes over which a seed's mean cost is taken, by which it is solved or not."""

VALIDATIONS = 20
"""How often at most the machines of an attempt are validated: at equal distances in whole blocks, and at its end."""


MOST = 2**31 - 1
"""Of anything that is counted."""


def _at_least_one(part: Typed, *names: str) -> None:
    for name in names:
        if not 1 <= getattr(part, name) <= MOST:
            raise ValueError(f"{name} is {getattr(part, name)}, but it must be at least 1 and under 2^31.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(Typed):
    """A model by its name in the registry, or as module:Class, with the keywords of its class."""

    name: str = "ntm"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        kind = check_model(MODELS.resolve(self.name), self.name)
        known = kind.options()
        for option in self.options:
            if option not in known:
                raise ValueError(unknown(f"option of {self.name}", option, known))
        options = {key: canonical(value, known[key], key) for key, value in self.options.items()}
        object.__setattr__(self, "options", kind.canonical_options(options))
        object.__setattr__(self, "name", MODELS.name_of(kind))

    def build(self, task: Task, backend: str = "auto") -> SequenceModel:
        """The model, sized for a task."""
        model: SequenceModel = MODELS.resolve(self.name)(task.input_size, task.output_size, **self.options)
        model.choose_backend(backend)
        return model

    def to_plain(self) -> dict[str, Any]:
        return {"name": self.name, **plain(self.options)}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any], where: str = "model") -> Self:
        return cls(name=values.get("name", cls.name), options={k: v for k, v in values.items() if k != "name"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Typed):
    """How much is learned from."""

    episodes: int = 100_000
    """Training sequences of each seed, of one attempt; whole updates, and with `restarts.after` whole blocks of
    them."""
    batch_size: int = 1
    """Sequences of one update."""
    slots: tuple[int, int] | None = None
    """Memory slots drawn uniformly from this range for every training sequence; without it, all of them."""
    average: float = 0.0
    """Decay of an exponential moving average of the weights, which is then what the run delivers; 0 disables it."""
    early_stop: bool = True
    """Stop a seed when it is solved: when the mean cost of its last 1,000 episodes is below the task's threshold."""

    def check(self) -> None:
        _at_least_one(self, "episodes", "batch_size")
        if not 0 <= self.average < 1:
            raise ValueError(f"average is {self.average}, but a decay lies in 0 (none) to just under 1.")
        if self.slots is not None and not 1 <= self.slots[0] <= self.slots[1]:
            raise ValueError(f"slots are {self.slots}, but a range of slots needs 1 <= low <= high.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clipping(Typed):
    """Gradients before the optimiser."""

    kind: Literal["elementwise", "norm", "none"] = "elementwise"
    """elementwise: every component to +- `limit`; norm: each seed's whole gradient to a norm of `limit`."""
    limit: float = 10.0

    def check(self) -> None:
        if not self.limit > 0:
            raise ValueError(f"limit is {self.limit}, but gradients are clipped at a positive number.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curriculum(Typed):
    """Options of the task in training alone; a trained machine is always scored at the task's own."""

    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    share: float = 1.0
    """For this share of the episodes, from the first, the curriculum holds, in whole blocks of updates. Then come the
    task's own sequences, and a seed is judged (solved, weights kept, early stop) by those alone; with a share of 1 by
    the curriculum's."""

    def check(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is {self.share}, but it is a share of the episodes: 0 to 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Restarts(Typed):
    """Seeds that are trained again, with other initial weights."""

    attempts: int = 1
    """How often a seed is trained at most. Restarted are, at the end of an attempt, seeds whose machine has not passed
    the validation, and those that `after` and `above_bits` say."""
    after: int = 0
    """Restart seeds that after this many episodes of an attempt, in whole blocks of updates, are neither solved nor
    below `above_bits`; 0 disables it."""
    above_bits: float = 0.0
    """Seeds whose last 1,000 episodes have a lower mean cost than this are not restarted by `after`."""

    def check(self) -> None:
        _at_least_one(self, "attempts")
        for name in ("after", "above_bits"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, but it must be 0 (none) or more.")
        if self.above_bits and not self.after:
            raise ValueError(f"above_bits is {self.above_bits}, but without `after` no seed is compared with it.")
        if self.after and self.attempts == 1:
            raise ValueError(f"after is {self.after}, but with one attempt no seed is restarted: give more attempts.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Validation(Typed):
    """Sizes of the task at which solved machines are scored during training; the weights kept are those of the lowest
    cost there. The sequences are neither trained on nor scored in the end."""

    sizes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Without sizes there is no validation, and the weights kept are those of the lowest mean cost in training."""
    sequences: int = 200
    below_bits: float = 0.01
    """A validation cost below this passes."""

    def check(self) -> None:
        _at_least_one(self, "sequences")
        if not self.below_bits > 0:
            raise ValueError(f"below_bits is {self.below_bits}, but it must be a positive number.")

    def __bool__(self) -> bool:
        return bool(self.sizes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation(Typed):
    """How trained machines are scored."""

    sizes: tuple[dict[str, Any], ...] | None = None
    """Sizes of the task; without them, those that the task names."""
    sequences: int = 200
    """Sequences at each of them."""

    def check(self) -> None:
        _at_least_one(self, "sequences")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place(Typed):
    """Where a run happens, not what it computes: may change when it is resumed."""

    device: str = "cpu"
    backend: str = "auto"


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
        parts: dict[str, Any] = {name: _part(name, values[name]) if name in PARTS else values[name] for name in values}
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


PARTS: dict[str, type[Typed]] = {
    "task": Task,
    "model": Model,
    "optimiser": Optimiser,
    "schedule": Schedule,
    "clipping": Clipping,
    "training": Training,
    "curriculum": Curriculum,
    "restarts": Restarts,
    "validation": Validation,
    "evaluation": Evaluation,
    "place": Place,
}

NAMED: dict[str, Registry] = {"task": TASKS, "optimiser": OPTIMISERS, "schedule": SCHEDULES}
"""Parts that are one of several classes, by name."""

DEFAULT_NAMES = {"model": "ntm", "optimiser": "graves", "schedule": "constant"}


def part_class(part: str, name: str) -> type[Typed]:
    """The class of a part: of a named one, the class of that name."""
    if part not in NAMED:
        return PARTS[part]
    kind = NAMED[part].resolve(name)
    if not (isinstance(kind, type) and issubclass(kind, PARTS[part])):
        raise ValueError(f"{name} is no {PARTS[part].__name__}: give a subclass of it.")
    return kind


def _part(part: str, values: Mapping[str, Any]) -> Typed:
    """A part from its plain values; of a named one `name` says which."""
    if part not in NAMED:
        return PARTS[part].from_plain(values, part)
    name = values.get("name", DEFAULT_NAMES.get(part))
    if not isinstance(name, str):
        raise ValueError(f"{part} has no name: give one, as in name = {next(iter(NAMED[part]))!r}.")
    return part_class(part, name).from_plain({k: v for k, v in values.items() if k != "name"}, f"{part} {name}")


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


def read_toml(path: Path) -> dict[str, Any]:
    """The plain values of a TOML file, or one sentence why there are none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): give an experiment's TOML file.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML ({error}): mend it, or write one with --write-config.") from error
