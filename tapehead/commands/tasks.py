"""`tapehead tasks`: the tasks, with their time diagrams."""

import inspect
import sys
from typing import TYPE_CHECKING

from tapehead.registry import TASKS
from tapehead.tasks import make_task

if TYPE_CHECKING:
    from tapehead import arguments


def run(options: "arguments.Tasks") -> int:
    for name in [options.task] if options.task else TASKS:
        task = make_task(name)
        kind = type(task)
        chance = "" if task.chance_bits is None else f", chance {task.chance_bits:g} bits"
        print(f"{name}   ({task.input_size} inputs, {task.output_size} outputs{chance})\n")
        print(inspect.getdoc(sys.modules[kind.__module__]) or inspect.getdoc(kind), end="\n\n\n")
    return 0
