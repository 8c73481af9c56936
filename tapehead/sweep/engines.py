"""What carries workers: local processes, Ray or Slurm. An engine starts workers and says when they end; the driver
decides how many there should be, and the jobs are shared out by their leases."""

import abc
from collections.abc import Mapping
from importlib import import_module

from tapehead.suggest import unknown
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.work import Assignment

ENGINES = {
    "local": "tapehead.sweep.local:LocalEngine",
    "ray": "tapehead.sweep.ray:RayEngine",
    "slurm": "tapehead.sweep.slurm:SlurmEngine",
}


class Engine(abc.ABC):
    """Workers of one sweep."""

    def __init__(self, sweep: SweepFolder, assignment: Assignment, options: Mapping[str, str]) -> None:
        self.sweep, self.assignment, self.options = sweep, assignment, dict(options)

    @classmethod
    @abc.abstractmethod
    def check(cls) -> None:
        """Refuse an engine that is not installed."""

    @property
    def device(self) -> str:
        """Where the experiments run, if that is one place for all."""
        devices = {str(job.plain["place"]["device"]) for job in self.sweep.jobs}
        return self.assignment.device or (devices.pop() if len(devices) == 1 else "cpu")

    @property
    @abc.abstractmethod
    def running(self) -> int:
        """Workers that have not ended, those that wait for a place included."""

    @abc.abstractmethod
    def default_workers(self) -> int:
        """How many workers fit, as far as that is known here."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start one more worker."""

    @abc.abstractmethod
    def ended(self) -> list[str]:
        """Of each worker that has ended since the last call, why it died; empty if it ended by itself."""

    def stop(self) -> None:
        """Ask all workers to save what they train and to end."""
        self.sweep.stop_request(self.assignment.driver).touch()

    @abc.abstractmethod
    def kill(self) -> None:
        """End all workers at once."""

    def close(self) -> None:
        """Called in the end, when no worker runs."""
        self.sweep.stop_request(self.assignment.driver).unlink(missing_ok=True)


def engine_kind(name: str) -> type[Engine]:
    """The class of an engine; its module is imported here, because Ray takes a second. Refuses one that is not
    installed."""
    if name not in ENGINES:
        raise ValueError(unknown("engine", name, ENGINES))
    module, _, kind = ENGINES[name].partition(":")
    found: type[Engine] = getattr(import_module(module), kind)
    found.check()
    return found


def refuse_options(engine: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            takes = ", ".join(known) if known else "none"
            raise ValueError(f"unknown option of the engine {engine} {name!r}. Valid: {takes}.")
