"""Docstrings of tapehead are plain text: paragraphs, `code`, indented blocks. Here they become reStructuredText."""

import re
from collections.abc import Iterator

from sphinx.application import Sphinx

CODE = re.compile(r"(`+[^`]+`+)")
SPECIAL = re.compile(r"([\\*|])|(?<=\w)(_)(?!\w)")


def inline(text: str) -> str:
    """Backticks mean code; everything else means itself."""
    parts = CODE.split(text)
    return "".join(
        f"``{part.strip('`')}``" if part.startswith("`") else SPECIAL.sub(r"\\\g<0>", part) for part in parts
    )


def converted(lines: list[str]) -> Iterator[str]:
    """Lines of reStructuredText with the same content."""
    inside = ""  # what the lines before belong to: "", "text", "item" of a list, "literal" or "doctest"
    for line in lines:
        if not line.strip():
            inside = inside if inside == "literal" else ""
            yield ""
        elif line.startswith(" ") and inside == "item":
            yield inline(line)
        elif line.startswith(" ") and inside != "text":
            if inside != "literal":
                yield from ("::", "")
            inside = "literal"
            yield f"    {line}"
        elif line.startswith(">>>") or inside == "doctest":
            inside = "doctest"
            yield line
        else:
            kind = "item" if line.startswith("- ") else "text"
            if inside not in ("", kind):
                yield ""
            inside = kind
            yield inline(line.strip())


def process(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = list(converted(lines))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True}
