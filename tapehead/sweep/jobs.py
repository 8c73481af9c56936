"""Jobs: an experiment with its seeds, and the names by which it is found again."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from tapehead.experiment.config import Experiment
from tapehead.typed import fits

MOST_JOBS = 5000
"""Of one sweep: a folder's list of them has then about ten million bytes."""

MOST_SEEDS = 10_000
"""Of one configuration."""

NAME_LETTERS = 90
"""Letters of a job's name at most, the digits of its hash not counted."""

NAME = re.compile(r"[A-Za-z0-9._=-]{1,120}")
"""What names a job's folder."""

HASH_DIGITS = 12


@dataclasses.dataclass(frozen=True)
class Job:
    """One experiment of a sweep. It never changes: another value makes another job."""

    label: str
    """What is trained, in a few words, without the seeds; jobs of one label differ in their seeds alone."""
    plain: dict[str, Any]
    """The experiment's plain values: it is made when it is needed, because its classes may be from outside."""
    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What makes this job different from the others of its sweep, by path: for tables and heat maps."""
    hash: str = ""
    """Of the experiment."""

    @classmethod
    def of(cls, label: str, experiment: Experiment, values: Mapping[str, Any] | None = None) -> Self:
        _check_findable(experiment)
        return cls(label=label, plain=experiment.to_plain(), values=dict(values or {}), hash=experiment.hash)

    @cached_property
    def experiment(self) -> Experiment:
        """Raises `ValueError` if its classes cannot be found, or make another experiment of these values."""
        experiment = Experiment.from_plain(self.plain, f"the job {self.name}")
        if experiment.hash != self.hash:
            raise ValueError(
                f"the job {self.name} was made by another version of tapehead or of its classes: use that version, or "
                "begin the sweep in another folder."
            )
        return experiment

    def check(self) -> None:
        """Raise `ValueError` if this process cannot make the experiment."""
        assert self.experiment.seeds == self.seeds

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(self.plain["seeds"])

    @property
    def name(self) -> str:
        """Of the job's folder: its label, its seeds, and the beginning of its hash."""
        return f"{slug(f'{self.label} {seed_words(self.seeds)}')}-{self.hash[:HASH_DIGITS]}"

    def to_plain(self) -> dict[str, Any]:
        return {"label": self.label, "hash": self.hash, "values": self.values, "experiment": self.plain}

    @classmethod
    def from_plain(cls, values: Any) -> Self:
        """A job of a folder's list; `ValueError` if it is none."""
        kinds = {"label": str, "hash": str, "values": dict[str, Any], "experiment": dict[str, Any]}
        if not isinstance(values, dict) or any(not fits(values.get(name), hint) for name, hint in kinds.items()):
            raise ValueError("one of its jobs has other fields than this version of tapehead writes")
        seeds = values["experiment"].get("seeds")
        if not (fits(seeds, list[int]) and seeds and re.fullmatch("[0-9a-f]{64}", values["hash"])):
            raise ValueError("one of its jobs has no seeds or no hash")
        job = cls(values["label"], values["experiment"], values["values"], values["hash"])
        if not NAME.fullmatch(job.name):
            raise ValueError(f"one of its jobs has the label {values['label']!r}")
        return job


def distinct(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs, each experiment once: the first of those that are equal."""
    found: dict[str, Job] = {}
    for job in jobs:
        found.setdefault(job.hash, job)
    if not found:
        raise ValueError("the sweep has no jobs: give at least one experiment.")
    if len(found) > MOST_JOBS:
        raise ValueError(f"the sweep has {len(found):,} jobs, but at most {MOST_JOBS:,} fit into one: split it.")
    return tuple(found.values())


def with_seeds(
    label: str, experiment: Experiment, seeds: Sequence[int], side_by_side: int, values: Mapping[str, Any] | None = None
) -> list[Job]:
    """The jobs of one configuration: so many seeds in each, in order."""
    chunks = [tuple(seeds[at : at + side_by_side]) for at in range(0, len(seeds), side_by_side)]
    return [Job.of(label, dataclasses.replace(experiment, seeds=chunk), values) for chunk in chunks]


def slug(text: str) -> str:
    """A text as a part of a file's name."""
    letters = re.sub(r"[^A-Za-z0-9._=]+", "-", text)
    return letters.strip("-.")[:NAME_LETTERS].rstrip("-.") or "job"


def seed_words(seeds: Sequence[int]) -> str:
    """ "seed 3", "seeds 0 to 19", "seeds 1, 5, 7"."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seeds {', '.join(map(str, seeds))}"


def words(values: Mapping[str, Any]) -> str:
    """Values by path as a label: "memory_slots 16 memory_width 4"."""
    return " ".join(_word(path, value) for path, value in values.items())


def _word(path: str, value: Any) -> str:
    part, _, name = path.rpartition(".")
    text = value if isinstance(value, str) else json.dumps(value)
    return text if name in ("name", "experiment", "recipe") else f"{name if part != 'place' else path} {text}"


def _check_findable(experiment: Experiment) -> None:
    """Refuse classes of the main program: a worker is another program, and cannot import them."""
    for part, values in experiment.to_plain().items():
        name = values.get("name") if isinstance(values, dict) else None
        if isinstance(name, str) and name.startswith("__main__:"):
            raise ValueError(
                f"the {part} {name} is a class of the main program, which the workers of a sweep cannot import: put it "
                "into a module of its own."
            )
