"""The examples run, and write only where they are told to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tapehead import files

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "own_task.py": ["--quick", "--out", "out"],
    "ntm_layer.py": ["--updates", "3"],
    "many_seeds.py": ["--seeds", "2", "--episodes", "200", "--out", "out"],
    "zoo_inside.py": ["--length", "30", "--out", "out"],
    "run_exported.py": ["out/copy.pt2", "--lengths", "1", "30", "--batch", "1"],
    "truncated_bptt.py": ["--updates", "3"],
}
BEFORE = {"run_exported.py": ["export", "copy-ntm-lstm", "--format", "pt2", "--out", "out/copy.pt2"]}
"""Commands that make what an example is about."""
SAYS = {
    "own_task.py": ["stopped by SIGINT", "training from episode 200 on", "figures/memory.png"],
    "ntm_layer.py": ["3 updates: loss", "accuracy on 1,000 fresh sequences"],
    "many_seeds.py": ["start open (+1): 0 of 2 seeds solved", "start closed (-2): 0 of 2 seeds", "many-seeds.png"],
    "zoo_inside.py": ["length 30 on 60 slots: 0 of 240 bits wrong", "visits 30 slots", "at 100.0% of the steps"],
    "run_exported.py": ["length 1: 0 of 8 bits wrong", "length 30: 0 of 240 bits wrong"],
    "truncated_bptt.py": ["3 pieces: loss"],
}


def test_every_example_is_here():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_an_example_runs_and_writes_only_where_it_is_told(name, tmp_path):
    if name in BEFORE:
        subprocess.run([sys.executable, "-m", "tapehead.cli", *BEFORE[name]], cwd=tmp_path, check=True, timeout=300)
    environment = dict(os.environ)
    if name == "run_exported.py":  # it must not need the package
        (tmp_path / "out" / "tapehead.py").write_text("raise ImportError('there is no tapehead here')")
        environment["PYTHONPATH"] = str(tmp_path / "out")
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *SMALL[name]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words in SAYS[name]:
        assert words in done.stdout
    assert {path.name for path in tmp_path.iterdir()} <= {"out"}
    if name == "own_task.py":  # another process finds the task again
        config = files.unseal((tmp_path / "out/config.json").read_bytes())
        assert config["experiment"]["task"]["name"] == "own_task:EveryOther"
