"""Check the links of a built site without a network: every file and every anchor that a page names is there.

python docs/_ext/check_links.py docs/_build/html
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


def broken(folder: Path) -> Iterator[str]:
    """Sentences about links that lead nowhere."""
    pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{path.relative_to(folder)} links to {link}, but there is no such file."
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(folder)} links to {link}, but the page has no such anchor."


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    sentences = list(broken(folder))
    print("\n".join(sentences) or f"all links inside {folder.name} lead somewhere")
    sys.exit(bool(sentences))


if __name__ == "__main__":
    main()
