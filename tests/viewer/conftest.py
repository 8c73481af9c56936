"""The viewer's server with the zoo, and its engine inside a page of Chromium."""

import threading

import pytest
from browser import checked_page
from engine_page import PRELUDE

from tapehead.viewer import catalogue
from tapehead.viewer.server import Content, Server


@pytest.fixture(scope="session")
def served():
    """A running server with the zoo."""
    machines = catalogue.zoo_machines()
    with Server(Content(lambda: (machines, "copy-ntm-lstm"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def engine(chromium, served):
    """A function that runs JavaScript with the engine's modules: `engine("return load.assemble(...)", given)`.

    In the code `api` is the engine's interface, `load`, `config` and `files` are load.js, config.js and safetensors.js,
    `given` is the argument, `packed` turns numbers into text for `unpacked`, `sentence` is what a call is refused with.
    """
    with checked_page(chromium) as page:
        page.goto(f"{served.url}style.css")  # a document of the server's origin that runs nothing itself

        def run(code, given=None):
            source = f"""async (given) => {{
                const [api, load, config, files, random] = await Promise.all(
                    ["api", "load", "config", "safetensors", "random"].map((name) => import(`/engine/${{name}}.js`)));
                {PRELUDE} {code}
            }}"""
            return page.evaluate(source, given)

        yield run
