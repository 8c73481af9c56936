"""The viewer's server: what it offers, and what it refuses. Requests are bytes on a socket, as a hostile program has
them."""

import http.client
import json
import socket
import threading

import pytest

from tapehead import zoo
from tapehead.viewer import assets, catalogue
from tapehead.viewer.server import HEADERS, Content, Server


def exchange(server, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to raw bytes; status 0 if the connection is closed without one."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(connection, method=request.split(b" ")[0].decode("latin-1"))
        try:
            answer.begin()
        except (http.client.HTTPException, ConnectionError):
            return 0, {}, b""
        return answer.status, dict(answer.getheaders()), answer.read()


def get(server, path, **headers):
    lines = {"Host": f"127.0.0.1:{server.server_port}", **headers}
    text = f"GET {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    return exchange(server, text.encode("latin-1"))


def test_the_page_and_its_machines_are_offered(served):
    status, headers, body = get(served, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert body == (assets.PAGE / "index.html").read_bytes()
    for name, data in assets.page_files().items():
        status, headers, body = get(served, f"/{name}?x=1")
        assert (status, body) == (200, data)
        assert headers["Content-Type"].startswith(assets.TYPES[f".{name.rpartition('.')[2]}"])
    index = json.loads(get(served, "/machines/index.json")[2])
    assert [entry["id"] for entry in index["machines"]] == zoo.names()
    assert (index["kind"], index["live"], index["first"]) == ("server", True, "copy-ntm-lstm")
    about = json.loads(get(served, "/machines/copy-ntm-feedforward/machine.json")[2])
    assert about["card"]["name"] == "copy-ntm-feedforward"
    status, headers, body = get(served, "/machines/copy-ntm-feedforward/weights.safetensors")
    assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
    assert len(body) > 4 * zoo.card("copy-ntm-feedforward").parameters


def test_every_answer_has_the_security_headers(served):
    for path in ("/", "/nowhere", "/machines/index.json", "/..", "x"):
        _, headers, _ = get(served, path)
        assert HEADERS.items() <= headers.items(), path
        assert headers["Server"] == "tapehead"
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def test_head_answers_without_a_body(served):
    request = f"HEAD / HTTP/1.1\r\nHost: localhost:{served.server_port}\r\n\r\n"
    status, headers, body = exchange(served, request.encode())
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) == len((assets.PAGE / "index.html").read_bytes())


def bad_requests(port):
    """(what, bytes, statuses that refuse it)"""
    host = f"Host: 127.0.0.1:{port}\r\n"

    def at(path, more=""):
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


def test_bad_requests_are_refused(served):
    """With a sentence in which nothing of the request is repeated; the server goes on."""
    requests = list(bad_requests(served.server_port))
    assert len(requests) >= 65
    for what, data, statuses in requests:
        status, headers, body = exchange(served, data)
        assert status in statuses, (what, status, body[:100])
        if status:
            assert HEADERS.items() <= headers.items(), what
            assert headers["Content-Type"] == "text/plain; charset=utf-8", what
            assert len(body) < 200, what
            assert b"alert" not in body, what
            assert b"evil" not in body, what
    assert get(served, "/")[0] == 200


def test_only_loopback_is_listened_on(served):
    assert served.server_address[0] == "127.0.0.1"


def test_a_port_in_use_is_refused_in_a_sentence(served):
    with pytest.raises(ValueError, match=f"cannot listen on port {served.server_port}.*--port"):
        Server(Content(lambda: ([], None)), served.server_port)


class Broken(catalogue.ZooMachine):
    """A machine whose folder was damaged after it was listed."""

    def weights(self):
        raise ValueError("the checkpoint <b>is</b>\ndamaged: train it again.")


class Removed(catalogue.ZooMachine):
    """A machine whose folder is gone when the list is made."""

    def snapshots(self):
        raise FileNotFoundError("checkpoints")


def test_a_machine_that_has_gone_is_not_listed():
    machines = [Removed("copy-ntm-lstm"), catalogue.ZooMachine("ngrams-ntm-lstm")]
    found = json.loads(Content(lambda: (machines, None)).answer("/machines/index.json")[1])
    assert [entry["id"] for entry in found["machines"]] == ["ngrams-ntm-lstm"]


def test_a_machine_is_found_before_the_list_is_asked_for_and_runs_are_not_looked_for_again():
    asked = []
    content = Content(lambda: (asked.append(1), ([catalogue.ZooMachine("ngrams-ntm-lstm")], None))[1])
    for _ in range(3):
        content.answer("/machines/ngrams-ntm-lstm/machine.json")
    assert len(asked) == 1


def test_a_damaged_machine_is_one_sentence():
    with Server(Content(lambda: ([Broken("copy-ntm-lstm")], None))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        status, headers, body = get(server, "/machines/copy-ntm-lstm/weights.safetensors")
        server.shutdown()
    assert (status, headers["Content-Type"]) == (409, "text/plain; charset=utf-8")
    assert body == b"the checkpoint <b>is</b> damaged: train it again.\n"


def test_idle_connections_do_not_block_others(served):
    """As many as there are threads may wait; one more is closed, and when they go the server answers again."""
    waiting = [socket.create_connection(("127.0.0.1", served.server_port), timeout=10) for _ in range(20)]
    assert get(served, "/")[0] == 200
    for connection in waiting:
        connection.close()
    assert get(served, "/")[0] == 200
