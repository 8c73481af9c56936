"""Cases of a fault, carried out one after the other in this process."""

import json
import os
import resource
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from soak.fault import Case, Fault
from soak.faults import FAULTS


def carry_out(fault: Fault, numbers: Iterable[int], count: int) -> dict[str, Any]:
    """What became of some cases of the `count` things: how many things happened, and the errors by case."""
    sizes, done, failures = fault.sizes(count), 0, []
    start, used = time.perf_counter(), _processor_seconds()
    for number in numbers:
        folder = Path(tempfile.mkdtemp(prefix=f"soak-{fault.number}-"))
        try:
            fault.check(Case(fault.number, number, sizes[number], folder))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error}"[:2000]
            failures.append({"case": number, "error": text, "where": f"{Path(where.filename).name}:{where.lineno}"})
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        done += sizes[number]
    seconds, processor = time.perf_counter() - start, _processor_seconds() - used
    return {"done": done, "failures": failures, "seconds": seconds, "processor_seconds": processor}


def _processor_seconds() -> float:
    """Of this process and of all its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(number: int, numbers: list[int], count: int, out: Path, place: dict[str, Any]) -> None:
    """As a process of its own: the outcome goes to a file, whole or not at all."""
    import torch

    torch.set_num_threads(1)
    outcome = carry_out(FAULTS[number], numbers, count)
    part = out.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(outcome | {"place": place}))
    part.replace(out)
