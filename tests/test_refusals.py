"""What the library refuses, it refuses in one sentence: hundreds of wrong calls, in a process of their own."""

import json
import subprocess
import sys
from pathlib import Path


def test_wrong_calls_are_refused_in_one_sentence():
    command = [sys.executable, str(Path(__file__).with_name("fuzz_library.py")), "0", "600"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-1000:]  # the last line is the call that ended the process
    assert json.loads(done.stdout) == []
