"""A cursor whose statements end in time: a page for operators must not hold up what it shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

LIMIT_S = 2.0


@contextmanager
def bounded_cursor(limit_s: float = LIMIT_S) -> Iterator[Any]:
    """A cursor of the default database. A statement that takes longer raises django.db.OperationalError."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(max(1, int(limit_s * 1000)))])
        yield cursor


def rows_of(cursor: Any) -> list[dict[str, Any]]:
    """What was found, by the names of the columns."""
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
