"""A reproduction from the first command to the report: two rows of the smoke test, trained by real workers."""

import json
from pathlib import Path

import pytest
from quick_figures import quick
from tiny_laboratory import tapehead

from tapehead.commands import reproduce
from tapehead.paper.results import Results
from tapehead.reproduce.plan import duration
from tapehead.reproduce.scales import Job, jobs_of, sequences_of

ROWS = ("copy-ntm-lstm", "copy-no-shift-ntm-lstm")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder of a reproduction, begun and finished."""
    folder = tmp_path_factory.mktemp("reproduction") / "out"
    with pytest.MonkeyPatch.context() as patch, quick():
        some = [alternatives for alternatives in jobs_of("smoke") if alternatives[0].row in ROWS]
        patch.setattr(reproduce, "jobs_of", lambda scale: some)
        assert tapehead("reproduce", "--scale", "smoke", "--out", folder) == 0
    return folder


def test_records_and_a_report_come_of_it(out):
    results = Results.load(out / "results")
    assert {(record["row"], record["recipe"]) for record in results.records} == {(row, "tuned") for row in ROWS}
    for record in results.records:
        assert [len(record["seeds"]), record["experiment"]["training"]["episodes"]] == [2, 20]
        assert {point["sequences"] for point in record["points"]} == {2}
    text = (out / "report" / "index.html").read_text()
    assert "Smoke test: machines were trained for a few updates only" in text
    assert "trained on 20 of the recipe&#39;s 40,000 sequences" in text or "has 2 seeds, fewer than 5" in text
    assert ">held<" not in text.split('id="claims"')[1].split("C5")[0]  # nothing that was trained decides a claim


def test_the_same_command_again_trains_nothing(out, monkeypatch, capsys):
    before = {path: path.read_bytes() for path in (out / "results").iterdir()}
    (out / "report" / "index.html").unlink()
    monkeypatch.setattr("tapehead.sweep.local.LocalEngine.start", lambda engine: pytest.fail("a worker was started"))
    with quick():
        assert tapehead("reproduce", "--scale", "smoke", "--out", out) == 0
    assert {path: path.read_bytes() for path in (out / "results").iterdir()} == before
    assert (out / "report" / "index.html").exists()
    assert capsys.readouterr().out.count("there") == len(ROWS)


def test_another_scale_wants_another_folder(out, capsys):
    assert tapehead("reproduce", "--scale", "paper", "--out", out) == 2
    assert "holds a reproduction at the scale smoke: choose another with --out." in capsys.readouterr().err


def test_the_plan_is_kept_however_fast_the_computer_is_later(out):
    stored = json.loads((out / "results" / "reproduction.json").read_text())
    assert [Job(**job) for job in stored["jobs"]] == [some[0] for some in jobs_of("smoke") if some[0].row in ROWS]


def test_a_dry_run_measures_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "jobs_of", lambda scale: [(Job(ROWS[0], 10), Job(ROWS[0], 5))])
    monkeypatch.setattr("tapehead.reproduce.plan.measured_rate", lambda experiment: 100.0)
    assert tapehead("reproduce", "--scale", "laptop", "--dry-run", "--out", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    expected = duration(10 * sequences_of(Job(ROWS[0], 10).experiment()) / 100.0)
    assert expected.endswith((" min", " h"))
    assert expected in printed
    assert "by the speed that was measured here" in printed
    assert not (tmp_path / "out").exists()


def test_the_jobs_of_a_sweep_become_records(out, tmp_path, capsys):
    """Of a sweep that was made for another end: the records have the names of its jobs, and are made once."""
    command = ("sweep", "records", out / "sweep", "--out", tmp_path, "--sequences", 1)
    assert tapehead(*command) == 0
    made = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(made) == sorted(tmp_path.glob("*.json"))
    found = Results.load(tmp_path).records
    assert {record["recipe"] for record in found} == {"custom"}
    assert {record["row"].partition("-seeds")[0] for record in found} == set(ROWS)
    own = {record["experiment"]["recipe"]: record for record in Results.load(out / "results").records}
    for record in found:
        same = own[record["experiment"]["recipe"]]
        hashes = [[machine["weights_sha256"] for machine in one["machines"]] for one in (record, same)]
        assert hashes[0] == hashes[1]
    assert tapehead(*command) == 0
    assert capsys.readouterr().out == ""
