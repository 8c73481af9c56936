"""How long a run trained and where, over all its sessions: `training.json` in its folder."""

import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from tapehead import files
from tapehead.lab.environment import environment
from tapehead.training.progress import Progress
from tapehead.typed import fits

if TYPE_CHECKING:
    from tapehead.training.loop import Trainer

KEEP_SECONDS = 5.0


class Training(NamedTuple):
    seconds: float | None
    """Wall seconds, all seeds together; None if a part of the run was trained without a clock."""
    environment: dict[str, Any]
    """Of the last session that trained."""


class _Environment(TypedDict):
    """What readers of a record use of it."""

    device: str
    backend: str
    date: str


class Clock(Progress):
    """Progress that also keeps the time. Blocks that a kill made the run do twice count twice, and up to five seconds
    before a kill are lost."""

    def start(self, trainer: "Trainer") -> None:
        super().start(trainer)
        self._before = training(trainer).seconds
        self._environment = environment(trainer.config.device, trainer.backend_in_use)
        self._began = self._kept = time.monotonic()

    def show(self, trainer: "Trainer") -> None:
        super().show(trainer)
        if trainer.finished or time.monotonic() - self._kept > KEEP_SECONDS:
            self.keep(trainer)

    def keep(self, trainer: "Trainer") -> None:
        """Write down the time up to now."""
        assert trainer.run is not None
        self._kept = time.monotonic()
        seconds = None if self._before is None else round(self._before + self._kept - self._began, 3)
        trainer.run.write_json("training.json", Training(seconds, self._environment)._asdict())


def training(trainer: "Trainer") -> Training:
    """What is known about the training that a restored run has behind it."""
    here = environment(trainer.config.device, trainer.backend_in_use)
    if trainer.updates == 0:
        return Training(0.0, here)
    assert trainer.run is not None
    try:
        found = Training(**files.unseal(files.read(trainer.run.folder / "training.json")))
    except (OSError, ValueError, TypeError, RecursionError):
        return Training(None, here)
    is_whole = fits(found.seconds, float | None) and fits(found.environment, _Environment)
    return found if is_whole else Training(None, here)
