"""Arguments of the commands that train."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, Suppress, arg

from tapehead.arguments.fields import (
    RESULTS,
    Common,
    Engine,
    File,
    Flag,
    Folder,
    Name,
    Number,
    Pairs,
    Real,
    Recipe,
    Word,
)


@dataclasses.dataclass(frozen=True)
class Train(Common):
    """Train machines. The same command again resumes where the last one stopped.

    Every value of an experiment can be given by its path: --training.batch-size 4, --model.memory-slots 64,
    --task.width 6, --optimiser.name adam, --schedule.final 0. Lists are JSON: --training.slots [21,48].
    A finished run goes on with more --episodes: give its folder as TASK, or as --out.
    """

    what: Annotated[Positional[str], arg(metavar="TASK")]
    """A task by name (see tapehead tasks) or as module:Class; an experiment's TOML file; or a run's folder."""
    model: Name = None
    """A model by name (ntm, dnc, lstm, transformer) or as module:Class (default: ntm)."""
    controller: Name = None
    """The controller of an ntm or dnc: lstm, feedforward, or module:Class (default: lstm)."""
    recipe: Recipe = None
    """tuned: the best settings that we know (the default; sure is its old name); once: those, with one attempt and no
    validation; paper: the paper's own."""
    seed: Number = None
    """The seed (default: 0); with --seeds, the first of them."""
    seeds: Number = None
    """How many machines to train side by side, with seeds SEED, SEED + 1, ... (default: 1)."""
    episodes: Number = None
    """Training sequences of each machine, in one attempt (default: the recipe's)."""
    early_stop: Flag = False
    """Stop a machine once it is solved, whatever its recipe does."""
    no_early_stop: Flag = False
    """Train every machine to the last episode, whatever its recipe does."""
    learning_rate: Real = None
    """The learning rate, before the schedule (default: the recipe's)."""
    batch_size: Number = None
    """Sequences of one update (default: the recipe's)."""
    out: File = None
    """The run's folder, made if it is not there (default: a name made from the settings, under runs/)."""
    write_config: File = None
    """Write the experiment to this TOML file, whose folder is made if it is not there, and train nothing."""
    dry_run: Flag = False
    """Print what would be trained and where, and train and write nothing."""
    backend: Name = None
    """auto, reference, cpu or gpu (default: auto)."""
    device: Name = None
    """cpu, or cuda for a GPU (default: cpu)."""
    task_options: Pairs = dataclasses.field(default_factory=dict)
    """Options of the task, as NAME VALUE pairs or NAME=VALUE: --task-options width 6."""
    curriculum: Annotated[
        Pairs,
        arg(
            help="Options of the task in training alone, not in scores, as pairs: --curriculum blanks 0.05. "
            "For the first half of training only: --curriculum.share 0.5."
        ),
    ] = dataclasses.field(default_factory=dict)
    validation: Annotated[
        Pairs,
        arg(
            help="Sizes of the task at which the best weights are chosen, as pairs: --validation items 12. Restart "
            "seeds that do not pass: --restarts.attempts 3 --validation.below-bits 0.01 --validation.sequences 200."
        ),
    ] = dataclasses.field(default_factory=dict)
    model_options: Pairs = dataclasses.field(default_factory=dict)
    """Options of the model, as NAME VALUE pairs or NAME=VALUE: --model-options memory_slots 64."""
    settings: Annotated[
        Pairs,
        arg(
            help="Other settings under their short names, as pairs: --settings optimiser adam schedule cosine clip "
            "norm clip_at 1 slots [21,48] average 0.998 final_rate 0.05. Restart seeds that are above 2 bits after "
            "5,000 sequences: --restarts.attempts 3 --restarts.after 5000 --restarts.above-bits 2."
        ),
    ] = dataclasses.field(default_factory=dict)
    values: Suppress[dict[str, str]] = dataclasses.field(default_factory=dict)
    """Values by path, as --PART.NAME VALUE."""


@dataclasses.dataclass(frozen=True)
class Confirm(Common):
    """Train a row on held-out seeds, score it beyond its training sizes, and write a record."""

    row: Annotated[Positional[str | None], arg(metavar="[ROW]", help_behavior_hint="")] = None
    """A row of the paper's tables: copy-ntm-lstm, ... (see tapehead presets); or an experiment's TOML file."""
    verify: Annotated[
        File,
        arg(
            help="Instead of a row: train the seeds of this record again, and say whether the machines are equal to "
            "the bit, the same in distribution, or different. --seeds N: only its first N."
        ),
    ] = None
    recipe: Recipe = None
    """tuned: the best settings that we know (the default; sure is its old name); once: those, with one attempt and no
    validation; paper: the paper's own."""
    seed: Number = None
    """The first seed (default: 1000)."""
    seeds: Number = None
    """How many machines to train side by side (default: 20)."""
    episodes: Number = None
    """Training sequences of each machine (default: the recipe's)."""
    sequences: Number = None
    """Sequences to score at each point (default: 200, for ngrams 1,000; on the longest tape never more than 20)."""
    backend: Name = None
    """auto, reference, cpu or gpu (default: auto)."""
    device: Name = None
    """cpu, or cuda for a GPU (default: cpu)."""
    work: Folder = Path("runs")
    """Where the run's folder is; the same command again resumes it."""
    out: Folder = RESULTS
    """Where the record and the table of all records go; made if it is not there."""
    dry_run: Flag = False
    """Print what would be trained and where, and train and write nothing."""
    zoo: Flag = False
    """Also put the machine of median cost into the zoo."""


@dataclasses.dataclass(frozen=True)
class Reproduce(Common):
    """Train what is missing of the whole paper, at one of three scales, and write the report. It resumes."""

    scale: Annotated[Literal["smoke", "laptop", "paper"], arg(metavar="NAME")] = "smoke"
    """smoke: everything for a few updates, in minutes; laptop: what fits one night here; paper: all, 100 seeds."""
    out: File = None
    """Where runs, records and the report go; made if it is not there (default: reproduction-SCALE)."""
    dry_run: Flag = False
    """Only measure the speed of this computer and print the plan."""
    device: Word = "cpu"
    """cpu, or cuda for a GPU."""
    engine: Engine = "local"
    """local: processes of this machine; ray: tasks of Ray; slurm: jobs of Slurm."""
    workers: Number = None
    """How many jobs are trained at a time (default: one for each core or GPU; for slurm 8)."""
    engine_options: Pairs = dataclasses.field(default_factory=dict)
    """Options of the engine, as NAME VALUE pairs, as in tapehead sweep."""
