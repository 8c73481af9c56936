"""`tapehead presets`: the paper's tables, with our parameter counts beside the printed ones."""

from typing import TYPE_CHECKING

from tapehead.commands.tables import new_table, print_table
from tapehead.paper.properties import parameter_count
from tapehead.paper.tables import MISPRINTS, ROWS, VARIANTS

if TYPE_CHECKING:
    from tapehead import arguments


def run(options: "arguments.Presets") -> int:
    table = new_table(
        "The machines of Tables 1 to 3",
        ("preset", "table"),
        ("heads", "size", "rate", "printed", "ours", "difference", "tuned"),
    )
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
            f"{parameter_count(row, 'tuned'):,}",
        )
    print_table(table, width=None)
    for name, why in MISPRINTS.items():
        print(f"* {name}: {why}.")
    print(
        "Heads, sizes, rates and counts are those of the paper's recipe; the last column is the count of the tuned\n"
        "one, which tapehead train trains unless --recipe paper is given, and whose task and machine can differ."
    )
    print(f"Not in the paper: {', '.join(VARIANTS)}.")
    print(
        "Table 3 is reproduced by an LSTM whose layers all see the input and feed the output, with learned initial\n"
        "states. No architecture that we know gives the counts of Tables 1 and 2: they are shown for comparison,\n"
        "without a claim."
    )
    return 0
