"""Which records may decide a claim, and what they say: costs, sequences, and how machines were selected."""

import math

from tapehead.experiment.config import Experiment
from tapehead.paper.recipes import row_experiment
from tapehead.paper.results import Record, Results

LEAST_SEEDS = 5
"""Fewer machines than this decide nothing."""
LEAST_SHARE = 0.5
"""Of the recipe's training sequences; a record of shorter training decides nothing."""
FIRST_HELD_OUT = 1000
"""Recipes are tuned on seeds below this one."""


class Unusable(Exception):
    """A record that decides nothing, with the reason."""


def usable(results: Results, row: str, recipe: str) -> Record:
    """The record of a row to decide by: the first in order of preference that may. Otherwise the reason why the
    preferred one may not. For the recipe tuned, machines of which nothing was selected (once) come first."""
    reasons = []
    once = results.fitting(row, "once") if recipe == "tuned" else []
    for record in once + results.fitting(row, recipe):
        reason = _unusable(record)
        if not reason:
            return record
        reasons.append(f"{record['file']} {reason}")
    raise Unusable(reasons[0] if reasons else f"no record of {row} with the recipe {recipe}")


def _unusable(record: Record) -> str:
    """Why a record decides nothing; empty if it may."""
    if min(record["seeds"]) < FIRST_HELD_OUT:
        return f"has tuning seeds, those below {FIRST_HELD_OUT:,}"
    if len(record["machines"]) < LEAST_SEEDS:
        return f"has {len(record['machines'])} seeds, fewer than {LEAST_SEEDS}"
    trained = record["experiment"]["training"]["episodes"]
    whole = row_experiment(record["row"], record["recipe"]).training.episodes
    return f"trained on {trained:,} of the recipe's {whole:,} sequences" if trained < LEAST_SHARE * whole else ""


def costs_at(record: Record, label: str) -> list[float]:
    """Costs in bits of all machines at a point; infinite where not finite."""
    scores = [machine["scores"].get(label) for machine in record["machines"]]
    if any(score is None for score in scores):
        raise Unusable(f"{record['file']} was not measured at {label}")
    return [math.inf if score["bits"] is None else float(score["bits"]) for score in scores if score]


def cost_bounds(record: Record, label: str) -> tuple[list[float], list[float]]:
    """The least and the greatest costs at a point that a claim may count. They differ only where attempts were
    selected by their cost at sizes beyond training: then only first attempts are known."""
    costs = costs_at(record, label)
    if not selected_beyond_training(record):
        return costs, costs
    unknown = [machine["attempts"] > 1 for machine in record["machines"]]
    least, most = (
        [end if hidden else bits for bits, hidden in zip(costs, unknown, strict=True)] for end in (-math.inf, math.inf)
    )
    return least, most


def selected_beyond_training(record: Record) -> bool:
    return _beyond_training(record, record["experiment"]["validation"]["sizes"])


def point_beyond_training(record: Record, label: str) -> bool:
    return any(_beyond_training(record, point["sizes"]) for point in record["points"] if point["label"] == label)


def _beyond_training(record: Record, sizes: dict[str, int]) -> bool:
    task = Experiment.from_plain(record["experiment"], record["file"]).task
    trained = task.ranges()
    return any(high > trained[size][1] for size, (_, high) in task.ranges(**sizes).items())


def selection(record: Record) -> str:
    """A sentence on the selection of weights and attempts, where it is by more than the training cost of one attempt;
    otherwise empty."""
    machines, sizes = record["machines"], record["experiment"]["validation"]["sizes"]
    again = sum(machine["attempts"] > 1 for machine in machines)
    restarted = f"{again} of {len(machines)} machines are not first attempts"
    if sizes:
        words = ", ".join(f"{name} {value}" for name, value in sizes.items())
        slots = record["experiment"]["validation"].get("slots")
        words += f" on {slots} slots" if slots else ""
        return f"{record['row']}: weights and attempts were selected by the cost at {words}; {restarted}."
    return f"{record['row']}: {restarted}; restarts go by the training cost." if again else ""


def budget(record: Record) -> int:
    """The most training sequences that a machine of a record had, all attempts together."""
    return max(int(machine["episodes"]) for machine in record["machines"])


def trained_on(record: Record) -> str:
    """ "80,000", or "up to 220,000" where machines were restarted."""
    most = budget(record)
    return f"{'' if min(machine['episodes'] for machine in record['machines']) == most else 'up to '}{most:,}"


def episodes_to_solve(record: Record) -> list[float]:
    """Training sequences of all machines until they were solved; infinite for those that were not."""
    return [math.inf if m["solved_at"] is None else float(m["solved_at"]) for m in record["machines"]]


def cost_after(machine: Record, episodes: int) -> float | None:
    """The training cost of a machine after so many sequences, or at its end if that is earlier; None if unknown."""
    reached = min(episodes, machine["episodes"])
    if machine.get("curve"):
        return next((float(bits) for end, bits in machine["curve"] if end >= 0.99 * reached), math.inf)
    return last_cost(machine) if reached == machine["episodes"] else None


def costs_after(record: Record, episodes: int) -> list[float]:
    """The same of all machines."""
    costs = [cost_after(machine, episodes) for machine in record["machines"]]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        raise Unusable(f"{record['file']} has no learning curves, so its costs after {episodes:,} are not known")
    return known


def last_cost(machine: Record) -> float:
    """The training cost of a machine at its end: of the last window or, if it had none, of the last point of its
    curve; infinite if neither was finite."""
    last = machine["last_window_bits"]
    if last is None and machine.get("curve"):
        last = machine["curve"][-1][1]
    return math.inf if last is None else float(last)
