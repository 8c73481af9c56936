"""The training loop: blocks of updates, resumable to the bit.

Legend: K updates of a block, S seeds, B batch.

All randomness is addressed by (seed, name, update), so a run that is resumed draws what it would have drawn. Blocks
begin at multiples of BLOCK in an attempt; checkpoints and stops happen between blocks only. A GPU does not wait for the
records: it has the next block to work on while one is recorded, so that a stop may come a block later.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from tapehead import notices
from tapehead.evaluation.generalisation import score
from tapehead.experiment import metrics
from tapehead.experiment.config import Experiment
from tapehead.experiment.cuda_graphs import Replaying, Stepper, one_by_one
from tapehead.experiment.data import BatchSource
from tapehead.experiment.parts import BLOCK
from tapehead.experiment.population import Population, sent
from tapehead.experiment.restarts import Seeds
from tapehead.kernels import dispatch
from tapehead.kernels.update.contract import UpdateRule
from tapehead.models import SequenceModel
from tapehead.tasks import Task
from tapehead.threads import one_thread


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
    """The state of a run in memory, and its blocks of updates. Knows no folder, no clock and no signal: see run.py."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.device = torch.device(experiment.place.device)
        self.task: Task = experiment.task
        self.task.check_draw()
        self.source = BatchSource(experiment, self.device)
        self.model: SequenceModel = experiment.build()
        self.model.check_trainable()
        clipping, training = experiment.clipping, experiment.training
        self.trained = self.model if training.slots is None else self.model.for_training(training.slots[1])
        self.backend, self.backend_reason = self.trained.backend_and_reason()
        self.seeds = Seeds(experiment)
        rule = UpdateRule(experiment.optimiser, clipping.kind, clipping.limit, training.average)
        update = dispatch.update_kernel(self.backend, self.device, experiment.optimiser)
        self.population = Population(self.trained, self.task.loss, rule, update, self.seeds, self.device)
        self._step: Stepper = Replaying() if self.trained.capturable(self.task.loss) else one_by_one
        self.asynchronous = self.device.type == "cuda"  # goes on by itself with what it is asked for
        self.updates = 0
        self.metrics: list[str] = []
        self._told = False

    @property
    def episodes(self) -> int:
        """Training sequences of a seed so far."""
        return self.updates * self.experiment.training.batch_size

    @property
    def finished(self) -> bool:
        return self.updates >= self.experiment.all_updates or self.seeds.finished

    @property
    def before_a_part(self) -> bool:
        """Whether the last block follows, and is not a whole one: a run of more episodes could go on from here."""
        return 0 < self.experiment.all_updates - self.updates < BLOCK

    @property
    def kernel(self) -> str:
        """Identity of the compiled code that this run's bits come from."""
        dtype, optimiser = next(self.model.parameters()).dtype, self.experiment.optimiser
        update = dispatch.update_identity(self.backend, dtype, self.device, optimiser)
        return f"scan {self.trained.kernel_identity()}, update {update}"

    def prepare(self) -> None:
        """Compile or load the kernels, if they are not there yet."""
        self.trained.prepare_kernels()
        dtype = next(self.model.parameters()).dtype
        dispatch.prepare_update(self.backend, dtype, self.device, self.experiment.optimiser)

    def block(self, updates: int = BLOCK) -> None:
        """Train the active seeds for one block, then record what happened."""
        self._record_block(self._launch(self.updates, updates), None)

    def iter_blocks(self, end: int | None = None, hold: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Block after block, to `end` updates or the end of the run; a GPU works on the next while one is recorded.

        Yields after each, and says whether the state is that of its end, so that it can be saved: it is where `hold`
        asked for that, where seeds may be validated, restarted or retired, before a last block that is not whole, and
        at the end.
        """
        last = self.experiment.all_updates
        end = last if end is None else min(end, last)
        ahead: _Launched | None = None
        try:
            while ahead is not None or (self.updates < end and not self.finished):
                launched, ahead = ahead, None
                if launched is None:
                    launched = self._launch(self.updates, min(BLOCK, end - self.updates))
                following = launched.span.stop
                waits = not self.asynchronous or end - following < BLOCK or self.seeds.changes_at(following)
                if not (waits or hold()):
                    ahead = self._launch(following, min(BLOCK, end - following))
                self._record_block(launched, ahead)
                yield ahead is None
        finally:  # a caller that leaves early finds records and weights of the same block
            if ahead is not None:
                self._record_block(ahead, None)

    def _launch(self, first: int, updates: int = BLOCK) -> _Launched:
        """Ask for the updates from `first` on, and for what is to be recorded of them."""
        done = self.seeds.done(first)
        span = range(first, first + min(updates, self.source.unchanged(done), *self.seeds.until_restart(first)))
        seeds = [self.experiment.seeds[i] for i in self.seeds.index.tolist()]
        with one_thread():  # all but the updates is short
            data, slots = self.source.data(seeds, done, span)  # [K, S, ...]
            before = self.population.snapshot()
            rates = self._rates(done, len(span))
        costs, skipped = self._step(self.population, data, slots, rates)
        with one_thread():
            excess = self.source.excess(done, data, costs)
            skipped = skipped | self.population.put_back_broken(before)
            return _Launched(span, seeds, before.weights, Fetched(excess), Fetched(skipped.sum(dim=0)))

    def _rates(self, done: list[int], updates: int) -> Tensor:
        """Learning rates [K, S] of the active seeds in the next updates."""
        of = {mine: [self.experiment.rate(mine + k) for k in range(updates)] for mine in set(done)}
        parameters = self.population.working.parameters
        return sent(torch.tensor([of[mine] for mine in done], dtype=parameters.dtype).T.contiguous(), self.device)

    def _record_block(self, launched: _Launched, ahead: _Launched | None) -> None:
        """Record a block and decide what follows from it; `ahead` is the one after it, if that is under way."""
        seeds, population = self.seeds, self.population
        self.updates = launched.span.stop
        weights = population.working.weights if ahead is None else ahead.start
        with one_thread():
            # [S, K * B], in order of time; contiguous, because sums of other layouts are rounded in another order
            excess = launched.excess.get().transpose(0, 1).flatten(1).contiguous()
            skipped = launched.skipped.get()
            line = self._line(launched.seeds, excess, skipped)
            self._tell_what_stands_still(line, len(launched.span))
            seeds.record(excess, skipped, self.updates)
            judgement = seeds.judge(self.updates)
            population.keep(judgement.kept, weights)
            due = seeds.due(self.updates)
        if bool(due.any()):
            line = self._validate(line, due)
        with one_thread():
            population.retire(judgement.retired)
            self.metrics.append(line.to_json())
            again, over = seeds.ending(self.updates)
            population.restart(again, self.updates)  # which leaves the places of the active seeds as they are
            population.retire(over)

    def _line(self, seeds: list[int], excess: Tensor, skipped: Tensor) -> metrics.Line:
        """What the metrics say of a block."""
        bits = torch.where(torch.isfinite(excess), excess, torch.nan).nanmean(dim=1)
        done = self.seeds.done(self.updates)
        rates = {mine: self.experiment.rate(mine - 1) for mine in set(done)}
        return metrics.Line(
            updates=self.updates,
            episodes=self.episodes,
            seeds=tuple(seeds),
            bits=tuple(map(metrics.finite, bits.tolist())),
            skipped=tuple(skipped.tolist()),
            rate=tuple(rates[mine] for mine in done),
            attempt=tuple(self.seeds.attempts[self.seeds.index].tolist()),
            curriculum=tuple(not judged for judged in self.seeds.judged(self.updates)),
            validation=(None,) * len(seeds),
        )

    def _tell_what_stands_still(self, line: metrics.Line, updates: int) -> None:
        """Say once in a run that seeds skipped every update of a block."""
        still = sum(skipped == updates for skipped in line.skipped)
        if still and not self._told:
            self._told = True
            notices.tell(
                f"{still} of {len(line.seeds)} seeds skipped all of their last {updates} updates, because a cost, a "
                "gradient or a weight was not finite: try a smaller learning rate or other initial values."
            )

    def _validate(self, line: metrics.Line, due: Tensor) -> metrics.Line:
        """Score those active machines [A] that are due, keep the best weights, and add the costs to the line."""
        validation = self.experiment.validation
        rows = due.nonzero().squeeze(-1)
        weights = self.population.working.weights
        chosen = weights[rows.to(self.device)]
        model = self.model if validation.slots is None else self.model.with_memory(validation.slots)
        scored = score(model, chosen, self.task, dict(validation.sizes), validation.sequences, source="validation")
        costs = torch.full((len(due),), torch.nan, dtype=torch.float64)
        costs[rows] = torch.tensor(scored.costs, dtype=torch.float64)
        self.population.keep(self.seeds.validate(costs), weights)
        return dataclasses.replace(line, validation=tuple(map(metrics.finite, costs.tolist())))

    # --- state that a checkpoint holds -------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        return self.population.tensors()

    def restore(self, tensors: dict[str, Tensor], updates: int, lines: list[str]) -> None:
        """Take up the state of a checkpoint."""
        self.population.restore(tensors)
        self.updates, self.metrics = updates, lines
