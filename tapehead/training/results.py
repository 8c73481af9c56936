"""What result.json holds: the fields that its readers use, with their types."""

import re
from typing import Any, NotRequired, TypedDict

from tapehead.typed import fits


class Scores(TypedDict):
    """Of all seeds at one size."""

    label: str
    bits: list[float]
    wrong_bits: list[float]
    perfect: list[float]


class Result(TypedDict):
    preset: str
    backend: str
    episodes: int
    seeds: list[int]
    solved_at: list[int | None]
    last_window_bits: list[float | None]
    skipped_updates: list[int]
    generalisation: list[Scores]
    sha256: dict[str, str]
    attempts: NotRequired[list[int]]
    passed: NotRequired[list[bool]]
    best_window_bits: NotRequired[list[float | None]]
    validation_bits: NotRequired[list[float | None]]


PER_SEED = (
    *("seeds", "solved_at", "last_window_bits", "skipped_updates"),
    *("attempts", "passed", "best_window_bits", "validation_bits"),
)


def is_result(values: dict[str, Any], seeds: tuple[int, ...]) -> bool:
    """Whether a table is the result of a run of these seeds."""
    if not (fits(values, Result) and tuple(values["seeds"]) == seeds and values["generalisation"]):
        return False
    lists = [values[name] for name in PER_SEED if name in values]
    lists += [scores[name] for scores in values["generalisation"] for name in ("bits", "wrong_bits", "perfect")]
    hashes = values["sha256"].values()
    return all(len(each) == len(seeds) for each in lists) and all(re.fullmatch("[0-9a-f]{64}", h) for h in hashes)
