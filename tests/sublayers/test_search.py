"""Searches over sets of sub-layers: the space, each proposer, and that a good search finds more than a random one."""

import statistics

import numpy as np
import pytest

from tapehead.models.transformer.skips import SkipSet
from tapehead.sublayers import search
from tapehead.sublayers.search import (
    SEARCHES,
    Space,
    all_sets,
    bayesian_search,
    middle_layers,
    random_search,
    swift_search,
)

pytestmark = pytest.mark.usefixtures("one_thread")  # for tensors as small as these
EIGHT = middle_layers(6)
THREE = middle_layers(6, share=0.45)
WEIGHTS = dict(zip(range(3, 11), (0.9, -0.4, 0.3, 0.2, -0.8, 0.1, 0.5, -0.1), strict=True))


def objective(skip):
    """What a smooth function of the set could look like: every member has a value, and neighbours interfere."""
    numbers = set(skip.numbers)
    return sum(WEIGHTS[n] for n in numbers) - 0.3 * sum(n + 1 in numbers for n in numbers)


def test_first_and_last_layer_are_kept():
    assert Space((3, 4, 5, 6, 7, 8, 9, 10), None) == EIGHT
    assert EIGHT.size == len(set(EIGHT.everything())) == 256
    assert THREE.count == 3  # int(8 x 0.45)
    assert THREE.size == len(set(THREE.everything())) == 56
    assert all(sum(bits) == 3 for bits in THREE.everything())
    assert middle_layers(40, 0.45).count == 34
    for wrong, why in ((lambda: middle_layers(2), "needs a third"), (lambda: middle_layers(6, 0.0), "share is 0.0")):
        with pytest.raises(ValueError, match=why):
            wrong()
    with pytest.raises(ValueError, match="3 sub-layers are to be skipped, but 1 to 2"):
        Space((1, 2), 3)


def test_sets_of_a_space():
    generator = np.random.default_rng(0)
    for space in (EIGHT, THREE):
        drawn = [space.random(generator) for _ in range(200)]
        assert len(set(drawn)) > 40
        for bits in drawn:
            other = space.near(bits, generator)
            assert sum(a != b for a, b in zip(bits, other, strict=True)) == (1 if space is EIGHT else 2)
            assert {space.count} <= {None, sum(bits)}
            assert sum(other) == sum(bits) or space is EIGHT
    assert EIGHT.skip(EIGHT.odd_layers()) == SkipSet(attention=(1, 3), mlp=(1, 3))
    assert THREE.skip(THREE.odd_layers()) == SkipSet(attention=(1, 3), mlp=(1,))
    assert Space((1, 2, 3)).skip((1, 0, 1)).numbers == (1, 3)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_tries_every_set_once_and_is_the_same_each_time(name):
    asked = []

    def counted(skip):
        asked.append(skip)
        return objective(skip)

    found = SEARCHES[name](THREE, counted, 30, 5)
    assert [step.skip for step in found.steps] == asked
    assert len(set(asked)) == len(asked) == (56 if name == "all" else 30 if name != "swift" else len(asked))
    assert found.best.value == max(map(objective, asked)) == found.best_after()[-1]
    assert found.best_after() == sorted(found.best_after())
    assert SEARCHES[name](THREE, objective, 30, 5) == found


def test_searches_that_may_try_everything_find_the_optimum_and_end():
    truth = max(objective(EIGHT.skip(bits)) for bits in EIGHT.everything())
    assert all_sets(EIGHT, objective).best.value == truth
    for found in (random_search(EIGHT, objective, 1000), swift_search(EIGHT, objective, 1000, good_enough=99.0)):
        assert (found.best.value, len(found.steps)) == (truth, 256)
    assert bayesian_search(Space((3, 4, 5)), objective, 99).best.skip.numbers == (3, 5)


def test_bayesian_search_needs_fewer_sets_than_random():
    truth = all_sets(EIGHT, objective).best.value
    runs = {
        kind: [kind(EIGHT, objective, 30, seed).best.value for seed in range(5)]
        for kind in (random_search, bayesian_search)
    }
    assert statistics.mean(runs[bayesian_search]) > statistics.mean(runs[random_search])
    assert min(runs[bayesian_search]) == truth


def test_swift_starts_with_odd_layers_and_stops_when_it_is_good_enough(monkeypatch):
    first = swift_search(THREE, objective, good_enough=-9.0)
    assert [step.skip for step in first.steps] == [THREE.skip(THREE.odd_layers())]
    monkeypatch.setattr(search, "PATIENCE", 4)
    tired = swift_search(THREE, lambda skip: 0.0, good_enough=1.0)
    assert len(tired.steps) == 5


def test_many_layers_are_searched_from_a_pool(monkeypatch):
    monkeypatch.setattr(search, "POOL", 60)
    space = middle_layers(12)
    assert space.size > search.FEW_SETS
    values = np.random.default_rng(1).normal(size=25)
    found = bayesian_search(space, lambda skip: sum(values[n] for n in skip.numbers), 40)
    drawn = random_search(space, lambda skip: sum(values[n] for n in skip.numbers), 40)
    assert found.best.value > drawn.best.value
    with pytest.raises(ValueError, match="1048576 sets, but at most 4096"):
        all_sets(space, objective)
    with pytest.raises(ValueError, match="evaluations is 0"):
        random_search(space, objective, 0)
