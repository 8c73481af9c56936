"""What a page is made of: sections of paragraphs, tables and pictures. Values only; the template draws them."""

import dataclasses
import re
from typing import Literal

Kind = Literal["", "good", "bad", "open"]


@dataclasses.dataclass(frozen=True)
class Cell:
    text: str
    value: float | str | None = None
    """What the column is sorted by, if not the text."""
    links: tuple[tuple[str, str], ...] = ()
    """Words and the places on the page that they lead to, instead of the text."""
    kind: Kind = ""
    code: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether it holds a sentence, which a narrow column would make very high."""
        return len(self.text) > 50

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float)


@dataclasses.dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    anchors: tuple[str, ...] = ()
    """Of the rows, where other tables refer to them."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {self.name!r} has {len(row)} cells for {len(self.columns)} columns.")


@dataclasses.dataclass(frozen=True)
class Text:
    text: str


@dataclasses.dataclass(frozen=True)
class Picture:
    title: str
    caption: str
    source: str = ""
    """A data address; empty if the figure could not be drawn, which the caption then explains."""
    width: int = 0
    height: int = 0

    @property
    def anchor(self) -> str:
        return anchor_of("picture", self.title)


@dataclasses.dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    blocks: tuple[Table | Text | Picture, ...]

    @property
    def pictures(self) -> list[Picture]:
        return [block for block in self.blocks if isinstance(block, Picture)]


def anchor_of(kind: str, name: str) -> str:
    """An identifier on the page: "record-h200-copy-lstm-json"."""
    return f"{kind}-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}"
