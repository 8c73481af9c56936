"""The page: all sections through one template, as one file that needs nothing else.

Values of records are text from outside: the template escapes everything, and the page's content security policy lets it
run its own script and nothing else.
"""

import base64
import hashlib
from collections.abc import Callable
from importlib.resources import files as resources
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from tapehead import files
from tapehead.lab.summary import summarise
from tapehead.paper import claims, readings
from tapehead.paper.evidence import selection, trained_on
from tapehead.paper.results import Results, parse
from tapehead.report import comparison, memory_sizes, pictures, provenance, runs, verdicts
from tapehead.report.blocks import Picture, Section, Table, Text

NAME = "index.html"
SCALE = "reproduction.json"
"""What `tapehead reproduce` writes into its folder of results: the scale, and its warning."""


def write(results_folder: Path, out: Path) -> Path:
    """Write the report of a folder of results; the page's file."""
    results = Results.load(results_folder)
    if not results.records:
        raise ValueError(f"{results_folder} holds no record: give a folder that tapehead confirm has written to.")
    text = render(results)
    with files.writing(out, "choose another folder with --out."):
        files.make_folders(out)
        files.replace(out / NAME, text.encode())
    return out / NAME


def render(results: Results) -> str:
    """The page as text."""
    _check(results)
    style, script = (_resource(name) for name in ("style.css", "sort.js"))
    loader = jinja2.FunctionLoader(_resource)
    surroundings = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    surroundings.filters["code"] = with_code
    surroundings.tests |= {name.lower(): _is(kind) for name, kind in KINDS.items()}
    return surroundings.get_template("template.html").render(
        sections=list(sections(results)),
        warning=warning(results),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


KINDS = {"Table": Table, "Text": Text, "Picture": Picture}


def sections(results: Results) -> list[Section]:
    """All sections of the report, in order; the one on open question 4 if its records are there."""
    tested, compared = claims.check_claims(results), readings.compare(results)
    figures = Section("figures", "Figures 3 to 18", tuple(pictures.draw_all(results)))
    found = [
        comparison.summary(tested, compared),
        comparison.paper_tables(results, compared),
        figures,
        verdicts.section(results, tested),
        runs.learning(results),
        runs.criteria(results),
        runs.failed(results),
        memory_sizes.section(results),
        provenance.section(results),
        runs.surroundings(results),
    ]
    return [section for section in found if section is not None]


def warning(results: Results) -> str:
    """What has to be said above everything else; empty if there is nothing."""
    path = results.folder / SCALE
    return str(parse(path).get("warning", "")) if path.exists() else ""


def with_code(text: str) -> Markup:
    """Words between backticks as code; everything is escaped."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part) for i, part in enumerate(text.split("`"))
    )


def _check(results: Results) -> None:
    """Refuse a record that is not whole, by name."""
    for record in results.records:
        try:
            summarise(record)
            selection(record)
            trained_on(record)
            provenance.section(Results(results.folder, (record,)))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            what = f"{results.folder / record['file']} is damaged ({type(error).__name__}: {error})"
            raise ValueError(f"{what}: confirm that row again, or remove the file.") from error


def _is(kind: type) -> Callable[[object], bool]:
    return lambda block: isinstance(block, kind)


def _resource(name: str) -> str:
    return (resources(__package__) / name).read_text()


def _hash(text: str) -> str:
    """As a content security policy wants it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
