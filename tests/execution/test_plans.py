"""How PostgreSQL reads the statements of the hot path, whatever the statistics say."""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from chronos_site.infra.sql import statement
from chronos_site.tenancy.models import Workspace
from execution import transitions
from execution.models import Execution
from tests.making import copy_execution, make_executions

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = 3_000
IDS = [uuid4() for _ in range(5)]
RESULT: dict[str, Any] = {
    "ids": IDS,
    "claim_seqs": [1] * 5,
    "states": ["SUCCEEDED"] * 5,
    "reasons": [""] * 5,
    "statuses": [200] * 5,
    "errors": [""] * 5,
    "error_texts": [""] * 5,
    "durations": [1.0] * 5,
    "finished": [timezone.now()] * 5,
    "retry_ins": [None] * 5,
    "dead_reasons": [""] * 5,
}
GATE: dict[str, Any] = {"ids": IDS, "claim_seqs": [1] * 5, "attempts": [1] * 5, "may_begin": [True] * 5}


@pytest.fixture(params=["SUCCEEDED", "PENDING", "QUEUED", "RUNNING", "RETRYING"])
def analysed(request: pytest.FixtureRequest, workspace: Workspace) -> None:
    """A table whose statistics say that all of its rows are in one state."""
    [template] = make_executions(workspace, "http://127.0.0.1:9/", due_at=timezone.now() + timedelta(hours=1))
    # Of many workspaces: with one alone, the index of a workspace's pages finds an id as well as the primary key does.
    copy_execution(template, ROWS, state=f"'{request.param}'", concurrency_key="NULL", workspace_id="gen_random_uuid()")
    Execution.objects.filter(id=template.id).delete()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE execution_execution")


def read_by(sql: str, params: dict[str, Any]) -> set[str]:
    """The indexes (or "the whole table") by which a statement reads executions."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}", params)
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'execution_execution'")
        theirs = {row[0] for row in cursor.fetchall()}
    found = re.findall(r"Index (?:Only )?Scan using (\w+) on execution_execution|Bitmap Index Scan on (\w+)", plan)
    whole = {"the whole table"} if "Seq Scan on execution_execution" in plan else set()
    return {one or other for one, other in found} & theirs | whole


@pytest.mark.parametrize(
    ("name", "params"),
    [("claim", {"ids": IDS, "worker_id": uuid4()}), ("gate", GATE), ("write_results", RESULT)],
    ids=["claim", "gate", "write_results"],
)
@pytest.mark.usefixtures("analysed")
def test_the_engines_statements_find_their_rows_by_id_whatever_the_statistics_say(
    name: str, params: dict[str, Any]
) -> None:
    assert read_by(statement("execution", name), params) == {"execution_execution_pkey"}


@pytest.mark.parametrize("transition", [transitions.queue_pending, transitions.unqueue])
@pytest.mark.usefixtures("analysed")
def test_what_fan_out_changes_it_finds_by_id_whatever_the_statistics_say(transition: Any) -> None:
    asked: list[tuple[str, Any]] = []

    def note(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        asked.append((sql, params))
        return run(sql, params, many, context)

    with connection.execute_wrapper(note):
        transition(ids=IDS)
    [(sql, params)] = asked
    assert read_by(sql, params) == {"execution_execution_pkey"}
