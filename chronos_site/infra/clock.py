"""The database's clock, carried between queries by the monotonic clock.

Every due time is judged by Postgres' clock, so that machines with wrong clocks agree. A reading is anchored when the
reply arrives: the true time is then the same or later, so a wait until `due_at` never ends early.
"""

import time
from datetime import UTC, datetime

from django.db import connection


class DatabaseClock:
    """An anchor: at monotonic time m the database said t. Reading it costs no query."""

    __slots__ = ("_database_s", "_monotonic_s")

    def __init__(self, database_now: datetime) -> None:
        self._monotonic_s = time.monotonic()
        self._database_s = database_now.timestamp()

    def now_s(self) -> float:
        """Unix seconds by the database's clock; behind it by at most the reply's way back."""
        return self._database_s + time.monotonic() - self._monotonic_s

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_s(), UTC)


def database_now() -> datetime:
    """`clock_timestamp()` of the default database (not `now()`, which stands still within a transaction)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    value: datetime = row[0]
    return value
