"""Whatever docs/reproducibility.md and docs/reliability.md name is there."""

import re
from pathlib import Path

import pytest
from soak.faults import FAULTS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reproducibility.md").read_text()


@pytest.mark.parametrize(("path", "name"), sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT))))
def test_a_test_that_is_named_is_there(path, name):
    assert f"def {name}(" in (ROOT / path).read_text()


def test_faults_and_files_that_are_named_are_there():
    numbers = {int(n) for words in re.findall(r"faults? ([\d, and]+)", TEXT) for n in re.findall(r"\d+", words)}
    assert {1, 12, 18} <= numbers <= FAULTS.keys()
    for path in re.findall(r"(benchmarks/[\w./-]+|results/[\w./-]+\.json)", TEXT):
        assert (ROOT / path).exists(), path
