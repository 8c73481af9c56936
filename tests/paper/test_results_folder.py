"""A folder of results: which record is taken, and where machines come from."""

import dataclasses

import pytest
from made_up_results import record, save
from tiny import tiny

import tapehead
from tapehead.paper.results import Results, command_of, has_curves
from tapehead.zoo import store

ROW = "copy-ntm-lstm"
CURVE = [80.0, 4.0, 0.05]


def some(count, curve=CURVE, **rest):
    return record(ROW, solved=[200] * count, curves=[curve] * count, bits=[0.001] * count, **rest)


def test_all_records_are_loaded_with_their_files(tmp_path):
    save(tmp_path, ROW, some(2))
    save(tmp_path / "h200", ROW, some(3))
    save(tmp_path, "other", {"kind": "something else"})
    save(tmp_path / "machines", "card", some(4))
    results = Results.load(tmp_path)
    assert [(one["file"], len(one["machines"])) for one in results.records] == [
        ("copy-ntm-lstm.json", 2),
        ("h200/copy-ntm-lstm.json", 3),
    ]


def test_seeds_count_more_than_curves_and_curves_more_than_the_folder(tmp_path):
    save(tmp_path, "few", some(2))
    save(tmp_path, "many", some(5, curve=None))
    assert Results.load(tmp_path).record(ROW)["file"] == "many.json"
    assert Results.load(tmp_path).record(ROW, with_curves=True)["file"] == "few.json"
    save(tmp_path / "h200", "drawn", some(5))
    for with_curves in (False, True):
        assert Results.load(tmp_path).record(ROW, with_curves=with_curves)["file"] == "h200/drawn.json"
    save(tmp_path, "same", some(5))
    assert Results.load(tmp_path).record(ROW)["file"] == "same.json"


def test_recipes_are_apart(tmp_path):
    save(tmp_path, "paper", some(2, recipe="paper"))
    results = Results.load(tmp_path)
    assert results.record(ROW) is None
    assert results.record(ROW, "paper")["file"] == "paper.json"
    assert results.record("copy-lstm", "paper") is None


def test_a_record_has_curves_even_if_a_machine_failed_from_the_beginning():
    assert has_curves(record(ROW, solved=[None, 200], curves=[[], CURVE], bits=[None, 0.1]))
    assert not has_curves(some(2, curve=None))


def test_what_is_no_folder_or_damaged_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no folder of results"):
        Results.load(tmp_path / "nowhere")
    for text in ("{", "[]", '"a record"'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match=r"bad\.json is damaged"):
            Results.load(tmp_path)


def test_the_command_makes_the_record_again():
    assert command_of(some(2)) == f"tapehead confirm {ROW} --seed 1000 --seeds 2 --episodes 300"
    paper = some(3, recipe="paper", first=5, episodes=1_000_000)
    assert command_of(paper) == f"tapehead confirm {ROW} --recipe paper --seed 5 --seeds 3"
    for own in ({"recipe": "custom"}, {"row": "mine"}):
        assert command_of(some(1) | own) == "tapehead confirm FILE.toml --seed 1000 --seeds 1"


def test_machines_come_from_the_folder_and_then_from_the_zoo(tmp_path):
    results, row = Results(tmp_path), "ngrams-ntm-feedforward"
    assert results.machine("copy-lstm") is None
    assert results.machine("no-such-row") is None
    zoo = results.machine(row)
    assert (zoo.seed, zoo.task.name) == (store.card(row).seed, "ngrams")
    assert zoo.origin.startswith(f"seed {zoo.seed} of the zoo's {row}, median of ")
    assert results.machine(row) is zoo  # loaded once
    store.fetch(row, tmp_path / "machines")
    assert str(tmp_path) in Results(tmp_path).machine(row).origin


def test_a_machine_of_a_run_is_the_median_one(tmp_path):
    run = tmp_path / "machines" / "copy-lstm"
    lstm = tapehead.Model(name="lstm", options={"hidden_size": 4, "num_layers": 1})
    experiment = dataclasses.replace(tiny(episodes=200, seeds=(3, 4, 5)), model=lstm)
    result = tapehead.train(experiment, run)
    found = Results(tmp_path).machine("copy-lstm")
    assert found.seed == result.median_seed()
    assert found.task == experiment.task
    assert found.origin == f"seed {found.seed} of the run {run} (custom, 200 sequences)"
