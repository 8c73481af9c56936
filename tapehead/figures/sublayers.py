"""Figures of a Transformer's sub-layers: the map, the same over training, and all sets of a small model.

A map has a column for each layer and two rows: MLP (even numbers, blue) above, attention (odd numbers, red) below.
"""

from collections.abc import Mapping, Sequence
from math import floor, log10
from statistics import median

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tapehead.evaluation.summaries import quartiles
from tapehead.figures import page, style
from tapehead.models.transformer.skips import SkipSet
from tapehead.sublayers.enumeration import Contest, Enumeration
from tapehead.sublayers.mapping import SubLayerMap
from tapehead.sublayers.worth import Worth

BLUE, RED = "#2166ac", "#b2182b"
PALE_BLUE, PALE_RED = "#e4edf6", "#fae6e4"
ADDED = LinearSegmentedColormap.from_list("added", ["#ffffff", "#f0d9a8", "#d98e32", "#7a2f0b"])
LEFT = 0.65
FEW_LAYERS = 8
MOST_ADDED = (1, 2, 5, 10, 20, 30)
"""Per cent: the colours end at the first of these that is enough, or at the last."""
MOST_CELL = 0.5
LEGEND = 1.5
"""Inches of an entry."""
WORDS = {
    "worth": "those that cost least when they alone are skipped",
    "random": "random search",
    "bayesian": "Bayesian optimisation",
    "swift": "SWIFT's search",
    "all": "all sets tried",
}
JUDGED = {"agreement": "agreement", "speedup": "expected speed-up", "tokens": "tokens a second"}
COLOURS = {"random": style.FAINT, "bayesian": style.BLUE, "swift": style.ORANGE}


def _cells(axes: Axes, layers: int, skip: SkipSet, size: float, *, labels: bool = True) -> None:
    """The two rows of a map, a cell for each sub-layer, with its number unless that has size 0."""
    axes.set(xlim=(0, layers), ylim=(0, 2))
    for i in range(layers):
        for row, number, marked, strong, pale in (
            (1, 2 * i + 2, i in skip.mlp, BLUE, PALE_BLUE),
            (0, 2 * i + 1, i in skip.attention, RED, PALE_RED),
        ):
            colour = strong if marked else pale
            axes.add_patch(Rectangle((i, row), 1, 1, facecolor=colour, edgecolor=style.PAPER, linewidth=1.0))
            ink = style.PAPER if marked else style.INK
            if size:
                axes.text(i + 0.5, row + 0.5, str(number), ha="center", va="center_baseline", fontsize=size, color=ink)
    if labels:
        for y, name in ((1.5, "MLP"), (0.5, "ATT")):
            axes.text(-0.01 * layers, y, name, ha="right", va="center_baseline", fontsize=9, fontweight="bold")


def _legend(figure: Figure, x: float, y: float, columns: int = 4) -> None:
    """Marked and unmarked cells of both rows, at inches from the top left."""
    parts = (
        (BLUE, "MLP, skipped"),
        (RED, "attention, skipped"),
        (PALE_BLUE, "MLP, kept"),
        (PALE_RED, "attention, kept"),
    )
    across, up = figure.get_size_inches()
    for i, (colour, words) in enumerate(parts):
        here, low = x + (i % columns) * LEGEND, y + (i // columns) * 0.2
        corner = page.point(figure, here, low + 0.06)
        patch = Rectangle(corner, 0.16 / across, 0.12 / up, facecolor=colour, transform=figure.transFigure)
        figure.add_artist(patch)
        page.text(figure, here + 0.22, low, words, fontsize=8)


@style.look()
def draw_map(found: SubLayerMap, title: str) -> Figure:
    """The map: numbered cells, those that are skipped filled; below, what skipping each alone adds to the cost."""
    layers, worth = found.layers, found.worth
    cell = min(MOST_CELL, (style.WIDTH - LEFT - page.RIGHT) / layers)
    height, across = max(0.24, min(cell, 0.34)), cell * layers
    beside = layers <= FEW_LAYERS  # there is room for the bars on the right
    figure = Figure(figsize=(style.WIDTH, 2.45 if beside else 2.87 + 2 * height))
    page.text(figure, 0.12, 0.2, title, fontsize=10)
    _cells(page.bare_axes(figure, LEFT, 0.45, across, 2 * height), layers, found.skip, 8.5 if cell > 0.3 else 6.0)
    _legend(figure, LEFT, 0.45 + 2 * height + 0.2, 2 if beside else 4)
    taken = max(across + 0.9, 2 * LEGEND + 0.75)  # by cells, or by the legend under them
    x, y = (LEFT + taken, 0.5) if beside else (LEFT, 1.12 + 2 * height)
    _bars(page.axes(figure, x, y, style.WIDTH - page.RIGHT - x if beside else across, 1.15), worth, layers)
    page.text(figure, LEFT, figure.get_figheight() - 0.15, _caption(found), fontsize=8, color=style.FAINT)
    return figure


def _bars(axes: Axes, worth: Worth, layers: int) -> None:
    added = worth.by_number
    axes.bar([i + 0.32 for i in range(layers)], [added[2 * i + 1] for i in range(layers)], 0.32, color=RED)
    axes.bar([i + 0.68 for i in range(layers)], [added[2 * i + 2] for i in range(layers)], 0.32, color=BLUE)
    axes.axhline(0, color=style.FAINT, linewidth=0.6)
    axes.set(xlim=(0, layers), ylabel="bits a sequence", title="Cost added by skipping it alone")
    if max(added.values()) > 30 * abs(median(added.values())):  # a few would hide all others
        axes.set_yscale("symlog", linthresh=10 ** floor(log10(max(1e-3, 0.01 * worth.whole))))
        axes.set_ylim(bottom=min(0.0, 1.2 * min(added.values())))
    every = 1 if layers <= 16 else 5
    axes.set_xticks([i + 0.5 for i in range(0, layers, every)], [str(i) for i in range(0, layers, every)])
    axes.set_xlabel("layer", labelpad=1)


def _caption(found: SubLayerMap) -> str:
    kind = WORDS[found.chosen_by] + (f", {JUDGED[found.judged_by]}" if found.judged_by else "")
    kept = f"{found.agreement:.1%} of the answers stay the same"
    whole = f"Whole model: {style.number(found.worth.whole)} bits a sequence."
    return f"{len(found.skip)} of {2 * found.layers} skipped ({kind}): {kept}. {whole}"


@style.look()
def draw_strip(series: Mapping[int, Worth], count: int, title: str) -> Figure:
    """Small maps, one for each moment of training: left the `count` sub-layers between first and last layer that cost
    least, right what skipping each alone adds, as a share of the cost of the whole model."""
    layers = len(next(iter(series.values())).mlp)
    wide = style.WIDTH - LEFT - 1.35 - 2 * page.RIGHT
    cell = min(0.42, wide / 2 / layers)
    height = max(0.17, min(cell, 0.24))
    each = 2 * height + 0.2
    figure = Figure(figsize=(style.WIDTH, 1.0 + each * len(series) + 0.35))
    page.text(figure, 0.12, 0.2, title, fontsize=10)
    left, right = LEFT + 1.25, LEFT + 1.25 + cell * layers + 0.35
    page.text(figure, left, 0.55, f"the {count} that cost least", fontsize=9)
    page.text(figure, right, 0.55, "cost added when skipped alone, % of the whole", fontsize=9)
    free, size = tuple(range(3, 2 * layers - 1)), 7.0 if cell > 0.2 else 0.0
    largest = max(100 * added / worth.whole for worth in series.values() for added in worth.by_number.values())
    scale = Normalize(0, next((most for most in MOST_ADDED if most >= largest), MOST_ADDED[-1]))
    for place, (episodes, worth) in enumerate(series.items()):
        y = 0.75 + place * each
        page.text(figure, 0.12, y + 0.6 * height, f"{episodes:,} sequences", fontsize=8.5)
        words = f"{style.number(worth.whole)} bits"
        page.text(figure, 0.12, y + 1.5 * height, words, fontsize=8, color=style.FAINT)
        grid = page.bare_axes(figure, left, y, cell * layers, 2 * height)
        _cells(grid, layers, worth.cheapest(free, count), size, labels=False)
        page.text(figure, left - 0.06, y + 0.5 * height, "MLP", fontsize=7, ha="right")
        page.text(figure, left - 0.06, y + 1.5 * height, "ATT", fontsize=7, ha="right")
        _heat(page.bare_axes(figure, right, y, cell * layers, 2 * height), worth, layers, scale, size)
    _legend(figure, left, figure.get_figheight() - 0.42, 2)
    _key(figure, right, figure.get_figheight() - 0.32, scale, largest)
    return figure


def _key(figure: Figure, x: float, y: float, scale: Normalize, largest: float) -> None:
    """What the colours of added costs mean."""
    page.text(figure, x, y, "0 %", fontsize=8)
    place = page.bare_axes(figure, x + 0.3, y - 0.055, 1.4, 0.11)
    bar = figure.colorbar(ScalarMappable(scale, ADDED), cax=place, orientation="horizontal", ticks=[])
    bar.outline.set_linewidth(0.4)
    most = scale.vmax or 0
    page.text(figure, x + 1.77, y, f"{most:g} %" + (" and more" if largest > most else ""), fontsize=8)


def _heat(axes: Axes, worth: Worth, layers: int, scale: Normalize, size: float) -> None:
    axes.set(xlim=(0, layers), ylim=(0, 2))
    for number, added in worth.by_number.items():
        share = 100 * added / worth.whole
        x, y = (number - 1) // 2, 1 - number % 2
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=ADDED(scale(share)), edgecolor="#dddddd", linewidth=0.6))
        if size:
            ink = style.PAPER if scale(share) > 0.67 else style.INK
            axes.text(x + 0.5, y + 0.5, str(round(share)), ha="center", va="center_baseline", fontsize=size, color=ink)


@style.look()
def draw_enumeration(found: Enumeration, title: str) -> Figure:
    """All sets by size and agreement; then, of each search, the best value so far beside the true optimum."""
    figure = Figure(figsize=(style.WIDTH, 3.1), layout="constrained")
    figure.suptitle(title, fontsize=10, x=0.012, ha="left")
    panels = figure.subplots(1, 1 + len(found.contests))
    _all_sets(panels[0], found)
    for panel, contest in zip(panels[1:], found.contests, strict=True):
        _contest(panel, contest)
    return figure


def _all_sets(panel: Axes, found: Enumeration) -> None:
    counts = [len(numbers) for numbers in found.skipped]
    spread = _side_by_side(counts)
    panel.scatter(spread, found.agreement, s=5, color=style.FAINT, alpha=0.6, linewidth=0, label="a set")
    for contest, marker, colour in zip(found.contests, ("*", "D"), (style.VERMILION, style.GREEN), strict=False):
        place = found.skipped.index(contest.skip.numbers)
        size = 70 if marker == "*" else 22
        speed = contest.judged_by == "speedup"
        words = "best expected speed-up" if speed else f"best agreement with {len(contest.skip)} skipped"
        panel.scatter(spread[place], found.agreement[place], s=size, color=colour, marker=marker, zorder=3, label=words)
    panel.set(xlabel="sub-layers skipped", ylabel="agreement: share of answers kept", title=f"All {len(counts)} sets")
    panel.set_xticks(range(max(counts) + 1))
    least, most = min(found.agreement), max(found.agreement)
    panel.set_ylim(least - 0.35 * (most - least or 1), most + 0.05)  # the legend goes below all dots
    panel.legend(fontsize=7.5, loc="lower left", handletextpad=0.3)


def _side_by_side(counts: Sequence[int]) -> list[float]:
    """Each count moved a little, so that the dots of one count lie side by side."""
    seen: dict[int, int] = {}
    places = []
    for count in counts:
        seen[count] = seen.get(count, 0) + 1
        places.append(count - 0.35 + 0.7 * (seen[count] - 0.5) / counts.count(count))
    return places


def _contest(panel: Axes, contest: Contest) -> None:
    for ends in contest.ends:
        steps = max(map(len, ends.best_after))
        runs = [[*run, *[run[-1]] * (steps - len(run))] for run in ends.best_after]  # one that stopped stays there
        middle = [median(values) for values in zip(*runs, strict=True)]
        spread = [quartiles(values) for values in zip(*runs, strict=True)]
        x = range(1, steps + 1)
        hits = sum(rank == 1 for rank in ends.rank)
        colour = COLOURS[ends.search]
        panel.plot(
            x, middle, color=colour, linewidth=1.4, label=f"{ends.search} ({hits} of {len(runs)} at the optimum)"
        )
        panel.fill_between(x, [q.low for q in spread], [q.high for q in spread], color=colour, alpha=0.18, linewidth=0)
    panel.axhline(contest.optimum, color=style.INK, linewidth=0.8, linestyle=":")
    note = f"optimum of all {contest.sets} sets"
    panel.annotate(note, (1, contest.optimum), xytext=(0, 3), textcoords="offset points", fontsize=7.5)
    panel.set(xlabel="sets tried", ylabel=f"best {JUDGED[contest.judged_by]} so far")
    fixed = contest.judged_by == "agreement"
    panel.set_title(f"{len(contest.skip)} skipped" if fixed else "Any number skipped")
    panel.margins(y=0.12)
    panel.legend(fontsize=7.5, loc="lower right")
