"""The fault suite: the promises of docs/reliability.md as numbered cases, a part in `make test`, all in `make soak`."""

import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
for _folder in (_TESTS / "experiment", _TESTS / "sweep", _TESTS, _TESTS.parent):  # helpers, and the package itself
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))
