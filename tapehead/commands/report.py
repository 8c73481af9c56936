"""`tapehead report`: one HTML file with tables, figures and claims, from a folder of results, without training."""

from typing import TYPE_CHECKING

from tapehead.report import page

if TYPE_CHECKING:
    from tapehead import arguments


def run(options: "arguments.Report") -> int:
    print(page.write(options.results, options.out))
    return 0
