"""`make soak`: the whole storm, and a line about it in benchmarks/results."""

import datetime
import time
from pathlib import Path

import pytest
from killing import Storm

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.soak
def test_200_jobs_survive_30_killed_workers_and_5_killed_drivers(tmp_path):
    began = time.monotonic()
    storm = Storm(tmp_path, jobs=200, workers=30, drivers=5, seed=2014, teams=(2, 2))
    storm.run()
    results, killed, seconds = len(storm.results), storm.killed, time.monotonic() - began
    line = (
        f"200 jobs, {killed['worker']} workers and {killed['driver']} drivers killed: {results} results, "
        f"{200 - results} lost, {len(storm.twice)} written twice, {seconds:.0f} seconds\n"
    )
    (RESULTS / f"{datetime.datetime.now(datetime.UTC).date()}-soak-sweep.txt").write_text(line)
    assert killed == {"worker": 30, "driver": 5}
    storm.check()
