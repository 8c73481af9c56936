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
