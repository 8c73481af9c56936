"""Records in words: the lines that `tapehead confirm` prints, and the README of a folder of results."""

from collections import Counter
from typing import Any

from tapehead.lab.summary import BUDGETS, summarise

TOP = """# Results

Every row: machines trained with a recipe that was frozen before, scored on held-out sequences. Seeds from 1000 on are
held out for this page; recipes are tuned on seeds below, and a row of those says so. `tapehead confirm ROW` makes a
record and this page; nothing here is typed by hand. Fractions come with Wilson's 95 % interval.
`ntm-lstm` or `ntm-feedforward` in a name is an NTM with that controller, `lstm` alone an LSTM without a memory, `dnc` a
Differentiable Neural Computer.
"""

PICTURE = "costs"
COSTS = f"""
![The cost of every machine at each acceptance criterion]({PICTURE}.svg)
"""

LEARNING = """
## Learning

Solved: the mean cost of the last 1,000 training episodes fell under the task's threshold; where a recipe has a
curriculum that does not end, they are its sequences. Episodes and seconds are medians of the solved machines, with
quartiles. Seconds to solve are not those of a machine that trains alone: they are the wall seconds of the whole run,
divided by the episodes of all its seeds and attempts, times the episodes to solve. Episodes and seconds to a machine:
until training has ended and weights are delivered, solved or not, all attempts together; the median of the seeds and
the number that is enough for nine in ten. Worst after solving: the highest
mean of at least 1,000 consecutive episodes (whole blocks, finite costs) from then on, of any machine; the weights
delivered are those at the lowest.

Attempts: some recipes validate the machines that are solved, at sizes beyond training and on sequences that are neither
trained on nor scored here (which sizes is in the record, under `experiment`). The weights delivered are then those of
the lowest cost there, and a seed that has not passed by the end of an attempt is restarted with other weights; with
`restarts.after`, a seed that after so many episodes is neither solved nor below `restarts.above_bits` is restarted at
once. Episodes to solve are those of the machine delivered and all of the attempts before it; the seconds hold what
validation took, too; the worst after solving is of the attempt that was delivered.

"""

CURVES = "learning"
BUDGET = f"""
## Learning at equal budgets

![Training cost of all systems over the sequences that a machine was trained on]({CURVES}.svg)

Training cost in bits per sequence after so many sequences, the median of all machines, solved or not; in brackets the
quartiles. A dash: this row's recipe ends before. Rows whose record was made before records had learning curves are left
out. While a curriculum lasts, its sequences are not those of the task.

"""

CRITERIA = """
## Acceptance criteria

"""

BEYOND = """
## Beyond the training sizes

Mean cost per sequence in bits, of all machines, solved or not; for N-grams, over the best possible on the same
sequences.

"""


def readme(records: list[dict[str, Any]]) -> str:
    """The page of a folder of results; everything is computed again from the machines."""
    parts = [(record, summarise(record)) for record in records]
    learning = [_learning(record, summary) for record, summary in parts]
    budgets = [
        {"row": record["row"], "recipe": record["recipe"]} | _budgets(summary)
        for record, summary in parts
        if any(summary["learning"])
    ]
    criteria = [
        {"row": record["row"], "recipe": record["recipe"], "criterion": part["says"], "machines": fraction(part)}
        for record, summary in parts
        for part in summary["criteria"]
    ]
    beyond = [
        {"row": record["row"], "recipe": record["recipe"], "point": part["label"]} | _costs(part)
        for record, summary in parts
        for part in summary["points"]
    ]
    learned = TOP + COSTS + LEARNING + _table(learning) + BUDGET + _table(budgets)
    return learned + CRITERIA + _table(criteria) + BEYOND + _table(beyond)


def _table(rows: list[dict[str, str]]) -> str:
    """Rows of equal keys as a table in Markdown."""
    if not rows:
        return "None yet.\n"
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _learning(record: dict[str, Any], summary: dict[str, Any]) -> dict[str, str]:
    where = record["environment"]
    return {
        "row": f"[{record['row']}]({record['name']}.json)",
        "recipe": record["recipe"],
        "solved": fraction(summary["solved"]),
        "episodes to solve": spread(summary["episodes_to_solve"]) if summary["episodes_to_solve"] else "-",
        "seconds to solve": _seconds(summary),
        "episodes to a machine": _to_most(summary["episodes_delivered"]),
        "seconds to a machine": _to_most(summary["seconds_delivered"]),
        "attempts": _attempts(record),
        "worst after solving, bits": _worst(record),
        "episodes trained": f"{record['experiment']['training']['episodes']:,}" + _times(record),
        "seeds": seeds_in_words(record).partition(" ")[2] + (" (tuning)" if min(record["seeds"]) < 1000 else ""),
        "side by side": str(record["seeds_side_by_side"]),
        "device, backend": f"{where['device']}, {where['backend']}",
        "date": where["date"],
    }


def _budgets(summary: dict[str, Any]) -> dict[str, str]:
    costs = zip(BUDGETS, summary["learning"], strict=True)
    return {f"{budget:,}": "-" if cost is None else spread(cost) for budget, cost in costs}


def _seconds(summary: dict[str, Any]) -> str:
    if not summary["episodes_to_solve"]:
        return "-"
    return spread(summary["seconds_to_solve"]) if summary["seconds_to_solve"] else "not measured"


def _to_most(taken: dict[str, float] | None) -> str:
    """ "80,000; 240,000"."""
    return "not measured" if taken is None else f"{_number(taken['median'])}; {_number(taken['ninety'])}"


def _attempts(record: dict[str, Any]) -> str:
    """ "1", or how many machines took how many, and how many passed a validation: "14 x 1, 5 x 2, 1 x 3; 19 passed"."""
    if record["experiment"]["restarts"]["attempts"] == 1:
        return "1"
    counts = Counter(machine["attempts"] for machine in record["machines"])
    words = ", ".join(f"{machines} x {attempts}" for attempts, machines in sorted(counts.items()))
    if not record["experiment"]["validation"]["sizes"]:
        return words
    return f"{words}; {sum(machine['passed'] for machine in record['machines'])} passed"


def _times(record: dict[str, Any]) -> str:
    most = record["experiment"]["restarts"]["attempts"]
    return f", at most {most} times" if most > 1 else ""


def _worst(record: dict[str, Any]) -> str:
    solved = [machine for machine in record["machines"] if machine["solved_at"] is not None]
    worst = [machine["worst_window_after_solving_bits"] for machine in solved]
    if not worst:
        return "-"
    return "infinite" if None in worst else f"{max(worst):.3g}"


def _costs(point: dict[str, Any]) -> dict[str, str]:
    return {
        "sequences": f"{point['sequences']:,}",
        "median bits": _bits(point["median_bits"]),
        "worst bits": _bits(point["worst_bits"]),
    }


def describe(record: dict[str, Any]) -> str:
    """A record for the terminal."""
    summary = summarise(record)
    first = f"{record['row']}/{record['recipe']}, {seeds_in_words(record)}: {fraction(summary['solved'])} solved"
    if summary["episodes_to_solve"]:
        first += f" after {spread(summary['episodes_to_solve'])} episodes; seconds: {_seconds(summary)}"
    if record["experiment"]["restarts"]["attempts"] > 1:
        first += f"; attempts: {_attempts(record)}"
    lines = [first, *(f"  {fraction(criterion)} {criterion['says']}" for criterion in summary["criteria"])]
    for point in summary["points"]:
        median, worst = _bits(point["median_bits"]), _bits(point["worst_bits"])
        lines.append(f"  {point['label']}: median {median}, worst {worst} bits on {point['sequences']:,} sequences")
    return "\n".join(lines)


def seeds_in_words(record: dict[str, Any]) -> str:
    """ "seeds 1000-1019"."""
    first, last = record["seeds"][0], record["seeds"][-1]
    return f"seed {first}" if first == last else f"seeds {first}-{last}"


def fraction(part: dict[str, Any]) -> str:
    """ "16 of 20 (58-92 %)"."""
    low, high = (100 * end for end in part["wilson"])
    return f"{part['count']} of {part['of']} ({low:.0f}-{high:.0f} %)"


def spread(quartiles: dict[str, float]) -> str:
    """ "4,350 (3,975-4,800)"."""
    low, median, high = (_number(quartiles[end]) for end in ("low", "median", "high"))
    return f"{median} ({low}-{high})"


def _bits(bits: float | None) -> str:
    return "infinite" if bits is None else _number(bits)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
