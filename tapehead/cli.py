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
    """A model by name (ntm, lstm, transformer) or as module:Class (default: ntm)."""
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
    """Draw the figures of a run (learning curve, answers, memory use) or, with --paper, those of the paper."""

    run: Annotated[Positional[Path | None], arg(metavar="[RUN]", help_behavior_hint="")] = None
    """A run's folder."""
    seed: int | None = None
    """Which machine of a population (default: the one of median cost)."""
    figure: tuple[str, ...] = ()
    """Only these figures, by name or as module:function (default: those that the task names); with --paper, by
    number."""
    paper: FlagCreatePairsOff[bool] = False
    """Draw Figures 3 to 18 of the paper from records and trained machines."""
    results: File = None
    """With --paper: the folder of records that tapehead confirm wrote (default: results)."""
    out: File = None
    """With --paper: where the figures and their captions go (default: the folder figures in that of the results)."""


@dataclasses.dataclass(frozen=True)
class SubLayers:
    """Measure what each sub-layer of a Transformer is worth, choose those that a draft can skip, and draw the map.

    Writes sublayers.svg, .png and .json, and skip.json: the layers whose attention and whose MLP is skipped.
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run's folder, or a machine of the zoo."""
    seed: Number = None
    """Which machine of a population (default: the first)."""
    search: Literal["worth", "random", "bayesian", "swift", "all"] = "worth"
    """How the skipped ones are chosen. worth: those that cost least alone; all: every set, and where each search ends
    beside the best of them."""
    judge: Literal["agreement", "speedup", "tokens"] = "agreement"
    """What a search maximises: answers that stay the same, the expected speed-up, or measured tokens a second."""
    share: float = 0.45
    """Of the sub-layers between the first and the last layer, how many are skipped (worth and agreement)."""
    evaluations: int = 200
    """Sets that a search tries at most."""
    sequences: int = 200
    """Sequences that every sub-layer is measured on."""
    prompts: int = 0
    """Also decode so many prompts with and without a draft, and report what it saves; language models only."""
    moments: int = 0
    """Also train the machine again, which gives the same weights, and draw the map at so many moments."""
    device: str = "cpu"
    """cpu, or cuda for a GPU."""
    out: File = None
    """Where the files go (default: sublayers/ in the run's folder)."""


@dataclasses.dataclass(frozen=True)
class View:
    """Watch a machine in the browser, step by step. Without a machine, the zoo and the runs below this folder."""

    what: Annotated[Positional[str | None], arg(metavar="[RUN or MACHINE]")] = None
    """A run's folder, or a machine of the zoo."""
    seed: Number = None
    """Which machine of a run is shown first (default: its first)."""
    port: int = 0
    """The port of 127.0.0.1 to listen on (0: any that is free)."""
    no_open: FlagCreatePairsOff[bool] = False
    """Open no browser."""
    export: File = None
    """Write the page with the machine inside to this file, and serve nothing. It works without a network."""
    also: tuple[str, ...] = ()
    """Further machines to put into the exported page."""


@dataclasses.dataclass(frozen=True)
class Site:
    """Write the viewer and the zoo as a folder of files, which any web server can host under any path."""

    machines: Annotated[Positional[tuple[str, ...]], arg(metavar="[MACHINE ...]")] = ()
    """Machines of the zoo, or runs' folders (default: the whole zoo)."""
    out: Path = Path("site")
    """The folder to write."""


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
    out: Path = Path("results")
    """Where the record and the table of all records go."""
    zoo: FlagCreatePairsOff[bool] = False
    """Also put the machine of median cost into the zoo."""


@dataclasses.dataclass(frozen=True)
class Report:
    """Write one HTML file with the paper's tables, figures and claims beside ours, from records; nothing is trained."""

    results: Path = Path("results")
    """A folder of records, as tapehead confirm writes them."""
    out: Path = Path("report")
    """The folder that index.html goes to."""


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Train what is missing of the whole paper, at one of three scales, and write the report. It resumes."""

    scale: Literal["smoke", "laptop", "paper"] = "smoke"
    """smoke: everything for a few updates, in minutes; laptop: what fits one night here; paper: all, 100 seeds."""
    out: File = None
    """Where runs, records and the report go (default: reproduction-SCALE)."""
    dry_run: FlagCreatePairsOff[bool] = False
    """Only measure the speed of this computer and print the plan."""
    device: str = "cpu"
    """cpu, or cuda for a GPU."""
    engine: Annotated[Literal["local", "ray", "slurm"], arg(metavar="NAME")] = "local"
    """local: processes of this machine; ray: tasks of Ray; slurm: jobs of Slurm."""
    workers: Number = None
    """How many jobs are trained at a time (default: one for each core or GPU; for slurm 8)."""
    engine_options: Pairs = dataclasses.field(default_factory=dict)
    """Options of the engine, as NAME VALUE pairs, as in tapehead sweep."""


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


@dataclasses.dataclass(frozen=True)
class Run:
    """Carry out the jobs of a sweep. The same command again goes on; the word run may be left out."""

    what: Annotated[Positional[Path], arg(metavar="FILE")]
    """A sweep's TOML file (see docs/sweeps.md), or the folder of a sweep that was begun or unpacked."""
    out: File = None
    """The sweep's folder (default: the file's name, under runs/)."""
    engine: Annotated[Literal["local", "ray", "slurm"], arg(metavar="NAME")] = "local"
    """local: processes of this machine; ray: tasks of Ray; slurm: jobs of Slurm."""
    workers: Number = None
    """How many jobs are trained at a time (default: one for each core or GPU; for slurm 8)."""
    device: Name = None
    """cpu, or cuda for a GPU (default: the experiments' own)."""
    backend: Name = None
    """auto, reference, cpu or gpu (default: the experiments' own)."""
    retry: FlagCreatePairsOff[bool] = False
    """Also try the jobs again that failed."""
    plan: FlagCreatePairsOff[bool] = False
    """List the jobs, and train nothing."""
    engine_options: Pairs = dataclasses.field(default_factory=dict)
    """Options of the engine, as NAME VALUE pairs: ray takes address and num_cpus; slurm takes the parameters of
    submitit, such as slurm_partition gpu timeout_min 600."""


@dataclasses.dataclass(frozen=True)
class Status:
    """Show where a sweep stands: what runs, what is solved, costs, failures."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """A sweep's folder."""
    json: FlagCreatePairsOff[bool] = False
    """Print JSON, and nothing else on standard output."""


@dataclasses.dataclass(frozen=True)
class Pack:
    """Write a whole sweep into one file, to carry it to another machine and to go on there."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """A sweep's folder, on which nothing works."""
    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """The file to write."""


@dataclasses.dataclass(frozen=True)
class Unpack:
    """Make the folder of a packed sweep. tapehead sweep FOLDER then goes on with it."""

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """A file that tapehead sweep pack wrote."""
    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """The folder to make."""


@dataclasses.dataclass(frozen=True)
class Records:
    """Score the machines of a sweep's finished jobs and write a record of each, for tapehead report."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """A sweep's folder."""
    out: Path
    """Where the records go: a folder inside that of the results, such as results/memory."""
    sequences: Number = None
    """Sequences to score at each point (default: 200, for ngrams 1,000; on the longest tape never more than 20)."""
    device: str = "cpu"
    """cpu, or cuda for a GPU."""


SWEEP = (Run, Status, Pack, Unpack, Records)
SweepAction: Any = Union[tuple(Annotated[kind, subcommand(kind.__name__.lower())] for kind in SWEEP)]  # noqa: UP007


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Train many experiments: grids and lists of values, on all cores, a GPU, Ray or Slurm.

    tapehead sweep FILE.toml carries out the jobs of a file; docs/sweeps.md describes it.
    """

    action: OmitSubcommandPrefixes[SweepAction]
    """What to do."""


@dataclasses.dataclass(frozen=True)
class Runs:
    """List the runs below a folder: what, seeds, solved, costs, state. Or compare two of them."""

    folder: Annotated[Positional[Path], arg(metavar="[FOLDER]")] = Path("runs")
    """Where to look."""
    task: Name = None
    """Only runs of this task."""
    model: Name = None
    """Only runs of this model: ntm, lstm, ntm-lstm, ntm-feedforward, or module:Class."""
    recipe: Name = None
    """Only runs whose recipe begins with this: copy-ntm-lstm, custom."""
    state: Annotated[
        Literal["finished", "running", "broken-off", "damaged"] | None, arg(metavar="NAME", help_behavior_hint="")
    ] = None
    """Only finished, running, broken-off or damaged runs."""
    solved: FlagCreatePairsOff[bool] = False
    """Only runs all of whose seeds are solved."""
    unsolved: FlagCreatePairsOff[bool] = False
    """Only finished runs with a seed that is not solved."""
    compare: Annotated[tuple[Path, ...], arg(metavar="RUN RUN", help_behavior_hint="")] = ()
    """Compare two runs: the settings in which they differ, and their results."""
    json: FlagCreatePairsOff[bool] = False
    """Print JSON, and nothing else on standard output."""


COMMANDS = (
    Train,
    Eval,
    Figures,
    SubLayers,
    View,
    Site,
    Presets,
    Tasks,
    Confirm,
    Sweep,
    Runs,
    Report,
    Reproduce,
    Zoo,
    Bench,
    Doctor,
)
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
    if arguments[:1] == ["sweep"]:
        arguments = _with_run(arguments)
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


def _with_run(arguments: list[str]) -> list[str]:
    """`tapehead sweep FILE` is `tapehead sweep run FILE`."""
    names = [kind.__name__.lower() for kind in SWEEP]
    if not arguments[1:]:
        raise ValueError("tapehead sweep needs a TOML file or a sweep's folder: see tapehead sweep --help.")
    word = arguments[1]
    if word in (*names, "-h", "--help"):
        return arguments
    if re.fullmatch("[a-z]+", word) and not Path(word).exists():
        raise ValueError(f"{unknown('command of sweep', word, names)} Or give a TOML file or a sweep's folder.")
    return ["sweep", "run", *arguments[1:]]


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
