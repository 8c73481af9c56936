"""What a record of a confirmation must have for it to be read: checked before anything is made of it."""

from typing import Any

MOST = 2**64
"""Of any number in a record."""
NUMBER, MAYBE = (int, float), (int, float, type(None))

FORM: dict[str, Any] = {
    "name": str,
    "row": str,
    "recipe": str,
    "experiment": dict,
    "environment": dict,
    "seconds": MAYBE,
    "seeds": [int],
    "headline": str,
    "points": [{"label": str, "sizes": dict, "sequences": int}],
    "criteria": [{"says": str, "points": [str]}],
    "machines": [
        {
            "seed": int,
            "episodes": int,
            "solved_at": (int, type(None)),
            "scores": {"*": {"bits": MAYBE}},
            "met": [bool],
            "curve?": [[MAYBE]],
        }
    ],
}
"""Types by key, `?` behind those that may be missing and `*` for all; a list stands for any number of its one entry.
What else a record has is not looked at."""


def flaw(record: dict[str, Any]) -> str | None:
    """What of a record has not the right form, in words; None if all has."""
    found: str | None = next(_flaws(record, FORM, ""), None)
    return found


def _flaws(value: Any, form: Any, path: str) -> Any:
    if isinstance(form, dict):
        if not isinstance(value, dict):
            yield f"{path} is no table"
            return
        keys = {key: form["*"] for key in value} if "*" in form else form
        for key, inner in keys.items():
            name = key.removesuffix("?") if key in form else key
            if name in value:
                yield from _flaws(value[name], inner, f"{path}.{name}" if path else name)
            elif not key.endswith("?"):
                yield f"{path or 'it'} has no {name}"
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield f"{path} is no list"
            return
        for place, entry in enumerate(value):
            yield from _flaws(entry, form[0], f"{path}[{place}]")
    elif not _is(value, form):
        text = repr(value)
        yield f"{path} is {text if len(text) < 40 else 'something else'}"


def _is(value: Any, kinds: Any) -> bool:
    if isinstance(value, bool):
        return kinds is bool
    if isinstance(value, (int, float)) and not abs(value) <= MOST:  # a NaN is not, either
        return False
    return isinstance(value, kinds)


def contradiction(record: dict[str, Any]) -> str | None:
    """What does not go together in a record of the right form, in words; None if all does."""
    machines, labels = record["machines"], [point["label"] for point in record["points"]]
    if not machines:
        return "it has no machines"
    if [machine["seed"] for machine in machines] != record["seeds"] or len(set(record["seeds"])) != len(machines):
        return "its seeds are not those of its machines"
    if record["headline"] not in labels:
        return "its headline is none of its points"
    if min(point["sequences"] for point in record["points"]) < 1:
        return "a point has no sequences"
    for place, machine in enumerate(machines):
        if not set(labels) <= set(machine["scores"]):
            return f"machines[{place}] has no score at a point"
        if len(machine["met"]) != len(record["criteria"]):
            return f"machines[{place}].met is not for each criterion"
    return None
