"""A log line is one JSON object and holds no secret."""

import json
import logging
import sys
from typing import Any

import pytest
import requests

from chronos_site.observability import context
from chronos_site.observability.logs import JsonFormatter, redact
from chronos_site.stack.processes import free_port
from chronos_site.tenancy.keys import generate_key
from chronos_site.tenancy.models import Workspace
from tests.processes import SiteProcesses, wait_until


def line(message: str = "m", *args: Any, exc_info: Any = None, **extra: Any) -> dict[str, Any]:
    record = logging.LogRecord("room", logging.INFO, __file__, 1, message, args, exc_info)
    vars(record).update(extra)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_says_when_what_and_whose() -> None:
    tokens = context.request_id.set("r-1"), context.workspace_id.set("w-1")
    try:
        found = line("claimed %s", 5, action="claim", execution_id="e-1", took=1.5, odd={1, 2})
    finally:
        context.request_id.reset(tokens[0])
        context.workspace_id.reset(tokens[1])
    assert found.pop("ts").endswith("Z")
    assert found == {
        "level": "INFO",
        "logger": "room",
        "msg": "claimed 5",
        "request_id": "r-1",
        "workspace_id": "w-1",
        "action": "claim",
        "execution_id": "e-1",
        "took": 1.5,
        "odd": [1, 2],
    }


def test_an_exception_is_text_without_secrets() -> None:
    key = generate_key()
    try:
        raise ValueError(f"bad key {key}")
    except ValueError:
        found = line(exc_info=sys.exc_info())
    assert "ValueError: bad key chr_***" in found["exception"]
    assert key not in found["exception"]


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer SECRETvalue",
        "authorization=SECRETvalue",
        "{'Authorization': 'Basic SECRETvalue=='}",
        '{"authorization": "SECRETvalue"}',
        "bearer SECRETvalue",
        "postgresql://chronos:SECRETvalue@db:5432/x",
        "redis://:SECRETvalue@cache:6379/0",
        "postgresql://chronos:SECRET@SECRETvalue@db:5432/x",
        "https://SECRETvalue@example.com/hook",
        "POST https://example.com/hook?token=SECRETvalue&n=1 refused",
        "whsec_SECRETvalueSECRETvalue",
    ],
)
def test_secrets_in_texts_are_taken_out(text: str) -> None:
    assert "SECRET" not in redact(text)
    assert "SECRET" not in json.dumps(line("%s", text, note=text, deep={"a": [text]}))


@pytest.mark.parametrize("name", ["password", "authorization", "api_key", "client_secret", "Set-Cookie"])
def test_what_is_named_like_a_secret_is_hidden_whole(name: str) -> None:
    assert line(headers={name: "SECRET"})["headers"] == {name: "***"}


def test_whatever_is_logged_becomes_a_line() -> None:
    assert line(odd=object(), text="\ud800", bits=b"\xff")["msg"] == "m"


def test_a_line_of_a_task_names_it() -> None:
    token = context.task_id.set("t-1")
    try:
        assert line()["task_id"] == "t-1"
    finally:
        context.task_id.reset(token)


@pytest.mark.django_db(transaction=True)
def test_a_request_is_one_line_with_its_ids_and_without_its_query(
    celery_processes: SiteProcesses, workspace: Workspace, api_key: str
) -> None:
    port = free_port()
    web = celery_processes.web(port=port)
    headers = {"Authorization": f"Bearer {api_key}", "X-Request-Id": "told-by-caller"}
    url = f"http://127.0.0.1:{port}/v1/executions?limit=1&canary=QueryCanary81f2"
    wait_until(lambda: _answers(url, headers), timeout_s=30, told=lambda: celery_processes.log(web))
    wait_until(lambda: "told-by-caller" in celery_processes.log(web))
    text = celery_processes.log(web)
    assert "QueryCanary81f2" not in text
    assert api_key not in text
    lines = [json.loads(each) for each in text.splitlines() if each.startswith("{")]
    (found,) = [each for each in lines if each["msg"] == "request"]
    assert (found["method"], found["route"], found["path"]) == ("GET", "/v1/executions", "/v1/executions")
    assert (found["request_id"], found["workspace_id"]) == ("told-by-caller", str(workspace.id))
    assert found["status"] == 400
    assert found["duration_ms"] > 0
    assert len(found["trace_id"]) == 32


def _answers(url: str, headers: dict[str, str]) -> bool:
    try:
        return requests.get(url, headers=headers, timeout=5).status_code == 400
    except requests.ConnectionError:
        return False


@pytest.mark.django_db(transaction=True)
def test_beat_and_workers_write_json(celery_processes: SiteProcesses) -> None:
    worker = celery_processes.worker(name="scheduler", queues="scheduler")
    beat = celery_processes.beat(name="beat")
    celery_processes.wait_for_log(beat, "beat_started")
    for child in (worker, beat):
        lines = [json.loads(each) for each in celery_processes.log(child).splitlines() if each.startswith("{")]
        assert lines
        assert all({"ts", "level", "logger", "msg"} <= each.keys() for each in lines)
