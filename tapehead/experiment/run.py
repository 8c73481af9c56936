"""`train`, the one entry to training: commands, confirmations, sweeps, notebooks and tests call it.

result = tapehead.train(experiment)                    # in memory
result = tapehead.train(experiment, "runs/mine")       # writes a run's folder, and goes on with one that is there
"""

import contextlib
import hashlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch
from torch import Tensor

from tapehead import notices, signals
from tapehead.evaluation.generalisation import Score, score
from tapehead.experiment import metrics
from tapehead.experiment.checkpoint import Checkpoint
from tapehead.experiment.config import Experiment
from tapehead.experiment.folder import RunFolder, delivered, read_config, read_result
from tapehead.experiment.loop import Trainer
from tapehead.experiment.results import Result
from tapehead.models import SequenceModel
from tapehead.tasks import Size, Task

SAVE_SECONDS = 5.0
"""Least time between checkpoints; they also take at most a twentieth of the run's time."""


class Interrupted(Exception):
    """The run was asked to stop by a signal; its last block is saved, if it has a folder."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)  # what a pickle of it is made from again, outside a worker process
        self.exit_code = 128 + signal_number

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.exit_code - 128).name}"


class Status(NamedTuple):
    """Where a run is: what an observer is told."""

    experiment: Experiment
    parameters: int
    """Of one machine."""
    backend: str
    backend_reason: str
    updates: int
    episodes: int
    """Of each seed under way."""
    expected: int
    """Episodes when the present attempts are over."""
    active: int
    """Seeds under way."""
    solved: int
    """Seeds solved."""
    bits: float | None
    """The median over all seeds of their mean cost in the last 1,000 episodes, or in those of the attempt so far; None
    while it is not finite."""
    attempts: tuple[int, int]
    """The lowest and the highest of the seeds under way."""
    may_restart: bool
    finished: bool
    resumed: bool
    note: str
    """What the user should know about how the run was resumed; usually empty."""


class Observer:
    """Told how a run goes; a subclass takes what it is interested in. All of it happens in the thread that trains."""

    def begin(self, status: Status) -> None:
        """Before the first block of this call."""

    def block(self, status: Status) -> None:
        """After every block."""

    def writing(self) -> None:
        """Each time before something is written into the run's folder, which an exception from here prevents."""

    def scoring(self, label: str, done: int, of: int) -> None:
        """While machines are scored at a size: how many sequences of how many are done, of each machine."""

    def stopping(self, signal_name: str) -> None:
        """A signal has asked the run to stop, which it will after this block; called from the signal's handler."""

    def notice(self, sentence: str) -> None:
        """Something that the user should know, before the first block as a rule: that a kernel is being compiled."""


def train(
    experiment: Experiment, folder: str | Path | None = None, *, observer: Observer | None = None, scored: bool = True
) -> Result:
    """Train an experiment to its end and score it; what came of it.

    folder: where everything is kept; a run that is there goes on, to the same bytes as if it had never been stopped,
    and one that is finished is not trained again. Without a folder nothing is written. observer: told of the progress;
    nothing is printed, and without an observer notices go to the logger `tapehead` at level INFO. scored: whether to
    score the machines at the sizes of the evaluation; with False `generalisation` is empty. `Interrupted` is raised if
    a signal asks the process to stop, after saving; outside the main thread signals are left alone.
    """
    with notices.heard_by(None if observer is None else observer.notice):
        return _train(experiment, folder, observer, scored)


def _train(experiment: Experiment, folder: str | Path | None, observer: Observer | None, scored: bool) -> Result:
    trainer = Trainer(experiment)  # before any folder is made: what cannot be trained leaves nothing behind
    if folder is None:
        return _Session(trainer, None, observer).run(scored)
    _check_findable(experiment)
    place = RunFolder(Path(folder), experiment)
    try:
        session = _Session(trainer, place, observer)
        found = session.restore()
        result = read_result(place.path) if trainer.finished else None
        if result is not None and (result.generalisation or not scored):
            return result
        session.resumed = found
        return session.run(scored)
    except Exception as error:
        if place.abandon():
            raise
        error.add_note(f"what was saved before is in {place.path}")
        raise
    finally:
        place.close()


def _check_findable(experiment: Experiment) -> None:
    """Refuse parts that a folder could name but no process could find again, such as a class inside a function."""
    if Experiment.from_plain(experiment.to_plain()).hash != experiment.hash:
        raise ValueError("this experiment does not come back from its plain values: check the fields of its parts.")


class _Session:
    """One process's part of a run."""

    def __init__(self, trainer: Trainer, folder: RunFolder | None, observer: Observer | None) -> None:
        self.trainer, self.folder, self.observer = trainer, folder, observer
        self.resumed, self.note = False, ""
        self._seconds: float | None = 0.0  # of training, in all sessions so far

    def restore(self) -> bool:
        """Take up the newest whole checkpoint, if there is one."""
        assert self.folder is not None
        notes: list[str] = []
        point = self.folder.newest(notes.append)
        if point is not None:
            lines = point.files["metrics.jsonl"].decode().splitlines()
            metrics.read(lines[-1:])  # refuses what another version wrote
            self.trainer.restore(point.tensors, point.facts["updates"], lines)
            self._seconds = self.folder.seconds()
            before = point.facts.get("kernel", "")
            if before != self.trainer.kernel:
                notes.append(
                    f"this run was trained by other compiled code ({before or 'unknown'}, now {self.trainer.kernel}: "
                    "another CPU, device, backend or version); from here on it goes on to other bits."
                )
        self.note = " ".join(notes)
        self._before_writing()
        self.folder.begin(self.trainer.metrics)
        return point is not None

    def run(self, scored: bool) -> Result:
        if not self.trainer.finished:
            self._train()
        result = self._result(scored)
        if self.folder is not None:
            self._before_writing()
            self.folder.write_json("result.json", result.to_plain())
        return result

    def _train(self) -> None:
        trainer, folder = self.trainer, self.folder
        if folder is not None:
            self._before_writing()
            folder.write_environment(trainer.backend)
        trainer.prepare()  # before signals are only noted: a compilation is to end at once
        began = saved_at = time.monotonic()
        before, saving_took = self._seconds, 0.0
        if self.observer is not None:
            self.observer.begin(self.status())
        with _stop_signals(self.observer) as stop:

            def due() -> bool:
                return bool(stop.asked) or time.monotonic() - saved_at > max(SAVE_SECONDS, 20 * saving_took)

            for whole in trainer.iter_blocks(hold=due):
                if folder is not None:
                    self._before_writing()
                    folder.append_metrics(trainer.metrics[-1])
                if self.observer is not None:
                    self.observer.block(self.status())
                if whole and (due() or trainer.finished or trainer.before_a_part):
                    now = time.monotonic()
                    self._seconds = None if before is None else round(before + now - began, 3)
                    with stop.deferred():
                        self._save()
                    saved_at = time.monotonic()
                    saving_took = saved_at - now
                    if stop.asked:
                        break
            if stop.asked:  # perhaps since the last block was saved
                raise Interrupted(stop.asked[0])

    def _before_writing(self) -> None:
        if self.observer is not None:
            self.observer.writing()

    def _save(self) -> None:
        if self.folder is None:
            return
        trainer = self.trainer
        self._before_writing()
        facts = {"experiment": trainer.experiment.hash, "updates": trainer.updates, "kernel": trainer.kernel}
        files = {"metrics.jsonl": "".join(line + "\n" for line in trainer.metrics).encode()}
        self.folder.save(Checkpoint(trainer.updates, trainer.tensors(), facts, files))
        self.folder.write_json("time.json", {"seconds": self._seconds})

    def status(self) -> Status:
        trainer, seeds = self.trainer, self.trainer.seeds
        under_way = seeds.index if len(seeds.index) else torch.arange(len(seeds.active))
        attempts = seeds.attempts[under_way]
        return Status(
            experiment=trainer.experiment,
            parameters=trainer.population.state.parameters.shape[1],
            backend=trainer.backend,
            backend_reason=trainer.backend_reason,
            updates=trainer.updates,
            episodes=trainer.episodes,
            expected=seeds.expected(trainer.updates) * trainer.experiment.training.batch_size,
            active=len(seeds.index),
            solved=int((seeds.solved_at >= 0).sum()),
            bits=_median_cost(seeds.recent),
            attempts=(int(attempts.min()), int(attempts.max())),
            may_restart=seeds.may_restart(trainer.updates),
            finished=trainer.finished,
            resumed=self.resumed,
            note=self.note,
        )

    def _result(self, scored: bool) -> Result:
        trainer, seeds, experiment = self.trainer, self.trainer.seeds, self.trainer.experiment
        weights = trainer.population.delivered()
        tensors = trainer.tensors()
        optimiser = [name for name in tensors if name.startswith("update.") and name != "update.parameters"]
        lines = "".join(line + "\n" for line in trainer.metrics).encode()
        return Result(
            recipe=experiment.recipe,
            seeds=experiment.seeds,
            solved_at=tuple(None if at < 0 else at for at in seeds.solved_at.tolist()),
            episodes=trainer.episodes,
            attempts=tuple(seeds.attempts.tolist()),
            passed=tuple(seeds.passed.tolist()),
            last_window_bits=tuple(map(metrics.finite, seeds.recent.mean(dim=1).tolist())),
            kept_by="validation" if experiment.validation else "window",
            kept_bits=tuple(
                map(metrics.finite, (seeds.validation_cost if experiment.validation else seeds.kept_cost).tolist())
            ),
            skipped_updates=tuple(seeds.skipped.tolist()),
            generalisation=tuple(_scores(trainer, weights, self.observer)) if scored else (),
            backend=trainer.backend,
            backend_reason=trainer.backend_reason,
            kernel=trainer.kernel,
            seconds=self._seconds,
            sha256={
                "weights": _hash(tensors, ["update.parameters"]),
                "delivered_weights": _hash({"delivered": weights}, ["delivered"]),
                "optimiser": _hash(tensors, optimiser),
                "metrics": hashlib.sha256(lines).hexdigest(),
            },
        )


def _median_cost(recent: Tensor) -> float | None:
    """The median over the seeds of the mean of their recent costs [S, window], which are infinite where there are none
    yet; None if it is not finite."""
    means = recent.where(torch.isfinite(recent), torch.nan).nanmean(dim=1).nan_to_num(nan=torch.inf).sort().values
    middle = float((means[(len(means) - 1) // 2] + means[len(means) // 2]) / 2)
    return metrics.finite(middle)


def _scores(trainer: Trainer, weights: Tensor, observer: Observer | None) -> list[Score]:
    evaluation = trainer.experiment.evaluation
    sizes = trainer.task.generalisation if evaluation.sizes is None else evaluation.sizes
    return score_all(trainer.model, weights, trainer.task, sizes, evaluation.sequences, observer)


def score_all(
    model: SequenceModel,
    weights: Tensor,
    task: Task,
    sizes: Sequence[Mapping[str, Size]],
    sequences: int,
    observer: Observer | None,
) -> list[Score]:
    """Machines weights [S, P] at each of the sizes."""
    return [
        score(
            model,
            weights,
            task,
            dict(each),
            sequences,
            tick=ticks(observer, task.label(each), sequences, len(weights)),
        )
        for each in sizes
    ]


def ticks(observer: Observer | None, label: str, of: int, seeds: int) -> Callable[[int], None] | None:
    """What counts scored sequences for an observer: those of each seed, as all its other numbers are."""
    if observer is None:
        return None
    done = 0

    def tick(more: int) -> None:
        nonlocal done
        done += more
        observer.scoring(label, done // seeds, of)

    return tick


def _hash(tensors: dict[str, Tensor], names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(tensors[name].contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


class _Stop:
    """What signals have asked for."""

    def __init__(self, observer: Observer | None) -> None:
        self.asked: list[int] = []
        self.at_once = False
        self._observer = observer
        self._saving = False

    @contextlib.contextmanager
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
            if self._observer is not None:
                with contextlib.suppress(RuntimeError):  # in the middle of another line to the same stream
                    self._observer.stopping(signal.Signals(number).name)
        elif number == signal.SIGINT and not self._saving:
            self.at_once = True
            raise KeyboardInterrupt


@contextlib.contextmanager
def _stop_signals(observer: Observer | None) -> Iterator[_Stop]:
    """While inside, the first signal is noted, to stop after the block; a second SIGINT stops at once."""
    stop = _Stop(observer)
    with signals.handled_by(stop.note):
        try:
            yield stop
        except Exception:
            if stop.at_once:  # a compiler turned the interrupt into an error of its own
                raise KeyboardInterrupt from None
            raise


def evaluate(
    what: str | Path | SequenceModel,
    task: Task | None = None,
    sizes: Mapping[str, Size] | Sequence[Mapping[str, Size]] | None = None,
    *,
    sequences: int | None = None,
    device: str | None = None,
    backend: str = "auto",
    observer: Observer | None = None,
) -> list[Score]:
    """Scores of a trained machine, or of all machines of a run's folder, at sizes of a task.

    task: by default the run's own; a model needs one. sizes: one or several; by default those of the run's evaluation,
    or those that the task names. sequences: at each; by default the run's number, or 200. The sequences are always the
    same ones, and not those of training, validation or confirmations. observer: told of the progress."""
    if isinstance(what, SequenceModel):
        if not isinstance(task, Task):
            raise ValueError("a model is evaluated on a task: give one, such as tapehead.make_task('copy').")
        if device is not None or backend != "auto":
            raise ValueError("device and backend are for a run's folder: a model is scored where it is.")
        model, weights = what, what.flat_parameters().unsqueeze(0)
    else:
        folder = Path(what)
        experiment = read_config(folder)
        if task is None:
            sizes = experiment.evaluation.sizes if sizes is None else sizes
            sequences = experiment.evaluation.sequences if sequences is None else sequences
        task = task or experiment.task
        weights = delivered(folder, experiment)
        model = experiment.model.build(experiment.task, backend).to(device or "cpu")
        model.backend_in_use()  # refuses a backend that cannot run here
        weights = weights.to(device or "cpu")
    if (task.input_size, task.output_size) != (model.input_size, model.output_size):
        raise ValueError(
            f"the task has {task.input_size} inputs and {task.output_size} outputs, but the model has "
            f"{model.input_size} and {model.output_size}."
        )
    sequences = 200 if sequences is None else sequences
    if sequences < 1:
        raise ValueError(f"sequences is {sequences}, but at least 1 sequence must be scored.")
    each: Sequence[Mapping[str, Size]]
    each = task.generalisation if sizes is None else [sizes] if isinstance(sizes, Mapping) else sizes
    return score_all(model, weights, task, each, sequences, observer)
