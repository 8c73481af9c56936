"""How the size of the memory affects learning and generalisation: the picture and the numbers of memory-size.md.

python docs/draw_memory_sizes.py
"""

import statistics
from pathlib import Path

from tapehead.figures import style
from tapehead.paper.figures.memory_grid import draw_grid
from tapehead.paper.results import Record, Results
from tapehead.report.memory_sizes import cell_of, grids

ROOT = Path(__file__).parents[1]
UNDER = 1.0  # bits


def line(record: Record, points: list[str]) -> str:
    """Slots and width, seeds solved, and at each point the median cost with the seeds that cost less than a bit."""
    cell = cell_of(record)
    costs = [[machine["scores"][point]["bits"] for machine in record["machines"]] for point in points]
    said = [f"{statistics.median(some):.2g} ({sum(bits < UNDER for bits in some)})" for some in costs]
    return f"| {cell.slots:,} x {cell.width} | {cell.solved} of {cell.n} | " + " | ".join(said) + " |"


def main() -> None:
    records = grids(Results.load(ROOT / "results"))
    svg, png = style.save(draw_grid([cell_of(record) for record in records]), ROOT / "docs/images", "memory-size")
    svg.unlink()  # the report has it
    print(png)
    task = None
    for record in records:
        points = [point["label"] for point in record["points"]]
        if record["experiment"]["task"]["name"] != task:
            task = record["experiment"]["task"]["name"]
            print(f"\n{task}\n\n| memory | solved | {' | '.join(points)} |\n|---|---|{'---|' * len(points)}")
        print(line(record, points))


if __name__ == "__main__":
    main()
