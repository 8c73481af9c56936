"""`tapehead confirm`: train a row on held-out seeds, score it on held-out sequences, and write a record."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from tapehead import files
from tapehead.commands.experiments import default_folder, seed_range
from tapehead.commands.options import check_count, check_device, make_folder
from tapehead.commands.progress import Progress
from tapehead.experiment.config import Experiment, read_toml
from tapehead.experiment.loop import Trainer
from tapehead.experiment.run import Interrupted
from tapehead.lab import adoption, confirmation, records, snapshots
from tapehead.lab.tables import describe
from tapehead.paper.recipes import row_experiment, rows
from tapehead.terminal import say

if TYPE_CHECKING:
    from tapehead import cli


def run(options: "cli.Confirm") -> int:
    experiment, name = _experiment(options)
    Trainer(experiment)  # before any folder is made: what cannot be trained leaves nothing behind
    folder = default_folder(experiment, options.work)
    made = make_folder(options.out)
    with Progress(f"Training in {folder}.") as progress:
        try:
            record = confirmation.confirm(experiment, folder, name=name, sequences=options.sequences, observer=progress)
        except Interrupted as stop:
            say(f"{stop}; saved in {folder}. The same command goes on from there.")
            return stop.exit_code
        except ValueError:
            files.remove_empty(made)
            raise
    path = records.write(record, options.out)
    print(describe(record))
    print(path)
    if options.zoo:
        card = adoption.adopt(record, folder)
        if card.name in snapshots.SERIES:
            snapshots.make_snapshots(card.name, options.device or "cpu", options.backend or "auto")
        print(f"In the zoo: {card.name}, seed {card.seed}, {card.chosen}.")
    return 0


def _experiment(options: "cli.Confirm") -> tuple[Experiment, str | None]:
    """What is confirmed, and the name of its record if it is not a row of the paper."""
    if options.sequences is not None:
        check_count("--sequences", options.sequences)
    given = {
        "training.episodes": options.episodes,
        "place.device": options.device,
        "place.backend": options.backend,
        "seeds": seed_range(options.seed, options.seeds),
    }
    changes = {path: value for path, value in given.items() if value is not None}
    check_device(options.device or "cpu")
    if not options.row.endswith(".toml"):
        return row_experiment(options.row, "paper" if options.recipe == "paper" else "tuned", changes), None
    path = Path(options.row)
    if path.stem in rows():
        raise ValueError(f"{path} has the name of a row, whose record it would replace: give the file another name.")
    for flag, given_with in (("recipe", options.recipe is not None), ("zoo", options.zoo)):
        if given_with:
            raise ValueError(f"--{flag} goes with a row of the paper's tables, but {path} is a file: leave it out.")
    experiment = Experiment.from_plain(read_toml(path), str(path)).with_values(changes)
    return dataclasses.replace(experiment, recipe="custom"), path.stem
