"""A folder of results: the records of confirmations, and trained machines to draw.

Records are `*.json` in the folder and in its sub-folders, as `tapehead confirm --out FOLDER` writes them. Machines are
in `machines/`: the folder of a run, `machines/ROW/`, or a model file with its card, `machines/ROW.safetensors` and
`machines/ROW.json`, as `tapehead zoo fetch` copies them. A row that has none there is taken from the zoo.
"""

import dataclasses
import json
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from tapehead import files
from tapehead.experiment.config import Experiment
from tapehead.experiment.folder import read_config
from tapehead.models import SequenceModel
from tapehead.paper.recipes import row_experiment, rows
from tapehead.paper.record_form import flaw
from tapehead.tasks import Task
from tapehead.zoo import store

KIND = "tapehead confirmation"
"""What a record says of itself."""
MACHINES = "machines"

Record = dict[str, Any]


class Machine(NamedTuple):
    """A trained machine and where it comes from."""

    row: str
    model: SequenceModel
    task: Task
    seed: int
    origin: str
    """In words: "seed 2005 of the zoo's copy-ntm-lstm, median of ..."."""


@dataclasses.dataclass(frozen=True)
class Results:
    folder: Path
    records: tuple[Record, ...] = ()
    """Every record of the folder, with its `file` relative to the folder."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        if not folder.is_dir():
            raise ValueError(f"{folder} is no folder of results: give one that tapehead confirm has written to.")
        paths = sorted([*folder.glob("*.json"), *folder.glob("*/*.json")])
        found = {path.relative_to(folder).as_posix(): parse(path) for path in paths if path.parent.name != MACHINES}
        return cls(
            folder, tuple(record | {"file": file} for file, record in found.items() if record.get("kind") == KIND)
        )

    def fitting(self, row: str, recipe: str = "tuned", *, with_curves: bool = False) -> list[Record]:
        """The records of a row trained with a recipe, the preferred one first: those of more seeds, then those with
        learning curves, then those in the folder itself; for a figure of curves, those with curves first."""
        found = [record for record in self.records if (record["row"], record["recipe"]) == (row, recipe)]

        def preference(record: Record) -> tuple[bool, int, bool, int]:
            curves = has_curves(record)
            return with_curves and curves, len(record["machines"]), curves, -record["file"].count("/")

        return sorted(found, key=preference, reverse=True)

    def record(self, row: str, recipe: str = "tuned", *, with_curves: bool = False) -> Record | None:
        """The preferred one; None if there is none."""
        return next(iter(self.fitting(row, recipe, with_curves=with_curves)), None)

    def machine(self, row: str) -> Machine | None:
        """The machine of a row, from `machines/` or from the zoo; None if there is none."""
        if row not in self._loaded:
            self._loaded[row] = self._load_machine(row)
        return self._loaded[row]

    @cached_property
    def _loaded(self) -> dict[str, Machine | None]:
        return {}

    def _load_machine(self, row: str) -> Machine | None:
        folder = self.folder / MACHINES
        run = folder / row
        if (run / "config.json").exists():
            from tapehead.figures.draw import view_run  # here, because matplotlib is slow to load

            view, experiment = view_run(run), read_config(run)
            words = f"{experiment.recipe}, {experiment.training.episodes:,} sequences"
            return Machine(row, view.model, view.task, view.seed, f"seed {view.seed} of the run {run} ({words})")
        if row in store.names(folder):
            return _of_zoo(row, folder, f"{folder}'s {row}")
        return _of_zoo(row, None, f"the zoo's {row}") if row in store.names() else None


def command_of(record: Record) -> str:
    """The line that makes a record again; FILE.toml has its experiment, where that is not of a row."""
    row, recipe, seeds = record["row"], record["recipe"], record["seeds"]
    if recipe == "custom" or row not in rows():
        return f"tapehead confirm FILE.toml --seed {seeds[0]} --seeds {len(seeds)}"
    whole = Experiment.from_plain(record["experiment"])
    usual = row_experiment(row, recipe).training.episodes
    words = ["tapehead confirm", row]
    words += ["--recipe", recipe] if recipe != "tuned" else []
    words += ["--seed", str(seeds[0]), "--seeds", str(len(seeds))]
    words += ["--episodes", str(whole.training.episodes)] if whole.training.episodes != usual else []
    words += ["--device", whole.place.device] if whole.place.device != "cpu" else []
    return " ".join(words)


def has_curves(record: Record) -> bool:
    """Whether a record was made since records have learning curves; a seed whose costs were never finite has none."""
    return any(machine.get("curve") for machine in record["machines"])


def parse(path: Path) -> Record:
    """The values of a JSON file, or one sentence why it has none; those of a record are checked."""
    try:
        values = json.loads(files.read(path, links=True))
    except files.NotPlain as error:
        raise ValueError(f"{path} {error.reason}: give a record that tapehead confirm wrote.") from error
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}): give a record that tapehead confirm wrote."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(damaged(path, error)) from error
    if not isinstance(values, dict):
        raise ValueError(damaged(path, "it holds no record"))
    if values.get("kind") == KIND and (wrong := flaw(values)) is not None:
        raise ValueError(damaged(path, wrong))
    return values


def damaged(path: Path, why: object) -> str:
    return f"{path} is damaged ({why}): confirm that row again, or remove the file."


def _of_zoo(row: str, folder: Path | None, name: str) -> Machine:
    card = store.card(row, folder)
    experiment = Experiment.from_plain(card.experiment, f"the card of {card.name}")
    return Machine(
        row, store.load(row, folder=folder), experiment.task, card.seed, f"seed {card.seed} of {name}, {card.chosen}"
    )
