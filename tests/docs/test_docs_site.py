"""The site is built as `make docs` builds it: without a warning, and with links that lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tapehead
from tapehead.experiment.parts import PARTS
from tapehead.typed import hints

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs/_ext"))
import check_links  # noqa: E402 (a module of the site)
import docstrings  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(out / "doctrees")]
    done = subprocess.run([*command, "docs", str(out / "html")], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_links_lead_somewhere(site):
    assert len(list(site.rglob("*.html"))) > 40
    assert list(check_links.broken(site)) == []


def test_every_document_is_on_the_site(site):
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    assert [path for path in sources if not (site / path.with_suffix(".html")).exists()] == []


def test_every_public_name_is_in_the_reference(site):
    page = (site / "reference/api.html").read_text()
    public = [name for name in tapehead.__all__ if name != "__version__"]
    assert [name for name in public if not re.search(rf'id="(module-)?tapehead\.{name}"', page)] == []


def test_every_option_is_in_the_reference(site):
    page = (site / "reference/options.html").read_text()
    words = set(re.findall(r'<span class="pre">(\w+)</span>', page))
    options = {name for kind in PARTS.values() for name in hints(kind)} - {"options"}
    assert options | tapehead.NTM.options().keys() <= words


def test_a_page_of_the_site_has_its_generated_part(site):
    assert "usage: tapehead train" in (site / "reference/command-line.html").read_text()
    assert "Acceptance criteria" in (site / "results.html").read_text()
    assert (site / "notebook-files/copy.ipynb").exists()


def test_pages_fit_the_window_and_load_nothing_from_elsewhere(site, page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for name in ("notebooks/layer", "reference/options", "results"):
        page.goto((site / f"{name}.html").as_uri())
        for width in (390, 1280, 1600, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") == width, (name, width)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#there">x</a><a href="b.html#gone">y</a><a href="c.html">z</a>')
    (tmp_path / "b.html").write_text('<p id="there"></p><a href="https://example.org/none">elsewhere</a>')
    assert [sentence.split(",")[0] for sentence in check_links.broken(tmp_path)] == [
        "a.html links to b.html#gone",
        "a.html links to c.html",
    ]


def test_lists_in_docstrings_stay_lists():
    plain = ["Two:", "- one *or*", "  so", "- two", "end"]
    assert list(docstrings.converted(plain)) == ["Two:", "", "- one \\*or\\*", "  so", "- two", "", "end"]


def test_docstrings_are_plain_text():
    plain = ["Sum of `a_` and *b*.", "", "    x | y", "", "    z_", "end", "", ">>> 1 * 2", "2"]
    assert list(docstrings.converted(plain)) == [
        *("Sum of ``a_`` and \\*b\\*.", "", "::", "", "        x | y", "", "        z_", "", "end"),
        *("", ">>> 1 * 2", "2"),
    ]
