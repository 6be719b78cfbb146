"""The retry loop: every second, what is due for another attempt goes back onto the dispatch queue.

Called by the task `retry_tick`, which the leading beat replica sends. It shares fan-out's backlog limit and publish, so
a receiver that comes back is not met by everything at once: what has no room stays RETRYING, ordered by its time. Dying
before the commit leaves the rows RETRYING; after it they are QUEUED with a lease, which the monitor finds. Two at once
share the rows.
"""

import logging

from django.conf import settings
from django.db import transaction

from execution import fanout, publish, transitions

log = logging.getLogger(__name__)

MOST_PER_TICK = 5000


def queue_due_retries() -> int:
    """One tick. Returns how many executions were published."""
    room = fanout.room_in_backlog() * publish.CHUNK
    if room <= 0:
        return 0
    with transaction.atomic():
        ids = transitions.queue_retrying(horizon_s=settings.CHRONOS_DISPATCH_HORIZON_S, most=min(room, MOST_PER_TICK))
    unsent = publish.publish_dispatch(ids) if ids else []
    if unsent:
        transitions.unqueue_retrying(ids=unsent)
    if ids:
        log.info(
            "retries_queued",
            extra={"action": "retry", "published": len(ids) - len(unsent), "given_back": len(unsent)},
        )
    return len(ids) - len(unsent)
