"""The figures of the paper as files: an SVG and a PNG of each, and a page with their captions."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tapehead import files
from tapehead.figures import style
from tapehead.paper.figures import FIGURES, PaperFigure
from tapehead.paper.results import Results
from tapehead.suggest import unknown

TOP = """# Figures 3 to 18 of the paper

Drawn by `tapehead figures --paper` from the records and machines of a folder of results. Nothing here is typed by hand.
"""


def chosen(words: Sequence[str]) -> list[int]:
    """Figures by number; without any, all."""
    numbers = {str(number): number for number in FIGURES}
    for word in words:
        if word not in numbers:
            raise ValueError(unknown("figure of the paper", word, numbers))
    return [numbers[word] for word in words] or list(FIGURES)


def file_name(figure: PaperFigure) -> str:
    """Of its files, without the ending."""
    return f"figure-{figure.number:02d}"


def write_figures(results: Results, folder: Path, numbers: Sequence[int]) -> Iterator[Path | str]:
    """Draw figures into a folder: the path of each file that was written, and a sentence on each figure whose data is
    missing. The page of captions is written when all figures of the paper are."""
    page = [TOP]
    for number in numbers:
        figure = FIGURES[number]
        words = figure.missing(results)
        page.append(f"## Figure {number}. {figure.title}\n")
        if words is None:
            yield from style.save(figure.draw(results), folder, file_name(figure))
            page.append(f"![Figure {number}]({file_name(figure)}.svg)\n\n{figure.caption(results)}\n")
        else:
            yield f"Figure {number} is not drawn. {words}"
            page.append(f"Not drawn. {words}\n")
    if len(numbers) == len(FIGURES):
        path = folder / "README.md"
        with files.writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            files.replace(path, "\n".join(page).encode())
        yield path
