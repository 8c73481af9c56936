"""`tapehead figures`: the figures of a run or of a machine of the zoo, of several runs together, or of the paper."""

from pathlib import Path
from typing import TYPE_CHECKING

from tapehead.arguments.fields import RESULTS
from tapehead.commands.machines import is_run
from tapehead.terminal import complain

if TYPE_CHECKING:
    from tapehead import arguments


def run(options: "arguments.Figures") -> int:
    if options.paper:
        return _paper(options)
    if options.results is not None:
        raise ValueError("--results goes with --paper, but figures of a run are drawn from its folder: leave it out.")
    if not options.runs:
        raise ValueError("no run is given: name a run's folder, or draw the figures of the paper with --paper.")
    if len(options.runs) > 1:
        return _several(options)
    (what,) = options.runs
    return _run(options, Path(what)) if is_run(what) else _of_the_zoo(options, what)


def _run(options: "arguments.Figures", folder: Path) -> int:
    from tapehead.figures.draw import draw_run

    for picture in draw_run(folder, options.seed, options.figure or None, options.out):
        print(picture)
    return 0


def _of_the_zoo(options: "arguments.Figures", name: str) -> int:
    from tapehead import zoo
    from tapehead.experiment.config import Experiment
    from tapehead.figures.draw import draw_view
    from tapehead.figures.view import RunView

    if options.seed is not None:
        raise ValueError(f"--seed is {options.seed}, but {name} is one machine of the zoo: leave it out.")
    card = zoo.card(name)
    view = RunView(Experiment.from_plain(card.experiment).task, zoo.load(name), card.seed, [])
    for picture in draw_view(view, options.out or RESULTS / name, options.figure or None):
        print(picture)
    return 0


def _several(options: "arguments.Figures") -> int:
    for flag, value in (("--seed", options.seed), ("--figure", options.figure or None)):
        if value is not None:
            raise ValueError(f"{flag} goes with one run, but {len(options.runs)} are given: leave it out.")
    for what in options.runs:
        if not is_run(what):
            raise ValueError(f"{what} is a machine of the zoo, which has no learning curve here: give runs' folders.")
    from tapehead.figures import style
    from tapehead.figures.comparison import draw_comparison, read_runs

    runs = read_runs([Path(what) for what in options.runs])
    for picture in style.save(draw_comparison(runs), options.out or RESULTS, "comparison"):
        print(picture)
    return 0


def _paper(options: "arguments.Figures") -> int:
    for word, value in (("a run", options.runs or None), ("--seed", options.seed)):
        if value is not None:
            raise ValueError(f"{word} is given, but --paper draws from a folder of results: leave it out.")
    from tapehead.paper.figures.write import chosen, write_figures
    from tapehead.paper.results import Results

    numbers = chosen(options.figure)
    results = Results.load(options.results or RESULTS)
    for line in write_figures(results, options.out or results.folder / "figures", numbers):
        if isinstance(line, Path):
            print(line)
        else:
            complain(line)
    return 0
