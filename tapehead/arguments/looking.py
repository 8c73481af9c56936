"""Arguments of the commands that score, list, draw and show what was trained."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from tapehead.arguments.fields import (
    RESULTS,
    Common,
    Count,
    File,
    Flag,
    Folder,
    Name,
    Names,
    Number,
    Pairs,
    Share,
    Word,
)


@dataclasses.dataclass(frozen=True)
class Eval(Common):
    """Score trained machines at sizes inside and beyond their training range."""

    run: Annotated[Positional[str], arg(metavar="RUN")]
    """A run's folder, or a machine of the zoo."""
    sizes: Annotated[
        Pairs,
        arg(
            metavar="NAME=N,N ...",
            help="Sizes of the task to score at: --sizes length=37,73. Of several names, every combination. A size "
            "drawn from a range is [LOW,HIGH]. (default: those of the run, or of its task)",
        ),
    ] = dataclasses.field(default_factory=dict)
    episodes: Count = 200
    """Sequences of each size."""
    backend: Word = "auto"
    """auto, reference, cpu or gpu."""
    device: Word = "cpu"
    """cpu, or cuda for a GPU."""
    json: Flag = False
    """Print JSON, and nothing else on standard output."""


@dataclasses.dataclass(frozen=True)
class Runs(Common):
    """List the runs below a folder: what, seeds, solved, costs, state. Or compare some of them."""

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
    solved: Flag = False
    """Only runs all of whose seeds are solved."""
    unsolved: Flag = False
    """Only finished runs with a seed that is not solved."""
    compare: Annotated[tuple[Path, ...], arg(metavar="RUN RUN ...", help_behavior_hint="")] = ()
    """Compare these runs: the settings in which they differ, and their results."""
    curves: File = None
    """Also draw the learning curves of the runs listed or compared into one picture, PATH.svg and PATH.png."""
    json: Flag = False
    """Print JSON, and nothing else on standard output."""


@dataclasses.dataclass(frozen=True)
class Figures(Common):
    """Draw the figures of a run or of a machine of the zoo (learning curve, answers, memory use).

    Of several runs, their learning curves and costs by size are drawn side by side. With --paper, the figures of the
    paper are drawn from records.
    """

    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="[RUN ...]", help_behavior_hint="")] = ()
    """A run's folder, several of them, or a machine of the zoo."""
    seed: Number = None
    """Which machine of a population (default: the one of median cost)."""
    figure: Annotated[
        Names,
        arg(
            help="Only these figures, by name or as module:function; with --paper, by number (default: those that the "
            "task names; with --paper, all)."
        ),
    ] = ()
    paper: Flag = False
    """Draw Figures 3 to 18 of the paper from records and trained machines."""
    results: File = None
    """With --paper: the folder of records that tapehead confirm wrote (default: tapehead-results)."""
    out: Annotated[
        File,
        arg(
            help="The folder that the figures go to, made if it is not there (default: figures/ in the run's folder; "
            "of several runs tapehead-results, of a machine of the zoo tapehead-results/NAME; with --paper "
            "figures/ in the folder of records)."
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class SubLayers(Common):
    """Measure what each sub-layer of a Transformer is worth, choose those that a draft can skip, and draw the map.

    Writes sublayers.svg, .png and .json, and skip.json: the layers whose attention and whose MLP is skipped.
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run's folder, or a machine of the zoo."""
    seed: Number = None
    """Which machine of a population (default: the first)."""
    search: Annotated[
        Literal["worth", "random", "bayesian", "swift", "all"],
        arg(
            help="How the skipped ones are chosen. worth: those that cost least alone; all: every set, and where each "
            "search ends beside the best of them."
        ),
    ] = "worth"
    judge: Literal["agreement", "speedup", "tokens"] = "agreement"
    """What a search maximises: answers that stay the same, the expected speed-up, or measured tokens a second."""
    share: Share = 0.45
    """Of the sub-layers between the first and the last layer, how many are skipped (worth and agreement)."""
    evaluations: Count = 200
    """Sets that a search tries at most."""
    sequences: Count = 200
    """Sequences that every sub-layer is measured on."""
    prompts: Count = 0
    """Also decode so many prompts with and without a draft, and report what it saves; language models only."""
    moments: Count = 0
    """Also train the machine again, which gives the same weights, and draw the map at so many moments."""
    device: Word = "cpu"
    """cpu, or cuda for a GPU."""
    out: File = None
    """Where the files go, made if it is not there (default: sublayers/ in the run's folder)."""


@dataclasses.dataclass(frozen=True)
class View(Common):
    """Watch a machine in the browser, step by step. Without a machine, the zoo and the runs below this folder."""

    what: Annotated[Positional[str | None], arg(metavar="[RUN or MACHINE]", help_behavior_hint="")] = None
    """A run's folder, or a machine of the zoo."""
    seed: Number = None
    """Which machine of a run is shown first (default: its first)."""
    port: Count = 0
    """The port of 127.0.0.1 to listen on; 0 takes any that is free."""
    no_open: Flag = False
    """Open no browser."""
    export: File = None
    """Write the page with the machine inside to this file, and serve nothing. It works without a network."""
    also: Names = ()
    """Further machines to put into the exported page."""


@dataclasses.dataclass(frozen=True)
class Site(Common):
    """Write the viewer and the zoo as a folder of files, which any web server can host under any path."""

    machines: Annotated[Positional[tuple[str, ...]], arg(metavar="[MACHINE ...]", help_behavior_hint="")] = ()
    """Machines of the zoo, or runs' folders (default: the whole zoo)."""
    out: Folder = Path("site")
    """The folder to write, made if it is not there."""


@dataclasses.dataclass(frozen=True)
class Report(Common):
    """Write one HTML file with the paper's tables, figures and claims beside ours, from records; nothing is trained."""

    results: Folder = RESULTS
    """A folder of records, as tapehead confirm writes them."""
    out: Folder = Path("report")
    """The folder that index.html goes to; made if it is not there."""


@dataclasses.dataclass(frozen=True)
class Export(Common):
    """Write a machine for another program: a graph for ONNX or torch, its parameters, or an animation of its tape.

    Graphs run without tapehead, for sequences of any length and batches of any size: examples/run_exported.py.
    """

    what: Annotated[Positional[str], arg(metavar="MACHINE")]
    """A run's folder, a machine of the zoo, or a file that was exported as safetensors."""
    format: Annotated[
        Literal["onnx", "pt2", "safetensors", "gif", "mp4"] | None,
        arg(
            metavar="NAME",
            help="onnx (needs tapehead[onnx]), pt2 for torch.export.load, safetensors for tapehead.load; gif or mp4 "
            "(needs ffmpeg): the tape, step by step, on a sequence of the task (default: that of PATH, or onnx).",
            help_behavior_hint="",
        ),
    ] = None
    out: File = None
    """The file to write (default: the machine's name and the format, in this folder)."""
    seed: Number = None
    """Which machine of a population (default: the first)."""
    tape: Number = None
    """Slots of the tape (default: as the machine has)."""
    step: Flag = False
    """A graph of one step, with the state in and out, and the state at the start in a file beside it."""
