"""`tapehead confirm --verify`: which of equal, the same in distribution and different a record's machines are."""

import copy
import json
import math
from pathlib import Path

import pytest
import torch
from tiny_laboratory import RECIPE, ROW, tapehead, tiny_laboratory

from tapehead.lab import records, verification
from tapehead.lab.verification import ALIKE, ALTERED, DIFFERENT, EQUAL, UNDECIDED, compare, experiment_of
from tapehead.paper import recipes
from tapehead.paper.results import parse

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module", autouse=True)
def laboratory():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with tiny_laboratory():
        yield
    torch.set_num_threads(threads)


def confirmed(place):
    words = ("confirm", ROW, "--seed", 40, "--seeds", 3, "--sequences", 6, "--work", place / "work")
    assert tapehead(*words, "--out", place / "out") == 0
    return place / "out" / f"{ROW}.json"


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """The file of a record of three tiny machines."""
    return confirmed(tmp_path_factory.mktemp("confirmed"))


@pytest.fixture
def record_of_batches(tmp_path, monkeypatch):
    """Another: as many episodes in a tenth of the updates, which the reference takes long for."""
    monkeypatch.setitem(recipes.TUNED, ROW, RECIPE | {"training.batch_size": 10})
    return confirmed(tmp_path)


def verify(record, work, *more):
    return tapehead("confirm", "--verify", record, "--work", work, *more)


def test_here_all_machines_are_equal_to_the_bit(record, tmp_path, capsys):
    before = record.read_bytes()
    assert verify(record, tmp_path / "work") == 0
    said = capsys.readouterr().out
    assert said == "3 of 3 machines have the weights of the record, to the bit.\nVerdict: equal to the bit.\n"
    assert record.read_bytes() == before
    assert not (tmp_path / "work").exists()  # the next verification trains again


def test_a_part_of_the_seeds_on_another_backend(record_of_batches, tmp_path, capsys):
    assert verify(record_of_batches, tmp_path / "work", "--seeds", 1, "--backend", "reference") == 1
    said = capsys.readouterr().out
    assert said.startswith("0 of 1 machines have the weights of the record, to the bit.\n")
    assert "Not as in the record: backend cpu -> reference.\n" in said
    assert "solved: 3 of 3 then, 1 of 1 now (p = 1.000)" in said
    assert f"Verdict: {UNDECIDED}: take more with --seeds." in said


def test_a_record_without_hashes_is_compared_by_its_scores(record, tmp_path, capsys):
    values = json.loads(record.read_text())
    for machine in values["machines"]:
        del machine["weights_sha256"]
    (tmp_path / "old.json").write_text(json.dumps(values))
    assert verify(tmp_path / "old.json", tmp_path / "work", "--seeds", 2) == 0
    assert "2 of 2 machines have the scores of the record" in capsys.readouterr().out


def test_numbers_that_are_not_those_of_the_weights(record, tmp_path, capsys):
    values = json.loads(record.read_text())
    values["machines"][0]["scores"][values["headline"]]["bits"] *= 0.99
    values["machines"][2]["solved_at"] -= 1
    (tmp_path / "altered.json").write_text(json.dumps(values))
    assert verify(tmp_path / "altered.json", tmp_path / "work") == 1
    said = capsys.readouterr().out
    assert "3 of 3 machines have the weights of the record, to the bit.\n" in said
    assert f"Verdict: {ALTERED}: seed 40: scores, seed 42: solved_at.\n" in said
    assert (
        verify(tmp_path / "altered.json", tmp_path / "work", "--seeds", 2) == 1
    )  # the machine of seed 41 is as it was
    assert f"Verdict: {ALTERED}: seed 40: scores.\n" in capsys.readouterr().out


def test_a_dry_run_trains_nothing(record, tmp_path, capsys):
    assert verify(record, tmp_path / "work", "--dry-run", "--seeds", 2) == 0
    assert "seeds 40 to 41" in capsys.readouterr().out
    assert not (tmp_path / "work").exists()


DAMAGES = {
    "it has no experiment": lambda values: values.pop("experiment"),
    "points is no list": lambda values: values.update(points={}),
    "points[0].sequences is True": lambda values: values["points"][0].update(sequences=True),
    "machines[1] is no table": lambda values: values["machines"].__setitem__(1, [1]),
    "machines[1] has no seed": lambda values: values["machines"][1].pop("seed"),
    "machines[0].solved_at is '9'": lambda values: values["machines"][0].update(solved_at="9"),
    "machines[0].episodes is something else": lambda values: values["machines"][0].update(episodes=10**300),
    "bits is nan": lambda values: values["machines"][0]["scores"][values["headline"]].update(bits=math.nan),
    "curve[0][1] is 'x'": lambda values: values["machines"][0].update(curve=[[1, "x"]]),
    "it has no machines": lambda values: values.update(machines=[]),
    "its seeds are not those of its machines": lambda values: values["seeds"].pop(),
    "its headline is none of its points": lambda values: values.update(headline="no such"),
    "a point has no sequences": lambda values: values["points"][0].update(sequences=0),
    "machines[2] has no score at a point": lambda values: values["machines"][2]["scores"].clear(),
    "machines[0].met is not for each criterion": lambda values: values["machines"][0]["met"].append(True),
}


@pytest.mark.parametrize("says", DAMAGES)
def test_a_damaged_record_is_one_sentence_before_anything_is_trained(record, tmp_path, capsys, says):
    values = json.loads(record.read_text())
    DAMAGES[says](values)
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps(values))
    assert verify(damaged, tmp_path / "work") == 2
    said = capsys.readouterr().err
    assert f"damaged.json is damaged ({says}" in said or f"{says}): confirm" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "work").exists()


def test_all_records_of_the_repository_are_sound():
    attention = RESULTS / "attention"
    measured = {*attention.glob("speed*.json"), *(attention / "rates").iterdir()}
    kinds = [parse(path)["kind"] for path in RESULTS.rglob("*.json") if path not in measured]
    assert len(kinds) >= 40


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--seeds", 4), "--seeds is 4, but the record has 3 machines: give 1 to 3."),
        (("--episodes", 100), "--episodes does not go with --verify"),
        (("--zoo",), "--zoo does not go with --verify"),
        (("--out", "elsewhere"), "--out does not go with --verify"),
        ((ROW,), f"{ROW} does not go with --verify"),
        (("--device", "cuda:99"), "cuda:99"),
    ],
)
def test_what_does_not_go_with_it_is_one_sentence(record, tmp_path, capsys, words, sentence):
    assert verify(record, tmp_path / "work", *words) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not (tmp_path / "work").exists()


def test_neither_a_row_nor_a_record_is_one_sentence(capsys):
    assert tapehead("confirm") == 2
    assert "needs a row" in capsys.readouterr().err


def changed(record, change):
    """The same machines, with other weights and with what `change` does to each."""
    other = copy.deepcopy(record)
    for place, machine in enumerate(other["machines"]):
        machine["weights_sha256"] = "f" * 64
        change(place, machine)
    return other


def test_machines_that_learn_worse_are_different():
    """Of a real record, of twenty machines that are all solved."""
    real = records.read(RESULTS / "devices" / "copy-ntm-lstm-epyc.json")
    assert compare(real, real).verdict == EQUAL
    assert compare(real, changed(real, lambda place, machine: None)).verdict == ALIKE

    def unsolved(place, machine):
        machine["solved_at"] = None if place < 8 else machine["solved_at"]

    def costly(place, machine):
        machine["scores"][real["headline"]]["bits"] *= 10

    for change, names in ((unsolved, {"solved"}), (costly, {"bits at Length 120"})):
        found = compare(real, changed(real, change))
        assert found.verdict == DIFFERENT
        assert {measure.name for measure in found.differing} >= names
        assert f"Verdict: different: {found.differing[0].name}" in verification.describe(found)
    few = changed(real, unsolved)
    two = compare(real, few | {"machines": few["machines"][:2]})
    assert two.verdict == UNDECIDED
    assert "take more with --seeds" in verification.describe(two)
    small = real | {"machines": real["machines"][:2]}
    assert "the record has no more" in verification.describe(compare(small, few | {"machines": few["machines"][:2]}))


@pytest.mark.parametrize("row", ["copy-ntm-lstm", "copy-ntm-feedforward"])
def test_a_cpu_and_a_gpu_make_other_machines_of_the_same_distribution(row):
    """As docs/reproducibility.md says: the same twenty seeds, trained on both."""
    gpu, cpu = (records.read(RESULTS / "devices" / f"{row}-{device}.json") for device in ("h200", "epyc"))
    assert experiment_of(gpu, 20, {"place.device": "cpu"}).hash == experiment_of(cpu, 20).hash
    found = compare(gpu, cpu)
    assert (found.equal, found.machines, found.verdict) == (0, 20, ALIKE)
