"""The same page from four origins: one exported file, a static server, a sub-path of one, and `tapehead view`."""

import contextlib
import functools
import http.server
import threading

import pytest
import tape_room
from browser import checked_page

from tapehead.viewer import catalogue
from tapehead.viewer.export import export
from tapehead.viewer.site import write_site
from tapehead.zoo import store


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """The terminal belongs to the tests."""


@contextlib.contextmanager
def static(folder):
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with one exported file, and a site in a folder below."""
    folder = tmp_path_factory.mktemp("origins")
    machines = [catalogue.ZooMachine(name) for name in ("copy-ntm-feedforward", "ngrams-ntm-feedforward")]
    export(machines[:1], folder / "page.html")
    write_site(machines, folder / "deep" / "er")
    return folder


@pytest.fixture(params=["file", "static", "sub-path", "view"])
def origin(request, written, served):
    if request.param == "file":
        yield (written / "page.html").as_uri()
    elif request.param == "view":
        yield served.url
    else:
        with static(written / "deep" / "er" if request.param == "static" else written) as url:
            yield url if request.param == "static" else f"{url}deep/er/"


def test_the_page_works_from_everywhere(chromium, origin):
    with checked_page(chromium) as page:
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        room = tape_room.TapeRoom(page, origin)
        room.open("machine=copy-ntm-feedforward&size.length=9&t=14")
        assert room.text("verdict") == "All 72 answers are right (0.0 bits)"
        room.click_cell(3, 3)
        assert "painted" in room.text("past")
        assert room.wrong == 0
        room.tab("lineage").set("pick", 12)
        assert "at step 12, 100 % was written at step" in room.text("lineage-text")
        room.press("m")
        assert "muted from step" in room.text("edits")
        room.click("tour-open")
        assert room.text("tour-title") == "A network with a tape"
        with page.expect_download():
            page.click("#save-svg")
        folder = origin.rpartition("/")[0]
        assert [url for url in asked if not url.startswith((folder, "data:", "blob:"))] == []


def test_an_exported_page_says_which_chapters_it_cannot_show(chromium, written):
    with tape_room.opened(chromium, (written / "page.html").as_uri()) as room:
        room.open("chapter=6")
        assert "This page does not hold priority-sort-ntm-lstm." in room.text("tour-body")
        assert room.page.locator("#tour-tries button").count() == 0
        assert "This page holds its machine" in room.text("origin")
        room.open("panel=race")
        assert room.text("race-text").endswith('"tapehead view copy-ntm-feedforward" has one, from the zoo.')


def test_another_machine_is_dropped_onto_an_exported_page(chromium, written):
    files = [store.FOLDER / f"copy-ntm-lstm.{kind}" for kind in ("safetensors", "json")]
    with tape_room.opened(chromium, (written / "page.html").as_uri()) as room:
        room.open()
        room.page.set_input_files("#files", files)
        room.until(lambda: room.text("headline").startswith("copy-ntm-lstm"))
        assert room.wrong == 0
