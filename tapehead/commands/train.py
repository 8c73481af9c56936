"""`tapehead train`: train, score, draw."""

import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tapehead.commands.options import (
    check_device,
    check_options,
    model_fields,
    setting_fields,
    size_fields,
    task_fields,
)
from tapehead.commands.tables import score_table, show
from tapehead.evaluation.generalisation import generalisation
from tapehead.paper.presets import preset, preset_name
from tapehead.registry import TASKS
from tapehead.terminal import say
from tapehead.training.config import RunConfig
from tapehead.training.loop import Interrupted, Trainer
from tapehead.training.progress import Progress
from tapehead.training.runs import Run
from tapehead.words import unknown

if TYPE_CHECKING:
    from tapehead import cli

MOST_SEEDS = 10_000


def run(options: "cli.Train") -> int:
    config = configure(options)
    folder = options.out or default_folder(config)
    trainer = Trainer(config)  # before the folder is made: what cannot be trained leaves nothing behind
    with opened(trainer, folder):
        return _train(trainer, folder)


@contextmanager
def opened(trainer: Trainer, folder: Path) -> Iterator[None]:
    """While inside, the trainer has its run's folder. A new one that fails before its first checkpoint is removed."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    trainer.run = Run(folder, trainer.config)
    try:
        yield
    except Exception as error:
        if any((folder / "checkpoints").glob("step-*")):
            error.add_note(f"what was saved before is in {folder}")
        elif missing:
            shutil.rmtree(folder, ignore_errors=True)
            for path in missing[1:]:
                with suppress(OSError):  # another run may be in it by now
                    path.rmdir()
        raise
    finally:
        trainer.run.close()


def configure(options: "cli.Train") -> RunConfig:
    """The run that the options ask for."""
    if options.task not in TASKS:
        raise ValueError(unknown("task", options.task, TASKS))
    if options.early_stop and options.no_early_stop:
        raise ValueError("--early-stop and --no-early-stop were both given: give one of them.")
    seeds = seed_range(options.seed, options.seeds)
    check_device(options.device)
    machine = "lstm" if options.model == "lstm" else f"ntm-{options.controller}"
    task_options = check_options("--task-options", task_fields(options.task), options.task_options)
    given = {
        "episodes": options.episodes,
        "early_stop": True if options.early_stop else False if options.no_early_stop else None,
        "learning_rate": options.learning_rate,
        "batch_size": options.batch_size,
    }
    return preset(
        preset_name(options.task, machine, task_options),
        options.recipe,
        seeds=seeds,
        backend=options.backend,
        device=options.device,
        task_options=task_options,
        curriculum=check_options("--curriculum", task_fields(options.task), options.curriculum),
        **_validation(options),
        model_options=check_options("--model-options", model_fields(options.model), options.model_options),
        **check_options("--settings", setting_fields(), options.settings),
        **{key: value for key, value in given.items() if value is not None},
    )


def _validation(options: "cli.Train") -> dict[str, Any]:
    sizes = check_options("--validation", size_fields(options.task), options.validation)
    return {"validation": sizes} if sizes else {}


def seed_range(first: int, count: int) -> tuple[int, ...]:
    """The seeds of a population."""
    if count < 1:
        raise ValueError(f"--seeds is {count}, but at least 1 machine must be trained.")
    if count > MOST_SEEDS:
        raise ValueError(f"--seeds is {count}, but at most {MOST_SEEDS:,} machines are trained side by side.")
    return tuple(range(first, first + count))


def default_folder(config: RunConfig, work: Path = Path("runs")) -> Path:
    """The same settings, the same folder: that is how the same command resumes."""
    name = config.preset.replace("/", "-")
    return work / f"{name}-{config.hash[:8]}"


def _train(trainer: Trainer, folder: Path) -> int:
    run = trainer.run
    assert run is not None
    resumed = trainer.restore()
    result = run.result
    if result is not None and trainer.finished:
        say(f"This run is finished ({result['backend']} backend); its results are in {folder}.")
    else:
        _announce(trainer, resumed)
        began = time.monotonic()
        try:
            with Progress() as progress:
                progress.start(trainer)
                trainer.train(progress)
        except Interrupted as stop:
            say(f"{stop}; saved in {folder}. The same command goes on from there.")
            return stop.exit_code
        result = finish(trainer, time.monotonic() - began)
    _report(trainer, result, folder)
    return 0


def _announce(trainer: Trainer, resumed: bool) -> None:
    config = trainer.config
    seeds = f"seeds {config.seeds[0]} to {config.seeds[-1]}" if len(config.seeds) > 1 else f"seed {config.seeds[0]}"
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    where = trainer.backend_in_use
    say(f"{config.preset}: {parameters:,} parameters, {seeds}, {where} backend on {config.device}.")
    if resumed:
        say(f"Resumed at episode {trainer.updates * config.batch_size:,}.")


def finish(trainer: Trainer, seconds: float) -> dict[str, Any]:
    """Score the trained machines and write result.json."""
    run, population = trainer.run, trainer.population
    assert run is not None
    scores = generalisation(trainer.model, population.delivered(), trainer.task)
    tensors = population.tensors()
    optimiser = [name for name in tensors if name.startswith("update.") and name != "update.parameters"]
    result = {
        "preset": trainer.config.preset,
        "seeds": list(trainer.config.seeds),
        "solved_at": [None if at < 0 else at for at in population.solved_at.tolist()],
        "episodes": trainer.updates * trainer.config.batch_size,
        "last_window_bits": [_finite(x) for x in population.recent.mean(dim=1).tolist()],
        **_kept(trainer),
        "skipped_updates": population.skipped.tolist(),
        "generalisation": [score.to_dict() for score in scores],
        "backend": trainer.backend_in_use,
        "seconds_of_last_session": round(seconds, 1),
        "sha256": {
            "weights": _hash(tensors, ["update.parameters"]),
            "delivered_weights": _hash({"delivered": population.delivered()}, ["delivered"]),
            "optimiser": _hash(tensors, optimiser),
            "metrics": hashlib.sha256((run.folder / "metrics.jsonl").read_bytes()).hexdigest(),
        },
    }
    run.write_json("result.json", result)
    return result


def _kept(trainer: Trainer) -> dict[str, Any]:
    """How often seeds began, where they may more than once, and by what the weights delivered were chosen."""
    population, config = trainer.population, trainer.config
    attempts = {"attempts": population.attempts.tolist()} if config.counts_attempts else {}
    if not config.validation:
        return attempts | {"best_window_bits": [_finite(x) for x in population.kept_cost.tolist()]}
    costs = population.validation_cost
    return attempts | {
        "passed": (costs < config.passing_bits).tolist(),
        "validation_bits": [_finite(x) for x in costs.tolist()],
    }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def _hash(tensors: dict[str, torch.Tensor], names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(tensors[name].contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


def _report(trainer: Trainer, result: dict[str, Any], folder: Path) -> None:
    from tapehead.commands.figures import draw

    solved = [at for at in result["solved_at"] if at is not None]
    total = len(result["seeds"])
    if total == 1:
        word = f"solved after {solved[0]:,} episodes" if solved else "not solved"
        if trainer.config.attempts > 1:
            word += f", in {result['attempts'][0]} of {trainer.config.attempts} attempts"
            word += ", not passed" if "passed" in result and not result["passed"][0] else ""
    else:
        word = f"{len(solved)} of {total} seeds solved"
        word += f", median {sorted(solved)[len(solved) // 2]:,} episodes" if solved else ""
        if "attempts" in result:
            word += f", {sum(attempts > 1 for attempts in result['attempts'])} began again"
        if "passed" in result:
            word += f", {sum(result['passed'])} passed"
    threshold = f"{trainer.task.solved_bits:g} bit over the last 1,000 episodes"
    print(f"{trainer.task.name}: {word} (under {threshold}).")
    show(score_table(result))
    pictures = draw(folder, seed=None)
    print("Pictures:")
    for picture in pictures:
        print(f"  {picture}")
