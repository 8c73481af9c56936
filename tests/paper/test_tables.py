"""The ablations of the copy machine: the part that is taken away is off, and stays off in training; the rest is on."""

import pytest
import torch

from tapehead import train
from tapehead.experiment.folder import load
from tapehead.paper.recipes import row_experiment
from tapehead.paper.tables import ABLATIONS, TABLES, VARIANTS
from tapehead.streams import stream

BRIEF = {"training.episodes": 500, "seeds": (3,), "optimiser.learning_rate": 1e-3}
FULL = row_experiment("copy-ntm-lstm", "once")


@pytest.fixture(scope="module", params=ABLATIONS)
def trained(request, tmp_path_factory):
    """The name of an ablation, its experiment, and a trace of the machine that a short training makes."""
    folder = tmp_path_factory.mktemp("ablation")
    experiment = row_experiment(request.param, changes=BRIEF)
    train(experiment, folder, scored=False)
    model = load(folder)
    batch = experiment.task.sample(stream(0, "ablations", 0), batch_size=4, length=20)
    with torch.no_grad():
        _, _, trace = model(batch.inputs, return_trace=True)
    return request.param, experiment, trace


def test_the_part_that_is_taken_away_is_off_in_a_trained_machine(trained):
    name, _, trace = trained
    for head in (trace.read, trace.write):
        off = {
            "no shift": head.shifts.shape[-1] == 1 and torch.equal(head.shifted, head.interpolated),
            "no sharpening": bool((head.sharpenings == 1).all()),
            "no content": bool((head.gates < 1e-7).all()),
            "no interpolation": bool((head.gates == 1).all()),
        }
        taken = name.removeprefix("copy-").removesuffix("-ntm-lstm").replace("-", " ")
        assert [part for part, is_off in off.items() if is_off] == ([] if taken == "distinct slots" else [taken])


def test_slots_are_distinct_where_a_machine_can_find_them_by_content_alone(trained):
    name, experiment, _ = trained
    options = experiment.model.options
    by_content_alone = options["shift_range"] == 0 or options["read_gate_bias"] > 0
    control = name == "copy-distinct-slots-ntm-lstm"
    assert (options["initial_memory"] == "addresses") == (by_content_alone or control)


def test_an_ablation_has_the_settings_of_the_full_machine_otherwise(trained):
    name, _, _ = trained
    own = {f"model.{option}": value for option, value in ABLATIONS[name].model.items()}
    assert row_experiment(name).hash == FULL.with_values(own).hash
    paper = row_experiment("copy-ntm-lstm", "paper").with_values(own)
    assert row_experiment(name, "paper").hash == paper.hash


def test_ablations_are_variants_of_the_copy_machine_of_table_2():
    assert all(VARIANTS[name].row == TABLES["copy-ntm-lstm"] for name in ABLATIONS)
