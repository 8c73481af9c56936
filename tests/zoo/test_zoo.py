"""The zoo: every machine in it keeps what its card promises; what is not exactly its card's machine is refused; the
machine that goes in is the median one."""

import copy
import dataclasses
import itertools
import os
import shlex
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tiny_laboratory import EPISODES, ROW, tapehead, tiny_laboratory

import tapehead as package
from tapehead import files, zoo
from tapehead.arguments.parsing import parse
from tapehead.commands.experiments import from_options
from tapehead.evaluation.generalisation import score
from tapehead.experiment.config import Experiment
from tapehead.figures.sparkline import BLOCKS, RAMP, sparkline
from tapehead.lab import adoption, records, snapshots
from tapehead.models.ntm import NTM
from tapehead.paper.recipes import row_experiment
from tapehead.zoo import store

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 4000
"""Steps of fresh sequences at one point: eight or so of the longest."""


# --- the machines of the package -------------------------------------------------------------------------------------


def experiment_of(card):
    return Experiment.from_plain(card.experiment)


def trained_by(command):
    """The experiment of a card's command, on a CPU."""
    words = shlex.split(command)
    assert words[:2] == ["tapehead", "train"]
    return from_options(parse([word for word in words[1:] if word not in ("--device", "cuda")]))


def fresh_score(card, model, point):
    """Scores at a point of a card, on held-out sequences."""
    task = experiment_of(card).task
    longest = task.sample(package.stream(0, "zoo", 0), batch_size=1, **point["sizes"]).inputs.shape[0]
    tape = model if point["slots"] is None else model.with_memory(point["slots"])
    flat = model.flat_parameters().unsqueeze(0)
    return score(tape, flat, task, point["sizes"], max(4, STEPS // longest), source="zoo")


def promises(card):
    """(label, cost in bits or None for no wrong bit) that the card gives its word for; long tapes take too long."""
    solved_bits = experiment_of(card).task.solved_bits
    first = card.points[0]
    kept = [(first["label"], solved_bits)] if first["bits"] is not None and first["bits"] < solved_bits else []
    kept += [(label, c["under"]) for c in card.criteria if c["met"] for label in c["points"]]
    return [(label, under) for label, under in kept if card.point(label)["slots"] is None]


@pytest.mark.parametrize("name", zoo.names())
def test_a_machine_of_the_package_keeps_its_promises(name):
    card, model = zoo.card(name), zoo.load(name)
    for label, under in promises(card):
        found = fresh_score(card, model, card.point(label))
        if under is None:
            assert found.perfect == (1.0,), label
        else:
            assert found.bits[0] < under, label


@pytest.mark.parametrize("name", zoo.names())
def test_a_card_of_the_package_is_whole(name):
    card = zoo.card(name)
    assert card.parameters == zoo.load(name).flat_parameters().numel()
    assert 1 <= len(card.curve) <= 200
    assert card.point(card.headline)["bits"] is not None
    assert card.licence == adoption.LICENCE
    assert "/" not in card.command
    assert trained_by(card.command).hash == experiment_of(card).hash  # the recipe is still the one that made it


@pytest.mark.parametrize("name", [name for name in zoo.names() if zoo.card(name).snapshots])
def test_snapshots_of_the_package_show_it_learning(name):
    card = zoo.card(name)
    series = zoo.snapshots(name)
    assert [episodes for episodes, _ in series] == card.snapshots["episodes"]
    first, last = (fresh_score(card, model, card.points[0]).bits[0] for _, model in (series[0], series[-1]))
    assert last < 0.1 * first


# --- a tiny zoo ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A tiny confirmation, whose median machine went into a zoo of its own with its snapshots."""
    folder = tmp_path_factory.mktemp("made")
    with tiny_laboratory(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "FOLDER", folder / "zoo")
        arguments = ("--seed", 40, "--seeds", 3, "--sequences", 6, "--work", folder / "work", "--out", folder / "out")
        assert tapehead("confirm", ROW, *arguments, "--zoo") == 0
    return folder


@pytest.fixture
def home(made, tmp_path, monkeypatch):
    """A copy of that zoo, to be harmed, in the place of the package's; the test runs beside it."""
    shutil.copytree(made / "zoo", tmp_path / "zoo")
    monkeypatch.setattr(store, "FOLDER", tmp_path / "zoo")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "zoo"


@pytest.fixture
def record(made):
    return records.read(made / "out" / f"{ROW}.json")


def the_run(made):
    (run,) = (made / "work").iterdir()
    return run


def test_what_goes_in_comes_out(made, home, record):
    assert zoo.names() == [ROW]
    card, model = zoo.card(ROW), zoo.load(ROW)
    assert isinstance(model, NTM)
    assert not model.training
    chosen, _ = adoption.median_machine(record)
    assert card.seed == chosen["seed"]
    from_run = package.load(the_run(made), card.seed)
    assert torch.equal(model.flat_parameters(), from_run.flat_parameters())
    assert card.sha256 == files.sha256((home / f"{ROW}.safetensors").read_bytes())
    tensors = safetensors.torch.load_file(home / f"{ROW}.safetensors")
    assert {key: tensor.dtype for key, tensor in tensors.items()} == dict.fromkeys(
        dict(model.named_parameters()), torch.float32
    )


def test_a_card_tells_where_the_machine_comes_from(made, home, record):
    card = zoo.card(ROW)
    assert (card.solved_at, card.episodes, card.experiment["recipe"]) == (1000, EPISODES, f"{ROW}/tuned")
    assert card.chosen == "median of the 3 solved machines of seeds 40-42 by cost at Length 2"
    assert card.curve[-1][0] == EPISODES
    assert len(card.curve) == EPISODES // 100
    assert card.environment == record["environment"]
    assert card.points[0] == record["points"][0] | adoption.median_machine(record)[0]["scores"]["Length 2"]
    assert [criterion["says"] for criterion in card.criteria] == [part["says"] for part in record["criteria"]]
    assert str(made) not in (home / f"{ROW}.json").read_text()
    with tiny_laboratory():
        assert trained_by(card.command) == experiment_of(card) == row_experiment(ROW, changes={"seeds": (card.seed,)})


@pytest.mark.parametrize(
    ("name", "recipe", "changes", "command"),
    [
        ("copy-ntm-lstm", "tuned", {}, "tapehead train copy --controller lstm --seed 7"),
        ("ngrams-lstm", "paper", {}, "tapehead train ngrams --model lstm --recipe paper --seed 7"),
        (
            "repeat-copy-pulses-ntm-feedforward",
            "tuned",
            {"training.episodes": 5},
            "tapehead train repeat-copy --controller feedforward --task.count pulses --episodes 5 --seed 7",
        ),
        (
            "copy-ntm-lstm",
            "tuned",
            {"place.device": "cuda"},
            "tapehead train copy --controller lstm --device cuda --seed 7",
        ),
    ],
)
def test_the_command_on_a_card(name, recipe, changes, command):
    experiment = row_experiment(name, recipe, {"seeds": (7,)} | changes)
    assert adoption.train_command(experiment) == command
    assert trained_by(command).hash == experiment.hash


def test_a_recipe_that_has_changed_since_has_no_command():
    old = row_experiment("copy-ntm-lstm").with_values({"optimiser.learning_rate": 0.5})
    assert old.recipe == "custom"
    with pytest.raises(ValueError, match="custom is no row of the paper"):
        adoption.train_command(old)
    with pytest.raises(ValueError, match="other settings now than in this record"):
        adoption.train_command(dataclasses.replace(old, recipe="copy-ntm-lstm/tuned"))


# --- which machine ---------------------------------------------------------------------------------------------------


def population(costs, solved):
    machines = [
        {
            "seed": 10 + i,
            "solved_at": 500 if is_solved else None,
            "passed": True,
            "scores": {"Length 9": {"bits": bits}},
        }
        for i, (bits, is_solved) in enumerate(zip(costs, solved, strict=True))
    ]
    seeds = [machine["seed"] for machine in machines]
    return {"seeds": seeds, "headline": "Length 9", "machines": machines}


@pytest.mark.parametrize(
    ("costs", "solved", "seed", "words"),
    [
        ([5.0, 1.0, 3.0], [True] * 3, 12, "median of the 3 solved machines of seeds 10-12 by cost at Length 9"),
        ([4.0, 1.0, 3.0, 2.0], [True] * 4, 13, "the 4 solved machines"),  # the better of the middle two
        ([0.0, 1.0, 3.0, 2.0], [False, True, True, True], 13, "the 3 solved machines of seeds 10-13"),
        ([None, 1.0, 3.0], [True] * 3, 12, "the 3 solved machines"),  # infinitely bad
        ([2.0, 2.0, 2.0], [True] * 3, 11, "the 3 solved machines"),  # by seed if nothing else
        ([9.0, 7.0, 8.0], [False] * 3, 12, "median of all 3 machines, none of them solved, of seeds 10-12"),
        ([9.0], [True], 10, "the only machine trained, seed 10"),
        ([9.0], [False], 10, "the only machine trained, seed 10, which is not solved"),
    ],
)
def test_the_median_machine(costs, solved, seed, words):
    machine, says = adoption.median_machine(population(costs, solved))
    assert machine["seed"] == seed
    assert words in says


@pytest.mark.parametrize(
    ("passed", "seed", "words"),
    [
        ([False, True, True, True], 12, "median of the 3 machines that passed validation, of seeds 10-13"),
        ([False, False, True, True], 12, "the 2 machines that passed"),
        ([True, True, True, True], 11, "the 4 solved machines"),
        ([False, False, False, False], 11, "the 4 solved machines"),
    ],
)
def test_the_median_machine_of_those_that_passed(passed, seed, words):
    record = population([0.0, 1.0, 2.0, 3.0], [True] * 4)
    for machine, has_passed in zip(record["machines"], passed, strict=True):
        machine["passed"] = has_passed
    machine, says = adoption.median_machine(record)
    assert machine["seed"] == seed
    assert words in says


def test_a_record_of_another_run_is_not_adopted(made, home, record, tmp_path):
    other = copy.deepcopy(record)
    other["experiment"]["optimiser"]["learning_rate"] = 0.5
    with pytest.raises(ValueError, match="is not the run of this record"):
        adoption.adopt(other, the_run(made))
    other = copy.deepcopy(record)
    for machine in other["machines"]:
        machine["weights_sha256"] = "0" * 64
    with pytest.raises(ValueError, match="are not those of the record"):
        adoption.adopt(other, the_run(made))


def test_a_machine_of_a_joined_record_is_adopted_from_its_part(made, home, record, tmp_path):
    part = {key: value for key, value in copy.deepcopy(record).items() if key != "summary"}
    other = copy.deepcopy(part)
    other["seeds"] = other["experiment"]["seeds"] = [seed + 100 for seed in part["seeds"]]
    for machine in other["machines"]:
        machine["seed"] += 100
        machine["solved_at"] = None  # so the median machine is of the first part
    whole = records.join([part, other])
    wanted, _ = adoption.median_machine(whole)
    with tiny_laboratory():
        card = adoption.adopt(whole, the_run(made), tmp_path / "zoo")
        with pytest.raises(ValueError, match=r"seed \d+ is not in"):
            adoption.adopt(other, the_run(made), tmp_path / "zoo")
    assert card.seed == wanted["seed"]
    assert card.seed in part["seeds"]


# --- strictness ------------------------------------------------------------------------------------------------------


def test_the_nearest_name(home):
    with pytest.raises(ValueError, match=r"unknown machine 'copy-ntm-lsm'\. Did you mean 'copy-ntm-lstm'"):
        zoo.load("copy-ntm-lsm")


def test_an_empty_zoo(tmp_path):
    assert zoo.names(tmp_path) == []
    with pytest.raises(ValueError, match=r"there is no machine in .* yet"):
        zoo.load(ROW, folder=tmp_path)


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_flipped_bit(home, place):
    data = bytearray((home / f"{ROW}.safetensors").read_bytes())
    data[place] ^= 1
    (home / f"{ROW}.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match=r"copy-ntm-lstm.safetensors does not match the SHA-256 on its card"):
        zoo.load(ROW)


def rewrite(home, change):
    """Other weights, and a card that has their hash."""
    tensors = safetensors.torch.load_file(home / f"{ROW}.safetensors")
    change(tensors)
    data = safetensors.torch.save(tensors)
    (home / f"{ROW}.safetensors").write_bytes(data)
    (home / f"{ROW}.json").write_text(dataclasses.replace(zoo.card(ROW), sha256=files.sha256(data)).to_json())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("output.bias"), r"safetensors lacks output.bias: it is not the machine"),
        (lambda tensors: tensors.update(more=torch.zeros(1)), r"has, against its card, more: it is not the machine"),
        (lambda tensors: tensors.update({"output.bias": torch.zeros(7)}), r"output.bias in .* is \[7, 'float32'\]"),
        (lambda tensors: tensors.update({"output.bias": tensors["output.bias"].half()}), r"\[2, 'float16'\]"),
    ],
)
def test_another_machine_under_that_name(home, change, message):
    rewrite(home, change)
    with pytest.raises(ValueError, match=message):
        zoo.load(ROW)


def test_the_same_weights_written_again_are_taken(home):
    rewrite(home, lambda tensors: None)
    assert zoo.load(ROW).flat_parameters().isfinite().all()


def test_missing_weights(home):
    (home / f"{ROW}.safetensors").unlink()
    with pytest.raises(ValueError, match=r"copy-ntm-lstm.safetensors is missing"):
        zoo.load(ROW)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values.pop("seed"), "is damaged"),
        (lambda values: values.update(sed=3), "unknown field 'sed'. Did you mean 'seed'"),
        (lambda values: values.update(name="other"), "is that of other"),
        (lambda values: values["experiment"]["model"].update(memory_slot=3), "memory_slot"),
    ],
)
def test_a_damaged_card(home, change, message):
    values = files.unseal((home / f"{ROW}.json").read_bytes())
    change(values)
    (home / f"{ROW}.json").write_bytes(files.seal(values))
    with pytest.raises(ValueError, match=message):
        zoo.load(ROW)


def test_another_option_under_the_old_seal_is_refused(home):
    """It would load another machine, with the same weights."""
    text = (home / f"{ROW}.json").read_text()
    assert '"memory_slots": 8' in text
    (home / f"{ROW}.json").write_text(text.replace('"memory_slots": 8', '"memory_slots": 9'))
    with pytest.raises(ValueError, match="its seal does not match"):
        zoo.load(ROW)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(zoo.Card)])
def test_a_card_with_other_types_is_refused(home, name):
    path = home / f"{ROW}.json"
    values = files.unseal(path.read_bytes())
    here = values[name]
    for value in (None, True, 7, 1.5, "x", ["x"], [["x"]], [{}], {"x": 7}):
        table = isinstance(here, dict) and isinstance(value, dict) and name != "snapshots"  # of any contents
        if not table and (isinstance(value, list) or type(value) is not type(here)):
            path.write_bytes(files.seal(values | {name: value}))
            if value is None and name in ("solved_at", "snapshots"):
                assert zoo.card(ROW)
                continue
            with pytest.raises(ValueError, match=r"the card .* is damaged"):
                zoo.card(ROW)


@pytest.mark.parametrize(
    ("where", "name"),
    [("points", name) for name in ("label", "sizes", "slots", "sequences", "bits", "wrong", "perfect")]
    + [("criteria", name) for name in ("says", "points", "under", "met")],
)
def test_scores_and_criteria_of_other_types_are_refused(home, where, name):
    path = home / f"{ROW}.json"
    values = files.unseal(path.read_bytes())
    for value in ("x", [3]) if name != "label" else (3, None):
        if type(value) is not type(values[where][0][name]) or name == "points":
            changed = copy.deepcopy(values)
            changed[where][0][name] = value
            path.write_bytes(files.seal(changed))
            with pytest.raises(ValueError, match=r"the card .* is damaged"):
                zoo.card(ROW)


@pytest.mark.parametrize("suffix", ["json", "safetensors", "snapshots.safetensors"])
def test_what_is_enormous_or_no_plain_file_is_refused_unread(home, suffix):
    path = home / f"{ROW}.{suffix}"

    def refused(reason):
        with pytest.raises(ValueError, match=f"{ROW}.{suffix} {reason}.*: install tapehead or fetch the machine again"):
            zoo.snapshots(ROW) if "snapshots" in suffix else zoo.load(ROW)

    os.truncate(path, 128 << 30)  # sparse
    refused("has 137,438,953,472 bytes, but at most")
    path.unlink()
    os.mkfifo(path)
    refused("is a named pipe, not a plain file")


def test_an_installation_of_links_is_read(home, tmp_path):
    """As some installers make them."""
    (tmp_path / "linked").mkdir()
    for path in home.iterdir():
        (tmp_path / "linked" / path.name).symlink_to(path)
    assert torch.equal(zoo.load(ROW, folder=tmp_path / "linked").flat_parameters(), zoo.load(ROW).flat_parameters())
    assert zoo.snapshots(ROW, folder=tmp_path / "linked")


def test_nothing_is_written_through_a_link(home, tmp_path):
    zoo.fetch(ROW, tmp_path / "out")
    for suffix in ("json", "safetensors"):
        path = tmp_path / "out" / f"{ROW}.{suffix}"
        (tmp_path / "theirs").write_text("years of work")
        path.unlink()
        path.symlink_to(tmp_path / "theirs")
        with pytest.raises(ValueError, match="is there already, and another one"):
            zoo.fetch(ROW, tmp_path / "out")
        with pytest.raises(ValueError, match="is a symbolic link, not a plain file"):
            store.put(zoo.card(ROW), dict(zoo.load(ROW).named_parameters()), tmp_path / "out")
        assert (tmp_path / "theirs").read_text() == "years of work"
        path.unlink()


def test_a_full_disk_is_one_sentence_that_names_the_folder(home, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    card, parameters = zoo.card(ROW), dict(zoo.load(ROW).named_parameters())
    monkeypatch.setattr(os, "fsync", full)
    for act, folder in (
        (lambda: zoo.fetch(ROW, tmp_path / "out"), tmp_path / "out"),
        (lambda: store.put(card, parameters), home),
        (lambda: store.put_snapshots(ROW, {100: parameters}), home),
    ):
        with pytest.raises(ValueError, match=rf"cannot write to {folder} \(No space left on device\): make room"):
            act()


def test_a_backend_that_cannot_run_here(home):
    with pytest.raises(ValueError, match="must be one of auto"):
        zoo.load(ROW, backend="fast")
    assert zoo.load(ROW, backend="reference").backend_in_use() == "reference"


# --- tapehead.load ---------------------------------------------------------------------------------------------------


def test_load_by_name_or_folder(made, home):
    assert torch.equal(package.load(ROW).flat_parameters(), zoo.load(ROW).flat_parameters())
    with pytest.raises(ValueError, match="leave seed out"):
        package.load(ROW, seed=3)
    with pytest.raises(ValueError, match="copi is no folder of a run, nor in the zoo: unknown machine 'copi'"):
        package.load("copi")
    Path(ROW).mkdir()  # a folder of that name is looked at first
    with pytest.raises(ValueError, match="holds no run"):
        package.load(ROW)
    assert package.load(str(the_run(made)), seed=41).flat_parameters().numel() == zoo.card(ROW).parameters


# --- snapshots -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("blocks", "count"), [(400, 20), (2000, 20), (20, 20), (7, 20), (1, 20), (50, 2), (21, 20)])
def test_milestones(blocks, count):
    chosen = snapshots.milestones(blocks, count)
    assert len(chosen) == min(count, blocks)
    assert chosen == sorted(set(chosen))
    assert chosen[-1] == blocks
    assert chosen[0] == 1
    if blocks == 2000:  # once the ratios are wider than the rounding, they are equal
        ratios = [later / earlier for earlier, later in itertools.pairwise(chosen[10:])]
        assert max(ratios) / min(ratios) < 1.05


def test_snapshots_are_the_machine_on_its_way(home):
    series = zoo.snapshots(ROW)
    assert (
        [episodes for episodes, _ in series] == [100 * n for n in range(1, 14)] == zoo.card(ROW).snapshots["episodes"]
    )
    weights = [model.flat_parameters() for _, model in series]
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(weights))
    final = zoo.load(ROW).flat_parameters()
    distances = [(flat - final).norm() for flat in weights]
    assert min(distances) < 1e-2  # float16 of the weights that were kept
    assert distances[0] > 10 * min(distances)


def test_snapshots_are_refused_if_the_machine_becomes_another(home):
    rewrite(home, lambda tensors: tensors["output.bias"].add_(1))
    with tiny_laboratory(), pytest.raises(ValueError, match="trained again on cpu, copy-ntm-lstm has other weights"):
        snapshots.make_snapshots(ROW)


def test_damaged_or_missing_snapshots(home):
    path = home / f"{ROW}.snapshots.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"snapshots.safetensors does not match"):
        zoo.snapshots(ROW)
    path.unlink()
    (home / f"{ROW}.json").write_text(dataclasses.replace(zoo.card(ROW), snapshots=None).to_json())
    with pytest.raises(ValueError, match="has no snapshots"):
        zoo.snapshots(ROW)


def test_a_new_machine_takes_the_old_snapshots_away(made, home, record):
    with tiny_laboratory():
        card = adoption.adopt(record, the_run(made))
    assert card.snapshots is None
    assert {path.name for path in home.iterdir()} == {f"{ROW}.json", f"{ROW}.safetensors"}


# --- the command -----------------------------------------------------------------------------------------------------


def test_list(home, capsys):
    assert tapehead("zoo", "list") == 0
    out = capsys.readouterr().out
    line = next(line for line in out.splitlines() if ROW in line)
    card = zoo.card(ROW)
    for word in (ROW, "copy (", " lstm ", f"{card.parameters:,}", "1,300", "Length 2"):
        assert word in line
    (home / f"{ROW}.json").unlink()
    assert tapehead("zoo", "list") == 0
    assert "The zoo is empty." in capsys.readouterr().out


def test_show(home, capsys):
    assert tapehead("zoo", "show", ROW) == 0
    out = capsys.readouterr().out
    card = zoo.card(ROW)
    for word in (card.command, card.chosen, card.sha256, card.licence, 'tapehead.load("copy-ntm-lstm")'):
        assert word in out
    for point in card.points:
        assert point["label"] in out
    for criterion in card.criteria:
        assert f"{'yes' if criterion['met'] else 'NO':<4}{criterion['says']}" in out
    assert sparkline([bits for _, bits in card.curve]) in out


def test_a_sparkline():
    assert sparkline([1, 10, 100, 1000, 10**4, 10**5, 10**6, 10**7]) == BLOCKS
    assert sparkline([1, 10, 100, 1000, 10**4, 10**5, 10**6, 10**7], ascii_only=True) == RAMP
    assert sparkline([8.0, 1.0]) == BLOCKS[7] + BLOCKS[0]
    assert len(sparkline([1.0 + i for i in range(200)], width=60)) == 50  # four to a letter
    assert sparkline([2.0, 2.0]) == BLOCKS[0] * 2
    assert sparkline([]) == ""


def test_fetch(home, capsys):
    assert tapehead("zoo", "fetch", ROW, "--out", "mine/machines") == 0
    out = capsys.readouterr().out
    files = {path.name for path in Path("mine/machines").iterdir()}
    assert files == {f"{ROW}.safetensors", f"{ROW}.json", f"{ROW}.snapshots.safetensors"}
    assert 'tapehead.zoo.load("copy-ntm-lstm", folder=Path("mine/machines"))' in out
    fetched = zoo.load(ROW, folder=Path("mine/machines"))
    assert torch.equal(fetched.flat_parameters(), zoo.load(ROW).flat_parameters())
    assert tapehead("zoo", "fetch", ROW, "--out", "mine/machines") == 0  # again: they are the same
    Path("mine/machines", f"{ROW}.json").write_text("my own")
    assert tapehead("zoo", "fetch", ROW, "--out", "mine/machines") == 2
    assert "is there already" in capsys.readouterr().err
    assert Path("mine/machines", f"{ROW}.json").read_text() == "my own"


def test_add_and_snapshots(made, home, capsys):
    for path in home.iterdir():
        path.unlink()
    with tiny_laboratory():
        assert tapehead("zoo", "add", made / "out" / f"{ROW}.json", "--work", made / "work") == 0
        assert "In the zoo: copy-ntm-lstm, seed 4" in capsys.readouterr().out
        assert tapehead("zoo", "snapshots", ROW) == 0
    assert "after 100, 200," in capsys.readouterr().out
    there = {path.name: path.read_bytes() for path in home.iterdir()}
    assert there == {path.name: path.read_bytes() for path in (made / "zoo").iterdir()}  # to the byte


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("lst", "unknown command of zoo 'lst'. Did you mean 'list'"),
        ("show", "NAME"),
        ("show copy-ntm-lsm", "Did you mean 'copy-ntm-lstm'"),
        ("fetch copy-ntm-lstm --ot x", "did you mean --out"),
        ("fetch copy-ntm-lstm --out file", "file"),
        ("add nowhere.json", "nowhere.json cannot be read"),
        ("add file", "file is damaged"),
        ("snapshots copy-ntm-lstm --device cdua", "--device is 'cdua'"),
    ],
)
def test_mistakes(home, arguments, message, capsys):
    Path("file").write_text("mine")
    assert tapehead("zoo", *arguments.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("tapehead: ")


def test_the_list_of_the_package_cuts_no_word(capsys):
    assert tapehead("zoo", "list") == 0
    out = capsys.readouterr().out
    assert all(name in out and zoo.card(name).headline in out for name in zoo.names())
