"""The report: one file with everything in it, made of records alone, whatever text they hold."""

import dataclasses
import math
import re
from html.parser import HTMLParser

import pytest
from made_up_records import copies, made_up, results_of
from matplotlib.figure import Figure
from quick_figures import quick, quick_figure
from tiny_laboratory import tapehead

from tapehead.paper.claims import CLAIMS
from tapehead.paper.figures import FIGURES
from tapehead.paper.results import Results
from tapehead.report import page, pictures
from tapehead.report.blocks import Cell, Picture, Table, anchor_of

MOST_BYTES = 3_000_000


class Reader(HTMLParser):
    """Tags that are open, all identifiers, all links, and the text."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.words, self.tags = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if tag == "a" else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" not in self.open and "style" not in self.open:
            self.words.append(data)


@pytest.fixture
def quick_figures():
    with quick():
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A page of three records."""
    with quick():
        return page.render(results_of(tmp_path_factory.mktemp("results"), *copies()))


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}"


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    """A page of a hostile record, and of memories of two sizes."""
    folder = tmp_path_factory.mktemp("strange")
    (folder / "grid").mkdir()
    hostile, *some = copies()
    hostile["environment"] = hostile["environment"] | {"device": HOSTILE, "commit": HOSTILE}
    hostile["headline"] = HOSTILE
    for machine in hostile["machines"]:
        machine["scores"][HOSTILE] = {"bits": 1.0}
    hostile["criteria"] = [{"says": HOSTILE, "points": [HOSTILE], "under": 1.0}] * 4
    for slots in (16, 64):
        record = made_up("copy-ntm-lstm", Length_120=[math.inf] * 6 + [0.1] * 4, file=f"grid/{slots}.json")
        record["experiment"]["model"]["memory_slots"] = slots
        some.append(record | {"recipe": "custom"})
    (folder / page.SCALE).write_text('{"warning": "Smoke test."}')
    with quick():
        return page.render(results_of(folder, hostile, *some))


def test_the_page_is_whole_and_needs_nothing_else(text):
    reader = Reader(text)
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert {link for link in reader.links if link[1:] not in reader.ids} == set()
    sources = [values["src"] for tag, values in reader.tags if tag == "img"]
    assert len(sources) == len(FIGURES) - 1
    assert all(source.startswith("data:image/") for source in sources)
    addresses = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([a-z]+:)", text)
    assert set(addresses) == {"data:"}
    assert len(text.encode()) < MOST_BYTES


def test_every_section_is_there_and_in_the_contents(text):
    reader = Reader(text)
    sections = ["summary", "tables", "figures", "claims", "learning", "criteria", "failures", "records", "environment"]
    assert [anchor for anchor in reader.ids if anchor in sections] == sections
    assert [link for link in reader.links if link[1:] in sections][: len(sections)] == [f"#{name}" for name in sections]


def test_numbers_lead_to_their_records(text):
    for row in ("copy-ntm-lstm", "copy-no-shift-ntm-lstm", "copy-lstm"):
        anchor = anchor_of("record", f"{row}-tuned.json")
        assert f'id="{anchor}"' in text
        assert f'href="#{anchor}"' in text
        assert f"tapehead confirm {row} --seed 1000 --seeds 10" in text
    for said in ("Made-up CPU", "0123456789", "2026-01-02", "10 (1000-1009)"):
        assert said in text


def test_what_is_missing_is_said(text):
    assert "Not drawn: There is no machine: make one with <code>tapehead train copy</code>." in text
    assert "could not be tested" in text
    assert "o record of ngrams-ntm-lstm with the recipe tuned" in text


def test_text_of_records_is_only_ever_text(strange):
    reader = Reader(strange)
    assert sum(tag == "script" for tag, _ in reader.tags) == 1
    assert all("onerror" not in values for _, values in reader.tags)
    assert "alert(1)" in "".join(reader.words)
    assert "{{ 7 * 7 }}" in "".join(reader.words)


def test_the_warning_of_a_scale_stands_above_everything(text, strange):
    assert strange.index('class="warning" role="note">Smoke test.') < strange.index("Summary")
    assert 'class="warning"' not in text


def test_memories_of_several_sizes_have_a_section(text, strange):
    assert '<section id="memory">' in strange
    assert '<section id="memory">' not in text


@pytest.mark.parametrize("key", ["solved_at", "attempts", "episodes"])
def test_a_record_that_is_not_whole_is_refused_by_name(tmp_path, quick_figures, key):
    record = copies()[0]
    del record["machines"][3][key]
    with pytest.raises(ValueError, match=rf"copy-ntm-lstm-tuned.json is damaged .*{key}.*: confirm that row again"):
        page.render(results_of(tmp_path, record))


def test_a_word_in_the_place_of_a_number_is_refused_by_name(tmp_path, quick_figures):
    record = copies()[0]
    record["machines"][3]["solved_at"] = "abc"
    with pytest.raises(ValueError, match=r"copy-ntm-lstm-tuned.json is damaged"):
        page.render(results_of(tmp_path, record))


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no record"):
        page.write(tmp_path, tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_same_page_again(text, tmp_path, quick_figures, capsys):
    results_of(tmp_path, *copies())
    out = tmp_path / "a" / "report"
    assert tapehead("report", "--results", tmp_path, "--out", out) == 0
    assert capsys.readouterr().out == f"{out / 'index.html'}\n"
    assert (out / "index.html").read_text() == text
    assert tapehead("report", "--results", tmp_path / "nowhere", "--out", out) == 2
    assert "is no folder of results" in capsys.readouterr().err


def test_a_folder_without_records_has_a_report(tmp_path, quick_figures):
    counted = sum(not claim.exploratory for claim in CLAIMS)
    assert counted < len(CLAIMS)
    text = page.render(Results(tmp_path))
    assert f"{counted} claims of the paper" in text
    assert text.count("could not be tested (exploratory)") == len(CLAIMS) - counted


def test_a_record_without_a_point_leaves_its_cells_empty(tmp_path, quick_figures):
    """Of an ablation, of a row of the tables, and of memories of two sizes."""
    (tmp_path / "grid").mkdir()
    unmeasured = [made_up(row) | {"headline": "Length 120"} for row in ("copy-no-shift-ntm-lstm", "copy-lstm")]
    for slots in (16, 64):
        record = made_up("copy-ntm-lstm", file=f"grid/{slots}.json") | {"headline": "Length 120", "recipe": "custom"}
        record["experiment"]["model"]["memory_slots"] = slots
        unmeasured.append(record)
    text = page.render(results_of(tmp_path, *unmeasured))
    assert "copy-lstm-tuned.json was not measured at Length 30" in text
    assert '<section id="memory">' in text


def test_claims_say_that_they_are_many(text):
    assert "without correction for their" in text
    assert "exact here (Clopper" in " ".join(text.split())


# --- pieces ----------------------------------------------------------------------------------------------------------


def test_a_table_has_a_cell_for_every_column():
    with pytest.raises(ValueError, match="has 1 cells for 2 columns"):
        Table("t", ("a", "b"), ((Cell("1"),),))


def test_figures_keep_to_their_limit_by_fewer_dots():
    figure = Figure(figsize=(4, 3))
    for k in range(4):
        figure.add_axes((k / 4, 0, 1 / 5, 1)).imshow(
            [[math.sin(i * j * (k + 1)) for i in range(60)] for j in range(60)]
        )
    large, small = pictures.encoded(figure, 10**9), pictures.encoded(figure, 10_000)
    assert large.startswith("data:image/")
    assert small.startswith("data:image/png")
    assert len(small) < len(large)


def test_a_small_drawing_stays_a_drawing(tmp_path):
    assert pictures.encoded(quick_figure(None), 10**6).startswith("data:image/svg+xml;base64,")


def test_all_figures_of_a_folder_in_order(tmp_path, quick_figures):
    made = list(pictures.draw_all(Results(tmp_path)))
    assert [one.title.partition(":")[0] for one in made] == [f"Figure {number}" for number in range(3, 19)]
    assert [one.title for one in made if not one.source] == [f"Figure 5: {FIGURES[5].title}"]
    first = made[0]
    assert dataclasses.replace(first, source="") == Picture(first.title, "10 seeds. <b>&", "", 384, 192)


def test_words_between_backticks_are_code_and_nothing_is_markup():
    assert page.with_code("a `b <i>` c") == "a <code>b &lt;i&gt;</code> c"
    assert page.with_code("<b>") == "&lt;b&gt;"
