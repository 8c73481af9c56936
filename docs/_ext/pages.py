"""Parts of pages that are generated: a line `<!-- generated: NAME ARGUMENTS -->` stands for Markdown made here.

document PATH     a document of the repository, with its links
examples          the scripts of examples/
options PART      a part of an experiment: names, types, defaults, texts, from its classes
commands          the help of every command
api ROOM ...      the public names of tapehead that are defined in these rooms
outputs           of a notebook: where its outputs come from, and the file for Jupyter
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import page_api
import page_commands
import page_notebooks
import page_options
from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
MARK = re.compile(r"^<!-- generated: (\w+) ?(.*?) -->$", flags=re.MULTILINE)
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples": "examples.md",
    "results": "results.md",
    "results/README.md": "results.md",
    "results/devices/README.md": "results-devices.md",
    "tapehead/kernels/ntm_scan/README.md": "kernels.md",
    "tapehead/kernels/ntm_scan/README-gpu.md": "kernels-gpu.md",
    "tapehead/kernels/lstm_scan/README.md": "kernels-lstm.md",
    "tapehead/kernels/dnc_scan/README.md": "kernels-dnc.md",
}
"""Documents and folders outside docs/ that have a page on the site."""
PAGES_AT = {ROOT / path: DOCS / page for path, page in PAGES.items()}


def on_site(text: str, folder: Path, page: Path) -> str:
    """Links of a text that was written for `folder`, as they are on a page of the site."""

    def moved(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if not target.exists():  # text in brackets that is no link, as in code
            return match[0]
        target = PAGES_AT.get(target, target)
        return f"{match[1]}{os.path.relpath(target, page.parent)}{match[3]}"

    return LINK.sub(moved, text)


def document(path: str, page: Path) -> str:
    source = (DOCS / path).resolve()
    return on_site(source.read_text(), source.parent, page)


def examples(_: str, page: Path) -> str:
    parts = []
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix in (".py", ".toml"):
            language = "python" if path.suffix == ".py" else "toml"
            shown = f"```{{literalinclude}} ../examples/{path.name}\n:language: {language}\n```"
            parts.append(f"## {path.name}\n\n{shown}\n")
    return "\n".join(parts)


def unlisted(_: str, page: Path) -> str:
    """Pages that the lists of contents on this one leave out, as one more list."""
    listed = set(page.read_text().splitlines())
    names = [path.relative_to(DOCS).with_suffix("").as_posix() for path in sorted(DOCS.rglob("*.md"))]
    rest = [name for name in names if name not in listed and not name.startswith(("_build/", "index"))]
    contents = "\n".join(["```{toctree}", ":caption: More", ":hidden:", "", *rest, "```"])
    return contents if rest else ""


MAKERS: dict[str, Callable[[str, Path], str]] = {
    "document": document,
    "examples": examples,
    "options": page_options.tables,
    "commands": page_commands.helps,
    "api": page_api.members,
    "unlisted": unlisted,
    "outputs": page_notebooks.note,
}


def read(app: Sphinx, name: str, content: list[str]) -> None:
    page = Path(app.env.doc2path(name))
    text = page_notebooks.with_outputs(content[0], page) if page.parent.name == "notebooks" else content[0]
    text = on_site(text, page.parent, page)
    content[0] = MARK.sub(lambda match: MAKERS[match[1]](match[2], page), text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", read)
    app.connect("build-finished", page_notebooks.write_notebooks)
    return {"parallel_read_safe": True}
