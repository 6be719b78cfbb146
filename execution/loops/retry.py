"""The retry loop: every second, what is due for another attempt goes back onto the dispatch queue.

Called by the task `retry_tick`, which the leading beat replica sends. Workspaces take turns. It shares fan-out's
backlog limit and publish, so a receiver that comes back is not met by everything at once: what has no room stays
RETRYING, ordered by its time, and whoever is due beside a burst of retries finds room as well. Dying before the commit
leaves the rows RETRYING; after it they are QUEUED with a lease, which the monitor finds. Two at once share the rows.
What a dispatch switch stops is held back (`execution.switches`).
"""

import logging
import time
from uuid import UUID

from django.conf import settings
from django.db import transaction

from chronos_site.observability import metrics
from execution import fanout, publish, switches, transitions

log = logging.getLogger(__name__)

BUDGET_S = 0.8
"""Longest that one tick waits for room; the next comes after a second."""


def queue_due_retries(*, budget_s: float = BUDGET_S) -> int:
    """One tick. Returns how many executions were published."""
    ends = time.monotonic() + budget_s
    published = given_back = 0
    while time.monotonic() < ends and not given_back:
        closed = switches.read_closed()
        room = 0 if closed.everything else fanout.wait_for_room()
        if room <= 0:
            break
        with transaction.atomic():
            taken, ids = _take_due(fanout.batch_for(room), closed)
        if not taken:
            break
        unsent = publish.publish_dispatch(ids)
        if unsent:
            transitions.unqueue_retrying(ids=unsent)
        published += len(ids) - len(unsent)
        given_back += len(unsent)
    metrics.retries_queued.add(by=published)
    if published or given_back:
        log.info("retries_queued", extra={"action": "retry", "published": published, "given_back": given_back})
    return published


def _take_due(most: int, closed: switches.Closed) -> tuple[int, list[UUID]]:
    """RETRYING → QUEUED; what is switched off leaves the index instead, so that nothing starves behind it.

    How many were looked at, and which of them are QUEUED.
    """
    horizon_s = settings.CHRONOS_DISPATCH_HORIZON_S
    if not closed.in_part:
        ids = transitions.queue_retrying(horizon_s=horizon_s, most=most)
        return len(ids), ids
    due = transitions.lock_due_retries(horizon_s=horizon_s, most=most)
    held = closed.holders(due)
    transitions.hold_retrying(switches=held)
    return len(due), transitions.queue_locked_retries(ids=[row[0] for row in due if row[0] not in held])
