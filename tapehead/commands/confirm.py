"""`tapehead confirm`: train a row on held-out seeds, score it on held-out sequences, and write a record."""

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tapehead import files
from tapehead.commands.experiments import default_folder, dry_run, seed_range
from tapehead.commands.options import check_count, check_device, make_folder
from tapehead.commands.progress import Progress
from tapehead.experiment.config import Experiment, read_toml
from tapehead.experiment.loop import Trainer
from tapehead.experiment.run import Interrupted
from tapehead.lab import adoption, confirmation, records, snapshots, verification
from tapehead.lab.tables import describe
from tapehead.paper.recipes import row_experiment, rows
from tapehead.terminal import complain

if TYPE_CHECKING:
    from tapehead import arguments


SEED, SEEDS = 1000, 20
"""The first of the held-out seeds, and how many there are, unless other ones are asked for."""


def run(options: "arguments.Confirm") -> int:
    if options.verify is not None:
        return _verify(options, options.verify)
    if options.row is None:
        raise ValueError(
            "tapehead confirm needs a row, such as copy-ntm-lstm, or --verify RECORD: see tapehead presets."
        )
    experiment, name = _experiment(options, options.row)
    Trainer(experiment)  # before any folder is made: what cannot be trained leaves nothing behind
    folder = default_folder(experiment, options.work)
    if options.dry_run:
        print(dry_run(experiment, folder))
        return 0
    made = make_folder(options.out)
    with Progress(f"Training in {folder}.") as progress:
        try:
            record = confirmation.confirm(experiment, folder, name=name, sequences=options.sequences, observer=progress)
        except Interrupted as stop:
            complain(f"{stop}; saved in {folder}. The same command goes on from there.")
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


def _verify(options: "arguments.Confirm", path: Path) -> int:
    """Train the seeds of a record again, and say what came of it; 0 if that bears the record out."""
    given = {name: getattr(options, name) for name in ("row", "recipe", "seed", "episodes", "sequences")}
    for name, value in given.items():
        if value is not None:
            word = value if name == "row" else f"--{name}"
            raise ValueError(f"{word} does not go with --verify, which takes everything from the record: leave it out.")
    for flag, given_with in (("zoo", options.zoo), ("out", options.out != type(options).out)):
        if given_with:
            raise ValueError(f"--{flag} does not go with --verify, which writes nothing: leave it out.")
    place = {"place.device": options.device, "place.backend": options.backend}
    record = records.read(path)
    changes = {name: value for name, value in place.items() if value is not None}
    experiment = verification.experiment_of(record, options.seeds, changes)
    check_device(experiment.place.device)
    Trainer(experiment)
    above = options.work / "verify"
    folder = default_folder(experiment, above)
    if options.dry_run:
        print(dry_run(experiment, folder))
        return 0
    made = [path for path in (*reversed(above.parents), above) if not path.exists()]
    with Progress(f"Training in {folder}.") as progress:
        try:
            found = verification.verify(record, experiment, folder, observer=progress)
        except Interrupted as stop:
            complain(f"{stop}; saved in {folder}. The same command goes on from there.")
            return stop.exit_code
    shutil.rmtree(folder)  # the next verification is to train again
    files.remove_empty(made)
    print(verification.describe(found))
    return int(found.verdict not in verification.AGREES)


def _experiment(options: "arguments.Confirm", row: str) -> tuple[Experiment, str | None]:
    """What is confirmed, and the name of its record if it is not a row of the paper."""
    if options.sequences is not None:
        check_count("--sequences", options.sequences)
    given = {
        "training.episodes": options.episodes,
        "place.device": options.device,
        "place.backend": options.backend,
        "seeds": seed_range(
            SEED if options.seed is None else options.seed, SEEDS if options.seeds is None else options.seeds
        ),
    }
    changes = {path: value for path, value in given.items() if value is not None}
    check_device(options.device or "cpu")
    if not row.endswith(".toml"):
        return row_experiment(row, "tuned" if options.recipe in (None, "sure") else options.recipe, changes), None
    path = Path(row)
    if path.stem in rows():
        raise ValueError(f"{path} has the name of a row, whose record it would replace: give the file another name.")
    for flag, given_with in (("recipe", options.recipe is not None), ("zoo", options.zoo)):
        if given_with:
            raise ValueError(f"--{flag} goes with a row of the paper's tables, but {path} is a file: leave it out.")
    experiment = Experiment.from_plain(read_toml(path), str(path)).with_values(changes)
    return dataclasses.replace(experiment, recipe="custom"), path.stem
