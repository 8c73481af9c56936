"""16: requests to the viewer's server: traversal, links, foreign hosts, oversize, scripts in names."""

import functools
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from soak.fault import Case, Fault
from tapehead.viewer import catalogue
from tapehead.viewer.server import HEADERS, Content, Server

SECRET = "nobody outside this folder reads this"
SCRIPT = "<script>alert(1)</script>"


def exchange(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to raw bytes; status 0 if the connection is closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(connection, method=request.split(b" ")[0].decode("latin-1"))
        try:
            answer.begin()
        except (http.client.HTTPException, ConnectionError):
            return 0, {}, b""
        return answer.status, dict(answer.getheaders()), answer.read()


def get(port: int, path: str) -> tuple[int, dict[str, str], bytes]:
    return exchange(port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode("latin-1"))


def bad_requests(port: int) -> Iterator[tuple[str, bytes, set[int]]]:
    """What is wrong, the bytes, and the statuses that refuse it."""
    host = f"Host: 127.0.0.1:{port}\r\n"

    def at(path: str, more: str = "") -> bytes:
        return f"GET {path} HTTP/1.1\r\n{host}{more}\r\n".encode("latin-1")

    paths = [
        "/../server.py",
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2fserver.py",
        "/..\\server.py",
        "/..%5cserver.py",
        "/%252e%252e/server.py",
        "/./index.html",
        "//index.html",
        "//evil.example/index.html",
        "/ui/../index.html",
        "/ui/..;/index.html",
        "/index.html/",
        "/index.html%00",
        "/index.html%0d%0aSet-Cookie:a=b",
        "/index.html#x",
        "/INDEX.HTML",
        "/server.py",
        "/__init__.py",
        "/page/index.html",
        "/.git/config",
        "/config.json",
        "/engine",
        "/engine/",
        "/ui",
        "/machines",
        "/machines/",
        "/machines/../index.json",
        "/machines/copy-ntm-lstm",
        "/machines/copy-ntm-lstm/",
        "/machines/copy-ntm-lstm/config.json",
        "/machines/copy-ntm-lstm/../copy-ntm-lstm/machine.json",
        "/machines/../../zoo/machines/copy-ntm-lstm.json",
        "/machines/copy-ntm-lstm.json",
        "/machines/copy-ntm-lstm.safetensors",
        "/machines/unheard-of/machine.json",
        "/machines/unheard-of/weights.safetensors",
        "/machines/./machine.json",
        "/machines/../machine.json",
        "/machines/%63opy-ntm-lstm/machine.json",
        "/machines/copy-ntm-lstm/snapshots/",
        "/machines/copy-ntm-lstm/snapshots/1.safetensors",
        "/machines/copy-ntm-lstm/snapshots/../weights.safetensors",
        "/machines/copy-ntm-lstm/snapshots/-1.safetensors",
        "/machines/copy-ntm-lstm/snapshots/100.safetensors.bak",
        "/machines/" + "a" * 90 + "/machine.json",
        "/<script>alert(1)</script>",
        "/'\"--",
        "/\xfc",
        "/ä",
        "*",
        "index.html",
        f"http://127.0.0.1:{port}/",
        "http://evil.example/",
        "file:///etc/passwd",
        "/" + "a" * 2000,
        "/?" + "a" * 2000,
    ]
    for path in paths:
        yield path[:60], at(path), {400, 404, 414}
    for name in ("evil.example", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1:{port}.evil.example"):
        yield f"host {name}", f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode(), {421}
    for name in (f"127.0.0.2:{port}", f"0.0.0.0:{port}", f"user@127.0.0.1:{port}", "", f"[::1]:{port}"):
        yield f"host {name}", f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode(), {421}
    yield "no host", b"GET / HTTP/1.1\r\n\r\n", {421}
    yield "no host, 1.0", b"GET / HTTP/1.0\r\n\r\n", {421}
    yield "two hosts", f"GET / HTTP/1.1\r\n{host}Host: evil.example\r\n\r\n".encode(), {421}
    yield "foreign origin", at("/machines/index.json", "Origin: http://evil.example\r\n"), {403}
    yield "origin null", at("/machines/index.json", "Origin: null\r\n"), {403}
    yield "https origin", at("/", f"Origin: https://127.0.0.1:{port}\r\n"), {403}
    yield "cross-site", at("/ui/app.js", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"), {403}
    yield "same-site", at("/ui/app.js", "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\n"), {403}
    yield "a body", at("/", "Content-Length: 5\r\n") + b"hello", {400}
    yield "a negative body", at("/", "Content-Length: -5\r\n"), {400}
    yield "a chunked body", at("/", "Transfer-Encoding: chunked\r\n") + b"5\r\nhello\r\n0\r\n\r\n", {400}
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "X"):
        yield method, f"{method} / HTTP/1.1\r\n{host}\r\n".encode(), {405}
    yield "HTTP/3", f"GET / HTTP/3.0\r\n{host}\r\n".encode(), {505}
    yield "no version", b"GET /\r\n\r\n", {0, 421}
    yield "four words", f"GET / x HTTP/1.1\r\n{host}\r\n".encode(), {400}
    yield "garbage", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50), {0, 400}
    yield "garbage in lines", bytes(range(256)) + b"\r\n\r\n", {0, 400}
    yield "nothing", b"", {0}
    yield "an empty line", b"\r\n\r\n", {0, 400}
    yield "half a request", b"GET / HT", {0, 400}
    yield "a long line", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", {414}
    yield "a long header", at("/", f"X: {'a' * 70_000}\r\n"), {431}
    yield "many headers", at("/", "X: 1\r\n" * 200), {431}


@functools.cache
def served() -> int:
    """The port of a server with the zoo, for this process."""
    server = Server(Content(lambda: (catalogue.zoo_machines(), "copy-ntm-lstm")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_port)


def refuse_links(folder: Path) -> None:
    """A run folder one of whose files is a link to a file outside."""
    (folder / "secret").write_text(SECRET)
    run = folder / "runs" / "linked"
    run.mkdir(parents=True)
    (run / "config.json").symlink_to(folder / "secret")
    (folder / "runs" / "elsewhere").symlink_to(folder)
    with Server(Content(lambda: (catalogue.runs_below(folder / "runs"), None))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = get(server.server_port, "/machines/index.json")
        server.shutdown()
    assert index[0] == 200
    assert SECRET.encode() not in index[2]
    assert json.loads(index[2])["machines"] == []


def script_in_a_name(folder: Path) -> None:
    """A run whose folder is called as a script is: its name is data, in JSON, for a page that runs none of it."""
    from tiny import BASE

    from tapehead.experiment.folder import RunFolder

    place = folder / "<img src=x onerror=alert(1)>"
    RunFolder(place, BASE).close()
    with Server(Content(lambda: (catalogue.runs_below(folder), None))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answers = [get(server.server_port, path) for path in ("/machines/index.json", "/")]
        server.shutdown()
    (_, headers, _), (_, _, page) = answers
    assert headers["Content-Type"].startswith("application/json")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"onerror" not in page
    assert "script-src 'self'" in HEADERS["Content-Security-Policy"]


def check(case: Case) -> None:
    port = served()
    requests = list(bad_requests(port))
    if case.number >= len(requests):
        (refuse_links, script_in_a_name)[case.number - len(requests)](case.folder)
        return
    what, data, statuses = requests[case.number]
    status, headers, body = exchange(port, data)
    assert status in statuses, f"{what}: {status} {body[:100]!r}"
    if status:
        assert HEADERS.items() <= headers.items(), what
        assert headers["Content-Type"] == "text/plain; charset=utf-8", what
        assert len(body) < 200, what
        assert b"alert" not in body, what
        assert b"evil" not in body, what
    assert get(port, "/")[0] == 200, "the server does not go on"


COUNT = sum(1 for _ in bad_requests(1)) + 2

FAULT = Fault(
    number=16,
    title="requests to the viewer's server: traversal, links, foreign hosts, oversize, scripts in names",
    promise="nothing outside is read, nothing of a request is repeated, no script is run, the server goes on",
    counted="requests",
    full=COUNT,
    quick=COUNT,
    chunk=COUNT,
    check=check,
)
