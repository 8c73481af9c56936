"""One interface for four origins: embedded, static (under any path), server, dropped files."""

import base64
import functools
import http.server
import json
import threading

import numpy as np
import pytest
import safetensors.torch
import torch
from browser import checked_page
from engine_page import PRELUDE, unpacked
from test_export import DATA
from tiny import tiny

import tapehead
from tapehead import files, zoo
from tapehead.viewer import catalogue
from tapehead.viewer.export import export
from tapehead.viewer.site import write_site

TAKE = """
const take = async (source) => {
  const entries = await source.list(), [first] = entries;
  const machine = await source.load(first.id), snapshots = await source.snapshots(first.id);
  const last = snapshots.length ? await source.loadSnapshot(first.id, snapshots.at(-1).key) : null;
  const digest = (one) => one && Object.entries(one.parameters).map(([name, {data}]) => [name, packed(data)]);
  const {kind, live, first: shown} = source, {precision, task, card} = machine;
  return {kind, live, first: shown, entries, snapshots, precision, task, machine: digest(machine), last: digest(last),
          episodes: last && last.episodes, card: card && card.name};
};
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A machine exported, and written as a site that an ordinary web server offers under a path."""
    folder = tmp_path_factory.mktemp("places")
    machines = [catalogue.ZooMachine("copy-ntm-lstm")]
    write_site(machines, folder / "a" / "sub-path")
    export(machines, folder / "page.html")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}/a/sub-path/"
        server.shutdown()


def assert_is(found, weights, rounding=0.0):
    assert [name for name, _ in found] == list(weights)
    for (_, text), right in zip(found, weights.values(), strict=True):
        exact = right.detach().double().numpy().ravel()
        assert np.all(np.abs(unpacked(text) - exact) <= rounding * np.abs(exact))


def assert_whole(found, kind):
    episodes = zoo.card("copy-ntm-lstm").snapshots["episodes"]
    assert found["kind"] == kind
    assert (found["first"], found["card"], found["precision"]) == ("copy-ntm-lstm", "copy-ntm-lstm", "float32")
    assert found["task"]["name"] == "copy"
    assert found["entries"][0]["group"] == "zoo"
    assert found["episodes"] == found["snapshots"][-1]["episodes"] == episodes[-1]
    assert_is(found["machine"], catalogue.ZooMachine("copy-ntm-lstm").weights())
    assert_is(found["last"], catalogue.ZooMachine("copy-ntm-lstm").snapshot(str(episodes[-1])))


def test_server(engine):
    found = engine(
        TAKE
        + """const source = await api.openSource();
        return take({...source, list: async () => (await source.list()).filter(({id}) => id === "copy-ntm-lstm")});"""
    )
    assert_whole(found, "server")
    assert found["live"]


def test_static_under_a_path(chromium, places):
    with checked_page(chromium) as page:
        page.goto(places[1])
        code = "async () => { const api = await import('./engine/api.js'); %s return take(await api.openSource()); }"
        found = page.evaluate(code.replace("./engine", f"{places[1]}engine") % (PRELUDE + TAKE))
    assert_whole(found, "static")
    assert not found["live"]


def test_embedded(engine, places):
    (data,) = DATA.findall((places[0] / "page.html").read_text())
    found = engine(
        TAKE
        + """const element = document.createElement("script");
        Object.assign(element, {type: "application/json", id: "tapehead-data", textContent: given});
        document.body.append(element);
        try { return await take(await api.openSource()); } finally { element.remove(); }""",
        data,
    )
    assert_whole(found, "embedded")


DROP = (
    TAKE
    + """
const files_ = given.map(([name, text]) => new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
try { return await take(await api.fileSource(files_)); }
catch (error) { return error instanceof api.EngineError ? error.message : `bug: ${error.stack}`; }
"""
)


def drop(engine, **contents):
    """Drop files on the page; two underscores in a name are a dot, one is a hyphen."""
    named = {name.replace("__", ".").replace("_", "-"): data for name, data in contents.items()}
    return engine(DROP, [[name, base64.b64encode(data).decode()] for name, data in named.items()])


CARD = (zoo.store.FOLDER / "copy-ntm-feedforward.json").read_bytes()
WEIGHTS = (zoo.store.FOLDER / "copy-ntm-feedforward.safetensors").read_bytes()


@pytest.mark.parametrize("card", ["x__json", "other__json"])
def test_dropped_machine_of_the_zoo(engine, card):
    found = drop(engine, x__safetensors=WEIGHTS, **{card: CARD})
    assert (found["kind"], found["first"], found["card"]) == ("files", "file:x", "copy-ntm-feedforward")
    assert found["entries"][0]["group"] == "file"
    assert_is(found["machine"], catalogue.ZooMachine("copy-ntm-feedforward").weights())


def test_dropped_machine_of_a_run(engine, tmp_path):
    """Its parameters as a safetensors file, and the run's config.json."""
    tapehead.train(tiny(episodes=100), tmp_path / "run")
    model = tapehead.load(tmp_path / "run")
    data = safetensors.torch.save({name: value.detach().contiguous() for name, value in model.named_parameters()})
    found = drop(engine, mine__safetensors=data, config__json=(tmp_path / "run" / "config.json").read_bytes())
    assert (found["first"], found["card"]) == ("file:mine", None)
    assert_is(found["machine"], dict(model.named_parameters()))


def flipped(data, place):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def changed_card(**changes):
    values = files.unseal(CARD)
    for path, value in changes.items():
        table = values
        *parts, last = path.split("__")
        for part in parts:
            table = table[part]
        table[last] = value
    return files.seal(values)


DAMAGED = {
    "no weights": ({"x__json": CARD}, "no file of weights was dropped"),
    "nothing": ({}, "no file of weights was dropped"),
    "no card": ({"x__safetensors": WEIGHTS}, "came without its card"),
    "two cards": ({"x__safetensors": WEIGHTS, "a__json": CARD, "b__json": CARD}, "came without its card"),
    "a flipped bit of a weight": ({"x__safetensors": flipped(WEIGHTS, 40_000), "x__json": CARD}, "SHA-256"),
    "cut weights": ({"x__safetensors": WEIGHTS[:-9], "x__json": CARD}, "SHA-256"),
    "a flipped bit of the card": ({"x__safetensors": WEIGHTS, "x__json": flipped(CARD, 200)}, "is damaged"),
    "a card that is text": ({"x__safetensors": WEIGHTS, "x__json": b"<b>hello</b>"}, "it is not JSON"),
    "a card that is a list": ({"x__safetensors": WEIGHTS, "x__json": b"[1]"}, "must be a table"),
    "a card without a seal": ({"x__safetensors": WEIGHTS, "x__json": b'{"experiment": {}}'}, "its seal does not match"),
    "an experiment that is none": (
        {"x__safetensors": WEIGHTS, "x__json": files.seal({"experiment": 3})},
        "the experiment in",
    ),
    "another machine's card": (
        {"x__safetensors": WEIGHTS, "x__json": (zoo.store.FOLDER / "copy-ntm-lstm.json").read_bytes()},
        "SHA-256",
    ),
    "other options": (
        {"x__safetensors": WEIGHTS, "x__json": changed_card(experiment__model__controller_size=99)},
        "has the shape",
    ),
    "an unknown model": (
        {"x__safetensors": WEIGHTS, "x__json": changed_card(experiment__model__name="evil")},
        "the model is",
    ),
    "markup as a task": (
        {"x__safetensors": WEIGHTS, "x__json": changed_card(experiment__task="<img src=x onerror=alert(1)>")},
        "the task in",
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_files_get_a_sentence(engine, what):
    contents, says = DAMAGED[what]
    said = drop(engine, **contents)
    assert isinstance(said, str)
    assert says in said
    assert said.endswith(".")


def test_sources_are_joined(engine):
    """A dropped machine beside those of the server; what neither has is a sentence."""
    found = engine(
        """const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
        const dropped = ["x.safetensors", "x.json"].map((name, i) => new File([bytes(given[i])], name));
        const own = await api.fileSource(dropped);
        const joined = api.joinSources(own, await api.openSource());
        const entries = await joined.list();
        const [mine, theirs] = [await joined.load("file:x"), await joined.load("ngrams-ntm-feedforward")];
        const said = await joined.load("nothing").catch((error) => error.message);
        const {length} = await joined.snapshots("copy-ntm-lstm");
        return [joined.first, entries.length, mine.title, theirs.title, length, said];""",
        [base64.b64encode(data).decode() for data in (WEIGHTS, CARD)],
    )
    episodes = zoo.card("copy-ntm-lstm").snapshots["episodes"]
    titles = ["x", "ngrams-ntm-feedforward"]
    assert found == ["file:x", len(zoo.names()) + 1, *titles, len(episodes), 'there is no machine "nothing" here.']


def test_machine_that_has_gone_is_a_sentence(chromium, served):
    """The browser logs the status of the answer, so this page may have errors."""
    page = chromium.new_page()
    page.goto(f"{served.url}style.css")
    said = page.evaluate(
        """async () => {
          const api = await import("/engine/api.js");
          const source = await api.openSource();
          const said = (work) => work.catch((error) => `${error.name}: ${error.message}`);
          return [await said(source.load("gone")), await said(source.loadSnapshot("copy-ntm-lstm", "7"))];
        }"""
    )
    page.close()
    assert said[0].startswith('EngineError: there is no machine "gone" here')
    assert said[1].startswith('EngineError: there is no snapshot "7"')


def test_snapshots_are_finite_and_differ():
    machine = catalogue.ZooMachine("copy-ntm-lstm")
    first, *_, last = (machine.snapshot(key) for key, _ in machine.snapshots())
    assert all(bool(torch.isfinite(value).all()) for value in first.values())
    assert any(not torch.equal(first[name], last[name]) for name in first)
    assert json.dumps(machine.entry())
