"""The retry loop: every second, what is due for another attempt goes back onto the dispatch queue.

Called by the task `retry_tick`, which the leading beat replica sends. It shares fan-out's backlog limit and publish, so
a receiver that comes back is not met by everything at once: what has no room stays RETRYING, ordered by its time. Dying
before the commit leaves the rows RETRYING; after it they are QUEUED with a lease, which the monitor finds. Two at once
share the rows. What a dispatch switch stops is held back (`execution.switches`).
"""

import logging
from uuid import UUID

from django.conf import settings
from django.db import transaction

from execution import fanout, publish, switches, transitions

log = logging.getLogger(__name__)

MOST_PER_TICK = 5000


def queue_due_retries() -> int:
    """One tick. Returns how many executions were published."""
    closed = switches.read_closed()
    room = fanout.room_in_backlog() * publish.CHUNK
    if room <= 0 or closed.everything:
        return 0
    with transaction.atomic():
        ids = _take_due(min(room, MOST_PER_TICK), closed)
    unsent = publish.publish_dispatch(ids) if ids else []
    if unsent:
        transitions.unqueue_retrying(ids=unsent)
    if ids:
        log.info(
            "retries_queued",
            extra={"action": "retry", "published": len(ids) - len(unsent), "given_back": len(unsent)},
        )
    return len(ids) - len(unsent)


def _take_due(most: int, closed: switches.Closed) -> list[UUID]:
    """RETRYING → QUEUED; what is switched off leaves the index instead, so that nothing starves behind it."""
    horizon_s = settings.CHRONOS_DISPATCH_HORIZON_S
    if not closed.in_part:
        return transitions.queue_retrying(horizon_s=horizon_s, most=most)
    due = transitions.lock_due_retries(horizon_s=horizon_s, most=most)
    held = closed.holders(due)
    transitions.hold_retrying(switches=held)
    return transitions.queue_locked_retries(ids=[row[0] for row in due if row[0] not in held])
