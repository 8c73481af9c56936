"""The training loop: blocks of updates, resumable to the bit.

Legend: K updates of a block, S seeds, B batch.

All randomness is addressed by (seed, name, update), so a run that is resumed draws what it would have drawn. Blocks
begin at multiples of BLOCK in an attempt; checkpoints and stops happen between blocks only. A GPU does not wait for the
records: it has the next block to work on while one is recorded, so that a stop may come a block later.
"""

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tapehead import signals
from tapehead.evaluation.generalisation import score
from tapehead.kernels import dispatch
from tapehead.kernels.update.contract import UpdateRule
from tapehead.models import SequenceModel, make_model
from tapehead.tasks import Task
from tapehead.terminal import say
from tapehead.training.checkpoint import Checkpoint
from tapehead.training.config import BLOCK, RunConfig
from tapehead.training.population import Population, sent
from tapehead.training.progress import Progress
from tapehead.training.runs import Run
from tapehead.training.stepping import Replaying, Stepper, one_by_one
from tapehead.training.teaching import Teacher

SAVE_SECONDS = 5.0
"""Least time between checkpoints; they also take at most a twentieth of the run's time."""


class Interrupted(Exception):
    """The run was asked to stop; its last block is saved."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number


class Fetched:
    """A tensor on its way to the CPU, from the moment when this is made: later work of the device is not waited for."""

    def __init__(self, tensor: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if tensor.is_cuda:
            self._here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._here.copy_(tensor, non_blocking=True)
            self._arrived = torch.cuda.current_stream(tensor.device).record_event()
        else:
            self._here = tensor.cpu()

    def get(self) -> Tensor:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._here


class _Launched(NamedTuple):
    """A block of updates that the device has been asked for."""

    span: range
    seeds: list[int]
    start: Tensor  # the weights before it, [S, P]
    excess: Fetched  # [K, S, B] in bits over the best possible
    skipped: Fetched  # updates [S]


class Trainer:
    """One run: made from its configuration, restored from its newest checkpoint, trained to its end."""

    def __init__(self, config: RunConfig, run: Run | None = None) -> None:
        self.config, self.run = config, run
        self.device = torch.device(config.device)
        self.teacher = Teacher(config, self.device)
        self.task: Task = self.teacher.task
        self.model: SequenceModel = make_model(config.model, self.task, config.backend, **config.model_options)
        self.model.to(self.device)
        self.backend_in_use = self.model.backend_in_use()  # refuses a backend that cannot run here
        if config.slots is not None:
            self.model.check_slots(config.slots[1])
        self.rule = UpdateRule(config.optimiser, config.clip, config.clip_at, config.average)
        update = dispatch.update_kernel(self.backend_in_use, self.device)
        self.population = Population(self.model, self.rule, update, list(config.seeds), self.device)
        self._step: Stepper = Replaying() if self.backend_in_use == "gpu" else one_by_one
        self.asynchronous = self.device.type == "cuda"  # goes on by itself with what it is asked for
        self.updates = 0
        self.metrics: list[str] = []

    # --- one block ---------------------------------------------------------------------------------------------------

    def block(self, updates: int = BLOCK) -> None:
        """Train the active seeds for one block, then record what happened."""
        self._settle(self._launch(self.updates, updates), None)

    def walk(self, end: int | None = None, hold: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Block after block, to `end` updates or the end of the run; a GPU works on the next while one is recorded.

        Yields after each, and says whether the state is that of its end, so that it can be saved: it is where `hold`
        asked for that, where seeds may leave or begin again, where they are validated, and at the end.
        """
        config = self.config
        end = config.all_updates if end is None else min(end, config.all_updates)
        ahead: _Launched | None = None
        try:
            while ahead is not None or (self.updates < end and not self.finished):
                launched, ahead = ahead, None
                if launched is None:
                    launched = self._launch(self.updates, min(BLOCK, end - self.updates))
                following = launched.span.stop
                leaving = config.early_stop or any(self._turns_at(done) for done in set(self._done(following)))
                if not (hold() or leaving or following >= end or not self.asynchronous):
                    ahead = self._launch(following, min(BLOCK, end - following))
                self._settle(launched, ahead)
                yield ahead is None
        finally:  # who leaves early finds records and weights of the same block
            if ahead is not None:
                self._settle(ahead, None)

    def _launch(self, first: int, updates: int = BLOCK) -> "_Launched":
        """Ask for the updates from `first` on, and for what is to be recorded of them."""
        done, patient = self._done(first), self.config.patient_updates
        turns = [patient - mine for mine in done if mine < patient]
        span = range(first, first + min(updates, self.teacher.unchanged(done), *turns))
        seeds = [self.config.seeds[i] for i in self.population.index.tolist()]
        data, slots = self.teacher.data(seeds, done, span)  # [K, S, ...]
        before = self.population.snapshot()
        costs, skipped = self._step(self.population, data, slots, self._rates(done, len(span)))
        excess = self.teacher.excess(done, data, costs)
        skipped = skipped | self.population.put_back_broken(before)
        return _Launched(span, seeds, before.weights, Fetched(excess), Fetched(skipped.sum(dim=0)))

    def _settle(self, launched: "_Launched", ahead: "_Launched | None") -> None:
        """Record a block; `ahead` is the one after it, if that is under way."""
        config, population = self.config, self.population
        ended = self.teacher.ended(self._done(launched.span.start))
        population.forget_window(torch.tensor(ended))  # no sequence of a curriculum that has ended counts
        self.updates = launched.span.stop
        weights = population.working.weights if ahead is None else ahead.start
        line = self._record(launched.seeds, launched.excess.get(), launched.skipped.get(), weights)
        due = torch.tensor([config.validates_at(done) for done in self._done(self.updates)])
        if bool(due.any()):
            line["validation"] = self._validate(due)
        self.metrics.append(json.dumps(line))
        if config.attempts > 1:
            self._end_attempts()

    def _done(self, updates: int) -> list[int]:
        """How many updates of its attempt each active seed has behind it when the run has so many."""
        done: list[int] = (updates - self.population.begun_at[self.population.index]).tolist()
        return done

    def _turns_at(self, done: int) -> bool:
        """Whether a seed is validated, may begin again or leaves after so many updates of its attempt."""
        return self.config.validates_at(done) or done in (self.config.patient_updates, self.config.updates)

    def _rates(self, done: list[int], updates: int) -> Tensor:
        """Learning rates [K, S] of the active seeds in the next updates."""
        of = {mine: [self.config.rate(mine + k) for k in range(updates)] for mine in set(done)}
        parameters = self.population.working.parameters
        return sent(torch.tensor([of[mine] for mine in done], dtype=parameters.dtype).T.contiguous(), self.device)

    def _end_attempts(self) -> None:
        """Who is hopeless begins again, and who has not passed at the end of an attempt; the others leave there."""
        population, config = self.population, self.config
        done, index = torch.tensor(self._done(self.updates)), population.index
        over = done == config.updates
        passed = (population.validation_cost[index] < config.passing_bits) | (not config.validation)
        hopeless = (done == config.patient_updates) & (population.attempt_solved_at[index] < 0)
        hopeless &= population.recent[index].mean(dim=1) >= config.hopeful_bits
        last = population.attempts[index] == config.attempts
        population.begin_again((hopeless | over & ~passed) & ~last, self.updates)
        population.leave(over & (passed | last))

    def _validate(self, due: Tensor) -> list[float | None]:
        """Cost of those active machines [S] that are due, once they are solved; the best weights are kept."""
        population, config = self.population, self.config
        rows = (due & (population.attempt_solved_at[population.index] >= 0)).nonzero().squeeze(-1)
        costs = torch.full((len(population.index),), torch.nan, dtype=torch.float64)
        weights = population.working.weights
        if len(rows):
            solved, sizes = weights[rows.to(self.device)], dict(config.validation)
            scored = score(self.model, solved, self.task, sizes, config.validation_sequences, source="validation")
            costs[rows] = torch.tensor(scored.bits, dtype=torch.float64)
        population.keep_validated(costs, weights)
        return [value if math.isfinite(value) else None for value in costs.tolist()]

    def _record(self, seeds: list[int], excess: Tensor, skipped: Tensor, weights: Tensor) -> dict[str, Any]:
        """excess [K, S, B] in bits over the best possible, skipped updates [S], the weights that came of it.

        Returns what the metrics say of it.
        """
        episodes = self.updates * self.config.batch_size
        # [S, K * B], in order of time; contiguous, because sums of other layouts are rounded in another order
        by_seed = excess.transpose(0, 1).flatten(1).contiguous()
        bits = torch.where(torch.isfinite(by_seed), by_seed, torch.nan).nanmean(dim=1)
        line: dict[str, Any] = {
            "updates": self.updates,
            "episodes": episodes,
            "seeds": seeds,
            "bits": [None if value != value else value for value in bits.tolist()],
            "skipped": skipped.tolist(),
            "rate": self.config.rate(self.updates - 1),
        }
        done = self._done(self.updates)
        judged = self.teacher.judged(done)
        if not all(judged):
            line["curriculum"] = [not mine for mine in judged] if self.config.attempts > 1 else True
        if self.config.attempts > 1:  # seeds are not where the others are
            line["rate"] = [self.config.rate(mine - 1) for mine in done]
            line["attempt"] = self.population.attempts[self.population.index].tolist()
        self.population.record(by_seed, skipped)
        solved_bits, early_stop = self.task.solved_bits, self.config.early_stop
        self.population.judge(episodes, solved_bits, early_stop, weights, torch.tensor(judged))
        return line

    @property
    def expected(self) -> int:
        """Updates of the run when the attempts under way are over."""
        population = self.population
        under_way = population.begun_at[population.index]
        return int(under_way.max()) + self.config.updates if len(under_way) else self.updates

    @property
    def may_begin_again(self) -> bool:
        """Whether a seed still can: one that has an attempt left, and has not passed or is not solved yet."""
        config, population = self.config, self.population
        index, done = population.index, torch.tensor(self._done(self.updates))
        left = population.attempts[index] < config.attempts
        fails = (population.validation_cost[index] >= config.passing_bits) & bool(config.validation)
        late = (done < config.patient_updates) & (population.attempt_solved_at[index] < 0)
        return bool((left & (fails | late)).any())

    @property
    def finished(self) -> bool:
        return self.updates >= self.config.all_updates or not bool(self.population.active.any())

    # --- the whole run -----------------------------------------------------------------------------------------------

    def train(self, progress: Progress) -> None:
        """Go on from the newest checkpoint to the end, saving on the way; `Interrupted` if asked to stop."""
        run = self.run
        assert run is not None
        saved_at, saving_took = time.monotonic(), 0.0
        with _stop_signals() as stop:

            def due() -> bool:
                return bool(stop.asked) or time.monotonic() - saved_at > max(SAVE_SECONDS, 20 * saving_took)

            for whole in self.walk(hold=due):
                run.append_metrics(self.metrics[-1])
                progress.show(self)
                if whole and (due() or self.finished):
                    now = time.monotonic()
                    with stop.deferred():
                        self.save()
                    saved_at = time.monotonic()
                    saving_took = saved_at - now
                    if stop.asked:
                        break
            if stop.asked:  # perhaps since the last block was saved
                raise Interrupted(stop.asked[0])

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
            tensors = checkpoint.tensors
            if "attempts" in tensors and "begun_at" not in tensors:  # of a run whose seeds began together
                tensors = tensors | {"begun_at": (tensors["attempts"] - 1) * self.config.updates}
            self.population.restore(tensors)
            self.updates = checkpoint.facts["updates"]
            self.metrics = checkpoint.files["metrics.jsonl"].decode().splitlines()
        self.run.begin(self.metrics)
        return checkpoint is not None


class _Stop:
    """What signals have asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.at_once = False
        self._saving = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """While inside, a second SIGINT waits: it would abandon the checkpoint that is being written."""
        self._saving = True
        try:
            yield
        finally:
            self._saving = False

    def note(self, number: int, frame: FrameType | None) -> None:
        self.asked.append(number)
        if len(self.asked) == 1:
            with suppress(RuntimeError):  # in the middle of another line to the same stream
                say(f"{signal.Signals(number).name}: stopping after this block of updates; Ctrl-C stops at once.")
        elif number == signal.SIGINT and not self._saving:
            self.at_once = True
            raise KeyboardInterrupt


@contextmanager
def _stop_signals() -> Iterator[_Stop]:
    """While inside, the first signal is noted, to stop after the block; a second SIGINT stops at once."""
    stop = _Stop()
    with signals.handled_by(stop.note):
        try:
            yield stop
        except Exception:
            if stop.at_once:  # a compiler turned the interrupt into an error of its own
                raise KeyboardInterrupt from None
            raise
