"""`tapehead tasks`: the five tasks, with their time diagrams."""

import inspect
import sys
from typing import TYPE_CHECKING

from tapehead.registry import TASKS, resolve
from tapehead.suggest import unknown

if TYPE_CHECKING:
    from tapehead import cli


def run(options: "cli.Tasks") -> int:
    if options.task is not None and options.task not in TASKS:
        raise ValueError(unknown("task", options.task, TASKS))
    for name in [options.task] if options.task else TASKS:
        kind = resolve(TASKS[name])
        task = kind()
        print(f"{name}   ({task.input_size} inputs, {task.output_size} outputs, chance {task.chance_bits:g} bits)\n")
        print(inspect.getdoc(sys.modules[kind.__module__]), end="\n\n\n")
    return 0
