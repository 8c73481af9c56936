"""The page's own files, and the policy that they are served under."""

import base64
import hashlib
import html
from pathlib import Path

from tapehead import files
from tapehead._version import __version__

PAGE = Path(__file__).parent / "page"
INDEX = "index.html"
SCRIPT = '<script type="module" src="ui/app.js"></script>'
STYLE = '<link rel="stylesheet" href="style.css">'
ENTRY = "ui/app.js"
HEAD = "<head>\n"
GENERATOR = f'<meta name="generator" content="tapehead {html.escape(__version__)}">\n'

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".safetensors": "application/octet-stream",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
"""Types of what is served, by the end of a name; there is nothing else."""


def page_files() -> dict[str, bytes]:
    """The page's files by their paths relative to it, with forward slashes."""
    found = (path for path in sorted(PAGE.rglob("*")) if path.suffix in TYPES and path.is_file())
    return {path.relative_to(PAGE).as_posix(): files.read(path, links=True) for path in found}


def policy(*, script: str, style: str, connect: str) -> str:
    """A content security policy: nothing but what is named here. Pictures that the page makes are data and blobs."""
    rules = {
        "default-src": "'none'",
        "script-src": script,
        "style-src": style,
        "img-src": "data: blob:",
        "connect-src": connect,
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


BESIDE = policy(script="'self'", style="'self'", connect="'self'")
"""Of a page whose files lie beside it."""


def digest(text: str) -> str:
    """The source expression of an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def with_policy(page: str, rules: str) -> str:
    """The page's HTML with its policy, before anything that it covers."""
    return replaced(page, HEAD, f'{HEAD}<meta http-equiv="Content-Security-Policy" content="{rules}">\n{GENERATOR}')


def replaced(page: str, old: str, new: str) -> str:
    """Replace what must be there exactly once."""
    if page.count(old) != 1:
        raise ValueError(f"the page has {old.strip()!r} {page.count(old)} times, but it must be there once.")
    return page.replace(old, new)
