"""Arguments of the commands that explain, check and measure."""

import dataclasses
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from tapehead.arguments.fields import RESULTS, Common, Count, File, Folder, Name


@dataclasses.dataclass(frozen=True)
class Presets(Common):
    """List the rows of the paper's Tables 1 to 3, with our parameter counts beside the printed ones."""


@dataclasses.dataclass(frozen=True)
class Tasks(Common):
    """Explain the tasks: what goes in, what must come out, when."""

    task: Annotated[Positional[str | None], arg(metavar="[TASK]", help_behavior_hint="")] = None
    """Only this one: a name, or module:Class."""


@dataclasses.dataclass(frozen=True)
class Doctor(Common):
    """Check this installation: versions, backends, folders, and whether a small machine agrees with the reference."""


@dataclasses.dataclass(frozen=True)
class Bench(Common):
    """Measure the speed of complete updates: first the gate, then the table, then how the cost grows."""

    experiment: File = None
    """Only the updates of this experiment: its TOML file, or a run's folder."""
    device: Name = None
    """cpu, or cuda for a GPU (default: cpu, or the experiment's own)."""
    rounds: Count = 5
    """How often everything is timed; the table shows medians and spread."""
    growth: bool = True
    """Also measure how the cost grows with time steps, slots, width, heads and batch."""
    out: Folder = RESULTS / "bench"
    """Where the dated results go; made if it is not there."""


@dataclasses.dataclass(frozen=True)
class Completion(Common):
    """Print a script by which a shell completes commands, options and names.

    bash: eval "$(tapehead completion bash)" in ~/.bashrc.
    zsh: eval "$(tapehead completion zsh)" in ~/.zshrc, behind compinit.
    fish: tapehead completion fish > ~/.config/fish/completions/tapehead.fish
    """

    shell: Annotated[Positional[Literal["bash", "zsh", "fish"]], arg(metavar="SHELL")]
    """bash, zsh or fish."""
