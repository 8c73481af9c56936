"""Figures 3 to 18: that all are drawn from what there is, say what is missing, and show the numbers of the records."""

import math
import statistics

import pytest
from made_up_results import made_up, record

from tapehead.figures import style
from tapehead.paper.figures import FIGURES, figure11, learning, memory
from tapehead.paper.figures.figure import estimate, fraction, quantity
from tapehead.paper.figures.write import chosen, write_figures
from tapehead.paper.results import has_curves
from tapehead.paper.tables import TABLES

INFINITE = math.inf
ROWS = tuple(TABLES)
LEARNING = {3: "copy", 13: "ngrams"}
# Five machines; the fourth has no finite cost from 200 sequences on, the fifth from the beginning.
CURVES = [[80.0, 8.0, 0.3], [90.0, 6.0, 0.2], [70.0, 9.0, 0.1], [60.0], []]
SOLVED = [250, 200, 300, None, None]
BITS = [0.5, 0.004, 3.0, 40.0, None]


@pytest.fixture(autouse=True)
def _small_sample(monkeypatch):
    """Of the optimum of N-grams, and of the locations of heads."""
    monkeypatch.setattr(learning, "OPTIMUM_SAMPLE", 50)
    monkeypatch.setattr(memory, "SEQUENCES", 3)
    learning.optimum.cache_clear()
    yield
    learning.optimum.cache_clear()


def whole(tmp_path):
    """Records of all rows and both recipes, and machines of all rows."""
    records = [
        record(row, recipe, solved=SOLVED, curves=CURVES, bits=BITS) for row in ROWS for recipe in ("tuned", "paper")
    ]
    return made_up(tmp_path, records, ROWS)


def words_of(figure):
    return " | ".join(text.get_text() for text in figure.findobj(match=lambda artist: hasattr(artist, "get_text")))


@pytest.mark.parametrize("number", FIGURES)
def test_every_figure_is_drawn_and_explained(number, tmp_path):
    results, figure = whole(tmp_path), FIGURES[number]
    assert figure.number == number
    assert figure.missing(results) is None
    drawn = figure.draw(results)
    assert f"Figure {number}. {figure.title}" in words_of(drawn)
    with style.look():
        drawn.draw_without_rendering()
    caption = figure.caption(results)
    assert "`tapehead " in caption
    assert "In the paper: " in caption
    assert "seed" in caption
    assert "issing" not in caption
    assert " nan" not in caption


@pytest.mark.parametrize("number", FIGURES)
def test_without_data_every_figure_says_which_command_makes_it(number, tmp_path):
    results, figure = made_up(tmp_path), FIGURES[number]
    sentence = figure.missing(results)
    assert "tapehead confirm" in sentence or "tapehead train" in sentence
    assert sentence.endswith(".")
    assert "`tapehead " in figure.caption(results)
    with pytest.raises(ValueError, match="tapehead"):
        figure.draw(results)


# --- learning curves ------------------------------------------------------------------------------------------------


def expected_band(curves):
    """Quartiles at 100, 200 and 300 sequences, with what is not there as infinity."""
    columns = [[curve[k] if k < len(curve) else INFINITE for curve in curves] for k in range(3)]
    return [
        statistics.quantiles([min(value, 1e300) for value in column], n=4, method="inclusive") for column in columns
    ]


@pytest.mark.parametrize("number", LEARNING)
def test_lines_are_the_medians_of_all_seeds(number, tmp_path):
    figure = FIGURES[number].draw(whole(tmp_path))
    base = learning.optimum(LEARNING[number]) or 0.0
    bands = expected_band(CURVES)
    panels = [axes for axes in figure.axes if axes.get_title(loc="left") == "The axes of the paper"]
    assert len(panels) == 2  # a recipe each
    for axes in panels:
        lines = [line for line in axes.lines if len(line.get_xdata()) == 3]
        assert len(lines) == 3
        for line in lines:
            assert line.get_xdata().tolist() == [0.1, 0.2, 0.3]
            shown = [INFINITE if median > 1e200 else median + base for _, median, _ in bands]
            assert line.get_ydata().tolist() == pytest.approx(shown)
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert labels[:3] == [f"{label} (5 seeds)" for label in learning.SYSTEMS.values()]
        assert axes.get_xlabel() == "Sequence number (thousands)"
        assert axes.get_ylabel() == "Cost per sequence (bits)"


def test_the_band_holds_every_seed(tmp_path):
    """Of five machines two fail: the median is the worst of the three that work, and the upper edge is off scale."""
    results = made_up(tmp_path, [record("copy-lstm", solved=SOLVED, curves=CURVES, bits=BITS)])
    axes = FIGURES[3].draw(results).axes[0]
    (line,) = axes.lines
    assert line.get_ydata().tolist() == [80.0, 9.0, 0.3]
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 1].min() == pytest.approx(0.2)
    assert corners[corners[:, 0] == 0.3][:, 1].max() > 90


def test_seeds_that_failed_are_in_every_count_and_interval(tmp_path):
    results = made_up(tmp_path, [record("copy-lstm", solved=SOLVED, curves=CURVES, bits=BITS)])
    caption = FIGURES[3].caption(results)
    assert "LSTM, tuned, 5 seeds: 3 of 5 (23-88 %) solved, median 300 (200 to infinite) sequences to solve" in caption
    assert "median cost 0.300 (0.100 to infinite) bits after 300 sequences" in caption
    assert "(copy-lstm.json; `tapehead confirm copy-lstm --seed 1000 --seeds 5 --episodes 300`)" in caption


def test_systems_without_curves_are_listed_and_not_drawn(tmp_path):
    curved = record("copy-ntm-lstm", solved=SOLVED, curves=CURVES, bits=BITS)
    old = record("copy-lstm", solved=SOLVED, curves=[None] * 5, bits=BITS)
    assert not has_curves(old)
    results = made_up(tmp_path, [curved, old])
    drawn, caption = FIGURES[3].draw(results), FIGURES[3].caption(results)
    assert "No learning curves: LSTM, NTM with feedforward controller" in words_of(drawn)
    assert "Recipe: paper" not in words_of(drawn)
    for row in ("copy-lstm", "copy-ntm-feedforward", "copy-lstm --recipe paper", "copy-ntm-lstm --recipe paper"):
        assert f"(`tapehead confirm {row}`)" in caption
    assert "(`tapehead confirm copy-ntm-lstm`)" not in caption


def test_systems_are_compared_by_sequences_to_solve(tmp_path):
    slow = record("copy-lstm", solved=[9000] * 3, curves=[[1.0]] * 3, bits=[0.1] * 3)
    quick = record("copy-ntm-lstm", solved=[1000] * 3, curves=[[1.0]] * 3, bits=[0.1] * 3)
    caption = FIGURES[3].caption(made_up(tmp_path, [slow, quick]))
    assert "LSTM minus NTM with LSTM controller, tuned: 8,000 (8,000 to 8,000) sequences to solve." in caption


def test_training_costs_of_a_curriculum_are_named(tmp_path):
    results = made_up(tmp_path, [record("copy-ntm-lstm", solved=SOLVED, curves=CURVES, bits=BITS)])
    assert "Its training costs are those of a curriculum (blanks 0.05)." in FIGURES[3].caption(results)


# --- scores beyond the training sizes --------------------------------------------------------------------------------


def test_figure_11_has_the_quartiles_of_the_records(tmp_path):
    bits = [[1.0, 2.0, 3.0, 9.0], [None, 4.0, 5.0, 6.0]]
    one = record("associative-recall-lstm", solved=SOLVED[:2], curves=CURVES[:2], bits=[0.0, 0.0])
    for machine, row in zip(one["machines"], bits, strict=True):
        machine["scores"] = {
            point["label"]: {"bits": value, "perfect": 0.0} for point, value in zip(one["points"], row, strict=True)
        }
    costs = figure11.costs_of(one)
    assert costs.items == [6, 10, 15, 20]
    assert costs.quartiles.tolist()[1] == [INFINITE, 3.0, 4.0, 7.5]
    results = made_up(tmp_path, [one])
    axes = FIGURES[11].draw(results).axes[0]
    (line,) = axes.lines
    assert line.get_ydata().tolist() == [INFINITE, 3.0, 4.0, 7.5]
    assert "Items 20: 7.5 (6 to 9) bits, 0 of 2 (0-66 %)" in FIGURES[11].caption(results)


def test_captions_of_outputs_count_all_machines(tmp_path):
    results = made_up(tmp_path, [record("copy-ntm-lstm", solved=SOLVED, curves=CURVES, bits=BITS)], ["copy-ntm-lstm"])
    caption = FIGURES[4].caption(results)
    assert "Length 120: 3 (0.004 to infinite) bits, 1 of 5 (4-62 %)" in caption
    assert "seed 7 of copy-ntm-lstm, trained on length 1 to 4" in caption


def test_a_machine_that_is_missing_leaves_the_other_row(tmp_path):
    for number, ntm in ((8, "repeat-copy-ntm-lstm"), (14, "ngrams-ntm-lstm")):
        results = made_up(tmp_path, [], [ntm])
        assert FIGURES[number].missing(results) is None
        assert "no trained machine" in words_of(FIGURES[number].draw(results))
        task = ntm.removesuffix("-ntm-lstm")
        command = f"`tapehead train {task} --model lstm --out {tmp_path}/machines/{task}-lstm`"
        assert command in FIGURES[number].caption(results)


# --- words and files -------------------------------------------------------------------------------------------------


def test_numbers_in_words():
    assert fraction(19, 20) == "19 of 20 (76-99 %)"
    assert estimate((6700.0, 5675.0, INFINITE), "sequences") == "6,700 (5,675 to infinite) sequences"
    assert [quantity(value) for value in (1e-5, 0.25, 7.5, 123.4, -3.0, -INFINITE, math.nan)] == [
        "<0.001",
        "0.250",
        "7.5",
        "123",
        "-3",
        "minus infinite",
        "unknown",
    ]


def test_all_figures_are_written_the_same_twice(tmp_path):
    results = made_up(tmp_path, [record("copy-lstm", solved=SOLVED, curves=CURVES, bits=BITS)])
    once, twice = (list(write_figures(results, tmp_path / name, list(FIGURES))) for name in ("once", "twice"))
    paths = [line for line in once if not isinstance(line, str)]
    assert [path.name for path in paths] == ["figure-03.svg", "figure-03.png", "README.md"]
    assert [line.split(" is ")[0] for line in once if isinstance(line, str)] == [
        f"Figure {number}" for number in FIGURES if number != 3
    ]
    for path, other in zip(paths, (line for line in twice if not isinstance(line, str)), strict=True):
        assert path.read_bytes() == other.read_bytes()
    page = paths[-1].read_text()
    assert "![Figure 3](figure-03.svg)" in page
    assert FIGURES[3].caption(results) in page
    assert f"Not drawn. {FIGURES[18].missing(results)}" in page


def test_some_figures_are_chosen_by_number():
    assert chosen(["8", "3"]) == [8, 3]
    assert chosen([]) == list(range(3, 19))
    with pytest.raises(ValueError, match="unknown figure of the paper '2'"):
        chosen(["2"])
