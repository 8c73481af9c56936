"""`tapehead figures`: the figures of a run."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapehead import cli


def run(options: "cli.Figures") -> int:
    from tapehead.figures.draw import draw_run

    for picture in draw_run(options.run, options.seed, options.figure or None):
        print(picture)
    return 0
