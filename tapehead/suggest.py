"""The nearest valid name to a misspelt one."""

import difflib
import re
from collections.abc import Iterable


def unknown(kind: str, word: str, valid: Iterable[str]) -> str:
    """One sentence that names what was given, the nearest valid word and all valid words."""
    options = sorted(valid, key=_in_order)
    near = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {word!r}.{guess} Valid: {', '.join(options)}."


def _in_order(word: str) -> list[tuple[int, str]]:
    """Numbers by their value: 3 before 10."""
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split("([0-9]+)", word)]
