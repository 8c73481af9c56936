"""Experiments: every part checks itself, equal settings are equal data, and files bring back the same experiment."""

import dataclasses
import json
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import BASE, SMALL, tiny

import tapehead
from tapehead.experiment.config import Experiment, read_toml
from tapehead.experiment.loop import Trainer
from tapehead.experiment.schedules import Constant, Cosine
from tapehead.tasks.copy import Copy

RICH = tiny(
    seeds=(3, 7, 9), batch_size=8, episodes=6400, optimiser="adam", clip="norm", limit=1.0, schedule="cosine",
    average=0.9, slots=(3, 8), curriculum={"density": (0.2, 0.8)}, share=0.5, early_stop=False,
    validation={"length": 5}, attempts=2, recipe="mine",
)  # fmt: skip


# --- one form for every value ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "forms"),
    [
        ("clipping.limit", [1, 1.0, np.float32(1), np.int64(1)]),
        ("training.episodes", [700, 700.0, np.int32(700), np.float64(700)]),
        ("training.slots", [(3, 8), [3, 8], np.array([3, 8]), (3.0, np.int64(8))]),
        ("seeds", [(1, 2), [1, 2], range(1, 3), np.arange(1, 3), (1.0, 2.0)]),
        ("task.length", [(1, 4), [1, 4], (1.0, 4)]),
        ("task.blanks", [0, 0.0, np.float32(0)]),
        ("model.memory_slots", [16, 16.0, np.int64(16)]),
        ("model.forget_bias", [1, 1.0, np.float32(1)]),
        ("curriculum.options", [{"density": (0, 1)}, {"density": [0.0, 1.0]}]),
        ("evaluation.sizes", [({"length": 7},), [{"length": 7.0}]]),
        ("evaluation.sizes", [({"length": (2, 7)},), [{"length": [2, np.int64(7)]}]]),
    ],
)
def test_a_value_has_one_form(path, forms):
    made = [tiny(**{path: form}) for form in forms]
    assert [one for one in made if one != made[0]] == []
    assert {one.hash for one in made} == {made[0].hash}
    assert {json.dumps(one.to_plain()) for one in made} == {json.dumps(made[0].to_plain())}


def test_a_validation_size_has_the_form_of_the_task():
    one, other = (tiny(validation={"length": length}, attempts=2) for length in (5, 5.0))
    assert one.hash == other.hash
    pair, same = (tiny(validation={"length": length}, attempts=2) for length in ((2, 5), [2, 5]))
    assert pair.hash == same.hash != one.hash


def test_the_hash_is_of_what_is_computed():
    place = tapehead.Place(device="cuda", backend="reference")
    assert dataclasses.replace(RICH, place=place, recipe="other").hash == RICH.hash
    changes = [
        {}, {"seeds": (3, 7)}, {"average": 0.5}, {"task.width": 3}, {"model.memory_slots": 9}, {"optimiser.beta1": 0.8},
        {"schedule": "constant"}, {"final": 0.1}, {"limit": 2}, {"share": 1}, {"attempts": 3}, {"below_bits": 0.5},
        {"evaluation.sequences": 5},
    ]  # fmt: skip
    short = {"average": "training.average", "schedule": "schedule.name", "final": "schedule.final",
             "limit": "clipping.limit", "share": "curriculum.share", "attempts": "restarts.attempts",
             "below_bits": "validation.below_bits"}  # fmt: skip
    made = [RICH.with_values({short.get(name, name): value for name, value in each.items()}) for each in changes]
    assert len({one.hash for one in made}) == len(changes)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": ()}, "seeds are"),
        ({"seeds": (1, 1)}, "all different"),
        ({"seeds": (-1,)}, "seed is -1"),
        ({"seeds": (2**63, 2**64)}, "seed is 18446744073709551616"),
        ({"seeds": (0.5,)}, r"seeds is \(0.5,\), but it must be a list, each of it a whole number"),
        ({"seeds": (True,)}, r"seeds is \(True,\)"),
        ({"seeds": 3}, "seeds is 3, but it must be a list"),
        ({"seeds": "12"}, "seeds is '12'"),
        ({"episodes": 0}, "episodes is 0"),
        ({"episodes": 2**31}, "episodes is 2147483648"),
        ({"episodes": 10.5}, "episodes is 10.5, but it must be a whole number"),
        ({"episodes": "600"}, "episodes is '600'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"early_stop": 1}, "early_stop is 1, but it must be true or false"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": 1e39}, r"learning_rate is 1e\+39"),
        ({"optimiser.decay": 1.0}, "decay is 1.0"),
        ({"optimiser.momentum": -0.1}, "momentum is -0.1"),
        ({"optimiser.epsilon": 0}, "epsilon is 0.0"),
        ({"limit": float("inf")}, "limit is inf"),
        ({"limit": 0}, "limit is 0.0"),
        ({"clip": "nrom"}, "kind is 'nrom', but it must be elementwise, norm or none"),
        ({"average": 1.0}, "average is 1.0"),
        ({"schedule": "cosine", "final": 2.0}, "final is 2.0"),
        ({"slots": (0, 3)}, "slots are"),
        ({"slots": (5, 4)}, "slots are"),
        ({"slots": (1, 2, 3)}, r"slots is \(1, 2, 3\)"),
        ({"share": -0.1}, "share is -0.1"),
        ({"share": 1.5}, "share is 1.5"),
        ({"share": float("nan")}, "share is nan"),
        ({"evaluation.sequences": 0}, "sequences is 0"),
        ({"evaluation.sizes": ({"lenght": 5},)}, "Did you mean 'length'"),
        ({"optimiser": "adm"}, "Did you mean 'adam'"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"model": "nmt"}, "Did you mean 'ntm'"),
        ({"task": {"name": "copi"}}, "Did you mean 'copy'"),
        ({"optimiser.beta1": 0.5}, "unknown setting of optimiser graves 'beta1'"),
        ({"training.episode": 3}, "Did you mean 'episodes'"),
        ({"trainin.episodes": 3}, "Did you mean 'training'"),
        ({"model.memory_slot": 3}, "Did you mean 'memory_slots'"),
        ({"model.memory_slots": "many"}, "memory_slots is 'many'"),
        ({"task.lenght": 3}, "Did you mean 'length'"),
        ({"task.length": (3, 1)}, "length is 3 to 1"),
        ({"curriculum": {"densty": (0.0, 1.0)}}, "Did you mean 'density'"),
        ({"curriculum": {"width": 3}}, "not channels"),
        ({"curriculum": {"paper_channels": True}}, "not channels"),
        ({"training": 5}, "training is 5, but it must be a table"),
        ({"seeds.first": 3}, "seeds has no values of its own"),
        ({"recipe": 3}, "recipe is 3, but it must be a word"),
    ],
)
def test_impossible_values_are_refused_in_one_sentence(changes, message):
    with pytest.raises(ValueError, match=message) as refusal:
        tiny(**changes)
    assert "\n" not in str(refusal.value)


ATTEMPTS = {"episodes": 1200, "attempts": 3, "validation": {"length": 5}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"after": -1}, "after is -1"),
        ({"after": 1000, "attempts": 1}, "with one attempt no seed is restarted"),
        ({"after": 900}, "must lie in 1,000 to 1,100"),
        ({"after": 1101}, "must lie in 1,000 to 1,100"),
        ({"after": 1200}, "must lie in 1,000 to 1,100"),
        ({"after": 500, "episodes": 900}, "the attempts are too short"),
        ({"after": 1500, "curriculum": {"blanks": 0.5}, "share": 0.5}, "the attempts are too short"),
        ({"after": 1000, "above_bits": float("nan")}, "above_bits is nan"),
        ({"above_bits": 1.0}, "without `after` no seed is compared"),
        ({"validation": {}}, "attempts is 3, but nothing says which seeds to restart"),
        ({"early_stop": True}, "validation or early_stop"),
        ({"attempts": 0}, "attempts is 0"),
        ({"validation.sequences": 0}, "sequences is 0"),
        ({"below_bits": 0.0}, "below_bits is 0"),
        ({"validation": {"items": 5}}, "items"),
        ({"validation.slots": 0}, "slots is 0"),
        ({"validation": {}, "attempts": 1, "validation.slots": 9}, "without sizes nothing is validated"),
    ],
)
def test_impossible_restarts_and_validations_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**ATTEMPTS | changes)


def test_a_part_checks_itself_before_it_is_in_an_experiment():
    for make, message in (
        (lambda: tapehead.Training(episodes=0), "episodes is 0"),
        (lambda: tapehead.Clipping(limit=-1), "limit is -1.0"),
        (lambda: tapehead.Restarts(attempts=0), "attempts is 0"),
        (lambda: tapehead.Validation(below_bits=0), "below_bits is 0.0"),
        (lambda: tapehead.Evaluation(sequences=0), "sequences is 0"),
        (lambda: tapehead.Curriculum(share=2), "share is 2.0"),
        (lambda: tapehead.Model(name="nmt"), "Did you mean 'ntm'"),
        (lambda: tapehead.Model(options={"slots": 3}), "slots"),
        (lambda: tapehead.Adam(beta1=1), "beta1 is 1.0"),
        (lambda: Cosine(final=-1), "final is -1.0"),
        (lambda: tapehead.Place(device=3), "device is 3"),
        (lambda: Copy(width=0), "width"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_parts_of_the_wrong_class_are_refused():
    with pytest.raises(ValueError, match="optimiser is Constant"):
        Experiment(task=BASE.task, optimiser=Constant())
    with pytest.raises(ValueError, match="task is 'copy', but it must be a Task"):
        Experiment(task="copy")
    with pytest.raises(ValueError, match="is no Optimiser: give a subclass"):
        tiny(optimiser="tapehead.tasks.copy:Copy")


def test_what_the_model_does_not_have_is_refused_before_training():
    with pytest.raises(ValueError, match="tape has 8"):
        Trainer(tiny(slots=(1, 9)))
    with pytest.raises(ValueError, match="has no memory"):
        Trainer(tiny(model="lstm", slots=(1, 9)))
    with pytest.raises(ValueError, match="cannot run"):
        Trainer(tiny(backend="gpu"))


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", [BASE, RICH, tiny(model="lstm"), Experiment(task=tapehead.make_task("ngrams"))])
def test_json_and_toml_bring_back_the_same_experiment(tmp_path, experiment):
    from_json = Experiment.from_plain(json.loads(json.dumps(experiment.to_plain(), allow_nan=False)))
    (tmp_path / "experiment.toml").write_text(experiment.to_toml(), encoding="utf-8")
    from_toml = Experiment.from_plain(read_toml(tmp_path / "experiment.toml"))
    for again in (from_json, from_toml):
        assert again == experiment
        assert again.hash == experiment.hash
        assert again.to_plain() == experiment.to_plain()


@settings(max_examples=60, deadline=None, database=None)
@given(
    seeds=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4, unique=True),
    learning_rate=st.floats(1e-30, 1e30),
    limit=st.one_of(st.integers(1, 10**9), st.floats(1e-30, 1e30)),
    optimiser=st.sampled_from(["graves", "adam"]),
    length=st.one_of(st.integers(1, 50), st.tuples(st.integers(1, 20), st.integers(20, 50))),
    density=st.tuples(st.floats(0, 0.5), st.floats(0.5, 1)),
    slots=st.none() | st.tuples(st.integers(1, 4), st.integers(4, 8)),
    sizes=st.none() | st.lists(st.fixed_dictionaries({"length": st.integers(1, 9)}), max_size=3),
    recipe=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
def test_any_experiment_survives_json_and_toml(density, sizes, length, **values):
    experiment = tiny(
        **values, **{"curriculum": {"density": density}, "evaluation.sizes": sizes, "task.length": length}
    )
    for plain in (json.loads(json.dumps(experiment.to_plain())), tomllib.loads(experiment.to_toml())):
        again = Experiment.from_plain(plain)
        assert again == experiment
        assert again.hash == experiment.hash


def test_what_is_left_out_of_a_file_has_its_default():
    assert Experiment.from_plain({"task": {"name": "copy"}}) == Experiment(task=Copy())
    assert Experiment.from_plain({"task": {"name": "copy"}, "model": {"controller_size": 8}}).model.name == "ntm"
    for values, message in (
        ({}, "has no task"),
        ({"task": {}}, "task has no name"),
        ({"task": "copy"}, "task is 'copy', but it must be a table"),
        ({"task": {"name": "copy"}, "optimizer": {"name": "adam"}}, "Did you mean 'optimiser'"),
        ({"task": {"name": "copy"}, "model": {"name": 3}}, "name is 3"),
        ({"task": {"name": "copy"}, "optimiser": {"name": 3}}, "optimiser has no name"),
    ):
        with pytest.raises(ValueError, match=message):
            Experiment.from_plain(values)


def test_a_file_that_is_no_toml_is_one_sentence(tmp_path):
    path = tmp_path / "experiment.toml"
    with pytest.raises(ValueError, match="cannot be read"):
        read_toml(path)
    for data in (b"task = ", b"\xff\xfe", b"a = [" * 5000):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"is not TOML"):
            read_toml(path)


def test_parts_go_to_plain_values_and_back():
    for part in (RICH.model, RICH.training, RICH.clipping, RICH.curriculum, RICH.restarts, RICH.validation, RICH.place):
        assert type(part).from_plain(json.loads(json.dumps(part.to_plain()))) == part


# --- other values ----------------------------------------------------------------------------------------------------


def test_another_name_drops_the_values_of_the_part_before():
    graves = tiny(**{"optimiser.decay": 0.5, "optimiser.learning_rate": 0.25})
    adam = graves.with_values({"optimiser.name": "adam"})
    assert adam.optimiser == tapehead.Adam(learning_rate=0.25)  # the one value that every optimiser has
    assert adam.with_values({"optimiser.name": "adam", "optimiser.beta1": 0.5}).optimiser.beta1 == 0.5
    assert graves.with_values({"optimiser.name": "graves"}) == graves
    lstm = graves.with_values({"model.hidden_size": 16, "model.name": "lstm"})  # in whichever order
    assert (lstm.model.name, lstm.model.options["hidden_size"]) == ("lstm", 16)
    assert "memory_slots" not in lstm.model.options
    cosine = graves.with_values({"schedule.name": "cosine", "schedule.final": 0.5})
    assert cosine.with_values({"schedule.name": "constant"}).schedule == Constant()
    reverse = graves.with_values({"task.name": "reverse"})
    assert reverse.task == tapehead.make_task("reverse")


def test_with_values_changes_nothing_else():
    other = RICH.with_values({"training.episodes": 800, "seeds": [1], "task.width": 3})
    assert (other.training.episodes, other.seeds, other.task.width) == (800, (1,), 3)
    back = other.with_values({"training.episodes": 6400, "seeds": (3, 7, 9), "task.width": 2})
    assert back == RICH
    assert back.hash == RICH.hash
    whole = RICH.with_values({"training": {"episodes": 900}, "restarts": {}, "validation": {}})
    assert whole.training == tapehead.Training(episodes=900)


def test_schedules():
    constant = tiny(learning_rate=0.5)
    assert {constant.rate(update) for update in (0, 300, 600)} == {0.5}
    cosine = tiny(learning_rate=0.5, schedule="cosine", final=0.1)
    assert cosine.rate(0) == 0.5
    assert cosine.rate(300) == pytest.approx(0.5 * 0.55)
    assert cosine.rate(600) == pytest.approx(0.05)
    rates = [cosine.rate(update) for update in range(601)]
    assert rates == sorted(rates, reverse=True)
    warm = tiny(learning_rate=0.5, schedule="warmup-cosine", final=0.1, **{"schedule.warmup": 0.1})
    assert [warm.rate(update) for update in (0, 29, 59, 60)] == pytest.approx([0.5 / 60, 0.25, 0.5, 0.5])
    assert [warm.rate(60 + update) for update in (270, 540)] == pytest.approx([0.5 * 0.55, 0.05])
    assert tiny(schedule="warmup-cosine", **{"schedule.warmup": 0}).rate(0) == tiny().rate(0)
    with pytest.raises(ValueError, match=r"warmup is 1\.0, but it is a share"):
        tiny(schedule="warmup-cosine", **{"schedule.warmup": 1})


def test_updates_are_whole_and_curricula_end_with_a_block():
    assert tiny(episodes=130, batch_size=4).updates == 33
    taught = {"curriculum": {"blanks": 0.1}}
    assert tiny(episodes=2450, **taught, share=0.5).curriculum_updates == 1200
    assert tiny(**taught).curriculum_updates == 600
    assert tiny(**taught, share=0).curriculum_updates == 0
    assert tiny(share=0.5).curriculum_updates == 0
    assert tiny(episodes=1400, **taught, share=0.9998).curriculum_updates == 1400
    after = tiny(episodes=1250, attempts=2, after=1050, batch_size=3)
    assert (after.updates, after.restart_updates, after.all_updates) == (500, 400, 1000)


def test_a_model_is_built_for_the_task():
    model = BASE.build()
    assert (model.input_size, model.output_size) == (3, 2)
    assert (model.memory_slots, BASE.model.options | SMALL) == (8, BASE.model.options)
