"""What lies below machines/ beside a page, for the server and for a site alike. page/engine/sources.js reads it."""

import contextlib
import json
from collections.abc import Iterable
from typing import Any

from tapehead.viewer.catalogue import Machine


def index(machines: Iterable[Machine], *, kind: str, first: str | None) -> dict[str, Any]:
    """The list of machines. kind: embedded, static or server, of which the last may answer otherwise later.

    A machine whose folder was damaged or removed since it was found is left out.
    """
    entries = []
    for machine in machines:
        with contextlib.suppress(OSError, ValueError):
            entries.append(machine.entry())
    return {"kind": kind, "live": kind == "server", "first": first, "machines": entries}


def to_json(values: dict[str, Any]) -> bytes:
    """Compact JSON without infinities and NaN, which JSON does not have."""
    return json.dumps(values, allow_nan=False, separators=(",", ":")).encode()
