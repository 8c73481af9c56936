"""Exported pages: their size, their policy, and that they need nothing else."""

import json
import re

import pytest
from browser import checked_page
from tiny import tiny

import tapehead
from tapehead import zoo
from tapehead.viewer import assets, catalogue
from tapehead.viewer.export import MOST_BYTES, export

DATA = re.compile(r'<script type="application/json" id="tapehead-data">(.*?)</script>', re.S)


def data_of(page: str):
    (text,) = DATA.findall(page)
    return json.loads(text)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "page.html"
    return out, export(catalogue.find("copy-ntm-lstm"), out)


@pytest.mark.parametrize(
    "name", [name for name in zoo.names() if name not in ("copy-ntm-lstm", "copy-half-width-lstm")]
)
def test_a_page_has_at_most_a_million_bytes(name, tmp_path):
    out = tmp_path / "new" / "page.html"
    done = export(catalogue.find(name), out)
    assert out.stat().st_size == done.size <= MOST_BYTES
    assert done.encoding == ("float24" if name == "priority-sort-ntm-lstm" else "float32")
    data = data_of(out.read_text())
    assert data["index"]["first"] == name
    assert [entry["id"] for entry in data["index"]["machines"]] == [name]
    assert len(data["machines"][name]["snapshots"]) == done.snapshots


def test_snapshots_go_from_the_first_to_the_last(exported):
    out, done = exported
    episodes = zoo.card("copy-ntm-lstm").snapshots["episodes"]
    (entry,) = data_of(out.read_text())["index"]["machines"]
    taken = [snapshot["episodes"] for snapshot in entry["snapshots"]]
    assert out.stat().st_size == done.size <= MOST_BYTES
    assert (done.encoding, done.snapshots >= 3) == ("float32", True)
    assert taken == sorted(taken)
    assert (taken[0], taken[-1]) == (episodes[0], episodes[-1])


def test_several_machines_go_into_one_page(tmp_path):
    machines = [catalogue.find(name)[0] for name in ("ngrams-ntm-feedforward", "copy-ntm-feedforward")]
    export(machines, tmp_path / "page.html")
    data = data_of((tmp_path / "page.html").read_text())
    assert [entry["id"] for entry in data["index"]["machines"]] == [machine.id for machine in machines]


def test_an_lstm_alone_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"copy-half-width-lstm is an LSTM, which has no tape to show.*--also"):
        export(catalogue.find("copy-half-width-lstm"), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_too_much_is_refused(tmp_path):
    machines = [catalogue.ZooMachine(name) for name in ("copy-ntm-lstm", "copy-half-width-lstm")]
    with pytest.raises(ValueError, match=r"in float16, but at most 1,000,000 are possible.*tapehead site"):
        export(machines, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_policy_names_what_is_inside(exported):
    page = exported[0].read_text()
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.S)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert rules["script-src"] == assets.digest(script)
    assert rules["style-src"] == assets.digest(style)
    assert page.index("Content-Security-Policy") < page.index("<style>")
    elements = page.replace(script, "")
    assert set(re.findall(r'(?:src|href)="([^"#][^"]*)"', elements)) == {"data:,"}  # the icon, which is none


def test_the_same_machine_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        export(catalogue.find("ngrams-ntm-feedforward"), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_names_cannot_leave_the_data(tmp_path):
    """A folder's name that would end the script element is text, and nothing else."""
    folder = tmp_path / "<script>alert(1)<" / "!--"
    tapehead.train(tiny(episodes=100), folder)
    (machine,) = catalogue.run_machines(folder, "</script><!--")
    export([machine], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert data_of(page)["index"]["machines"][0]["title"] == "</script><!--"
    assert "<!--" not in page
    assert page.count("</script>") == 2


def test_it_works_from_a_file_without_a_network(chromium, exported):
    """And a script or a request that is not its own is blocked."""
    asked = []
    with checked_page(chromium, offline=True) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(exported[0].as_uri())
        page.wait_for_function("document.body.innerText.includes('copy-ntm-lstm')")
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [exported[0].as_uri()]
    page = chromium.new_page()
    page.goto(exported[0].as_uri())
    outcome = page.evaluate(
        """async () => {
          const script = document.createElement("script");
          script.textContent = "window.foreign = true";
          document.body.append(script);
          const answer = await fetch("http://127.0.0.1:9/").then(() => "answered", () => "blocked");
          return [window.foreign === undefined, answer];
        }"""
    )
    page.close()
    assert outcome == [True, "blocked"]
