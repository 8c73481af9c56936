"""Confirmations: what is asked, what is measured, what is written down, and that nothing of it is typed by hand."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_laboratory import EPISODES, FAR, NEAR, REAL_ACCEPTANCE, ROW, tapehead, tiny_laboratory

from tapehead import files
from tapehead.evaluation.generalisation import score
from tapehead.evaluation.summaries import quartiles, wilson
from tapehead.experiment import folder
from tapehead.experiment.config import Experiment
from tapehead.experiment.loop import Trainer
from tapehead.experiment.metrics import Line
from tapehead.experiment.parts import Training
from tapehead.figures.records import draw_costs
from tapehead.lab import records
from tapehead.lab.acceptance import ACCEPTANCE, Criterion, Point, acceptance_of
from tapehead.lab.blocks import Block, blocks_of, curve_of, mean_bits, worst_after
from tapehead.lab.summary import seconds_per_episode, summarise
from tapehead.lab.tables import describe, readme
from tapehead.paper.recipes import row_experiment, rows
from tapehead.tasks import make_task

WRITTEN = ("README.md", "costs.png", "costs.svg", "learning.png", "learning.svg")
"""In a folder of results, beside the records."""
CONFIRM = ("confirm", ROW, "--seed", 40, "--seeds", 3, "--sequences", 6)


@pytest.fixture(scope="module", autouse=True)
def laboratory():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with tiny_laboratory():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory):
    """A confirmation of three tiny machines: its results in `out`, its run under `work`."""
    place = tmp_path_factory.mktemp("confirmed")
    assert tapehead(*CONFIRM, "--work", place / "work", "--out", place / "out") == 0
    return place


def record_in(place):
    return json.loads((place / "out" / f"{ROW}.json").read_text())


# --- numbers that stand for many -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(20, 20, 0.8389, 1.0), (0, 20, 0.0, 0.1611), (16, 20, 0.5840, 0.9193), (5, 10, 0.2366, 0.7634)],
)
def test_wilson_by_hand(successes, trials, low, high):
    assert wilson(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_the_ends_of_wilsons_interval_are_the_probabilities_1_96_deviations_away():
    for trials in (1, 7, 20):
        for successes in range(trials + 1):
            for p in wilson(successes, trials):
                deviation = math.sqrt(p * (1 - p) / trials)
                assert abs(successes / trials - p) == pytest.approx(1.959964 * deviation, abs=1e-6)


def test_wilson_refuses_what_is_no_fraction():
    for successes, trials in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match=f"{successes} of {trials} is no fraction"):
            wilson(successes, trials)


def test_quartiles_by_hand():
    assert quartiles([4.0, 1.0, 3.0, 2.0]) == (1.75, 2.5, 3.25)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


# --- blocks ----------------------------------------------------------------------------------------------------------


def line(episodes, seeds, bits):
    count = len(seeds)
    rest = {"skipped": (0,) * count, "rate": (1e-4,) * count, "curriculum": (False,) * count}
    rest |= {"attempt": (1,) * count, "validation": (None,) * count}
    return Line(updates=episodes, episodes=episodes, seeds=seeds, bits=bits, **rest)


def test_blocks_of_a_seed():
    metrics = [
        line(100, (5, 6), (3.0, 4.0)),
        line(200, (5, 6), (None, 2.0)),
        line(250, (6,), (1.0,)),  # seed 5 has left, and the last block is short
    ]
    assert blocks_of(5, metrics) == [(100, 100, 3.0, 1), (200, 100, float("inf"), 1)]
    assert blocks_of(6, metrics) == [(100, 100, 4.0, 1), (200, 100, 2.0, 1), (250, 50, 1.0, 1)]


def blocks_from(bits, episodes=100):
    return [Block((i + 1) * episodes, episodes, value) for i, value in enumerate(bits)]


def test_the_worst_window_after_solving_by_hand():
    # Ten blocks of 100 make a window. Solved at 1,000; one block of 5 bits later on; nothing before counts.
    blocks = blocks_from([9.0] * 5 + [0.0] * 10 + [5.0] + [0.0] * 20)
    assert worst_after(blocks, solved_at=1500) == pytest.approx(0.5)
    assert worst_after(blocks, solved_at=1600) == pytest.approx(0.5)  # the window that ends there has the spike in it
    assert worst_after(blocks, solved_at=2600) == 0.0
    assert worst_after(blocks, solved_at=1000) == pytest.approx(4.5)
    assert worst_after(blocks_from([0.05] * 10), solved_at=1000) == pytest.approx(0.05)  # solved by its last window


@pytest.mark.parametrize("episodes", [1, 100, 300, 1000, 1600])
def test_the_worst_window_against_all_windows(episodes):
    draw = random.Random(episodes)
    blocks = blocks_from([draw.random() for _ in range(60)], episodes)
    each = -(-1000 // episodes)
    bits = [block.bits for block in blocks]
    solved_at = blocks[40].end
    windows = [bits[max(0, end - each) : end] for end in range(41, 61)]
    assert worst_after(blocks, solved_at) == pytest.approx(max(sum(w) / len(w) for w in windows))


def test_a_learning_curve_is_short_and_keeps_the_mean():
    blocks = blocks_from([float(i) for i in range(1000)])
    curve = curve_of(blocks)
    assert len(curve) == 200
    assert curve[0] == (500, 2.0)
    assert curve[-1][0] == 100_000
    assert sum(bits for _, bits in curve) / 200 == pytest.approx(mean_bits(blocks))
    assert curve_of(blocks_from([1.0, float("inf"), 3.0])) == [(100, 1.0), (300, 3.0)]
    assert curve_of([]) == []


# --- acceptance ------------------------------------------------------------------------------------------------------


@pytest.fixture
def real_acceptance():
    """What the package asks, not the tiny laboratory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ACCEPTANCE, "copy", REAL_ACCEPTANCE)
        yield


def asked_of(name):
    experiment = row_experiment(name, "paper", {"place.backend": "reference"})
    return experiment.task, acceptance_of(experiment.task, experiment.build())


@pytest.mark.parametrize("name", rows())
def test_every_row_has_criteria_that_can_be_measured(name, real_acceptance):
    task, asked = asked_of(name)
    labels = [point.label(task) for point in asked.points]
    assert len(set(labels)) == len(labels)
    assert asked.headline in asked.points
    assert asked.criteria
    assert asked.sequences >= (1000 if task.name == "ngrams" else 200)
    for criterion in asked.criteria:
        assert all(point in asked.points for point in criterion.points)
    for point in asked.points:
        task.ranges(**point.sizes)  # refuses sizes that it does not have
        assert point.slots is None or "ntm" in name


def test_the_criteria_in_words(real_acceptance):
    def says(name):
        task, asked = asked_of(name)
        return [criterion.says(task) for criterion in asked.criteria]

    assert says("copy-ntm-lstm") == ["under 1 bit at Length 120", "under 1 bit at Length 500 on 1,024 slots"]
    assert says("copy-lstm") == ["under 1 bit at Length 120"]
    assert says("associative-recall-ntm-lstm") == ["under 0.1 bit at Items 15", "under 1 bit at Items 20"]
    assert says("repeat-copy-ntm-lstm") == ["under 1 bit at Length 20, Repeat 10"]
    assert says("repeat-copy-pulses-ntm-lstm") == [
        "under 1 bit at Length 20, Repeat 10",
        "no wrong bit at Length 20, Repeat 10; Length 10, Repeat 20; Length 20, Repeat 20",
    ]
    assert says("ngrams-ntm-lstm")[0].startswith("under 1 bit at ")
    assert says("priority-sort-ntm-lstm") == ["under 5 bits at Items 20, Outputs 16"]


def test_a_criterion_holds_at_all_of_its_points():
    task = make_task("copy")
    a, b = Point({"length": 3}), Point({"length": 4})

    def scores(first, second):
        return {"Length 3": first, "Length 4": second}

    low, high = {"bits": 0.9, "perfect": 1.0}, {"bits": 1.0, "perfect": 0.995}
    for under, bad in ((1.0, high), (None, high), (1.0, {"bits": None, "perfect": 0.0})):
        assert Criterion((a, b), under).met(task, scores(low, low))
        assert not Criterion((a, b), under).met(task, scores(low, bad))
        assert not Criterion((a, b), under).met(task, scores(bad, low))


# --- summaries -------------------------------------------------------------------------------------------------------


def made_up(solved_at, bits, seconds=30.0):
    """A record of machines that were trained for 1,000 episodes each."""
    machines = [
        {
            "seed": 10 + i,
            "episodes": 1000,
            "solved_at": at,
            "worst_window_after_solving_bits": None if at is None else 2.5 * i,
            "scores": {"Length 9": {"bits": cost, "wrong": 0.0, "perfect": 1.0}},
            "met": [cost is not None and cost < 1],
        }
        for i, (at, cost) in enumerate(zip(solved_at, bits, strict=True))
    ]
    return {
        "kind": "tapehead confirmation",
        "name": "made-up",
        "row": "made-up",
        "recipe": "tuned",
        "experiment": Experiment(task=make_task("copy"), training=Training(episodes=1000)).to_plain(),
        "seeds": [machine["seed"] for machine in machines],
        "seeds_side_by_side": len(machines),
        "seconds": seconds,
        "environment": {"device": "abacus", "backend": "cpu", "date": "2026-01-02"},
        "points": [{"label": "Length 9", "sizes": {"length": 9}, "slots": None, "sequences": 200}],
        "criteria": [{"says": "under 1 bit at Length 9", "points": ["Length 9"], "under": 1.0}],
        "headline": "Length 9",
        "machines": machines,
    }


def test_a_summary_by_hand():
    summary = summarise(made_up([400, 600, None], [0.5, 0.25, 8.0]))
    assert seconds_per_episode(made_up([400, 600, None], [0.5, 0.25, 8.0])) == 0.01  # 30 s for 3 x 1,000 episodes
    assert (summary["solved"]["count"], summary["solved"]["of"]) == (2, 3)
    assert summary["solved"]["wilson"] == list(wilson(2, 3))
    assert summary["episodes_to_solve"] == {"low": 450.0, "median": 500.0, "high": 550.0}
    assert summary["seconds_to_solve"] == pytest.approx({"low": 4.5, "median": 5.0, "high": 5.5})
    record = made_up([400, 600, None], [0.5, 0.25, 8.0])
    for machine, episodes in zip(record["machines"], (500, 1000, 3000), strict=True):
        machine["episodes"] = episodes
    delivered = summarise(record)
    assert delivered["episodes_delivered"] == pytest.approx({"median": 1000.0, "ninety": 2600.0})
    assert delivered["seconds_delivered"] == pytest.approx({"median": 30 / 4.5, "ninety": 78 / 4.5})
    assert "| 1,000; 2,600 | 6.67; 17.3 |" in readme([record])
    (criterion,) = summary["criteria"]
    assert (criterion["says"], criterion["count"], criterion["of"]) == ("under 1 bit at Length 9", 2, 3)
    expected = {"label": "Length 9", "sequences": 200, "median_bits": 0.5, "worst_bits": 8.0}
    assert summary["points"] == [expected]


def test_a_summary_where_nothing_worked():
    summary = summarise(made_up([None, None], [None, 3.0], seconds=None))
    assert summary["solved"]["count"] == 0
    assert summary["episodes_to_solve"] is summary["seconds_to_solve"] is None
    assert summary["points"][0]["worst_bits"] is None
    assert summary["seconds_delivered"] is None
    page = readme([made_up([None, None], [None, 3.0], seconds=None)])
    assert "| 1,000; 1,000 | not measured |" in page
    assert "| infinite |" in page
    assert describe(made_up([None], [3.0])).startswith("made-up/tuned, seed 10: 0 of 1 (0-79 %) solved\n")


def test_the_picture_has_a_dot_for_every_machine(tmp_path):
    first = made_up([400, 600, None], [0.5, 1e-9, None]) | {"row": "copy-ntm-lstm"}
    second = made_up([None], [8.0]) | {"row": "copy-lstm", "recipe": "paper"}
    figure = draw_costs([first, second])
    words = [text.get_text() for text in figure.texts]
    for said in ("Copy: NTM, LSTM", "2 of 3", "Copy: LSTM (paper, 1,000)", "0 of 1", "Length 9"):
        assert said in words
    axes = figure.axes[0]
    dots = [dot for strip in axes.collections for dot in strip.get_offsets().tolist()]
    assert [bits for bits, _ in dots] == [0.5, 1e-5, 1e4, 8.0]  # what lies outside is at the edge
    assert [round(y) for _, y in dots] == [0, 0, 0, 1]
    assert draw_costs([]).axes  # an empty folder has a picture too
    path = records.write(first, tmp_path)
    assert {file.name for file in path.parent.iterdir()} == {"made-up.json", *WRITTEN}
    assert "(costs.svg)" in (tmp_path / "README.md").read_text()


def test_the_page_is_computed_from_the_machines():
    record = made_up([400, 600, None], [0.5, 0.25, 8.0])
    page = readme([record | {"summary": {"solved": "all of them"}}])
    row = next(line for line in page.splitlines() if line.startswith("| [made-up]"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[:5] == ["[made-up](made-up.json)", "tuned", "2 of 3 (21-94 %)", "500 (450-550)", "5 (4.5-5.5)"]
    assert cells[5:8] == ["1,000; 1,000", "10; 10", "1"]
    assert cells[8:] == ["2.5", "1,000", "10-12 (tuning)", "3", "abacus, cpu", "2026-01-02"]
    assert "| made-up | tuned | Length 9 | 200 | 0.5 | 8 |" in page
    assert "| made-up | tuned | under 1 bit at Length 9 | 2 of 3 (21-94 %) |" in page
    assert "divided by the episodes of all its seeds" in page
    assert "not measured" in readme([made_up([400], [0.5], seconds=None)])
    assert "None yet." in readme([])


def test_the_folder_of_results(tmp_path):
    (tmp_path / "other.json").write_text('{"kind": "something else"}')
    first, second = made_up([400], [0.5]), made_up([500], [0.5]) | {"name": "z-made-up", "row": "z-made-up"}
    assert records.write(first, tmp_path) == tmp_path / "made-up.json"
    records.write(second, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert page.index("[made-up](made-up.json)") < page.index("[z-made-up](z-made-up.json)")
    assert "other.json" not in page
    assert records.read(tmp_path / "made-up.json")["summary"] == summarise(first)
    with pytest.raises(ValueError, match=r"other.json is no record of a confirmation"):
        records.read(tmp_path / "other.json")
    with pytest.raises(ValueError, match="cannot be read"):
        records.read(tmp_path / "nowhere.json")
    (tmp_path / "other.json").write_text("{")
    with pytest.raises(ValueError, match=r"other.json is damaged"):
        records.write(first, tmp_path)


# --- the command -----------------------------------------------------------------------------------------------------


def test_confirm_writes_one_record(confirmed):
    record = record_in(confirmed)
    assert (record["row"], record["recipe"], record["seeds"]) == (ROW, "tuned", [40, 41, 42])
    assert record["experiment"] == row_experiment(ROW, changes={"seeds": (40, 41, 42)}).to_plain()
    assert record["seconds"] > 0
    assert record["seeds_side_by_side"] == 3
    where = record["environment"]
    assert {"device", "cpus", "backend", "python", "torch", "numba", "tapehead", "commit", "date"} <= where.keys()
    assert [(point["label"], point["sequences"]) for point in record["points"]] == [
        ("Length 2", 6),
        ("Length 5 on 16 slots", 3),  # which are enough
    ]
    assert record["summary"] == summarise(record)
    assert str(confirmed) not in json.dumps(record)  # no paths
    assert {path.name for path in (confirmed / "out").iterdir()} == {f"{ROW}.json", *WRITTEN}


def test_the_record_of_each_machine(confirmed):
    record = record_in(confirmed)
    (run,) = (confirmed / "work").iterdir()
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for i, found in enumerate(record["machines"]):
        assert found["seed"] == 40 + i
        assert found["episodes"] == EPISODES
        assert found["solved_at"] == 1000  # the first full window
        bits = [line["bits"][i] for line in metrics]
        windows = [sum(bits[end - 10 : end]) / 10 for end in (10, 11, 12, 13)]
        assert found["worst_window_after_solving_bits"] == pytest.approx(max(windows))
        assert found["last_window_bits"] == pytest.approx(windows[-1])
        assert found["best_window_bits"] == pytest.approx(min(windows))
        assert found["skipped_updates"] == 0
        near, far = found["scores"]["Length 2"], found["scores"]["Length 5 on 16 slots"]
        assert found["met"] == [near["bits"] < 3.0, far["perfect"] == 1.0]
    assert len({found["weights_sha256"] for found in record["machines"]}) == 3


def test_scores_are_of_the_weights_delivered_on_sequences_of_their_own(confirmed):
    record = record_in(confirmed)
    (run,) = (confirmed / "work").iterdir()
    task = row_experiment(ROW).task
    for found in record["machines"]:
        model = folder.load(run, found["seed"])
        for point, tape, count in ((NEAR, model, 6), (FAR, model.with_memory(16), 3)):
            flat = model.flat_parameters().unsqueeze(0)
            again = score(tape, flat, task, dict(point.sizes), count, source="confirmation")
            usual = score(tape, flat, task, dict(point.sizes), count)
            bits = found["scores"][point.label(task)]["bits"]
            assert again.bits[0] == pytest.approx(bits, rel=1e-5)
            assert usual.bits[0] != pytest.approx(bits, rel=1e-5)


def test_the_same_command_again_trains_nothing_and_writes_the_same(confirmed, monkeypatch, capsys):
    before = (confirmed / "out" / f"{ROW}.json").read_bytes()
    monkeypatch.setattr(Trainer, "_launch", lambda *_: pytest.fail("it was trained already"))
    monkeypatch.setattr(folder, "environment", lambda *_: {"device": "not where it was trained"})
    assert tapehead(*CONFIRM, "--work", confirmed / "work", "--out", confirmed / "out") == 0
    assert (confirmed / "out" / f"{ROW}.json").read_bytes() == before
    said = capsys.readouterr().out
    assert said.startswith(
        "copy-ntm-lstm/tuned, seeds 40-42: 3 of 3 (44-100 %) solved after 1,000 (1,000-1,000) episodes"
    )
    assert said.endswith(f"{confirmed / 'out' / ROW}.json\n")


def test_a_confirmation_that_was_stopped_goes_on(confirmed, tmp_path, monkeypatch, capsys):
    original = Trainer._launch

    def signalled(self, *given):
        if self.updates == 200:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *given)

    monkeypatch.setattr(Trainer, "_launch", signalled)
    arguments = (*CONFIRM, "--work", tmp_path / "work", "--out", tmp_path / "out")
    assert tapehead(*arguments) == 128 + signal.SIGTERM
    assert "The same command goes on from there." in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())
    (run,) = (tmp_path / "work").iterdir()
    first = json.loads((run / "time.json").read_text())["seconds"]
    monkeypatch.setattr(Trainer, "_launch", original)
    assert tapehead(*arguments) == 0
    record = record_in(tmp_path)
    assert record["machines"] == record_in(confirmed)["machines"]
    assert record["seconds"] > first > 0


def test_a_run_that_was_trained_without_a_clock_has_no_seconds(confirmed, tmp_path):
    shutil.copytree(confirmed / "work", tmp_path / "work")
    (run,) = (tmp_path / "work").iterdir()
    (run / "time.json").unlink()
    (run / "result.json").unlink()  # which has it too
    assert tapehead(*CONFIRM, "--work", tmp_path / "work", "--out", tmp_path / "out") == 0
    assert record_in(tmp_path)["seconds"] is None
    assert "not measured" in (tmp_path / "out" / "README.md").read_text()


@pytest.fixture
def run_folder(confirmed, tmp_path):
    """A copy of the run of the confirmation."""
    shutil.copytree(confirmed / "work", tmp_path / "work")
    (run,) = (tmp_path / "work").iterdir()
    opened = folder.RunFolder(run, folder.read_config(run))
    yield opened
    opened.close()


def test_a_time_of_another_type_is_not_known(run_folder):
    path = run_folder.path / "time.json"
    for values in (*({"seconds": value} for value in ("3", True, None, [3.0], {})), {"more": 3}):
        path.write_bytes(files.seal(values))
        assert run_folder.seconds() is None
    os.truncate(path, 128 << 30)  # sparse
    assert run_folder.seconds() is None
    path.unlink()
    os.mkfifo(path)
    assert run_folder.seconds() is None


def test_records_that_are_enormous_or_no_plain_files_are_refused_unread(tmp_path):
    path = records.write(made_up([400], [0.5]), tmp_path)
    (tmp_path / "link").symlink_to(path)
    assert records.read(tmp_path / "link") == records.read(path)  # the user has named it
    os.truncate(path, 128 << 30)  # sparse
    with pytest.raises(ValueError, match=r"made-up.json has 137,438,953,472 bytes, but at most 16,777,216 are read"):
        records.read(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"made-up.json is a named pipe, not a plain file: give a record"):
        records.read(path)


@pytest.mark.parametrize("name", ["made-up.json", "README.md", "costs.svg", "costs.png"])
def test_records_are_not_written_through_links(tmp_path, name):
    (tmp_path / "theirs").write_text("{}")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "theirs")
    with pytest.raises(ValueError, match=f"{name} is a symbolic link, not a plain file"):
        records.write(made_up([400], [0.5]), tmp_path / "out")
    assert (tmp_path / "theirs").read_text() == "{}"


def test_a_full_disk_is_one_sentence_that_names_the_folder(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for act in (lambda: records.write(made_up([400], [0.5]), tmp_path), lambda: records.write_readme(tmp_path)):
        with pytest.raises(ValueError, match=rf"cannot write to {tmp_path} \(No space left on device\): make room"):
            act()
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_has_a_record_of_its_own(tmp_path):
    arguments = (
        "--seeds",
        1,
        "--sequences",
        1,
        "--episodes",
        1,
        "--work",
        tmp_path / "work",
        "--out",
        tmp_path / "out",
    )
    with pytest.MonkeyPatch.context() as patch:
        task = {"length": (1, 2), "width": 2}
        patch.setattr("tapehead.paper.recipes.PAPER_TASKS", {"copy": task})
        assert tapehead("confirm", ROW, "--recipe", "paper", *arguments) == 0
    assert (tmp_path / "out" / f"{ROW}-paper.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("copy-ntm-lsm",), "Did you mean 'copy-ntm-lstm'"),
        ((ROW, "--seeds", 0), "--seeds is 0"),
        ((ROW, "--sequences", 0), "--sequences is 0"),
        ((ROW, "--episodes", 0), "episodes is 0"),
        ((ROW, "--backend", "fast"), "must be one of auto"),
        ((ROW, "--device", "cdua"), "--device is 'cdua'"),
        ((ROW, "--recipe", "best"), "best"),
        ((ROW, "--out", "file"), "cannot write to file"),
    ],
)
def test_mistakes(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    assert tapehead("confirm", *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_confirm_needs_no_tyro():
    """A machine with a GPU may have torch and little else."""
    code = "import sys; sys.modules['tyro'] = None; import tapehead.commands.confirm as c; print(c.run.__name__)"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "run\n"
