"""From the command line to an experiment: a task by name, a TOML file, or the config.json of a run; then what is
changed."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapehead.experiment.config import Experiment, changed, read_toml
from tapehead.experiment.folder import read_config
from tapehead.experiment.listing import read_run
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import part_class
from tapehead.experiment.values import typed_values
from tapehead.paper.recipes import task_start
from tapehead.registry import TASKS
from tapehead.suggest import unknown
from tapehead.typed import canonical, hints, parse

if TYPE_CHECKING:
    from tapehead import arguments

MOST_SEEDS = 10_000

SETTINGS = {
    "optimiser": "optimiser.name",
    "schedule": "schedule.name",
    "final_rate": "schedule.final",
    "clip": "clipping.kind",
    "clip_at": "clipping.limit",
    "slots": "training.slots",
    "average": "training.average",
    "curriculum_share": "curriculum.share",
    "validation_sequences": "validation.sequences",
    "passing_bits": "validation.below_bits",
    "attempts": "restarts.attempts",
    "patience": "restarts.after",
    "hopeful_bits": "restarts.above_bits",
}
"""The names that --settings takes, and the values that they are. New ones are given by their path: --schedule.final
0."""


def seed_range(first: int, count: int) -> tuple[int, ...]:
    """The seeds of a population."""
    if count < 1:
        raise ValueError(f"--seeds is {count}, but at least 1 machine must be trained.")
    if count > MOST_SEEDS:
        raise ValueError(f"--seeds is {count}, but at most {MOST_SEEDS:,} machines are trained side by side.")
    return tuple(range(first, first + count))


def from_options(options: "arguments.Train") -> Experiment:
    """The experiment that `tapehead train` is asked for."""
    path = Path(options.what)
    if path.suffix == ".toml" or path.name == "config.json" or (path.is_dir() and options.what not in TASKS):
        return _from_file(read_experiment(path), options)
    return _from_task(options)


def read_experiment(path: Path) -> Experiment:
    """The experiment of a TOML file, of a run's config.json, or of a run's folder."""
    if path.suffix == ".toml":
        return Experiment.from_plain(read_toml(path), str(path))
    return read_config(path.parent if path.name == "config.json" else path)


def _from_file(experiment: Experiment, options: "arguments.Train") -> Experiment:
    for flag in ("model", "controller", "recipe"):
        if getattr(options, flag) is not None:
            raise ValueError(
                f"--{flag} goes with a task's name: {options.what} has all settings, change them one by one."
            )
    base = experiment.to_plain()
    given = _changes(base, options)
    for whole in ("curriculum.options", "validation.sizes"):
        part, _, name = whole.partition(".")
        if whole in given:
            given[whole] = base[part][name] | given[whole]
    return experiment.with_values(given)


def _from_task(options: "arguments.Train") -> Experiment:
    kind = TASKS.resolve(options.what)
    texts = _texts(options)
    if "task.name" in texts:
        raise ValueError(f"--task.name is {texts['task.name']}, but the task is {options.what}: give that one instead.")
    names = typed_values(
        {"task": {"name": TASKS.name_of(kind)}},
        {path: text for path, text in texts.items() if path.startswith("task.")},
    )
    names |= {path: texts[path] for path in ("model.name", "model.controller") if path in texts}
    recipe = "tuned" if options.recipe == "sure" else options.recipe
    start = task_start(options.what, recipe, names)
    return start(_changes(start({}).to_plain(), options))


def _changes(base: Mapping[str, Any], options: "arguments.Train") -> dict[str, Any]:
    """Everything that the options change, by path, each value checked by the type that it must have."""
    texts = _texts(options)
    names = {path: text for path, text in texts.items() if path.endswith(".name")}
    changes = typed_values(changed(base, names), texts)
    task = part_class("task", changed(base, names)["task"]["name"])
    for path, flag, given in (
        ("curriculum.options", "--curriculum", options.curriculum),
        ("validation.sizes", "--validation", options.validation),
    ):
        if given:
            limits = getattr(task, "limits", {}) if flag == "--validation" else hints(task)
            changes[path] = _task_values(flag, {name: hints(task)[name] for name in limits}, given)
    return _together(changes, _flags(options))


def _texts(options: "arguments.Train") -> dict[str, str]:
    """Values as they were typed, by path."""
    texts: dict[str, str] = dict(options.values)
    for name, text in options.settings.items():
        if name not in SETTINGS:
            raise ValueError(unknown("name in --settings", name, SETTINGS))
        texts = _together(texts, {SETTINGS[name]: text})
    for part, given in (("task", options.task_options), ("model", options.model_options)):
        texts = _together(texts, {f"{part}.{name}": text for name, text in given.items()})
    names = {"model.name": options.model, "model.controller": options.controller}
    return _together(texts, {path: text for path, text in names.items() if text is not None})


def _together(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Both; an option that was given in two forms is refused."""
    for path in values.keys() & others.keys():
        raise ValueError(f"--{path} was given twice, in two forms: give one of them.")
    return values | others


def _flags(options: "arguments.Train") -> dict[str, Any]:
    """The flags that have a name of their own."""
    if options.early_stop and options.no_early_stop:
        raise ValueError("--early-stop and --no-early-stop were both given: give one of them.")
    given: dict[str, Any] = {
        "training.episodes": options.episodes,
        "training.batch_size": options.batch_size,
        "training.early_stop": True if options.early_stop else False if options.no_early_stop else None,
        "optimiser.learning_rate": options.learning_rate,
        "place.device": options.device,
        "place.backend": options.backend,
    }
    if options.seed is not None or options.seeds is not None:
        first, count = (0 if options.seed is None else options.seed), (1 if options.seeds is None else options.seeds)
        given["seeds"] = seed_range(first, count)
    return {path: value for path, value in given.items() if value is not None}


def _task_values(flag: str, fields: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    for name in texts:
        if name not in fields:
            raise ValueError(unknown(f"name in {flag}", name, fields))
    return {name: canonical(parse(text, fields[name]), fields[name], f"{flag} {name}") for name, text in texts.items()}


def default_folder(experiment: Experiment, work: Path = Path("runs")) -> Path:
    """The same settings give the same folder, so that the same command resumes."""
    label = experiment.recipe if experiment.recipe not in ("general", "custom") else experiment.task.name
    name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in label)
    return work / f"{name}-{experiment.hash[:8]}"


def dry_run(experiment: Experiment, folder: Path) -> str:
    """What a command would train and where, as comments above the TOML of it; refuses what cannot be trained."""
    trainer = Trainer(experiment)
    seeds, training = experiment.seeds, experiment.training
    which = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    parameters = trainer.population.state.parameters.shape[1]
    there = read_run(folder) if (folder / "config.json").exists() else None
    state = "new" if there is None else f"{there.state}, {there.episodes or 0:,} episodes so far"
    lines = (
        f"{describe(experiment)}: {parameters:,} parameters, {which}, {trainer.backend} backend on "
        f"{experiment.place.device}",
        f"{training.episodes:,} episodes of each seed: {experiment.updates:,} updates of {training.batch_size}"
        + (f", in at most {experiment.restarts.attempts} attempts" if experiment.restarts.attempts > 1 else ""),
        f"folder: {folder} ({state})",
        "nothing was trained or written",
    )
    return "".join(f"# {line}\n" for line in lines) + experiment.to_toml().rstrip("\n")


def describe(experiment: Experiment) -> str:
    """What is trained, in a few words."""
    if experiment.recipe != "general":
        return experiment.recipe
    return f"{experiment.model.name} on {experiment.task.name}, general settings (there is no recipe for it)"
