"""The viewer's server with the zoo, and its engine inside a page of Chromium."""

import base64
import threading

import numpy as np
import pytest
from browser import checked_page

from tapehead.viewer import catalogue
from tapehead.viewer.server import Content, Server

PRELUDE = """
const sentence = (work) => {
  try {
    work();
    return "taken";
  } catch (error) {
    return error instanceof api.EngineError ? error.message : `bug: ${error}`;
  }
};
const packed = (data) => {
  const bytes = new Uint8Array(Float64Array.from(data).buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
};
"""


def unpacked(text: str) -> np.ndarray:
    """What `packed` gave back of a page's numbers."""
    return np.frombuffer(base64.b64decode(text), dtype="<f8")


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
