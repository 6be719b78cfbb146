"""The watch: workers of notifications see to it themselves while no beat replica leads.

Without a leader nobody sends ticks, and it is just then that somebody must be told. Each worker of the queue looks at
the loops' rows on a thread of its own; where a leader has been missing three times in a row, it runs the loop of
notifications in its place until the leader is back. Several at once do no harm: the loop takes its locks.
"""

import logging
import threading
from typing import Any

from celery.signals import worker_ready, worker_shutdown
from django.db import DatabaseError, InterfaceError, connection

from execution.loops import notifications
from execution.notifications.leaders import missing_leader
from execution.publish import NOTIFICATIONS_QUEUE

log = logging.getLogger(__name__)

EVERY_S = 5.0
SIGHTINGS = 3
"""A look by itself may come right after the database was away, before the leader's next tick."""

_ended = threading.Event()


class Watch:
    """For one thread."""

    def __init__(self) -> None:
        self._seen = 0

    def look(self) -> bool:
        """One look. True: the loop was run in the leader's place."""
        missing = missing_leader()
        self._seen = self._seen + 1 if missing else 0
        if self._seen < SIGHTINGS:
            return False
        if self._seen == SIGHTINGS:
            log.error("leader_missing", extra={"action": "watch", "locks": missing})
        notifications.look(steady=False, missing=missing)
        return True

    def run(self) -> None:
        while not _ended.wait(EVERY_S):
            try:
                self.look()
            except (DatabaseError, InterfaceError, OSError) as error:
                self._seen = 0
                log.warning("watch_waits", extra={"action": "watch", "error": str(error)[:200]})
            except Exception:
                log.exception("watch_failed", extra={"action": "watch"})
            finally:
                connection.close()


@worker_ready.connect
def _start(sender: Any, **_kwargs: object) -> None:
    if NOTIFICATIONS_QUEUE in sender.app.amqp.queues.consume_from:
        threading.Thread(target=Watch().run, name="watch", daemon=True).start()


@worker_shutdown.connect
def _stop(**_kwargs: object) -> None:
    _ended.set()
