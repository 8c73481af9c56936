"""Lists of commands with a line for each, as help."""

import inspect
import shutil
import textwrap
from collections.abc import Iterable, Mapping

from tapehead.arguments import ACTIONS, COMMANDS, GROUPS, names

ABOUT = "Neural Turing Machines: train them, measure them, look at them. Start with: tapehead train copy"
OPTIONS = {
    "-h, --help": "Show this help, or that of a command: tapehead train --help.",
    "-q, --quiet": "Show no progress and no remarks; results and errors are still printed.",
    "--version": "Print the version.",
}
WIDEST = 100


def of_all() -> str:
    """What `tapehead --help` prints."""
    groups = {heading: summaries(names(kinds)) for heading, kinds in GROUPS.items()}
    return _page("tapehead COMMAND [OPTIONS]", ABOUT, groups | {"Options": OPTIONS})


def of_actions(name: str) -> str:
    """What `tapehead zoo --help` prints."""
    about = inspect.getdoc(COMMANDS[name]) or ""
    options = {"-h, --help": f"Show this help, or that of a command: tapehead {name} COMMAND --help."}
    return _page(
        f"tapehead {name} COMMAND [OPTIONS]", about, {"Commands": summaries(ACTIONS[name]), "Options": options}
    )


def summaries(kinds: Mapping[str, type]) -> dict[str, str]:
    """The first paragraph of each command's help."""
    return {name: " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()) for name, kind in kinds.items()}


def _page(usage: str, about: str, sections: Mapping[str, Mapping[str, str]]) -> str:
    width = min(WIDEST, shutil.get_terminal_size().columns)
    indent = 4 + max(len(term) for terms in sections.values() for term in terms)
    parts = [f"usage: {usage}", *(_filled(" ".join(p.split()), width) for p in about.split("\n\n"))]
    for heading, terms in sections.items():
        parts.append("\n".join([f"{heading}:", *_entries(terms, indent, width)]))
    return "\n\n".join(parts)


def _entries(terms: Mapping[str, str], indent: int, width: int) -> Iterable[str]:
    for term, says in terms.items():
        yield _filled(f"  {term}".ljust(indent) + says, width, indent)


def _filled(text: str, width: int, indent: int = 0) -> str:
    if indent + 20 > width:  # no room for a column of its own
        indent = 4
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_on_hyphens=False)
