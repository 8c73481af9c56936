"""Where every number comes from: the records, with seeds, command, commit and machine."""

from tapehead.experiment.config import Experiment
from tapehead.paper.measures import number
from tapehead.paper.results import Record, Results, command_of
from tapehead.report.blocks import Cell, Section, Table, Text, anchor_of

WORDS = """Every record is the JSON file of one confirmation: machines trained on held-out seeds and scored on held-out
sequences. The same command makes it again; with the same commit, device and backend the weights are the same to the
bit, which their SHA-256 in the record shows. FILE.toml stands for a file with the record's experiment. Seconds are of
the whole run."""


def record_cell(*files: str) -> Cell:
    """Links to where records are described; a dash if there are none."""
    return Cell(" ".join(files) or "-", links=tuple((file, f"#{anchor_of('record', file)}") for file in files))


def seeds_of(record: Record) -> str:
    """ "20 (1000-1019)"; seeds below 1000 are those that recipes were tuned on."""
    seeds = record["seeds"]
    span = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]}-{seeds[-1]}"
    return f"{len(seeds)} ({span}{', tuning' if min(seeds) < 1000 else ''})"


def section(results: Results) -> Section:
    columns = ("record", "row", "recipe", "seeds", "sequences", "seconds", "machine", "commit", "date", "experiment")
    table = Table(
        "Records",
        (*columns, "command"),
        tuple(_row(record) for record in results.records),
        tuple(anchor_of("record", record["file"]) for record in results.records),
    )
    return Section("records", "Records: where every number comes from", (Text(WORDS), table))


def _row(record: Record) -> tuple[Cell, ...]:
    where, seconds = record["environment"], record["seconds"]
    commit, _, changes = (where["commit"] or "unknown").partition("+")
    episodes = record["experiment"]["training"]["episodes"]
    return (
        Cell(record["file"]),
        Cell(record["row"]),
        Cell(record["recipe"]),
        Cell(seeds_of(record), len(record["seeds"])),
        Cell(f"{episodes:,}", episodes),
        Cell("not measured", -1.0) if seconds is None else Cell(number(seconds), seconds),
        Cell(f"{where['device']}, {where['backend']} backend, torch {where['torch']}"),
        Cell(commit[:10] + ("+changes" if changes else "")),
        Cell(where["date"]),
        Cell(_hash(record)),
        Cell(command_of(record), code=True),
    )


def _hash(record: Record) -> str:
    return Experiment.from_plain(record["experiment"], record["file"]).hash[:10]
