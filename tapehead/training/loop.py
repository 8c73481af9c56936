"""The training loop: blocks of updates, resumable to the bit.

Legend: K updates of a block, S seeds, B batch.

All randomness is addressed by (seed, name, update), so a run that is resumed draws what it would have drawn. Blocks
begin at multiples of BLOCK; records, metrics, checkpoints and stops happen between blocks only.
"""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from tapehead.kernels import dispatch
from tapehead.kernels.update.contract import UpdateRule
from tapehead.models import SequenceModel, make_model
from tapehead.streams import stream
from tapehead.tasks import Batch, Task, make_task
from tapehead.training.checkpoint import Checkpoint
from tapehead.training.config import RunConfig
from tapehead.training.population import Population, excess_bits
from tapehead.training.progress import Progress
from tapehead.training.runs import Run

BLOCK = 100
"""Updates between two looks at the metrics. Part of what a run computes: solved seeds stop at the end of a block."""

SAVE_SECONDS = 5.0
"""Least time between checkpoints; they also take at most a twentieth of the run's time."""


class Interrupted(Exception):
    """The run was asked to stop; its last block is saved."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number


class Trainer:
    """One run: made from its configuration, restored from its newest checkpoint, trained to its end."""

    def __init__(self, config: RunConfig, run: Run | None = None) -> None:
        self.config, self.run = config, run
        self.device = torch.device(config.device)
        self.task: Task = make_task(config.task, **config.task_options)
        self.model: SequenceModel = make_model(config.model, self.task, config.backend, **config.model_options)
        self.model.to(self.device)
        self.backend_in_use = self.model.backend_in_use()  # refuses a backend that cannot run here
        if config.slots is not None:
            self.model.check_slots(config.slots[1])
        self.rule = UpdateRule(config.optimiser, config.clip, config.clip_at, config.average)
        update = dispatch.update_kernel(self.backend_in_use, self.device)
        self.population = Population(self.model, self.rule, update, list(config.seeds), self.device)
        self.updates = 0
        self.metrics: list[str] = []

    # --- one block ---------------------------------------------------------------------------------------------------

    def block(self, updates: int = BLOCK) -> None:
        """Train the active seeds for one block, then record what happened."""
        stop = min(self.updates + updates, self.config.updates)
        span = range(self.updates, stop)
        seeds = [self.config.seeds[i] for i in self.population.index.tolist()]
        data = self._sample(seeds, span)  # [K, S, ...]
        slots = self._sample_slots(seeds, span)
        before = self.population.snapshot()
        costs, skips = [], []
        for k, update in enumerate(span):
            batch = Batch(*(part[k] for part in data))
            cost, skipped = self.population.step(batch, None if slots is None else slots[k], self.config.rate(update))
            costs.append(cost)
            skips.append(skipped)
        self.updates = stop
        skipped = torch.stack(skips)
        skipped[:, self.population.put_back_broken(before)] = True
        self._record(seeds, data, torch.stack(costs), skipped)

    def _sample(self, seeds: list[int], updates: range) -> Batch:
        source = stream(seeds, f"training/{self.task.name}", updates, device=self.device)
        return self.task.sample(source, batch_size=self.config.batch_size)

    def _sample_slots(self, seeds: list[int], updates: range) -> Tensor | None:
        if self.config.slots is None:
            return None
        source = stream(seeds, "training/slots", updates, device=self.device)
        return source.integers(self.config.batch_size, 1, *self.config.slots).squeeze(-1)  # [K, S, B]

    def _record(self, seeds: list[int], data: Batch, costs: Tensor, skips: Tensor) -> None:
        """costs [K, S, B] in nats, skips [K, S]."""
        excess = excess_bits(self.task, data, costs).cpu()
        skipped = skips.sum(dim=0).cpu()
        episodes = self.updates * self.config.batch_size
        # [S, K * B], in order of time; contiguous, because sums of other layouts are rounded in another order
        by_seed = excess.transpose(0, 1).flatten(1).contiguous()
        bits = torch.where(torch.isfinite(by_seed), by_seed, torch.nan).nanmean(dim=1)
        line = {
            "updates": self.updates,
            "episodes": episodes,
            "seeds": seeds,
            "bits": [None if value != value else value for value in bits.tolist()],
            "skipped": skipped.tolist(),
            "rate": self.config.rate(self.updates - 1),
        }
        self.metrics.append(json.dumps(line))
        self.population.record(by_seed, skipped, episodes, self.task.solved_bits, self.config.early_stop)

    @property
    def finished(self) -> bool:
        return self.updates >= self.config.updates or not bool(self.population.active.any())

    # --- the whole run -----------------------------------------------------------------------------------------------

    def train(self, progress: Progress) -> None:
        """Go on from the newest checkpoint to the end, saving on the way; `Interrupted` if asked to stop."""
        run = self.run
        assert run is not None
        saved_at, saving_took = time.monotonic(), 0.0
        with _stop_signals() as asked:
            while not self.finished:
                self.block()
                run.append_metrics(self.metrics[-1])
                progress.show(self)
                now = time.monotonic()
                due = now - saved_at > max(SAVE_SECONDS, 20 * saving_took)
                if due or self.finished or asked:
                    self.save()
                    saved_at = time.monotonic()
                    saving_took = saved_at - now
                if asked:
                    raise Interrupted(asked[0])

    def save(self) -> Path:
        assert self.run is not None
        facts: dict[str, Any] = {"config": self.config.hash, "updates": self.updates}
        files = {"metrics.jsonl": "".join(line + "\n" for line in self.metrics).encode()}
        return self.run.save(Checkpoint(self.updates, self.population.tensors(), facts, files))

    def restore(self) -> bool:
        """Take up the newest whole checkpoint of the run, if there is one."""
        assert self.run is not None
        checkpoint = self.run.newest()
        if checkpoint is not None:
            self.population.restore(checkpoint.tensors)
            self.updates = checkpoint.facts["updates"]
            self.metrics = checkpoint.files["metrics.jsonl"].decode().splitlines()
        self.run.begin(self.metrics)
        return checkpoint is not None


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """While inside, the first SIGINT or SIGTERM is noted in the list; a second SIGINT interrupts at once."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are someone else's
        before = {}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
