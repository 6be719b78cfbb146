"""Watching bulk jobs as programs and browsers do: over WebSockets of a real web process."""

import json
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from bulk.models import BulkJob
from chronos_site.stack.processes import free_port
from tests.processes import SiteProcesses, wait_until


class Sockets:
    """A web process, and sockets to it."""

    def __init__(self, processes: SiteProcesses) -> None:
        self.port = free_port()
        self.web = processes.web(port=self.port)
        wait_until(self._answers, timeout_s=30, told=lambda: processes.log(self.web)[-2000:])

    def open(self, job: BulkJob | str, *, key: str = "", query: str = "", **headers: str) -> ClientConnection:
        """A socket on a job. Keyword arguments are headers."""
        name = job if isinstance(job, str) else str(job.id)
        return self.open_path(f"/ws/v1/bulk-jobs/{name}{query}", key=key, **headers)

    def open_path(self, path: str, *, key: str = "", **headers: str) -> ClientConnection:
        """A socket on any path."""
        if key:
            headers["Authorization"] = f"Bearer {key}"
        origin = headers.pop("Origin", None)
        url = f"ws://127.0.0.1:{self.port}{path}"
        return connect(url, additional_headers=headers, origin=origin, proxy=None)  # type: ignore[arg-type]

    def by_session(self, job: BulkJob, user: User, *, workspace: str, origin: str = "") -> ClientConnection:
        """A socket as a page of `origin` opens it for a person who is logged in."""
        origin = origin or f"http://127.0.0.1:{self.port}"
        return self.open(job, query=f"?workspace={workspace}", Cookie=session_of(user), Origin=origin)

    def _answers(self) -> bool:
        call = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            call.request("GET", "/healthz")
            return call.getresponse().status == 200
        except OSError:
            return False
        finally:
            call.close()


def session_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return f"sessionid={client.cookies['sessionid'].value}"


def state(socket: ClientConnection, timeout_s: float = 5) -> dict[str, Any]:
    """The next message."""
    told: dict[str, Any] = json.loads(socket.recv(timeout=timeout_s))
    return told


def code_of(socket: ClientConnection, timeout_s: float = 5) -> int | None:
    """The code with which the socket is closed; what it tells before is passed over."""
    ends = time.monotonic() + timeout_s
    try:
        while True:
            socket.recv(timeout=max(0.0, ends - time.monotonic()))
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else None


def states_until_closed(
    socket: ClientConnection, meanwhile: Callable[[], object], timeout_s: float = 30
) -> list[tuple[float, dict[str, Any]]]:
    """Every message with its time; `meanwhile` is called again and again."""
    told: list[tuple[float, dict[str, Any]]] = []
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends:
        meanwhile()
        try:
            told.append((time.monotonic(), state(socket, 0.02)))
        except TimeoutError:
            continue
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code == 1000:
                return told
            raise
    raise AssertionError(f"the socket was not closed; the last of {len(told)} messages: {told[-1:]}")
