"""A static site: files with relative addresses, written into an empty folder or over an earlier site."""

import json
import re

import pytest

from tapehead import zoo
from tapehead.viewer import assets, catalogue
from tapehead.viewer.site import write_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    write_site([catalogue.ZooMachine(name) for name in ("copy-ntm-lstm", "ngrams-ntm-feedforward")], folder)
    return folder


def test_the_site_has_the_page_and_the_machines(site):
    index = json.loads((site / "machines/index.json").read_bytes())
    assert (index["kind"], index["live"], index["first"]) == ("static", False, "copy-ntm-lstm")
    for entry in index["machines"]:
        place = site / "machines" / entry["id"]
        assert json.loads((place / "machine.json").read_bytes())["card"]["name"] == entry["id"]
        assert (place / "weights.safetensors").stat().st_size > 4 * zoo.card(entry["id"]).parameters
        there = {path.stem for path in (place / "snapshots").glob("*")}
        assert there == {snapshot["key"] for snapshot in entry["snapshots"]}
    for name, data in assets.page_files().items():
        if name != assets.INDEX:
            assert (site / name).read_bytes() == data


def test_its_addresses_are_relative_and_its_policy_is_strict(site):
    page = (site / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?:/|https?:)', page)
    assert f'content="{assets.BESIDE}"' in page
    for path in site.rglob("*.js"):
        assert not re.search(r'from "(?!\.)', path.read_text()), path


def test_it_is_written_again_but_not_over_other_files(site, tmp_path):
    machines = [catalogue.ZooMachine("ngrams-ntm-feedforward")]
    write_site(machines, tmp_path / "twice")
    write_site(machines, tmp_path / "twice")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("<p>my own page</p>")
    with pytest.raises(ValueError, match="has files in it, but no site of tapehead"):
        write_site(machines, tmp_path / "mine")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file, but a site needs a folder"):
        write_site(machines, tmp_path / "file")
    (tmp_path / "linked").symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match="has files in it"):
        write_site(machines, tmp_path / "linked")
    assert (tmp_path / "mine" / "index.html").read_text() == "<p>my own page</p>"
