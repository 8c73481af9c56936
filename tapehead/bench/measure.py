"""Times of complete training updates: sampling, forward, loss, backward, clipping, optimiser.

All figures of a table come from one run, interleaved in rounds, because machines are shared and clocks move: compare
them with each other, not with another day's.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tapehead.experiment.config import Experiment
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import BLOCK, Restarts, Validation
from tapehead.models.ntm import NTM
from tapehead.optim import RMSpropGraves
from tapehead.streams import stream
from tapehead.tasks import make_task


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of one update, over rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        return cls(statistics.median(seconds), min(seconds), max(seconds))


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    system: str
    controller: str
    batch: int
    threads: int
    seconds: Timing
    seeds: int = 1

    @property
    def episodes_per_second(self) -> float:
        return self.batch * self.seeds / self.seconds.median

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"episodes_per_second": self.episodes_per_second}


class Subject:
    """Something whose updates are timed: `run()` does `updates` of them."""

    def __init__(
        self,
        system: str,
        controller: str,
        batch: int,
        threads: int,
        updates: int,
        run: Callable[[], None],
        seeds: int = 1,
    ) -> None:
        self.system, self.controller, self.batch, self.threads = system, controller, batch, threads
        self.updates, self.run, self.seeds = updates, run, seeds
        self.seconds: list[float] = []

    def round(self) -> None:
        torch.set_num_threads(self.threads)
        began = time.perf_counter()
        self.run()
        synchronise()
        self.seconds.append((time.perf_counter() - began) / self.updates)

    def row(self) -> Row:
        return Row(self.system, self.controller, self.batch, self.threads, Timing.of(self.seconds), self.seeds)


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ntm_subject(
    backend: str,
    controller: str,
    batch: int,
    threads: int,
    *,
    seeds: int = 1,
    device: str = "cpu",
    task_options: dict[str, Any] | None = None,
    model_options: dict[str, Any] | None = None,
    updates: int = BLOCK,
) -> Subject:
    """The training loop itself, on copy at length 20 unless said otherwise."""
    trainer = Trainer(
        Experiment.from_plain(
            {
                "task": {"name": "copy"} | (task_options or {"length": 20}),
                "model": {"name": "ntm", "controller": controller} | (model_options or {}),
                "seeds": range(seeds),
                "training": {"batch_size": batch, "episodes": 10**9, "early_stop": False},
                "place": {"backend": backend, "device": device},
            }
        )
    )

    def run() -> None:
        for _ in trainer.iter_blocks(trainer.updates + updates):
            pass

    return Subject(backend, controller, batch, threads, updates, run, seeds)


def experiment_subject(experiment: Experiment, updates: int = BLOCK) -> Subject:
    """The training loop on an experiment, from its first update on, without its end, its restarts and its
    validation."""
    endless = dataclasses.replace(experiment.training, episodes=10**9, early_stop=False)
    trainer = Trainer(
        dataclasses.replace(experiment, training=endless, restarts=Restarts(), validation=Validation()),
    )

    def run() -> None:
        for _ in trainer.iter_blocks(trainer.updates + updates):
            pass

    system = f"{experiment.model.name} on {experiment.task.name}, {trainer.backend}"
    controller = experiment.model.options.get("controller", "-")
    threads, seeds = torch.get_num_threads(), len(experiment.seeds)
    return Subject(system, controller, endless.batch_size, threads, updates, run, seeds)


def kernel_subject(backend: str, controller: str, batch: int, threads: int, *, updates: int = BLOCK) -> Subject:
    """Loss and gradient alone, on sequences drawn beforehand: what the rest of an update is compared with."""
    trainer = Trainer(
        Experiment.from_plain(
            {
                "task": {"name": "copy", "length": 20},
                "model": {"name": "ntm", "controller": controller},
                "training": {"batch_size": batch},
                "place": {"backend": backend},
            }
        )
    )
    data = trainer.task.sample(stream([0], "bench", 0), batch_size=batch)
    flat = trainer.population.state.parameters

    def run() -> None:
        for _ in range(updates):
            trainer.model.loss_and_gradient(flat, *data)

    return Subject(f"{backend}, loss and gradient only", controller, batch, threads, updates, run)


def lstm_subject(batch: int, threads: int, *, device: str = "cpu", updates: int = 10) -> Subject:
    """`torch.nn.LSTM` with 3 layers of 256, the size of the paper's baseline, on the same sequences."""
    task = make_task("copy", length=20)
    data = task.sample(stream(0, "bench", 0, device=device), batch_size=batch)
    lstm = nn.LSTM(task.input_size, 256, num_layers=3, device=device)
    readout = nn.Linear(256, task.output_size, device=device)
    parameters = [*lstm.parameters(), *readout.parameters()]
    optimiser = torch.optim.RMSprop(parameters, lr=1e-4, momentum=0.9, centered=True)

    def update() -> Tensor:
        optimiser.zero_grad()
        logits = readout(lstm(data.inputs)[0])
        each = nn.functional.binary_cross_entropy_with_logits(logits, data.targets, reduction="none")
        loss = (each * data.mask.unsqueeze(-1)).sum() / batch
        loss.backward()
        nn.utils.clip_grad_value_(parameters, 10.0)
        optimiser.step()
        return loss

    def run() -> None:
        for _ in range(updates):
            update()

    return Subject("torch.nn.LSTM 3 x 256", "-", batch, threads, updates, run)


class DropIn:
    """One update as a user of the library writes it: a module, a loss of torch, `backward()`, clipping, an optimiser.

    Copy at length 20: steps of 8 bits, a step that ends them, 20 steps for the answer.
    """

    PARTS = ("data", "zero_grad", "forward", "loss", "backward", "clip", "step")
    LENGTH, WIDTH = 20, 8

    def __init__(self, model: nn.Module, optimiser: torch.optim.Optimizer, batch: int, device: str) -> None:
        self.model, self.optimiser, self.batch, self.device = model, optimiser, batch, device
        self.parameters = list(model.parameters())

    def update(self, mark: Callable[[], None] = lambda: None) -> Tensor:
        """`mark` is called before the first part and after each."""
        mark()
        bits = torch.randint(0, 2, (self.LENGTH, self.batch, self.WIDTH), device=self.device).float()
        x = torch.zeros(2 * self.LENGTH + 1, self.batch, self.WIDTH + 1, device=self.device)
        x[: self.LENGTH, :, : self.WIDTH] = bits
        x[self.LENGTH, :, self.WIDTH] = 1
        mark()
        self.optimiser.zero_grad()
        mark()
        y = self.model(x)[0]
        mark()
        answer = y[self.LENGTH + 1 :]
        loss = nn.functional.binary_cross_entropy_with_logits(answer, bits, reduction="sum") / self.batch
        mark()
        loss.backward()
        mark()
        nn.utils.clip_grad_value_(self.parameters, 10.0)
        mark()
        self.optimiser.step()
        mark()
        return loss


def drop_in_ntm(backend: str, controller: str, batch: int, device: str = "cpu") -> DropIn:
    """`tapehead.NTM` with `tapehead.RMSpropGraves`; clipping is left to torch, as it is for other models."""
    ntm = NTM(DropIn.WIDTH + 1, DropIn.WIDTH, controller=controller, backend=backend, device=device)
    return DropIn(ntm, RMSpropGraves(ntm.parameters(), lr=1e-4, clip=None), batch, device)


def drop_in_subject(
    backend: str, controller: str, batch: int, threads: int, *, device: str = "cpu", updates: int = BLOCK
) -> Subject:
    """The library's module in a loop of the user's own, beside `ntm_subject`, the training loop of a run."""
    drop_in = drop_in_ntm(backend, controller, batch, device)

    def run() -> None:
        for _ in range(updates):
            drop_in.update()

    return Subject(backend, controller, batch, threads, updates, run)


def time_all(subjects: list[Subject], rounds: int, tell: Callable[[str], None]) -> None:
    """Warm every subject up, then time all of them in turn, `rounds` times."""
    for subject in subjects:
        tell(f"warming up: {subject.system}, {subject.controller}, batch {subject.batch}, {subject.threads} threads")
        torch.set_num_threads(subject.threads)
        for _ in range(2):  # on a GPU, what comes for the second time is captured as a graph
            subject.run()
    for k in range(rounds):
        for subject in subjects:
            tell(f"round {k + 1} of {rounds}: {subject.system}, {subject.controller}, batch {subject.batch}")
            subject.round()
