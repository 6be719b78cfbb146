"""Work on database connections of its own, and who waits for whom."""

import threading
from collections.abc import Callable

from django.db import connection


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """Run on a connection of its own, which is closed with the work."""

    thread = threading.Thread(target=closing(work))
    thread.start()
    return thread


def closing(work: Callable[[], object]) -> Callable[[], None]:
    """The same for a pool of threads, which tells what the work raised."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    return run


def lock_waiters() -> int:
    """Backends that wait for a lock in this database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # Within a transaction it would say the same again.
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return int(cursor.fetchone()[0])
