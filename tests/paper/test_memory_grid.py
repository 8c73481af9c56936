"""Heat maps over the size of the memory."""

import math

import numpy as np
import pytest

from tapehead.paper.figures.memory_grid import GridRow, draw_grid, maps

ROWS = [
    GridRow(16, 4, "copy", 0, 20, None, None, "Length 120"),
    GridRow(16, 8, "copy", 12, 20, 5400.0, 0.5, "Length 120"),
    GridRow(1024, 4, "copy", 20, 20, 12_000.0, 1e-6, "Length 120"),
    GridRow(16, 4, "associative-recall", 3, 5, math.inf, 40.0, "Items 15"),
]


def test_the_maps_have_the_numbers_of_the_rows():
    cells = {(row.slots, row.width): row for row in ROWS if row.task == "copy"}
    solved, episodes, costs = maps(cells, [16, 1024], [4, 8])
    np.testing.assert_array_equal(solved.values, [[0.0, 0.6], [1.0, np.nan]])
    np.testing.assert_array_equal(episodes.values, [[np.inf, 5400.0], [12_000.0, np.nan]])
    np.testing.assert_array_equal(costs.values, [[np.inf, 0.5], [1e-4, np.nan]])
    assert solved.words == [["0/20", "12/20"], ["20/20", ""]]
    assert episodes.words == [["failed", "5.4k"], ["12k", ""]]
    assert costs.words == [["failed", "0.5"], ["<0.0001", ""]]
    assert (episodes.norm.vmin, episodes.norm.vmax) == (5400.0, 12_000.0)


def test_a_grid_is_drawn_for_every_task():
    figure = draw_grid(ROWS)
    figure.draw_without_rendering()
    assert len(figure.axes) == 6
    texts = [text.get_text() for text in figure.texts]
    assert "Copy, 20 seeds a cell" in texts
    assert "Associative recall, 5 seeds a cell" in texts
    first = figure.axes[0]
    assert (first.get_xlabel(), first.get_ylabel()) == ("Width M", "Slots N")
    assert [label.get_text() for label in first.get_yticklabels()] == ["16", "1,024"]
    assert {text.get_text() for text in first.texts} == {"0/20", "12/20", "20/20", ""}


def test_a_grid_where_everything_failed_is_drawn():
    draw_grid([GridRow(16, 4, "copy", 0, 20, None, None, "Length 120")]).draw_without_rendering()


def test_an_empty_grid_is_refused():
    with pytest.raises(ValueError, match="no rows to draw"):
        draw_grid([])
