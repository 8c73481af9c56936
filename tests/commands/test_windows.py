"""On Windows the layers work, and what trains says in one sentence why it does not. Windows is made up here: the names
that it does not have are taken away."""

import subprocess
import sys

WITHOUT_POSIX = """
import os, signal, sys
import torch, numpy, tyro, subprocess, tempfile  # as on Linux: they have their own ways on Windows

sys.modules["fcntl"] = None
sys.platform = "win32"
del signal.SIGHUP, os.O_NOFOLLOW, os.O_NONBLOCK

import tapehead
import tapehead.cli

y, state = tapehead.NTM(3, 2, memory_slots=4, backend="reference")(torch.rand(5, 2, 3))
print(tuple(y.shape), tapehead.load("copy-ntm-lstm").memory_slots, flush=True)
tapehead.cli.main(["train", "copy", "--backend", "reference", "--out", "run"])
"""


def test_layers_need_no_posix_and_training_is_refused_in_one_sentence(tmp_path):
    command = [sys.executable, "-c", WITHOUT_POSIX]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "(5, 2, 2) 128\n", done.stderr
    assert done.stderr == (
        "tapehead: runs and sweeps need POSIX file locks, which Windows does not have: train on Linux or macOS, or "
        "under WSL.\n"
    )
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
