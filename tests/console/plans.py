"""How PostgreSQL reads what a function asks, with a table that is large enough for an index to matter."""

import re
from collections.abc import Callable
from typing import Any

from django.db import connection


def plans_of(call: Callable[[], object], table: str) -> list[str]:
    """The plans of the statements on `table` that `call` sends."""
    asked: list[tuple[str, Any]] = []

    def note(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if table in sql and not sql.startswith("EXPLAIN"):
            asked.append((sql, params))
        return run(sql, params, many, context)

    with connection.execute_wrapper(note):
        call()
    found = []
    with connection.cursor() as cursor:
        for sql, params in asked:
            cursor.execute(f"EXPLAIN {sql}", params)
            found.append("\n".join(row[0] for row in cursor.fetchall()))
    assert found, "nothing was asked of the table"
    return found


def indexes_in(plan: str, table: str) -> set[str]:
    """The indexes by which a plan reads, and "the whole table"."""
    found = re.findall(r"Index (?:Only )?Scan (?:Backward )?using (\w+) on \w+|Bitmap Index Scan on (\w+)", plan)
    whole = {"the whole table"} if f"Seq Scan on {table}" in plan else set()
    return {one or other for one, other in found} | whole
