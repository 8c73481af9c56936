"""`tapehead confirm`: train a row on fresh seeds, score it on fresh sequences, and keep the record."""

from typing import TYPE_CHECKING

from tapehead.commands.options import check_count, check_device, make_folder
from tapehead.commands.train import default_folder, opened, seed_range
from tapehead.lab import adoption, confirmation, records, snapshots
from tapehead.lab.tables import describe
from tapehead.paper.presets import preset
from tapehead.terminal import say
from tapehead.training.config import RunConfig
from tapehead.training.loop import Interrupted, Trainer

if TYPE_CHECKING:
    from tapehead import cli


def run(options: "cli.Confirm") -> int:
    config = _configure(options)
    trainer = Trainer(config)  # before any folder is made: what cannot be trained leaves nothing behind
    folder = default_folder(config, options.work)
    try:
        with opened(trainer, folder):
            make_folder(options.out)
            trainer.restore()
            say(f"{config.preset}: training in {folder}")
            confirmation.train(trainer)
            say("scoring")
            record = confirmation.record_of(trainer, options.sequences)
    except Interrupted as stop:
        say(f"{stop}; saved in {folder}. The same command goes on from there.")
        return stop.exit_code
    path = records.write(record, options.out)
    print(describe(record))
    print(path)
    if options.zoo:
        card = adoption.adopt(record, folder)
        if card.name in snapshots.SERIES:
            snapshots.make_snapshots(card.name, options.device, options.backend)
        print(f"In the zoo: {card.name}, seed {card.seed}, {card.chosen}.")
    return 0


def _configure(options: "cli.Confirm") -> RunConfig:
    seeds = seed_range(options.seed, options.seeds)
    check_device(options.device)
    if options.sequences is not None:
        check_count("--sequences", options.sequences)
    changes = {} if options.episodes is None else {"episodes": options.episodes}
    return preset(options.row, options.recipe, seeds=seeds, device=options.device, backend=options.backend, **changes)
