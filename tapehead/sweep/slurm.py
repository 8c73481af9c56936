"""Workers as jobs of Slurm, through submitit. They go on when the driver is killed, as batch jobs do; Ctrl-C stops
them."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from tapehead.sweep.engines import Engine
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.work import Assignment, work

WORKERS = 8
"""Slurm jobs at a time, unless told otherwise."""


class Worker:
    """What a Slurm job carries out. One that comes to its time limit or is preempted is queued again."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment

    def __call__(self) -> int:
        return work(self.assignment)

    def checkpoint(self) -> Any:
        import submitit

        return submitit.helpers.DelayedSubmission(self)


class SlurmEngine(Engine):
    """Options: cluster (default: slurm; local runs the workers as processes here), and all parameters of submitit's
    executor: timeout_min, mem_gb, gpus_per_node, slurm_partition, ..."""

    def __init__(self, sweep: SweepFolder, assignment: Assignment, options: Mapping[str, str]) -> None:
        super().__init__(sweep, assignment, options)
        submitit = _import()
        cluster = self.options.pop("cluster", "slurm")
        try:
            self._executor = submitit.AutoExecutor(folder=sweep.path / "logs" / "slurm", cluster=cluster)
            parameters = {"name": "tapehead", "timeout_min": 24 * 60, "cpus_per_task": assignment.threads}
            if self.device.startswith("cuda"):
                parameters["gpus_per_node"] = 1
            self._executor.update_parameters(**parameters | {name: _value(t) for name, t in self.options.items()})
        except (RuntimeError, NameError, TypeError, ValueError) as error:
            says = " ".join(str(error).split())
            raise ValueError(f"the engine slurm cannot be used here ({says}): check --engine-options.") from None
        self._jobs: list[Any] = []

    @classmethod
    def check(cls) -> None:
        _import()

    @property
    def running(self) -> int:
        return len(self._jobs)

    def default_workers(self) -> int:
        return WORKERS

    def start(self) -> None:
        self._jobs.append(self._executor.submit(Worker(self.assignment)))

    def ended(self) -> list[str]:
        over = [job for job in self._jobs if job.done()]
        self._jobs = [job for job in self._jobs if job not in over]
        return [_why(job) for job in over]

    def stop(self) -> None:
        super().stop()
        for job in self._jobs:
            if job.state == "PENDING":
                job.cancel()

    def kill(self) -> None:
        for job in self._jobs:
            job.cancel()

    def close(self) -> None:
        self.kill()
        super().close()


def _why(job: Any) -> str:
    with contextlib.suppress(Exception):  # whatever was raised in the worker, or by submitit about it
        error = job.exception()
        return "" if error is None else str(error).strip().splitlines()[-1]
    return "its Slurm job left no result"


def _value(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def _import() -> Any:
    try:
        import submitit
    except ImportError:
        raise ValueError(
            "the engine slurm needs submitit, which is not installed: pip install 'tapehead[slurm]'."
        ) from None
    return submitit
