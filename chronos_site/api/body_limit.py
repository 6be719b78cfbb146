"""An ASGI wrapper that refuses bodies over the limit before the site reads them.

A Content-Length above the limit is answered at once; a body without one is counted while it streams and is cut off
where it passes the limit. The site gets the body once all of it is there: no thread of it waits for a slow client.

Uploads are another matter: their body, which may be of any size, is handed on as it comes. A thread of the site waits
for it, so only some may come at a time, and a client that sends nothing for a while is taken for gone.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from chronos_site.api.problems import CONTENT_TYPE, Problem, body_too_large
from chronos_site.observability import context
from chronos_site.observability.middleware import HEADER, request_id_from

IN_MEMORY = 1024 * 1024
"""Larger bodies are kept on disk while they are served."""
PIECE = 256 * 1024

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Message, Any, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Uploads:
    """The paths whose bodies are handed on as they come."""

    paths: frozenset[str]
    max_bytes: int
    at_once: int
    idle_s: float = 30.0


class BodyLimit:
    def __init__(self, app: App, max_bytes: int, uploads: Uploads | None = None) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._uploads = uploads
        self._uploading = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._uploads is not None and scope["path"] in self._uploads.paths and scope["method"] == "POST":
            await self._upload(self._uploads, scope, receive, send)
            return
        if _content_length(scope) > self._max_bytes:
            await self._refuse(scope, send, body_too_large(self._max_bytes))
            return
        with SpooledTemporaryFile(max_size=IN_MEMORY) as body:
            if await self._read(receive, body):
                await self._app(scope, _replay(body, receive), send)
            elif body.tell() > self._max_bytes:
                await self._refuse(scope, send, body_too_large(self._max_bytes))

    async def _upload(self, uploads: Uploads, scope: Message, receive: Receive, send: Send) -> None:
        if _header(scope, b"content-length") is None:
            detail = "An upload names its length: send Content-Length."
            await self._refuse(scope, send, Problem(411, "length_required", detail))
        elif _content_length(scope) > uploads.max_bytes:
            await self._refuse(scope, send, body_too_large(uploads.max_bytes))
        elif self._uploading >= uploads.at_once:
            detail = f"{self._uploading} uploads are under way here. Try again in a moment."
            await self._refuse(scope, send, Problem(503, "uploads_busy", detail), (b"retry-after", b"5"))
        else:
            self._uploading += 1
            try:
                await self._app(scope, _patiently(receive, uploads.idle_s), send)
            finally:
                self._uploading -= 1

    async def _read(self, receive: Receive, body: IO[bytes]) -> bool:
        """Take the whole body. False where it is too large, or the client has gone."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            body.write(message.get("body", b""))
            if body.tell() > self._max_bytes:
                return False
            if not message.get("more_body", False):
                return True

    async def _refuse(self, scope: Message, send: Send, why: Problem, *more: tuple[bytes, bytes]) -> None:
        request_id = request_id_from(_header(scope, HEADER.lower().encode()))
        context.request_id.set(request_id)
        body = json.dumps(why.body()).encode()
        headers = [
            (b"content-type", CONTENT_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (HEADER.lower().encode(), request_id.encode()),
            *more,
        ]
        await send({"type": "http.response.start", "status": why.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _patiently(receive: Receive, idle_s: float) -> Receive:
    """Whoever sends nothing for so long is gone."""

    async def received() -> Message:
        try:
            return await asyncio.wait_for(receive(), idle_s)
        except TimeoutError:
            return {"type": "http.disconnect"}

    return received


def _replay(body: IO[bytes], receive: Receive) -> Receive:
    """What the site receives from: the body in pieces, then whatever the server says."""
    left = body.tell()
    body.seek(0)
    ended = False

    async def replayed() -> Message:
        nonlocal left, ended
        if ended:
            return await receive()
        piece = body.read(PIECE)
        left -= len(piece)
        ended = left <= 0
        return {"type": "http.request", "body": piece, "more_body": not ended}

    return replayed


def _header(scope: Message, wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), None)


def _content_length(scope: Message) -> int:
    """0 where there is none; the server has refused what is no number."""
    text = _header(scope, b"content-length") or "0"
    return int(text) if text.isascii() and text.isdigit() else 0
