"""Runs faults at a count: processes side by side, what is done is kept, what is left is done by the next call."""

import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from soak import worker
from soak.fault import Fault

LONGEST = 3600  # seconds of one process


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Cases of a fault for one process, and the file that says what became of them."""

    fault: Fault
    count: int
    numbers: tuple[int, ...]
    file: Path

    def outcome(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self.file.read_text())
        except (OSError, ValueError):
            return None
        return found


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a fault: of the `count` things that were asked for, so many happened."""

    fault: Fault
    count: int
    done: int
    failures: list[dict[str, Any]]
    seconds: float
    processor_seconds: float
    places: list[dict[str, Any]]
    """Where its chunks were carried out: machine, commit, date."""


def chunks_of(fault: Fault, count: int, state: Path) -> list[Chunk]:
    cases = range(len(fault.sizes(count)))
    return [
        Chunk(
            fault, count, tuple(cases[first : first + fault.chunk]), state / f"{fault.number:02d}-{count}-{first}.json"
        )
        for first in range(0, len(cases), fault.chunk)
    ]


def outcome_of(fault: Fault, count: int, state: Path) -> Outcome:
    """As far as it has come."""
    found = [one for chunk in chunks_of(fault, count, state) if (one := chunk.outcome()) is not None]
    failures = [failure for one in found for failure in one["failures"]]
    done, seconds, used = (sum(one[name] for one in found) for name in ("done", "seconds", "processor_seconds"))
    return Outcome(fault, count, done, failures, seconds, used, [one["place"] for one in found])


class Runner:
    """Carries out chunks, `jobs` at a time. A process that dies is a failure of its cases, and of them alone."""

    def __init__(self, state: Path, place: dict[str, Any], jobs: int) -> None:
        self.state, self.place, self.jobs = state, place, jobs
        self._server = multiprocessing.get_context("forkserver")
        self._server.set_forkserver_preload(["soak.worker"])

    def run(self, wanted: Sequence[tuple[Fault, int]]) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        left = iter([c for fault, count in wanted for c in chunks_of(fault, count, self.state) if c.outcome() is None])
        active: dict[Any, tuple[Chunk, float]] = {}
        try:
            while self._fill(active, left):
                self._collect(active)
        finally:
            for process in active:
                process.kill()

    def _fill(self, active: dict[Any, tuple[Chunk, float]], left: Iterator[Chunk]) -> bool:
        """Start processes while there is room; whether any is running."""
        while len(active) < self.jobs and (chunk := next(left, None)) is not None:
            arguments = (chunk.fault.number, list(chunk.numbers), chunk.count, chunk.file, self.place)
            process = self._server.Process(target=worker.main, args=arguments)
            process.start()
            active[process] = (chunk, time.monotonic())
        return bool(active)

    def _collect(self, active: dict[Any, tuple[Chunk, float]]) -> None:
        multiprocessing.connection.wait([process.sentinel for process in active], timeout=1.0)
        for process, (chunk, begun) in list(active.items()):
            if process.is_alive() and time.monotonic() - begun < LONGEST:
                continue
            process.kill()
            process.join()
            del active[process]
            self._note(chunk, process.exitcode, time.monotonic() - begun)

    def _note(self, chunk: Chunk, code: int | None, seconds: float) -> None:
        found = chunk.outcome()
        if found is None:
            error = f"the process of cases {chunk.numbers[0]} to {chunk.numbers[-1]} ended with status {code}"
            failures = [{"case": chunk.numbers[0], "error": error}]
            found = {"done": 0, "failures": failures, "seconds": seconds, "processor_seconds": 0.0, "place": self.place}
            chunk.file.write_text(json.dumps(found))
        so_far, fault = outcome_of(chunk.fault, chunk.count, self.state), chunk.fault
        counts = f"{so_far.done:,} of {chunk.count:,} {fault.counted}, {len(so_far.failures)} failures"
        times = f"{so_far.seconds:.0f} s, {so_far.processor_seconds:.0f} s of a processor"
        print(f"{fault.number:2d} {fault.title}: {counts}, {times}", file=sys.stderr, flush=True)
        for failure in found["failures"]:
            where = failure.get("where", "")
            print(f"   case {failure['case']}: {failure['error']} {where}".rstrip(), file=sys.stderr, flush=True)
