"""Maps of sub-layers: every cell has its number, and what is marked is what is skipped."""

import re

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from tapehead.figures import style, sublayers
from tapehead.models.transformer.skips import SkipSet
from tapehead.sublayers.enumeration import Contest, Ends, Enumeration
from tapehead.sublayers.mapping import SubLayerMap
from tapehead.sublayers.worth import Worth


def worth_of(layers):
    costs = [100.0 + 3 * i for i in range(layers)]
    return Worth(whole=100.0, attention=costs, mlp=[cost + 1 for cost in costs], sequences=5)


def found(layers, skip):
    settings = {"chosen_by": "swift", "judged_by": "agreement", "value": 0.9, "evaluations": 9, "agreement": 0.875}
    return SubLayerMap(task="text", layers=layers, worth=worth_of(layers), skip=skip, **settings)


def words(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())


def cells(figure):
    """Colours of the map's cells by number, read back from the picture."""
    axes = next(axes for axes in figure.axes if any(text.get_text() == "MLP" for text in axes.texts))
    colours = [to_hex(patch.get_facecolor()) for patch in axes.patches]
    return {int(text.get_text()): colour for text, colour in zip(axes.texts, colours, strict=False)}


@pytest.mark.parametrize("layers", [6, 40])
def test_the_map(layers, tmp_path):
    skip = SkipSet(attention=(1, 4), mlp=(2,))
    figure = sublayers.draw_map(found(layers, skip), "A title")
    coloured = cells(figure)
    assert list(sorted(coloured)) == list(range(1, 2 * layers + 1))
    for number, colour in coloured.items():
        strong, pale = (sublayers.RED, sublayers.PALE_RED) if number % 2 else (sublayers.BLUE, sublayers.PALE_BLUE)
        assert colour == (strong if number in (3, 6, 9) else pale)
    svg, png = style.save(figure, tmp_path, "map")
    assert png.stat().st_size > 5000
    shown = words(svg)
    for label in ("MLP", "ATT", "MLP, skipped", "attention, skipped", "attention, kept", "A title", "layer"):
        assert label in shown
    assert f"3 of {2 * layers} skipped (SWIFT's search, agreement): 87.5% of the answers stay the same." in " ".join(
        shown
    )


@pytest.mark.parametrize("layers", [1, 3, 8])
def test_no_text_of_the_map_lies_on_another(layers):
    figure = sublayers.draw_map(found(layers, SkipSet()), "A title")
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.texts]
    boxes += [axes.get_tightbbox(renderer) for axes in figure.axes]
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[:i])


def test_few_sub_layers_that_cost_most_do_not_hide_the_others():
    worth = Worth(whole=10.0, attention=(900.0, 11.0, 11.0), mlp=(10.5, 10.5, 9.999), sequences=1)
    one = SubLayerMap(
        task="copy", layers=3, worth=worth, skip=SkipSet(), chosen_by="worth", judged_by=None, value=None,
        evaluations=0, agreement=1.0,
    )  # fmt: skip
    (bars,) = (axes for axes in sublayers.draw_map(one, "").axes if axes.get_yscale() == "symlog")
    assert bars.get_ylim()[0] == pytest.approx(-0.0012)  # no empty half for what is hardly negative
    assert bars.get_ylim()[1] > 890.0


@pytest.mark.parametrize("layers", [6, 40])
def test_the_strip(layers, tmp_path):
    svg, _ = style.save(sublayers.draw_strip({0: worth_of(layers), 1600: worth_of(layers)}, 3, "T"), tmp_path, "strip")
    shown = words(svg)
    for label in ("0 sequences", "1,600 sequences", "the 3 that cost least"):
        assert label in shown
    most = {6: "20 %", 40: "30 % and more"}[layers]  # skipping one adds at most 16 % and 118 %
    assert most in shown
    assert ("and more" in "".join(shown)) == (layers == 40)
    assert ("12" in shown) == (layers == 6)  # numbers where there is room


def test_the_enumeration(tmp_path):
    ends = [Ends(search=name, best_after=((0.5, 0.8), (0.7,)), rank=(1, 2)) for name in ("random", "bayesian", "swift")]
    contests = [
        Contest(judged_by="speedup", sets=4, optimum=1.2, skip=SkipSet(mlp=(1,)), ends=ends[:2]),
        Contest(judged_by="agreement", sets=2, optimum=0.8, skip=SkipSet(attention=(1,)), ends=ends),
    ]
    all_sets = Enumeration(
        layers=3, skipped=((), (3,), (4,), (3, 4)), agreement=(1.0, 0.8, 0.9, 0.5), speedup=(1.0, 1.1, 1.2, 0.9),
        contests=contests,
    )  # fmt: skip
    svg, _ = style.save(sublayers.draw_enumeration(all_sets, "T"), tmp_path, "enumeration")
    shown = words(svg)
    for label in ("All 4 sets", "swift (1 of 2 at the optimum)", "optimum of all 2 sets", "sets tried", "1 skipped"):
        assert label in shown
