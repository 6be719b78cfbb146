"""An ASGI wrapper that refuses bodies over the limit before the site reads them.

A Content-Length above the limit is answered at once; a body without one is counted while it streams and is cut off
where it passes the limit.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from chronos_site.api.problems import CONTENT_TYPE, body_too_large
from chronos_site.observability import context
from chronos_site.observability.middleware import HEADER, request_id_from

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Message, Any, Any], Awaitable[None]]


class _TooLargeError(Exception):
    """Raised out of `receive`, through the app, to the wrapper."""


class BodyLimit:
    def __init__(self, app: App, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _content_length(scope) > self._max_bytes:
            await self._refuse(scope, send)
            return
        taken = 0
        started = False

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._max_bytes:
                raise _TooLargeError
            return message

        async def noted(message: Mapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except _TooLargeError:
            if not started:
                await self._refuse(scope, send)

    async def _refuse(self, scope: Message, send: Send) -> None:
        request_id = request_id_from(_header(scope, HEADER.lower().encode()))
        context.request_id.set(request_id)
        body = json.dumps(body_too_large(self._max_bytes).body()).encode()
        headers = [
            (b"content-type", CONTENT_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (HEADER.lower().encode(), request_id.encode()),
        ]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _header(scope: Message, wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), None)


def _content_length(scope: Message) -> int:
    """0 where there is none; the server has refused what is no number."""
    text = _header(scope, b"content-length") or "0"
    return int(text) if text.isascii() and text.isdigit() else 0
