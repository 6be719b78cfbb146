"""Tells whoever watches a bulk job that it has moved.

Called by the tick. A message that is lost, for Redis is away, costs a watcher two seconds: it reads the row by itself.
"""

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

log = logging.getLogger(__name__)

MOVED = "bulk.moved"
LONGEST_S = 1.0
"""What telling may cost a tick."""


def group_of(job_id: UUID) -> str:
    """The channel-layer group of a job's watchers."""
    return f"bulk-job.{job_id}"


def tell(job_ids: Sequence[UUID]) -> None:
    """One message for each job. Never raises: a tick must not end for somebody's progress bar."""
    if not job_ids:
        return
    try:
        async_to_sync(_send)(job_ids)
    except Exception as error:
        log.warning("watchers_not_told", extra={"action": "watch", "jobs": len(job_ids), "error": str(error)[:300]})


async def _send(job_ids: Sequence[UUID]) -> None:
    layer = get_channel_layer()
    try:
        async with asyncio.timeout(LONGEST_S):
            for job_id in job_ids:
                await layer.group_send(group_of(job_id), {"type": MOVED})
    finally:
        # The event loop ends with this call, and so must the connections that belong to it.
        await layer.flush()
