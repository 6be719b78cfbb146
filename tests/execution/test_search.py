"""`q` of GET /v1/executions: what it finds, that it stays within the workspace, and which index carries it."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from chronos_site.tenancy.models import Workspace
from execution import search
from execution.models import Execution
from tests.clients import ApiClient
from tests.console.plans import indexes_in, plans_of
from tests.making import copy_execution, make_executions, make_job

pytestmark = pytest.mark.django_db(transaction=True)

HOST = "https://hooks.example.com/in"


def fail(*rows: Execution, **fields: Any) -> None:
    given = {
        "last_error": "connect_timeout",
        "last_error_text": "No answer from Zürich within 5 s",
        "last_status": None,
    }
    Execution.objects.filter(id__in=[row.id for row in rows]).update(
        state="FAILED", bucket_id=None, finished_at=timezone.now(), **(given | fields)
    )


def found(api: ApiClient, text: str, more: str = "") -> list[str]:
    answer = api.get(f"/v1/executions?q={text}{more}")
    assert answer.status_code == 200, answer.content
    return [row["id"] for row in answer.json()["items"]]


def test_failures_are_found_by_error_host_status_and_tag(
    api: ApiClient, other_api: ApiClient, workspace: Workspace
) -> None:
    one, two, _well = make_executions(workspace, HOST, 3, tags=["billing"])
    fail(one)
    fail(two, last_error="http_status", last_error_text="", last_status=503)
    for text in ("timeout", "connect_timeout", "CONNECT", "answer%20from", "no%20within"):
        assert found(api, text) == [str(one.id)], text
    assert found(api, "503") == [str(two.id)]
    for text in ("hooks.example.com", "example", "billing"):
        assert found(api, text) == [str(two.id), str(one.id)], text
    assert found(api, "timeout%20billing%20hooks") == [str(one.id)]
    assert found(api, "example", "&state=PENDING") == []
    assert found(api, "nowhere") == []
    assert found(other_api, "timeout") == []
    assert found(other_api, f"w{workspace.id.hex}") == []


def test_executions_are_found_by_their_job_and_by_their_schedules_key(
    api: ApiClient, other_api: ApiClient, workspace: Workspace
) -> None:
    job = make_job(workspace, "https://pay.example.com/", name="send-invoice", tags=["monthly"])
    rows = make_executions(workspace, HOST, 3, job=job)
    newest_first = [str(row.id) for row in reversed(rows)]
    for text in ("invoice", "SEND-inv", "monthly", "pay.example"):
        assert found(api, text) == newest_first, text
    body = {"target": {"url": HOST}, "delay_s": 3600, "external_key": "order-1234"}
    made = api.post("/v1/schedules", body).json()
    assert [row["schedule"] for row in api.get("/v1/executions?q=order-12").json()["items"]] == [made["id"]]
    assert found(api, "1234") == []
    assert found(other_api, "invoice") == found(other_api, "order-12") == []


def test_pages_go_through_all_that_is_found_once(api: ApiClient, workspace: Workspace) -> None:
    job = make_job(workspace, HOST, name="send-invoice")
    rows = make_executions(workspace, HOST, 5, job=job) + make_executions(workspace, HOST, 2)
    fail(*rows[3:], last_error="invoice_missing")
    seen: list[str] = []
    path = "/v1/executions?q=invoice&limit=2"
    while True:
        page = api.get(path).json()
        seen += [row["id"] for row in page["items"]]
        if page["next_cursor"] is None:
            break
        path = f"/v1/executions?limit=2&cursor={page['next_cursor']}"
    assert seen == [str(row.id) for row in reversed(rows)]


@pytest.mark.parametrize("text", ["ab", "%20a%20", "---", "a_b", "x" * 101, "a%00bcd"])
def test_a_text_that_cannot_be_searched_for_is_refused(api: ApiClient, text: str) -> None:
    answer = api.get(f"/v1/executions?q={text}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert api.get("/v1/executions?q=abc&q=def").status_code == 400


@pytest.mark.parametrize("text", ["it's", "a & b | c:*", "((((", "'; DROP", "ünder", "%", "_____abc"])
def test_signs_of_the_query_language_are_only_text(text: str, workspace: Workspace) -> None:
    try:
        list(
            search.search_executions(workspace=workspace, among=Execution.objects.all(), text=text, after=None, limit=5)
        )
    except search.BadText:
        assert sum(len(word) >= 3 for word in search._WORD.findall(text)) == 0


def test_failures_are_found_by_their_index(workspace: Workspace) -> None:
    [template] = make_executions(workspace, HOST, due_at=timezone.now() + timedelta(hours=1))
    others = "gen_random_uuid()"
    copy_execution(template, 5_000, state="'FAILED'", last_error="'e' || n", bucket_id="NULL", workspace_id=others)
    copy_execution(template, 5_000, state="'FAILED'", last_error="'e' || n", bucket_id="NULL")
    copy_execution(template, 5_000, state="'SUCCEEDED'", bucket_id="NULL")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE execution_execution")
    [plan] = plans_of(
        lambda: list(
            search.failures(workspace=workspace, among=Execution.objects.filter(workspace=workspace), words=["e4321"])
            .order_by("-id")
            .values_list("id", flat=True)[:50]
        ),
        "execution_execution",
    )
    assert "execution_failures" in indexes_in(plan, "execution_execution"), plan
    assert "the whole table" not in indexes_in(plan, "execution_execution"), plan
