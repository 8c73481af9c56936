"""What can be asked of the command line: a frozen dataclass for each command, whose docstrings are the help texts.

The work is in `tapehead.commands`, a module for each command. Nothing slow is imported here, so that help is instant.
"""

from tapehead.arguments import machines, sweeping
from tapehead.arguments.looking import Eval, Export, Figures, Report, Runs, Site, SubLayers, View
from tapehead.arguments.machines import Add, Fetch, List, Show, Snapshots, Zoo
from tapehead.arguments.sweeping import Pack, Records, Run, Status, Sweep, Unpack
from tapehead.arguments.tools import Bench, Completion, Doctor, Presets, Tasks
from tapehead.arguments.training import Confirm, Reproduce, Train

__all__ = [
    "ACTIONS",
    "COMMANDS",
    "GROUPS",
    "Add",
    "Bench",
    "Completion",
    "Confirm",
    "Doctor",
    "Eval",
    "Export",
    "Fetch",
    "Figures",
    "List",
    "Pack",
    "Presets",
    "Records",
    "Report",
    "Reproduce",
    "Run",
    "Runs",
    "Show",
    "Site",
    "Snapshots",
    "Status",
    "SubLayers",
    "Sweep",
    "Tasks",
    "Train",
    "Unpack",
    "View",
    "Zoo",
    "names",
]


def names(kinds: tuple[type, ...]) -> dict[str, type]:
    """Commands by the words that they are called by."""
    return {kind.__name__.lower(): kind for kind in kinds}


GROUPS: dict[str, tuple[type, ...]] = {
    "Train": (Train, Sweep, Confirm, Reproduce),
    "Look at what was trained": (Runs, Eval, Figures, View, Site, Export, SubLayers, Report),
    "Machines, tasks and this installation": (Zoo, Tasks, Presets, Bench, Doctor, Completion),
}
"""All commands, as the help shows them."""

COMMANDS = names(tuple(kind for group in GROUPS.values() for kind in group))
ACTIONS = {"zoo": names(machines.ACTIONS), "sweep": names(sweeping.ACTIONS)}
"""Commands of commands."""
