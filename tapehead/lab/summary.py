"""What a record says in a few numbers, all of them computed from its machines."""

from typing import Any

from tapehead.evaluation.summaries import quantile, quartiles, wilson

INFINITE = float("inf")

BUDGETS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
"""Training sequences of a machine at which all rows are compared."""


def summarise(record: dict[str, Any]) -> dict[str, Any]:
    """How many were solved and how fast, how many meet each criterion, and the costs at each point."""
    machines = record["machines"]
    solved = [machine["solved_at"] for machine in machines if machine["solved_at"] is not None]
    rate = seconds_per_episode(record)
    return {
        "solved": _fraction(len(solved), len(machines)),
        "episodes_to_solve": _quartiles(solved),
        "seconds_to_solve": _quartiles([rate * episodes for episodes in solved]) if rate is not None else None,
        "episodes_delivered": _to_most([machine["episodes"] for machine in machines], 1),
        "seconds_delivered": _to_most([machine["episodes"] for machine in machines], rate),
        "criteria": [
            {"says": criterion["says"], **_fraction(sum(machine["met"][c] for machine in machines), len(machines))}
            for c, criterion in enumerate(record["criteria"])
        ],
        "points": [_costs(point, machines) for point in record["points"]],
        "learning": [costs_after(record, budget) for budget in BUDGETS],
    }


def costs_after(record: dict[str, Any], episodes: int) -> dict[str, float] | None:
    """Quartiles of the training cost in bits after so many sequences, of all machines, each the mean since the point of
    its curve before; None where they were not trained so far, or the record has no curves."""
    costs = []
    for machine in record["machines"]:
        curve = machine.get("curve", [])
        if not curve or curve[-1][0] < 0.99 * episodes:
            return None
        costs.append(next(bits for end, bits in curve if end >= 0.99 * episodes))
    return _quartiles(costs)


def seconds_per_episode(record: dict[str, Any]) -> float | None:
    """Wall seconds of the run, divided by the episodes of all its seeds together."""
    if record["seconds"] is None:
        return None
    episodes = sum(machine["episodes"] for machine in record["machines"])
    return float(record["seconds"] / episodes)


def _fraction(count: int, of: int) -> dict[str, Any]:
    return {"count": count, "of": of, "wilson": list(wilson(count, of))}


def _quartiles(values: list[float]) -> dict[str, float] | None:
    return quartiles(values)._asdict() if values else None


def _to_most(episodes: list[int], rate: float | None) -> dict[str, float] | None:
    """What it took until the median machine and until nine in ten had their weights, all attempts together."""
    if rate is None:
        return None
    return {"median": rate * quantile(episodes, 0.5), "ninety": rate * quantile(episodes, 0.9)}


def _costs(point: dict[str, Any], machines: list[dict[str, Any]]) -> dict[str, Any]:
    found = [machine["scores"][point["label"]]["bits"] for machine in machines]
    bits = [INFINITE if value is None else value for value in found]
    return {
        "label": point["label"],
        "sequences": point["sequences"],
        "median_bits": _or_none(quartiles(bits).median),
        "worst_bits": _or_none(max(bits)),
    }


def _or_none(value: float) -> float | None:
    return value if value < INFINITE else None
