"""The progress of a bulk job over a WebSocket: `/ws/v1/bulk-jobs/{id}`.

A watcher gets the state on connect, then each change, five a second at most, until the job has ended. Who may watch is
asked again every 20 s. Between reads a socket holds no connection to the database.
"""

import asyncio
import json
import logging
import time
from contextlib import suppress
from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import Error as DatabaseError

from bulk import progress, selectors
from bulk.domain.states import JOB_ENDED
from bulk.models import BulkJob
from bulk.watchers import group_of
from chronos_site.tenancy.models import Workspace
from chronos_site.tenancy.sockets import (
    CHECK_S,
    ENDED,
    FAILED,
    FORBIDDEN,
    NOT_FOUND,
    UNCHECKED_S,
    CloseError,
    workspace_of_caller,
)

log = logging.getLogger(__name__)

SHORTEST_S = 0.2
"""Between two messages: five a second."""
REREAD_S = 2.0


class BulkJobSocket(AsyncWebsocketConsumer):
    """One watcher of one job."""

    async def connect(self) -> None:
        # Taken first: a browser is told the code of a socket that was open, and of no other.
        await self.accept()
        self._moved = asyncio.Event()
        self._group = ""
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

    async def bulk_moved(self, event: dict[str, Any]) -> None:
        self._moved.set()

    async def _watch(self) -> None:
        code = FAILED
        try:
            await self._tell_until_ended()
            code = ENDED
        except CloseError as closed:
            code = closed.code
        except asyncio.CancelledError:
            return
        except Exception as error:
            log.exception("watcher_failed", extra={"action": "watch", "error": str(error)[:300]})
        # The other side may be gone by now.
        with suppress(Exception):
            await self.close(code)

    async def _tell_until_ended(self) -> None:
        workspace_id = await database_sync_to_async(workspace_of_caller)(self.scope)
        checked = time.monotonic()
        job_id = _uuid(self.scope["url_route"]["kwargs"]["job_id"])
        await self._join(job_id)
        last: dict[str, Any] | None = None
        while True:
            # Cleared before the read: what moves during it is read once more.
            self._moved.clear()
            try:
                if time.monotonic() - checked >= CHECK_S:
                    if await database_sync_to_async(workspace_of_caller)(self.scope) != workspace_id:
                        raise CloseError(FORBIDDEN)
                    checked = time.monotonic()
                state = await database_sync_to_async(_read)(workspace_id, job_id)
            except DatabaseError as error:
                log.warning("watcher_unread", extra={"action": "watch", "error": str(error)[:300]})
                if last is None or time.monotonic() - checked >= UNCHECKED_S:
                    raise CloseError(FAILED) from error
                await asyncio.sleep(REREAD_S)
                continue
            if state != last:
                await self.send(text_data=json.dumps(state))
                last = state
            if state["state"] in JOB_ENDED:
                return
            await asyncio.sleep(SHORTEST_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), REREAD_S - SHORTEST_S)

    async def _join(self, job_id: UUID) -> None:
        try:
            await self.channel_layer.group_add(group_of(job_id), self.channel_name)
            self._group = group_of(job_id)
        except Exception as error:
            # It reads every two seconds all the same.
            log.warning("watcher_not_joined", extra={"action": "watch", "error": str(error)[:300]})


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise CloseError(NOT_FOUND) from error


def _read(workspace_id: UUID, job_id: UUID) -> dict[str, Any]:
    try:
        job = selectors.bulk_job(workspace=Workspace(id=workspace_id), job_id=job_id)
    except BulkJob.DoesNotExist as error:
        raise CloseError(NOT_FOUND) from error
    return progress.shown(job)
