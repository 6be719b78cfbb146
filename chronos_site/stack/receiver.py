"""A small, real HTTP receiver on loopback: records what arrives and when. The demo and the tests deliver to it."""

import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    arrived: datetime

    @property
    def execution_id(self) -> str | None:
        return self.headers.get("x-execution-id")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver does with a request."""

    status: int = 200
    body: bytes = b"ok"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    """Wait before the answer."""
    hang: bool = False
    """Never answer, until the receiver is released or stopped."""
    drip_s: float | None = None
    """Send the body a byte at a time, this far apart."""
    reset: bool = False
    """Cut the connection with a reset, without an answer."""


class Receiver:
    """An HTTP server in threads. Use it as a context manager; `requests` is what has arrived so far, in order."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.released = threading.Event()
        self._arrival = threading.Condition()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="receiver", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def answer_to(self, request: Received) -> Answer:
        """What to do with a request; this one takes everything."""
        return Answer()

    def record(self, request: Received) -> None:
        with self._arrival:
            self.requests.append(request)
            self._arrival.notify_all()

    def wait_for(self, count: int, *, timeout_s: float = 10.0, path: str | None = None) -> list[Received]:
        """What has arrived (at `path`) once there are `count` of it. Raises TimeoutError where too little came."""
        with self._arrival:
            if not self._arrival.wait_for(lambda: len(self.arrived_at(path)) >= count, timeout_s):
                raise TimeoutError(f"{len(self.arrived_at(path))} of {count} requests arrived in {timeout_s:g} s")
            return self.arrived_at(path)

    def arrived_at(self, path: str | None = None) -> list[Received]:
        return [request for request in self.requests if path is None or request.path == path]

    def by_execution(self) -> dict[str, list[Received]]:
        found: dict[str, list[Received]] = {}
        for request in list(self.requests):
            if request.execution_id is not None:
                found.setdefault(request.execution_id, []).append(request)
        return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        super().__init__(("127.0.0.1", 0), _Handler)

    def shutdown_request(self, request: Any) -> None:
        """Close only: the parent's shutdown would end politely what is meant to be a reset."""
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no event here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        """As the parent does it, for any method."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
            return
        arrived = datetime.now(UTC)
        if not self.parse_request():
            return
        request = Received(
            method=self.command,
            path=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self._read_body(),
            arrived=arrived,
        )
        answer = self.server.receiver.answer_to(request)
        self.server.receiver.record(request)
        self._perform(answer)

    def _read_body(self) -> bytes:
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _perform(self, answer: Answer) -> None:
        released = self.server.receiver.released
        if answer.hang:
            released.wait()
            self.close_connection = True
            return
        if answer.delay_s:
            released.wait(answer.delay_s)
        if answer.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if not any(name.lower() in {"content-length", "transfer-encoding"} for name in answer.headers):
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if answer.drip_s is None:
            self.wfile.write(answer.body)
            return
        for byte in answer.body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            if released.wait(answer.drip_s):
                break

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name
        """Silent: what arrives is recorded, not printed."""
