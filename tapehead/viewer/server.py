"""The page on this computer: a server of the standard library that listens on 127.0.0.1 and nowhere else.

What can be asked for is a fixed set: the files of the page, read when the server starts, and what lies below machines/
(index.py), of machines that the catalogue has. No path on the disk is ever made from a request. A request that names
another host is refused, because a foreign site whose name leads to 127.0.0.1 (DNS rebinding) would otherwise read the
answers; so are requests from pages of other origins, requests with a body, and every method but GET and HEAD.
"""

import http.server
import re
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from tapehead.viewer import assets
from tapehead.viewer.catalogue import Machine, to_safetensors
from tapehead.viewer.index import index, to_json

ADDRESS = "127.0.0.1"
MOST_TARGET = 1024
"""Characters of a request's path."""

MOST_THREADS = 32
SECONDS = 15
"""Until a connection that says nothing is closed."""

HEADERS = {
    "Content-Security-Policy": f"{assets.BESIDE}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}

_MACHINE = re.compile(r"/machines/([A-Za-z0-9.-]{1,80})/(machine\.json|weights\.safetensors)")
_SNAPSHOT = re.compile(r"/machines/([A-Za-z0-9.-]{1,80})/snapshots/([A-Za-z0-9-]{1,40})\.safetensors")
_TARGET = re.compile(r"/[A-Za-z0-9._/-]*")


class Refused(Exception):
    """A request that is answered by a status and one sentence."""

    def __init__(self, status: HTTPStatus, says: str) -> None:
        super().__init__(says)
        self.status, self.says = status, says


class Content:
    """What the server offers. find: the machines that there are now, and the id of the one to show first."""

    def __init__(self, find: Callable[[], tuple[list[Machine], str | None]]) -> None:
        self._find = find
        self._known: dict[str, Machine] = {}  # of the last list; looking for runs takes a while
        self._lock = threading.Lock()  # loading is not done twice at the same time
        self._files = {f"/{name}": data for name, data in assets.page_files().items()}
        self._files["/"] = self._files[f"/{assets.INDEX}"]

    def answer(self, target: str) -> tuple[str, bytes]:
        """The type and the bytes of what a path names."""
        if target in self._files:
            name = assets.INDEX if target == "/" else target
            return assets.TYPES[f".{name.rpartition('.')[2]}"], self._files[target]
        with self._lock:
            return self._machines(target)

    def _machines(self, target: str) -> tuple[str, bytes]:
        if target == "/machines/index.json":
            return assets.TYPES[".json"], to_json(self._index())
        if found := _MACHINE.fullmatch(target):
            machine = self._machine(found[1])
            if found[2] == "machine.json":
                return assets.TYPES[".json"], to_json(machine.about())
            return assets.TYPES[".safetensors"], to_safetensors(machine.weights())
        if found := _SNAPSHOT.fullmatch(target):
            machine = self._machine(found[1])
            if found[2] in [key for key, _ in machine.snapshots()]:
                return assets.TYPES[".safetensors"], to_safetensors(machine.snapshot(found[2]))
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing at this address.")

    def _index(self) -> dict[str, Any]:
        machines, first = self._find()
        self._known = {machine.id: machine for machine in machines}
        return index(machines, kind="server", first=first)

    def _machine(self, name: str) -> Machine:
        if name not in self._known:
            self._index()
        if name in self._known:
            return self._known[name]
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such machine: it may have been moved or removed.")


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    server: "Server"
    protocol_version = "HTTP/1.1"
    timeout = SECONDS

    def do_GET(self) -> None:
        try:
            self._check()
            kind, data = self.server.content.answer(self._target())
        except Refused as refused:
            self._send(refused.status, "text/plain; charset=utf-8", f"{refused.says}\n".encode(), close=True)
        except (ValueError, OSError) as error:  # a run that is damaged, or was removed
            says = " ".join(str(error).split())
            self._send(HTTPStatus.CONFLICT, "text/plain; charset=utf-8", f"{says}\n".encode(), close=True)
        else:
            self._send(HTTPStatus.OK, kind, data)

    do_HEAD = do_GET

    def _check(self) -> None:
        """Refuse a request that a page of this server would not make."""
        own = {f"{name}:{self.server.server_port}" for name in (ADDRESS, "localhost")}
        if self.server.server_port == 80:
            own |= {ADDRESS, "localhost"}
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].strip().lower() not in own:
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "this server answers to 127.0.0.1 and localhost alone.")
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in own}:
            raise Refused(HTTPStatus.FORBIDDEN, "pages of other origins may not ask.")
        if self.headers.get("Sec-Fetch-Site", "none") in ("cross-site", "same-site") and (
            self.headers.get("Sec-Fetch-Mode") != "navigate"
        ):
            raise Refused(HTTPStatus.FORBIDDEN, "pages of other origins may not ask.")
        if self.headers.get("Transfer-Encoding") is not None or self.headers.get("Content-Length", "0") != "0":
            raise Refused(HTTPStatus.BAD_REQUEST, "a request has no body here.")

    def _target(self) -> str:
        """The path that is asked for. What is behind a question mark is the page's own business."""
        asked = self.requestline.split()[1]  # `self.path` has lost slashes at its beginning
        target = asked.partition("?")[0]
        if len(asked) > MOST_TARGET:
            raise Refused(HTTPStatus.REQUEST_URI_TOO_LONG, f"an address has at most {MOST_TARGET} characters here.")
        if not _TARGET.fullmatch(target) or target.startswith("//"):
            raise Refused(HTTPStatus.BAD_REQUEST, "an address has letters, digits, dots, hyphens and slashes here.")
        return target

    def _send(self, status: HTTPStatus | int, kind: str, data: bytes, *, close: bool = False) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if close:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses, in our form: nothing of the request is repeated."""
        if code == HTTPStatus.NOT_IMPLEMENTED:  # a method that has no function here
            code = HTTPStatus.METHOD_NOT_ALLOWED
        says = HTTPStatus(code).phrase.lower()
        self.request_version = self.protocol_version  # not yet known where the first line is refused
        self._send(code, "text/plain; charset=utf-8", f"{says}.\n".encode(), close=True)

    def version_string(self) -> str:
        return "tapehead"

    def log_message(self, *_: Any) -> None:
        """The terminal belongs to the user."""


class Server(http.server.ThreadingHTTPServer):
    """Listens from its construction on; `serve_forever` answers."""

    daemon_threads = True
    request_queue_size = MOST_THREADS
    allow_reuse_address = True

    def __init__(self, content: Content, port: int = 0) -> None:
        self.content = content
        self._places = threading.Semaphore(MOST_THREADS)
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            raise ValueError(
                f"cannot listen on port {port} ({error.strerror}): give another --port, or none."
            ) from error

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Every connection has a thread; there are so many at most."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no event."""
