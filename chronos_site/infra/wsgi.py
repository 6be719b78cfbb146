"""WSGI on threads behind an ASGI server, with the answer handed over in as few steps as it has pieces of size.

a2wsgi hands over the head, each chunk and the end of an answer one by one, and the thread waits each time until the
event loop has taken it. For small answers that costs as much as a fifth of the whole request.
"""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from a2wsgi.wsgi import WSGIMiddleware, WSGIResponder

HANDED_OVER_AT = 64 * 1024

Event = dict[str, Any]


class WsgiThreads(WSGIMiddleware):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await _Responder(self.app, self.executor, self.send_queue_size)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class _Responder(WSGIResponder):
    """Keeps an answer's events until 64 KiB of it are there, or its end."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._events: list[Event] = []
        self._size = 0

    def send(self, message: Any) -> None:
        self._events.append(message)
        self._size += len(message.get("body", b""))
        ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        if ended or self._size >= HANDED_OVER_AT:
            events, self._events, self._size = self._events, [], 0
            super().send(cast("Any", events))  # `sender`, below, knows that it is a list

    async def sender(self, send: Callable[[Any], Awaitable[None]]) -> None:
        while (events := await self.send_queue.get()) is not None:
            for event in events:
                await send(event)
