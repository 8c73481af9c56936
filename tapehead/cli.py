"""The command line: what can be asked, with its help. The work is in `tapehead.commands`, imported when it is needed,
so that help is instant."""

import contextlib
import dataclasses
import io
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import tyro
from tyro.conf import FlagCreatePairsOff, OmitSubcommandPrefixes, Positional, Suppress, arg, subcommand

from tapehead import commands, notices, registry, signals, terminal
from tapehead._version import __version__
from tapehead.commands.ending import Ending
from tapehead.suggest import unknown

DESCRIPTION = "Neural Turing Machines: train them, measure them, look at them. Start with: tapehead train copy"
LEAST_COLUMNS = 20
"""Of the terminal that help is laid out for; in fewer than ten the parser never ends."""

# Options whose default is decided later: their help says which, so the parser does not add "None".
Name = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")]
Number = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
Real = Annotated[float | None, arg(metavar="X", help_behavior_hint="")]
File = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
Pairs = Annotated[dict[str, str], arg(metavar="NAME VALUE ...", help_behavior_hint="")]


@dataclasses.dataclass(frozen=True)
class Train:
    """Train machines. The same command again resumes where the last one stopped.

    Every value of an experiment can be given by its path: --training.batch-size 4, --model.memory-slots 64,
    --task.width 6, --optimiser.name adam, --schedule.final 0. Lists are JSON: --training.slots [21,48].
    """

    what: Annotated[Positional[str], arg(metavar="TASK")]
    """A task by name (see tapehead tasks) or as module:Class; an experiment's TOML file; or a run's folder."""
    model: Name = None
    """A model by name (ntm, lstm) or as module:Class (default: ntm)."""
    controller: Name = None
    """The Neural Turing Machine's controller: lstm, feedforward, or module:Class (default: lstm)."""
    recipe: Annotated[Literal["tuned", "paper", "sure"] | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """tuned: the best settings that we know (the default; sure is its old name); paper: the paper's own."""
    seed: Number = None
    """The seed (default: 0); with --seeds, the first of them."""
    seeds: Number = None
    """How many machines to train side by side, with seeds SEED, SEED + 1, ... (default: 1)"""
    episodes: Number = None
    """Training sequences of each machine, in one attempt (default: the recipe's)."""
    early_stop: FlagCreatePairsOff[bool] = False
    """Stop a machine once it is solved, whatever its recipe does."""
    no_early_stop: FlagCreatePairsOff[bool] = False
    """Train every machine to the last episode, whatever its recipe does."""
    learning_rate: Real = None
    """The learning rate, before the schedule (default: the recipe's)."""
    batch_size: Number = None
    """Sequences of one update (default: the recipe's)."""
    out: File = None
    """The run's folder (default: a name made from the settings, under runs/)."""
    write_config: File = None
    """Write the experiment to this TOML file, and train nothing."""
    backend: Name = None
    """auto, reference, cpu or gpu (default: auto)."""
    device: Name = None
    """cpu, or cuda for a GPU (default: cpu)."""
    task_options: Pairs = dataclasses.field(default_factory=dict)
    """Options of the task, as NAME VALUE pairs: --task-options width 6."""
    curriculum: Pairs = dataclasses.field(default_factory=dict)
    """Options of the task in training alone, not in scores, as NAME VALUE pairs: --curriculum blanks 0.05. For the
    first half of training only: --curriculum.share 0.5."""
    validation: Pairs = dataclasses.field(default_factory=dict)
    """Sizes of the task at which the best weights are chosen, as NAME VALUE pairs: --validation items 12. Restart seeds
    that do not pass: --restarts.attempts 3 --validation.below-bits 0.01 --validation.sequences 200."""
    model_options: Pairs = dataclasses.field(default_factory=dict)
    """Options of the model, as NAME VALUE pairs: --model-options memory_slots 64."""
    settings: Pairs = dataclasses.field(default_factory=dict)
    """Other settings under their short names, as NAME VALUE pairs: --settings optimiser adam schedule cosine clip norm
    clip_at 1 slots [21,48] average 0.998 final_rate 0.05. Restart seeds that are above 2 bits after 5,000 sequences:
    --restarts.attempts 3 --restarts.after 5000 --restarts.above-bits 2."""
    values: Suppress[dict[str, str]] = dataclasses.field(default_factory=dict)
    """Values by path, as --PART.NAME VALUE."""


@dataclasses.dataclass(frozen=True)
class Eval:
    """Score the machines of a run at sizes inside and beyond their training range."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """A run's folder."""
    episodes: int = 200
    """Sequences of each size."""
    backend: str = "auto"
    """auto, reference, cpu or gpu."""
    device: str = "cpu"
    """cpu, or cuda for a GPU."""


@dataclasses.dataclass(frozen=True)
class Figures:
    """Draw the figures of a run: learning curve, answers, memory use."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """A run's folder."""
    seed: int | None = None
    """Which machine of a population (default: the one of median cost)."""
    figure: tuple[str, ...] = ()
    """Only these figures, by name or as module:function (default: those that the task names)."""


@dataclasses.dataclass(frozen=True)
class Presets:
    """List the rows of the paper's Tables 1 to 3, with our parameter counts beside the printed ones."""


@dataclasses.dataclass(frozen=True)
class Tasks:
    """Explain the tasks: what goes in, what must come out, when."""

    task: Annotated[Positional[str | None], arg(metavar="[TASK]")] = None
    """Only this one: a name, or module:Class."""


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Check this installation: versions, backends, folders, and whether a small machine agrees with the reference."""


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measure the speed of complete updates: first the gate, then the table, then how the cost grows."""

    experiment: Path | None = None
    """Only the updates of this experiment: its TOML file, or a run's folder."""
    device: str | None = None
    """cpu, or cuda for a GPU (default: cpu, or the experiment's own)."""
    rounds: int = 5
    """How often everything is timed; the table shows medians and spread."""
    growth: bool = True
    """Also measure how the cost grows with time steps, slots, width, heads and batch."""
    out: Path = Path("benchmarks/results")
    """Where the dated results go."""


@dataclasses.dataclass(frozen=True)
class Confirm:
    """Train a row on held-out seeds, score it beyond its training sizes, and write a record."""

    row: Annotated[Positional[str], arg(metavar="ROW")]
    """A row of the paper's tables: copy-ntm-lstm, ... (see tapehead presets); or an experiment's TOML file."""
    recipe: Annotated[Literal["tuned", "paper", "sure"] | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """tuned: the best settings that we know (sure is its old name); paper: the paper's own."""
    seed: int = 1000
    """The first seed."""
    seeds: int = 20
    """How many machines to train side by side."""
    episodes: Number = None
    """Training sequences of each machine (default: the recipe's)."""
    sequences: Number = None
    """Sequences to score at each point (default: 200, for ngrams 1,000; on the longest tape never more than 20)."""
    backend: Name = None
    """auto, reference, cpu or gpu (default: auto)."""
    device: Name = None
    """cpu, or cuda for a GPU (default: cpu)."""
    work: Path = Path("runs")
    """Where the run's folder is; the same command again resumes it."""
    out: Path = Path("docs/results")
    """Where the record and the table of all records go."""
    zoo: FlagCreatePairsOff[bool] = False
    """Also put the machine of median cost into the zoo."""


@dataclasses.dataclass(frozen=True)
class List:
    """List the machines, each with its cost at the headline size."""


@dataclasses.dataclass(frozen=True)
class Show:
    """Show a machine's card: what it is, how it was trained and chosen, its scores."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """A machine of the zoo."""


@dataclasses.dataclass(frozen=True)
class Fetch:
    """Copy a machine's weights and card out of the package."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """A machine of the zoo."""
    out: Path = Path()
    """The folder to copy into."""


@dataclasses.dataclass(frozen=True)
class Add:
    """Put the machine of median cost of a confirmation into the zoo of this source tree."""

    record: Annotated[Positional[Path], arg(metavar="RECORD")]
    """A record that tapehead confirm wrote."""
    work: Path = Path("runs")
    """Where the run's folder is."""


@dataclasses.dataclass(frozen=True)
class Snapshots:
    """Train a machine of the zoo again, on the device that made it, and save its weights during training."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """A machine of the zoo."""
    backend: str = "auto"
    """auto, reference, cpu or gpu."""
    device: str = "cpu"
    """cpu, or cuda for a GPU."""


ZOO = (List, Show, Fetch, Add, Snapshots)
Action: Any = Union[tuple(Annotated[kind, subcommand(kind.__name__.lower())] for kind in ZOO)]  # noqa: UP007


@dataclasses.dataclass(frozen=True)
class Zoo:
    """Trained machines that come with the package: list them, show one, copy it."""

    action: OmitSubcommandPrefixes[Action]
    """What to do."""


COMMANDS = (Train, Eval, Figures, Presets, Tasks, Confirm, Zoo, Bench, Doctor)
Command: Any = Union[tuple(Annotated[kind, subcommand(kind.__name__.lower())] for kind in COMMANDS)]  # noqa: UP007


def main(arguments: list[str] | None = None) -> None:
    """Entry point; `tapehead.commands.ending` says which exit code means what."""
    terminal.prepare()
    ending = Ending(own_process=arguments is None)

    def start() -> Callable[[], int]:
        _search_here()
        command = _parse(sys.argv[1:] if arguments is None else arguments)
        ending.command = type(command).__name__.lower()
        return commands.work_of(command)

    with notices.heard_by(terminal.say_ours):
        code = ending.of(start)
    if arguments is None:
        signals.leave_to_the_system()
    sys.exit(code)


def _search_here() -> None:
    """Let module:Class name what is in the working directory."""
    with contextlib.suppress(OSError):  # it may have been removed
        if (here := Path.cwd()) not in registry.SEARCH:
            registry.SEARCH.append(here)


def _parse(arguments: list[str]) -> object:
    """The command, or one sentence and exit code 2."""
    if arguments == ["--version"]:
        print(f"tapehead {__version__}")
        sys.exit(0)
    if "" in arguments:
        raise ValueError("an argument is empty: give it a value, or leave out its option.")
    _check_word("command", arguments[:1], COMMANDS)
    if arguments[:1] == ["zoo"]:
        _check_word("command of the zoo", arguments[1:2], ZOO)
    if shutil.get_terminal_size().columns < LEAST_COLUMNS:
        os.environ["COLUMNS"] = str(LEAST_COLUMNS)
    values: dict[str, str] = {}
    if arguments[:1] == ["train"]:
        arguments, values = _split_values(arguments)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            command = tyro.cli(Command, prog="tapehead", args=arguments, description=DESCRIPTION)
        return dataclasses.replace(command, values=values) if values else command
    except SystemExit as stop:
        if stop.code == 2:
            raise ValueError(_one_sentence(complaint.getvalue())) from None
        raise


def _split_values(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments without --PART.NAME VALUE, and those by path."""
    rest, values = [], {}
    words = iter(arguments)
    for word in words:
        match = re.fullmatch(r"--([a-z]+\.[a-zA-Z0-9_-]+)(?:=(.*))?", word, flags=re.DOTALL)
        if match is None:
            rest.append(word)
            continue
        value = match[2] if match[2] is not None else next(words, None)
        if value is None:
            raise ValueError(f"{word} needs a value: give it behind the option.")
        values[match[1].replace("-", "_")] = value
    return rest, values


def _check_word(what: str, words: list[str], kinds: tuple[type, ...]) -> None:
    """Refuse a first word that is no option and not the name of one of these."""
    names = [kind.__name__.lower() for kind in kinds]
    for word in words:
        if not word.startswith("-") and word not in names:
            raise ValueError(unknown(what, word, names))


def _one_sentence(box: str) -> str:
    """The parser's boxed complaint as one sentence with the nearest valid option."""
    lines = [line.strip("│| ") for line in box.splitlines()[1:]]
    text = " ".join(line for line in lines if not re.fullmatch(r"[╭╮╰╯─+-]*", line))
    text, _, rest = text.partition("For full helptext")
    message, _, near = text.partition("Perhaps you meant:")
    message = re.sub(r"\s+", " ", message.split("Argument helptext")[0]).strip().rstrip(".")
    guess = re.search(r"--[a-z-]+", near)
    hint = f"; did you mean {guess.group()}?" if guess else "."
    helps = re.search(r"tapehead[a-z ]* --help", rest)
    return f"{message}{hint} See {helps.group() if helps else 'tapehead --help'}."


if __name__ == "__main__":
    main()
