"""What a training run is: frozen data, written to the run's folder as JSON, and hashed."""

import dataclasses
import hashlib
import json
import math
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from tapehead.words import unknown

ModelName = Literal["ntm", "lstm"]
Optimiser = Literal["graves", "adam"]
Schedule = Literal["constant", "cosine"]
Clip = Literal["elementwise", "norm", "none"]

BLOCK = 100
"""Updates between two looks at the metrics. Part of what a run computes: solved seeds stop, and curricula end, between
blocks."""

WINDOW = 1000
"""Episodes over which "solved" is judged."""

VALIDATIONS = 20
"""How often at most the machines of an attempt are validated: at equal distances in whole blocks, and at its end."""

MOST = 2**31 - 1
"""Of anything that is counted."""

FLOAT32 = (2.0**-126, 2.0**128 * (1 - 2.0**-24))
"""The smallest and the largest number that float32 holds at full precision."""

# Where a run happens, not what it computes: these may change when it is resumed.
PLACE = ("backend", "device")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A run: S machines of one configuration, one per seed, on one task."""

    task: str
    task_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    model: ModelName = "ntm"
    model_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    preset: str = "custom"
    """Which preset the settings came from; a label."""
    seeds: tuple[int, ...] = (0,)
    episodes: int = 20_000
    """Training sequences for each seed; of one attempt, where it may have several. Whole updates, and with `patience`
    whole blocks of them."""
    batch_size: int = 1
    optimiser: Optimiser = "graves"
    learning_rate: float = 1e-4
    schedule: Schedule = "constant"
    """cosine: from `learning_rate` down to `final_rate` times it, over the episodes of an attempt."""
    final_rate: float = 0.05
    clip: Clip = "elementwise"
    clip_at: float = 10.0
    slots: tuple[int, int] | None = None
    """Memory slots drawn uniformly from this range for every sequence in training; None always uses them all."""
    curriculum: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Options of the task that hold in training alone; scores of a trained machine are always at `task_options`."""
    curriculum_share: float = 1.0
    """For which share of the episodes, from the first, the curriculum holds, in whole blocks of updates. What comes
    after are the task's own sequences, and what is judged in training (solved, the weights kept, early stop) is judged
    on those alone; a curriculum without an end (1) is judged on its own sequences."""
    average: float = 0.0
    """Decay of a moving average of the weights, which is then what the run delivers; 0 keeps none."""
    early_stop: bool = True
    """Stop a seed when it is solved (mean cost of its last 1,000 episodes under the task's threshold)."""
    validation: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Sizes of the task at which machines are validated on the way, once they are solved: what is kept are the weights
    of the lowest cost there, not those of the lowest mean in training. The sequences are never learned from."""
    validation_sequences: int = 200
    passing_bits: float = 0.01
    """A validation cost under this passes."""
    attempts: int = 1
    """How often a seed may begin. It begins again, with other weights, at the end of an attempt whose machine has not
    passed its validation, or when `patience` is over."""
    patience: int = 0
    """Episodes of an attempt, in whole blocks of updates, after which a seed begins again at once if it is hopeless:
    neither solved by then, nor near it. 0: nobody looks."""
    hopeful_bits: float = 0.0
    """Near it is a seed whose last 1,000 episodes cost less than this on average."""
    backend: str = "auto"
    device: str = "cpu"

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", tuple(self.seeds))
        if self.slots is not None:
            object.__setattr__(self, "slots", tuple(self.slots))
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                raise ValueError(unknown(name, str(getattr(self, name)), get_args(hint)))
        self._check_numbers()

    def _check_numbers(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds are {list(self.seeds)}, but a run needs one or more, all different.")
        for seed in self.seeds:
            if not 0 <= seed < 2**64:
                raise ValueError(f"seed is {seed}, but it must lie in 0 to 2^64 - 1.")
        for name in ("episodes", "batch_size", "validation_sequences", "attempts"):
            if not 1 <= getattr(self, name) <= MOST:
                raise ValueError(f"{name} is {getattr(self, name)}, but it must be at least 1 and under 2^31.")
        low, high = FLOAT32
        for name in ("learning_rate", "clip_at"):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(
                    f"{name} is {value}, but it must be a positive number that float32 holds: {low:.1e} to {high:.1e}."
                )
        if not (self.passing_bits > 0 and math.isfinite(self.passing_bits)):
            raise ValueError(f"passing_bits is {self.passing_bits}, but it must be a positive number.")
        if not 0 <= self.average < 1:
            raise ValueError(f"average is {self.average}, but a decay lies in 0 (none) to just under 1.")
        if not 0 <= self.final_rate <= 1:
            raise ValueError(f"final_rate is {self.final_rate}, but it is a fraction of the learning rate: 0 to 1.")
        if not 0 <= self.curriculum_share <= 1:
            raise ValueError(f"curriculum_share is {self.curriculum_share}, but it is a share of the episodes: 0 to 1.")
        self._check_attempts()
        if self.slots is not None and not 1 <= self.slots[0] <= self.slots[1]:
            raise ValueError(f"slots are {self.slots}, but a range of slots needs 1 <= low <= high.")

    def _check_attempts(self) -> None:
        if self.attempts > 1 and not (self.validation or self.patience):
            raise ValueError(
                f"attempts is {self.attempts}, but without validation sizes or patience nothing says who begins again."
            )
        if self.validation and self.early_stop:
            raise ValueError("a seed that stops when it is solved is not validated: give validation or early_stop.")
        for name in ("patience", "hopeful_bits"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value}, but it must be 0 (none) or more.")
        if self.hopeful_bits and not self.patience:
            raise ValueError(f"hopeful_bits is {self.hopeful_bits}, but without patience nobody looks.")
        if self.patience and self.attempts == 1:
            raise ValueError(f"patience is {self.patience}, but with one attempt nobody begins again.")
        fitting = self.fitting_patience
        if self.patience and self.patience not in fitting:
            says = (
                f"must lie in {fitting.start:,} to {fitting[-1]:,}" if fitting else "is nothing for so short attempts"
            )
            raise ValueError(
                f"patience is {self.patience}, but it {says}: seeds are judged by {WINDOW:,} episodes, not in a "
                "curriculum that ends, and at least a block of updates before the end."
            )

    @property
    def updates(self) -> int:
        """Updates of one attempt; whole blocks, where seeds begin again each at its own time."""
        return _blocks(self.episodes, self.batch_size) if self.patience else -(-self.episodes // self.batch_size)

    @property
    def patient_updates(self) -> int:
        """After how many updates of an attempt a seed that is hopeless begins again; 0 if nobody looks."""
        return _blocks(self.patience, self.batch_size)

    @property
    def fitting_patience(self) -> range:
        """What patience may be: when seeds can be judged, and before the last block."""
        unjudged = self.taught_updates if self.taught_updates < self.updates else 0
        return range(unjudged * self.batch_size + WINDOW, (self.updates - BLOCK) * self.batch_size + 1)

    @property
    def counts_attempts(self) -> bool:
        """Whether it is worth saying in which attempt a seed is."""
        return bool(self.validation) or self.attempts > 1

    @property
    def all_updates(self) -> int:
        """Updates of a seed that needs every attempt."""
        return self.attempts * self.updates

    def validates_at(self, done: int) -> bool:
        """Whether a machine is validated when so many updates of its attempt are done."""
        each = -(-self.updates // (VALIDATIONS * BLOCK)) * BLOCK
        return bool(self.validation) and (done % each == 0 or done == self.updates)

    @property
    def taught_updates(self) -> int:
        """How many updates of an attempt learn from the curriculum."""
        if not self.curriculum:
            return 0
        if self.curriculum_share == 1:
            return self.updates
        return min(round(self.curriculum_share * self.updates / BLOCK) * BLOCK, self.updates)

    def rate(self, update: int) -> float:
        """The learning rate of an update of an attempt, counted from 0."""
        if self.schedule == "constant":
            return self.learning_rate
        fraction = self.final_rate + (1 - self.final_rate) * 0.5 * (1 + math.cos(math.pi * update / self.updates))
        return self.learning_rate * fraction

    def to_dict(self) -> dict[str, Any]:
        """All settings; without those of a curriculum or validation that is not there, as in runs that knew of none."""
        none = {"curriculum": {}, "curriculum_share": self.curriculum_share if not self.curriculum else 1.0}
        if not self.validation:
            none |= {name: getattr(self, name) for name in ("validation", "validation_sequences", "passing_bits")}
        if not self.patience:
            none |= {"patience": 0, "hopeful_bits": 0.0}
        if not self.counts_attempts:
            none["attempts"] = 1
        return {
            name: value for name, value in dataclasses.asdict(self).items() if name not in none or value != none[name]
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        names = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                raise ValueError(unknown("setting", name, names))
        return cls(**values)

    @property
    def hash(self) -> str:
        """SHA-256 of what the run computes: everything but the place where it runs."""
        identity = {name: value for name, value in self.to_dict().items() if name not in PLACE}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _blocks(episodes: int, batch_size: int) -> int:
    """The updates of the fewest whole blocks that have so many episodes."""
    return -(-episodes // (batch_size * BLOCK)) * BLOCK
