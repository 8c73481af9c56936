"""`tapehead zoo`: the trained machines that come with the package."""

from typing import TYPE_CHECKING, Any

from tapehead import zoo
from tapehead.commands.experiments import default_folder
from tapehead.commands.options import check_device
from tapehead.commands.tables import new_table, print_table, speaks_unicode
from tapehead.experiment.config import Experiment
from tapehead.figures.sparkline import sparkline
from tapehead.lab import adoption, records, snapshots

if TYPE_CHECKING:
    from tapehead import arguments


def run(options: "arguments.Zoo") -> int:
    code: int = ACTIONS[type(options.action).__name__](options.action)
    return code


def _list(options: "arguments.List") -> int:
    numbers = ("parameters", "episodes", "bits per sequence")
    table = new_table("Trained machines", ("name", "task", "controller"), numbers)
    table.add_column("at", no_wrap=True)
    cards = [zoo.card(name) for name in zoo.names()]
    for card in cards:
        controller, bits = card.model.get("controller", "none"), _bits(card.point(card.headline))
        row = (f"{card.parameters:,}", f"{card.episodes:,}", bits)
        table.add_row(card.name, _task(card), controller, *row, card.headline)
    if cards:
        print_table(table, width=160)
    else:
        print("The zoo is empty.")
    return 0


def _show(options: "arguments.Show") -> int:
    card = zoo.card(options.name)
    solved = "not solved" if card.solved_at is None else f"solved after {card.solved_at:,}"
    where = ", ".join(f"{key} {value}" for key, value in card.environment.items() if value is not None)
    facts = {
        "task": _task(card),
        "machine": f"{card.machine}, {card.parameters:,} parameters",
        "trained": f"{card.episodes:,} episodes, {solved}, seed {card.seed}",
        "trained by": card.command,
        "trained on": where,
        "chosen": card.chosen,
        "bits by episode": sparkline([bits for _, bits in card.curve], ascii_only=not speaks_unicode()),
        "snapshots": f"{len(card.snapshots['episodes'])}, see zoo.snapshots" if card.snapshots else "none",
        "licence": card.licence,
        "sha256": card.sha256,
        "load it with": f'tapehead.load("{card.name}")',
    }
    print(card.name)
    for key, value in facts.items():
        print(f"  {key:<16}{value}")
    print("\n  bits per sequence, wrong answers, sequences without error")
    for point in card.points:
        perfect = f"{100 * point['perfect']:.1f} % of {point['sequences']:,}"
        print(f"  {_bits(point):>9}  {point['wrong']:>8.3g}  {perfect:>16}  {point['label']}")
    for criterion in card.criteria:
        print(f"  {'yes' if criterion['met'] else 'NO':<4}{criterion['says']}")
    return 0


def _fetch(options: "arguments.Fetch") -> int:
    for path in zoo.fetch(options.name, options.out):
        print(path)
    print(f'Load it with tapehead.zoo.load("{options.name}", folder=Path("{options.out}")), or as plain safetensors.')
    return 0


def _add(options: "arguments.Add") -> int:
    record = records.read(options.record)
    try:
        card = adoption.adopt(record, default_folder(Experiment.from_plain(record["experiment"]), options.work))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{options.record} is damaged ({type(error).__name__}: {error}): confirm that row again."
        ) from error
    print(f"In the zoo: {card.name}, seed {card.seed}, {card.chosen}.")
    return 0


def _snapshots(options: "arguments.Snapshots") -> int:
    check_device(options.device)
    card = snapshots.make_snapshots(options.name, options.device, options.backend)
    assert card.snapshots is not None
    print(f"{card.name} after {', '.join(f'{n:,}' for n in card.snapshots['episodes'])} episodes.")
    return 0


def _task(card: zoo.Card) -> str:
    """The task with the options that are not its defaults."""
    task = Experiment.from_plain(card.experiment).task
    defaults = type(task)().to_plain()
    options = ", ".join(f"{name} {value}" for name, value in task.to_plain().items() if value != defaults[name])
    return f"{task.name} ({options})" if options else task.name


def _bits(point: dict[str, Any]) -> str:
    return "infinite" if point["bits"] is None else f"{point['bits']:.3g}"


ACTIONS: dict[str, Any] = {"List": _list, "Show": _show, "Fetch": _fetch, "Add": _add, "Snapshots": _snapshots}
