"""`tapehead figures`: the figures of a run, or those of the paper."""

from pathlib import Path
from typing import TYPE_CHECKING

from tapehead.terminal import say

if TYPE_CHECKING:
    from tapehead import cli


def run(options: "cli.Figures") -> int:
    return _paper(options) if options.paper else _run(options)


def _run(options: "cli.Figures") -> int:
    for flag, value in (("--results", options.results), ("--out", options.out)):
        if value is not None:
            raise ValueError(f"{flag} goes with --paper, but figures of a run go into its folder: leave it out.")
    if options.run is None:
        raise ValueError("no run is given: name a run's folder, or draw the figures of the paper with --paper.")
    from tapehead.figures.draw import draw_run

    for picture in draw_run(options.run, options.seed, options.figure or None):
        print(picture)
    return 0


def _paper(options: "cli.Figures") -> int:
    for word, value in (("a run", options.run), ("--seed", options.seed)):
        if value is not None:
            raise ValueError(f"{word} is given, but --paper draws from a folder of results: leave it out.")
    from tapehead.paper.figures.write import chosen, write_figures
    from tapehead.paper.results import Results

    numbers = chosen(options.figure)
    results = Results.load(options.results or Path("results"))
    for line in write_figures(results, options.out or results.folder / "figures", numbers):
        if isinstance(line, Path):
            print(line)
        else:
            say(line)
    return 0
