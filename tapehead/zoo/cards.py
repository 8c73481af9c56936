"""The card of a trained machine: what it is, where it comes from, what it promises. A sealed JSON file beside its
weights: one flipped bit in an option would load another machine."""

import dataclasses
from typing import Any, Self, TypedDict, get_type_hints

from tapehead import files
from tapehead.suggest import unknown
from tapehead.typed import fits


class _Point(TypedDict):
    """What readers use of a point's scores; the cost is None where it is infinite."""

    label: str
    sizes: dict[str, Any]
    slots: int | None
    sequences: int
    bits: float | None
    wrong: float
    perfect: float


class _Criterion(TypedDict):
    says: str
    points: list[str]
    under: float | None
    met: bool


class _Snapshots(TypedDict):
    episodes: list[int]
    sha256: str


_INSIDE = {"points": list[_Point], "criteria": list[_Criterion], "snapshots": _Snapshots | None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """What there is to know about a machine of the zoo."""

    name: str
    experiment: dict[str, Any]
    """The experiment that trains it, with its own seed alone, as plain values: `Experiment.from_plain` reads them."""
    parameters: int
    """How many numbers it has learned."""
    command: str
    """The line that trains it again."""
    seed: int
    solved_at: int | None
    """Episodes until the task was solved; None if it was not."""
    episodes: int
    """Episodes of training."""
    curve: list[tuple[int, float]]
    """Learning curve: episodes, and the mean bits per sequence since the point before."""
    points: list[dict[str, Any]]
    """Scores: label, sizes, slots, sequences, bits, wrong answers, perfect."""
    criteria: list[dict[str, Any]]
    """Acceptance criteria: says, points, under (None: no wrong answer), met."""
    headline: str
    """The label of the point that speaks for it."""
    chosen: str
    """Why this machine and not another of its run."""
    environment: dict[str, Any]
    """Where it was trained, with which versions."""
    licence: str
    sha256: str
    """Of the file of weights."""
    snapshots: dict[str, Any] | None = None
    """Its weights on the way: episodes of each, and the SHA-256 of their file."""

    def to_json(self) -> str:
        return files.seal(dataclasses.asdict(self)).decode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """A card, every field of it there, of its type and no other."""
        values = files.unseal(text)
        hints = get_type_hints(cls)
        for name in values:
            if name not in hints:
                raise ValueError(unknown("field", name, hints))
        values["curve"] = [(episodes, bits) for episodes, bits in values["curve"]]
        card = cls(**values)
        for name, hint in (*hints.items(), *_INSIDE.items()):
            if not fits(getattr(card, name), hint):
                raise ValueError(f"its {name} is not of its type")
        if card.headline not in [point["label"] for point in card.points]:
            raise ValueError(f"it has no scores at its headline, {card.headline}")
        return card

    @property
    def task(self) -> dict[str, Any]:
        """Name and options of its task."""
        return dict(self.experiment["task"])

    @property
    def model(self) -> dict[str, Any]:
        """Name and options of its model."""
        return dict(self.experiment["model"])

    @property
    def machine(self) -> str:
        """The kind of machine in words: "ntm, lstm controller" or "lstm"."""
        controller = self.model.get("controller")
        return f"{self.model['name']}, {controller} controller" if controller else str(self.model["name"])

    def point(self, label: str) -> dict[str, Any]:
        """The scores at a point."""
        return next(point for point in self.points if point["label"] == label)
