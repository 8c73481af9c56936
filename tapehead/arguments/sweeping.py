"""Arguments of `tapehead sweep` and its commands."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from tapehead.arguments.fields import Common, Engine, File, Flag, Folder, Name, Number, Pairs, Word


@dataclasses.dataclass(frozen=True)
class Run(Common):
    """Carry out the jobs of a sweep. The same command again goes on; the word run may be left out."""

    what: Annotated[Positional[Path], arg(metavar="FILE")]
    """A sweep's TOML file (see docs/sweeps.md), or the folder of a sweep that was begun or unpacked."""
    out: File = None
    """The sweep's folder, made if it is not there (default: the file's name, under runs/)."""
    engine: Engine = "local"
    """local: processes of this machine; ray: tasks of Ray; slurm: jobs of Slurm."""
    workers: Number = None
    """How many jobs are trained at a time (default: one for each core or GPU; for slurm 8)."""
    device: Name = None
    """cpu, or cuda for a GPU (default: the experiments' own)."""
    backend: Name = None
    """auto, reference, cpu or gpu (default: the experiments' own)."""
    retry: Flag = False
    """Also try the jobs again that failed."""
    plan: Annotated[Flag, arg(aliases=("--dry-run",))] = False
    """List the jobs, and train and write nothing."""
    engine_options: Annotated[
        Pairs,
        arg(
            help="Options of the engine, as NAME VALUE pairs: ray takes address and num_cpus; slurm takes the "
            "parameters of submitit, such as slurm_partition gpu timeout_min 600."
        ),
    ] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Status(Common):
    """Show where a sweep stands: what runs, what is solved, costs, failures."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """A sweep's folder."""
    json: Flag = False
    """Print JSON, and nothing else on standard output."""


@dataclasses.dataclass(frozen=True)
class Pack(Common):
    """Write a whole sweep into one file, to carry it to another machine and to go on there."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """A sweep's folder, on which nothing works."""
    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """The file to write."""


@dataclasses.dataclass(frozen=True)
class Unpack(Common):
    """Make the folder of a packed sweep. tapehead sweep FOLDER then goes on with it."""

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """A file that tapehead sweep pack wrote."""
    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """The folder to make."""


@dataclasses.dataclass(frozen=True)
class Records(Common):
    """Score the machines of a sweep's finished jobs and write a record of each, for tapehead report."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """A sweep's folder."""
    out: Folder
    """Where the records go, made if it is not there: a folder inside that of the results, such as results/memory."""
    sequences: Number = None
    """Sequences to score at each point (default: 200, for ngrams 1,000; on the longest tape never more than 20)."""
    device: Word = "cpu"
    """cpu, or cuda for a GPU."""
    join: Flag = False
    """One record of all jobs that differ in their seeds alone, named after the row of the paper or the job's label."""


ACTIONS = (Run, Status, Pack, Unpack, Records)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Train many experiments: grids and lists of values, on all cores, a GPU, Ray or Slurm.

    tapehead sweep FILE.toml carries out the jobs of a file; docs/sweeps.md describes it.
    """

    action: Any
    """One of ACTIONS."""
