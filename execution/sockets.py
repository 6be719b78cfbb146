"""What happens in a workspace, live over a WebSocket: `/ws/v1/executions`.

Each message is one event (`docs/events.md`), or says how many were left out. They come from the sink `live` of
`manage.py consume_events`: while none runs, and while Redis is away, nothing is told. Who may watch is asked again
every 20 s.
"""

import asyncio
import json
import logging
import time
from collections import deque
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import Error as DatabaseError

from chronos_site.tenancy.sockets import (
    BAD_QUERY,
    CHECK_S,
    FAILED,
    FORBIDDEN,
    UNCHECKED_S,
    CloseError,
    workspace_of_caller,
)
from execution.event_sinks import group_of

log = logging.getLogger(__name__)

MOST_PER_S = 50
"""Messages to one socket; what is more is counted and left out."""
STEP_S = 0.1
FILTERS = ("job_definition", "schedule", "state")


class EventSocket(AsyncWebsocketConsumer):
    """One watcher of one workspace."""

    async def connect(self) -> None:
        # Taken first: a browser is told the code of a socket that was open, and of no other.
        await self.accept()
        self._waiting: deque[str] = deque()
        self._left_out = 0
        self._wanted: dict[str, frozenset[str]] = {}
        self._group = ""
        self._come = asyncio.Event()
        self._watching = asyncio.create_task(self._watch())

    async def disconnect(self, code: int) -> None:
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching
        if self._group:
            try:
                await self.channel_layer.group_discard(self._group, self.channel_name)
            except Exception as error:
                log.warning("watcher_not_removed", extra={"action": "watch", "error": str(error)[:300]})

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is asked over this socket."""

    async def events_told(self, message: dict[str, Any]) -> None:
        """Some of the workspace's events, from the channel layer; the newest that have no room are left out."""
        for text in message["events"]:
            if not self._wants(text):
                continue
            if len(self._waiting) < MOST_PER_S:
                self._waiting.append(text)
            else:
                self._left_out += 1
        self._come.set()

    def _wants(self, text: str) -> bool:
        if not self._wanted:
            return True
        event = json.loads(text)
        return all(event.get(name) in values for name, values in self._wanted.items())

    async def _watch(self) -> None:
        code = FAILED
        try:
            await self._tell()
        except CloseError as closed:
            code = closed.code
        except asyncio.CancelledError:
            return
        except Exception as error:
            log.exception("watcher_failed", extra={"action": "watch", "error": str(error)[:300]})
        # The other side may be gone by now.
        with suppress(Exception):
            await self.close(code)

    async def _tell(self) -> None:
        workspace_id = await database_sync_to_async(workspace_of_caller)(self.scope)
        self._wanted = wanted_of(self.scope["query_string"].decode("latin-1"))
        checked = looked = time.monotonic()
        self._group = group_of(workspace_id)
        await self.channel_layer.group_add(self._group, self.channel_name)
        await self.send(text_data=json.dumps({"type": "watching", "workspace": str(workspace_id)}))
        room = float(MOST_PER_S)
        filled = time.monotonic()
        while True:
            now = time.monotonic()
            room, filled = min(MOST_PER_S, room + (now - filled) * MOST_PER_S), now
            room -= await self._send_some(int(room))
            if now - looked >= CHECK_S:
                looked = now
                checked = now if await _may_still_watch(self.scope, workspace_id) else checked
                if now - checked >= UNCHECKED_S:
                    raise CloseError(FAILED)
            # What has no room yet waits for a part of a second, what has not come yet for longer.
            if self._waiting or self._left_out:
                await asyncio.sleep(STEP_S)
            else:
                self._come.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._come.wait(), 1.0)

    async def _send_some(self, most: int) -> int:
        """As many as have room; then how many were left out, where some were. Returns how many messages."""
        sent = 0
        while sent < most and self._waiting:
            await self.send(text_data=self._waiting.popleft())
            sent += 1
        if sent < most and self._left_out:
            left_out, self._left_out = self._left_out, 0
            await self.send(text_data=json.dumps({"type": "dropped", "count": left_out}))
            sent += 1
        return sent


def wanted_of(query: str) -> dict[str, frozenset[str]]:
    """The filters of a query: repeated values are alternatives. Raises CloseError."""
    given = parse_qs(query, keep_blank_values=True)
    if given.keys() - {*FILTERS, "workspace"}:
        raise CloseError(BAD_QUERY)
    wanted = {name: frozenset(given[name]) for name in FILTERS if name in given}
    try:
        for name in ("job_definition", "schedule"):
            if name in wanted:
                wanted[name] = frozenset(str(UUID(value)) for value in wanted[name])
    except ValueError as error:
        raise CloseError(BAD_QUERY) from error
    return wanted


async def _may_still_watch(scope: dict[str, Any], workspace_id: UUID) -> bool:
    """False where the database cannot say. Raises CloseError."""
    try:
        if await database_sync_to_async(workspace_of_caller)(scope) != workspace_id:
            raise CloseError(FORBIDDEN)
    except DatabaseError as error:
        log.warning("watcher_unread", extra={"action": "watch", "error": str(error)[:300]})
        return False
    return True
