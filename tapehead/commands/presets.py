"""`tapehead presets`: the paper's tables, with our parameter counts beside the printed ones."""

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tapehead.commands.tables import show
from tapehead.models import make_model
from tapehead.paper.presets import MISPRINTS, ROWS, VARIANTS, Row, preset
from tapehead.tasks import make_task

if TYPE_CHECKING:
    from tapehead import cli


WIDTH = 115  # or the longest name is cut


def parameter_count(row: Row) -> int:
    """Parameters of the machine that the `paper` recipe of a row trains."""
    config = preset(row.name, "paper")
    model = make_model(config.model, make_task(config.task, **config.task_options), **config.model_options)
    return sum(parameter.numel() for parameter in model.parameters())


def run(options: "cli.Presets") -> int:
    table = Table(box=SIMPLE_HEAD, title="The machines of Tables 1 to 3", title_justify="left")
    for heading in ("preset", "table"):
        table.add_column(heading)
    for heading in ("heads", "size", "rate", "printed", "ours", "difference"):
        table.add_column(heading, justify="right")
    for row in ROWS:
        ours = parameter_count(row)
        mark = " *" if row.name in MISPRINTS else ""
        size = f"{row.layers} x {row.size}" if row.layers > 1 else f"{row.size}"
        table.add_row(
            row.name,
            row.cell.partition(",")[0],
            str(row.heads or ""),
            size,
            f"{row.learning_rate:g}",
            f"{row.printed:,}",
            f"{ours:,}",
            f"{ours - row.printed:+,}{mark}" if ours != row.printed else "exact",
        )
    show(table, WIDTH)
    for name, why in MISPRINTS.items():
        show(f"* {name}: {why}.", WIDTH)
    show(f"Not in the paper: {', '.join(VARIANTS)}.", WIDTH)
    show(
        "Table 3 is reproduced by an LSTM whose layers all see the input and feed the output, with learned initial "
        "states. No architecture that we know gives the counts of Tables 1 and 2: they are shown for comparison, "
        "without a claim.",
        WIDTH,
    )
    return 0
