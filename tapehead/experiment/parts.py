"""The parts of an experiment, each typed data that checks itself, and the classes that a part may be of."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, Self

from tapehead.experiment.schedules import Schedule
from tapehead.kernels.update.optimisers import Optimiser
from tapehead.models import SequenceModel, check_model
from tapehead.registry import MODELS, OPTIMISERS, SCHEDULES, TASKS, Registry
from tapehead.suggest import unknown
from tapehead.tasks import Task
from tapehead.typed import Typed, canonical, plain

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
    slots: int | None = None
    """Memory slots in validation; without it, those of the model."""
    sequences: int = 200
    below_bits: float = 0.01
    """A validation cost below this passes."""

    def check(self) -> None:
        _at_least_one(self, "sequences", *(["slots"] if self.slots is not None else []))
        if self.slots is not None and not self.sizes:
            raise ValueError(f"slots is {self.slots}, but without sizes nothing is validated: give sizes.")
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


def make_part(part: str, values: Mapping[str, Any]) -> Typed:
    """A part from its plain values; of a named one `name` says which."""
    if part not in NAMED:
        return PARTS[part].from_plain(values, part)
    name = values.get("name", DEFAULT_NAMES.get(part))
    if not isinstance(name, str):
        raise ValueError(f"{part} has no name: give one, as in name = {next(iter(NAMED[part]))!r}.")
    return part_class(part, name).from_plain({k: v for k, v in values.items() if k != "name"}, f"{part} {name}")
