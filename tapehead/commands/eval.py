"""`tapehead eval`: score trained machines at any sizes, on more sequences or another backend."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapehead import zoo
from tapehead.commands.machines import is_run
from tapehead.commands.options import check_count, check_device
from tapehead.commands.progress import Progress
from tapehead.commands.tables import print_table, score_table
from tapehead.evaluation.generalisation import Score
from tapehead.experiment.config import Experiment
from tapehead.experiment.folder import read_config
from tapehead.experiment.run import Observer, evaluate
from tapehead.tasks import Size, Task
from tapehead.typed import canonical, hints, parse

if TYPE_CHECKING:
    from tapehead import arguments


def run(options: "arguments.Eval") -> int:
    check_count("--episodes", options.episodes)
    check_device(options.device)
    if is_run(options.run):
        experiment = read_config(Path(options.run))
    else:
        experiment = Experiment.from_plain(zoo.card(options.run).experiment)
    sizes = chosen_sizes(experiment.task, options.sizes) if options.sizes else None
    with Progress() as progress:
        scores = _scores(options, experiment, sizes, progress)
    if options.json:
        values = {"seeds": list(experiment.seeds), "generalisation": [score.to_plain() for score in scores]}
        print(json.dumps(values, allow_nan=False))
    else:
        print_table(score_table(experiment.seeds, scores))
    return 0


def _scores(
    options: "arguments.Eval", experiment: Experiment, sizes: list[dict[str, Size]] | None, observer: Observer
) -> list[Score]:
    how: dict[str, Any] = {"sequences": options.episodes, "observer": observer}
    if is_run(options.run):
        return evaluate(options.run, sizes=sizes, device=options.device, backend=options.backend, **how)
    model = zoo.load(options.run)
    model.choose_backend(options.backend)
    model.to(options.device)
    model.backend_in_use()  # refuses a backend that cannot run here
    return evaluate(model, experiment.task, experiment.evaluation.sizes if sizes is None else sizes, **how)


def chosen_sizes(task: Task, texts: Mapping[str, str]) -> list[dict[str, Size]]:
    """Every combination of the sizes of `--sizes length=37,73 repeats=10`; the others are those of training."""
    given = {name: _each(text) for name, text in texts.items()}
    fields = {name: hint for name, hint in hints(type(task)).items() if name in task.limits}
    combined = [dict(zip(given, values, strict=True)) for values in itertools.product(*given.values())]
    return [task.canonical_sizes({name: _size(name, text, fields) for name, text in one.items()}) for one in combined]


def _each(text: str) -> Sequence[str]:
    """37,73 as two, but [10,20] as one."""
    return re.findall(r"\[[^\]]*\]|[^,]+", text)


def _size(name: str, text: str, fields: Mapping[str, Any]) -> Any:
    """A size as the task has it; a name that is none of its sizes is left to the task to refuse."""
    return canonical(parse(text, fields[name]), fields[name], f"--sizes {name}") if name in fields else text
