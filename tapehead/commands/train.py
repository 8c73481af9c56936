"""`tapehead train`: train, score, draw."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tapehead import files
from tapehead.commands.experiments import default_folder, dry_run, from_options
from tapehead.commands.options import check_device, make_folder
from tapehead.commands.progress import Progress
from tapehead.commands.tables import print_table, score_table
from tapehead.experiment.config import Experiment
from tapehead.experiment.extension import extends, why_not
from tapehead.experiment.folder import read_config
from tapehead.experiment.results import Result
from tapehead.experiment.run import Interrupted, train
from tapehead.registry import TASKS
from tapehead.terminal import complain, say

if TYPE_CHECKING:
    from tapehead import arguments


def run(options: "arguments.Train") -> int:
    experiment = from_options(options)
    if options.write_config is not None:
        make_folder(options.write_config.parent)
        with files.writing(options.write_config.parent):
            files.replace(options.write_config, experiment.to_toml().encode())
        print(options.write_config)
        return 0
    check_device(experiment.place.device)
    folder = options.out or _own_folder(options, experiment) or default_folder(experiment)
    if options.dry_run:
        print(dry_run(experiment, folder))
        return 0
    if options.out is None and not folder.exists():
        if Path(options.what).is_dir() and options.what not in TASKS:
            say(f"{options.what} has other settings: a new run begins in {folder}.")
        _name_shorter(experiment, folder)
    with Progress() as progress:
        try:
            result = train(experiment, folder, observer=progress)
        except Interrupted as stop:
            complain(f"{stop}; saved in {folder}. The same command goes on from there.")
            return stop.exit_code
    if not progress.began:
        say(f"This run is finished ({result.backend} backend); its results are in {folder}.")
    _report(experiment, result, folder)
    return 0


def _own_folder(options: "arguments.Train", experiment: Experiment) -> Path | None:
    """The run's folder that was given as TASK, if its run is to be resumed or extended; with other settings it is only
    where these come from."""
    path = Path(options.what)
    if options.what in TASKS or not path.is_dir():
        return None
    there = read_config(path)
    return path if there.hash == experiment.hash or extends(experiment, there) else None


def _name_shorter(experiment: Experiment, folder: Path) -> None:
    """Name a run with fewer episodes beside a new folder that could go on instead."""
    for path in sorted(folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*")):
        with suppress(ValueError):
            if extends(experiment, there := read_config(path)) and not why_not(experiment, there, there.updates):
                say(f"{path} has {there.training.episodes:,} episodes of this run: --out {path} goes on with it.")


def _report(experiment: Experiment, result: Result, folder: Path) -> None:
    from tapehead.figures.draw import draw_run

    print(f"{experiment.task.name}: {_outcome(experiment, result)}.")
    print_table(score_table(result.seeds, result.generalisation))
    print("Figures:")
    for picture in draw_run(folder):
        print(f"  {picture}")


def _outcome(experiment: Experiment, result: Result) -> str:
    """ "solved after 6,300 episodes (under 0.1 bit over the last 1,000 episodes)"."""
    attempts = experiment.restarts.attempts
    solved = sorted(at for at in result.solved_at if at is not None)
    if len(result.seeds) == 1:
        word = f"solved after {solved[0]:,} episodes" if solved else "not solved"
        if attempts > 1:
            word += f", in {result.attempts[0]} of {attempts} attempts"
            word += "" if result.passed[0] else ", not passed"
    else:
        word = f"{len(solved)} of {len(result.seeds)} seeds solved"
        word += f", median {solved[len(solved) // 2]:,} episodes" if solved else ""
        if attempts > 1:
            word += f", {sum(count > 1 for count in result.attempts)} restarted"
        if experiment.validation:
            word += f", {sum(result.passed)} passed"
    return f"{word} (under {experiment.task.solved_bits:g} bit over the last 1,000 episodes)"
