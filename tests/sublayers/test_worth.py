"""What sub-layers are worth, of one model and over training; the map and the enumeration made from it."""

import dataclasses
import statistics

import pytest
import torch
from tiny import tiny

import tapehead
from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet
from tapehead.sublayers.enumeration import enumerate_sets
from tapehead.sublayers.mapping import make_window, map_sublayers
from tapehead.sublayers.objectives import agreement
from tapehead.sublayers.worth import Worth, expect_transformer, measure_worth, worth_over_training
from tapehead.tasks import make_task

pytestmark = pytest.mark.usefixtures("one_thread")
REVERSE = make_task("reverse", length=(1, 4))


@pytest.fixture(scope="module")
def model():
    """Four layers with large weights, of which sub-layers 4 and 5 add nothing."""
    made = Transformer(9, 8, 8, 4, num_heads=2).eval()
    made.reset_parameters(torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter *= 2
        for nothing in (made.layers[1].mlp_out, made.layers[2].attention_out):
            nothing.weight.zero_()
            nothing.bias.zero_()
    return made


def test_a_sub_layer_that_adds_nothing_is_worth_nothing(model):
    worth = measure_worth(model, REVERSE, 20)
    added = worth.by_number
    assert list(added) == list(range(1, 9))
    assert added[4] == added[5] == 0
    assert all(abs(added[number]) > 1e-3 for number in (1, 2, 3, 6, 7, 8))
    chosen = worth.cheapest((3, 4, 5, 6), 2).numbers
    assert len(chosen) == 2
    assert max(added[n] for n in chosen) <= min(added[n] for n in {3, 4, 5, 6} - set(chosen))
    whole = tapehead.experiment.run.score(model, model.flat_parameters()[None], REVERSE, {}, 20, source="sublayers")
    assert worth.whole == whole.bits[0]
    skipped = model.skipping(SkipSet(mlp=(3,)))
    cost = tapehead.experiment.run.score(skipped, model.flat_parameters()[None], REVERSE, {}, 20, source="sublayers")
    assert worth.mlp[3] == cost.bits[0]


def test_the_cheapest_are_chosen_by_what_they_add():
    worth = Worth(whole=10.0, attention=(15.0, 10.5, 9.0), mlp=(11.0, 12.0, 10.2), sequences=1)
    assert worth.by_number == {1: 5.0, 2: 1.0, 3: 0.5, 4: 2.0, 5: -1.0, 6: pytest.approx(0.2)}
    assert worth.cheapest((1, 2, 3, 4), 2) == SkipSet(attention=(1,), mlp=(0,))


def test_over_training_ends_with_the_machine_of_the_run():
    settings = {"model": "transformer", "optimiser": "adam", "clip": "norm", "episodes": 150, "learning_rate": 1e-2}
    settings |= {"model.hidden_size": 8, "model.num_layers": 2, "model.num_heads": 2, "average": 0.9}
    experiment = tiny(**settings)
    found, delivered = worth_over_training(experiment, [0, 100, 150], 10)
    assert list(found) == [0, 100, 150]
    result = tapehead.train(experiment, scored=False)
    digest = tapehead.experiment.run._hash({"delivered": delivered.unsqueeze(0)}, ["delivered"])
    assert digest == result.sha256["delivered_weights"]
    start = experiment.build()
    start.load_flat(start.initial_population([0])[0])
    assert found[0] == measure_worth(start, experiment.task, 10)
    assert found[150].whole < found[0].whole
    with pytest.raises(ValueError, match="after 50 updates, but blocks have 100"):
        worth_over_training(experiment, [50])
    with pytest.raises(ValueError, match="the model is a NTM, but only a Transformer has sub-layers"):
        worth_over_training(tiny(), [0])
    with pytest.raises(ValueError, match="may restart seeds"):
        worth_over_training(tiny(**settings | {"episodes": 2000}, attempts=2, after=1000, above_bits=1), [0])


# --- the map ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["worth", "random", "bayesian", "swift", "all"])
def test_a_map_keeps_first_and_last_layer_and_skips_its_share(model, search):
    found = map_sublayers(model, REVERSE, search=search, share=0.5, evaluations=6, sequences=20)
    assert len(found.skip) == 2
    assert set(found.skip.numbers) <= {3, 4, 5, 6}
    window = make_window(model, REVERSE, 0, 20)
    assert found.agreement == agreement(model, found.skip, window)
    if search == "worth":
        assert (found.judged_by, found.value, found.evaluations) == (None, None, 0)
        assert found.skip == found.worth.cheapest((3, 4, 5, 6), 2)
    else:
        assert (found.judged_by, found.value) == ("agreement", found.agreement)
    if search == "all":
        assert (found.skip.numbers, found.value, found.evaluations) == ((4, 5), 1.0, 6)


def test_speed_decides_by_itself_how_many_are_skipped(model):
    found = map_sublayers(model, REVERSE, search="all", judge="speedup", sequences=20)
    assert found.evaluations == 16
    assert {4, 5} <= set(found.skip.numbers)  # which cost nothing
    with pytest.raises(ValueError, match="a model of reverse does not generate tokens"):
        map_sublayers(model, REVERSE, search="random", judge="tokens", sequences=5)


def test_a_language_model_is_judged_by_what_it_writes():
    task = make_task("text", length=20)
    model = Transformer(256, 256, 8, 3, num_heads=2).eval()
    window = make_window(model, task, 4, 99)
    assert window.inputs.shape == (4, 8, 256)
    assert window.state.steps.tolist() == [16] * 8
    found = map_sublayers(model, task, search="random", judge="tokens", evaluations=2, sequences=2, tokens=4)
    assert found.value > 0


def test_searches_end_where_the_enumeration_says(model):
    window = make_window(model, REVERSE, 0, 20)
    found = enumerate_sets(model, window, 0.5, budget=5, seeds=3)
    assert len(found.skipped) == len(set(found.skipped)) == 16
    for numbers, agreed in zip(found.skipped, found.agreement, strict=True):
        assert agreed == agreement(model, SkipSet.of_numbers(numbers), window)
    speed, fixed = found.contests
    assert (speed.judged_by, speed.sets, speed.optimum) == ("speedup", 16, max(found.speedup))
    assert (fixed.judged_by, fixed.sets, fixed.optimum, fixed.skip.numbers) == ("agreement", 6, 1.0, (4, 5))
    assert [ends.search for ends in fixed.ends] == ["random", "bayesian", "swift"]
    of_two = sorted((a for numbers, a in zip(found.skipped, found.agreement, strict=True) if len(numbers) == 2))[::-1]
    for ends in fixed.ends:
        assert len(ends.best_after) == len(ends.rank) == 3
        for best_after, rank in zip(ends.best_after, ends.rank, strict=True):
            assert best_after[-1] == of_two[rank - 1]
    assert dataclasses.replace(found) == found
    assert statistics.mean(fixed.ends[0].rank) < 6


def test_only_transformers_have_sub_layers():
    with pytest.raises(ValueError, match="the model is a NTM"):
        expect_transformer(tapehead.NTM(2, 2))
