"""Arguments of `tapehead zoo` and its commands."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from tapehead.arguments.fields import Common, Folder, Word

Machine = Annotated[Positional[str], arg(metavar="NAME")]


@dataclasses.dataclass(frozen=True)
class List(Common):
    """List the machines, each with its cost at the headline size."""


@dataclasses.dataclass(frozen=True)
class Show(Common):
    """Show a machine's card: what it is, how it was trained and chosen, its scores."""

    name: Machine
    """A machine of the zoo."""


@dataclasses.dataclass(frozen=True)
class Fetch(Common):
    """Copy a machine's weights and card out of the package."""

    name: Machine
    """A machine of the zoo."""
    out: Folder = Path()
    """The folder to copy into, made if it is not there."""


@dataclasses.dataclass(frozen=True)
class Add(Common):
    """Put the machine of median cost of a confirmation into the zoo of this source tree."""

    record: Annotated[Positional[Path], arg(metavar="RECORD")]
    """A record that tapehead confirm wrote."""
    work: Folder = Path("runs")
    """Where the run's folder is."""


@dataclasses.dataclass(frozen=True)
class Snapshots(Common):
    """Train a machine of the zoo again, on the device that made it, and save its weights during training."""

    name: Machine
    """A machine of the zoo."""
    backend: Word = "auto"
    """auto, reference, cpu or gpu."""
    device: Word = "cpu"
    """cpu, or cuda for a GPU."""


ACTIONS = (List, Show, Fetch, Add, Snapshots)


@dataclasses.dataclass(frozen=True)
class Zoo:
    """Trained machines that come with the package: list them, show one, copy it."""

    action: Any
    """One of ACTIONS."""
