"""Write the results of the records into README.md and the lecture: run it after `tapehead confirm` has made new ones.

python docs/update_results.py
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README, LECTURE = ROOT / "README.md", ROOT / "docs/notebooks/lecture.md"
CRITERIA = {
    "copy-ntm-lstm": 0,
    "copy-ntm-feedforward": 0,
    "copy-lstm": 0,
    "repeat-copy-ntm-lstm": 0,
    "repeat-copy-ntm-feedforward": 0,
    "repeat-copy-pulses-ntm-lstm": 1,
    "repeat-copy-lstm": 0,
    "associative-recall-ntm-lstm": 0,
    "associative-recall-ntm-feedforward": 0,
    "associative-recall-lstm": 0,
    "ngrams-ntm-lstm": 0,
    "ngrams-ntm-feedforward": 0,
    "ngrams-lstm": 0,
    "priority-sort-ntm-lstm": 0,
    "priority-sort-lstm": 0,
}
"""Rows of the README, and which of their acceptance criteria it shows."""
IN_LECTURE = {"LSTM, 3 layers of 256": "copy-lstm", "NTM, LSTM controller": "copy-ntm-lstm"}
ROW = re.compile(r"^\| \[([\w-]+)\]\(results/.*\n", flags=re.MULTILINE)


def summary_of(name: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text())["summary"]
    return summary


def solved(summary: dict[str, Any]) -> str:
    return f"{summary['solved']['count']} of {summary['solved']['of']}"


def sequences(summary: dict[str, Any]) -> str:
    median = summary["episodes_to_solve"]
    return f"{median['median']:,.0f}" if median else "-"


def readme_row(name: str) -> str:
    summary = summary_of(name)
    judged = summary["criteria"][CRITERIA[name]]
    cells = (solved(summary), sequences(summary), judged["says"], f"{judged['count']} of {judged['of']}")
    return f"| [{name}](results/{name}.json) | {' | '.join(cells)} |\n"


def lecture_row(label: str) -> str:
    summary = summary_of(IN_LECTURE[label])
    (point,) = (point for point in summary["points"] if point["label"] == "Length 120")
    return f"| {label} | {solved(summary)} | {sequences(summary)} | {point['median_bits']:,.4g} |\n"


def with_results(readme: str, lecture: str) -> tuple[str, str]:
    """Both texts with the rows that the records make."""
    readme = ROW.sub(lambda row: readme_row(row[1]), readme)
    for label in IN_LECTURE:
        lecture = re.sub(rf"^\| {label} \|.*\n", lecture_row(label), lecture, flags=re.MULTILINE)
    return readme, lecture


def main() -> None:
    readme, lecture = with_results(README.read_text(), LECTURE.read_text())
    README.write_text(readme)
    LECTURE.write_text(lecture)


if __name__ == "__main__":
    main()
