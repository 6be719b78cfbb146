"""Secrets by reference on their way into the request, and nowhere else."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from standardwebhooks import Webhook

from chronos_site.infra.references import Reference
from chronos_site.stack.receiver import Answer, Received
from chronos_site.tenancy.models import Workspace
from execution import selectors, services, transitions
from execution.dispatch import credentials
from execution.dispatch.credentials import credentials_of
from execution.dispatch.engine import Engine
from execution.dispatch.http import KEEP_CAP
from execution.dispatch.runtime import build_engine
from execution.models import DeadLetter, Execution
from scheduling import recurring
from scheduling.recurring import Recurring
from tests.clients import ApiClient, ProgrammableReceiver
from tests.making import make_executions, states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

SECRETS = {
    "token": "to-ken/with\"quotes' & more",
    "password": "pass word",
    "signing": "whsec_" + base64.b64encode(b"canary-signing-key-0123456789").decode(),
    "previous": "whsec_" + base64.b64encode(b"canary-previous-key-0123456789").decode(),
    "bad": "two\nlines",
}
TOKEN = "secret://acme/hooks/token"
MERGE = "application/merge-patch+json"


class Echo(ProgrammableReceiver):
    """Answers with what it was sent, in several forms, and with the status that its path begins with."""

    def answer_to(self, request: Received) -> Answer:
        sent = request.headers.get("authorization", "") + request.headers.get("x-api-key", "")
        echoed = json.dumps({"headers": dict(request.headers), "body": request.body.decode()})
        status = int(request.path.strip("/").split("/")[0] or 200)
        return Answer(status=status, body=f"{sent}\n{echoed}".encode(), headers={"X-Echo": sent or "-"})


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as running:
        yield running


@pytest.fixture
def kept(tmp_path: Path, settings: LazySettings, workspace: Workspace) -> Path:
    """The folder of the secrets that `workspace` may use, in use by engines that are built from now on."""
    home = tmp_path / "secrets" / "acme" / "hooks"
    home.mkdir(parents=True)
    for key, value in SECRETS.items():
        (home / key).write_text(value)
    settings.CHRONOS_SECRET_PROVIDER = "mounted"
    settings.CHRONOS_SECRETS_DIR = str(tmp_path / "secrets")
    Workspace.objects.filter(id=workspace.id).update(secret_namespaces=["acme"])
    workspace.refresh_from_db()
    return home


@pytest.fixture
def sending(kept: Path) -> Iterator[Engine]:
    running = build_engine(name="with-secrets")
    running.start()
    yield running
    running.begin_stop()
    running.stop(1)


def deliver(engine: Engine, workspace: Workspace, url: str, **fields: Any) -> Execution:
    """One execution with these members of a target, once it has left the worker."""
    given = {name: fields.pop(name) for name in ("headers", "auth", "signing") if name in fields}
    [row] = make_executions(workspace, url, target={"url": url, "method": "POST", "headers": {}, **given}, **fields)
    engine.submit(transitions.queue_pending(ids=[row.id]))
    wait_until(lambda: states_of([row.id])[row.id] not in {"QUEUED", "RUNNING"}, told=lambda: str(states_of([row.id])))
    row.refresh_from_db()
    return row


def log_of(row: Execution) -> dict[str, Any]:
    wait_until(lambda: selectors.attempt_logs(workspace=row.workspace, execution_id=row.id))
    return selectors.attempt_logs(workspace=row.workspace, execution_id=row.id)[-1]


def test_references_in_headers_are_sent_as_their_values(sending: Engine, workspace: Workspace, echo: Echo) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Innocent": "secret://acme/hooks/password", "X-Team": "billing"}
    row = deliver(sending, workspace, echo.url(), headers=headers)
    assert row.state == "SUCCEEDED"
    [request] = echo.requests
    assert request.headers["authorization"] == f"Bearer {SECRETS['token']}"
    assert request.headers["x-innocent"] == SECRETS["password"]
    assert request.headers["x-team"] == "billing"
    assert row.target["headers"] == headers
    told = log_of(row)
    assert told["request"]["headers"] == {"Authorization": "***", "X-Innocent": "***", "X-Team": "billing"}
    for value in (SECRETS["token"], json.dumps(SECRETS["token"])[1:-1], SECRETS["password"]):
        assert value not in str(told["response"]["headers"]) + told["response"]["body"]
    assert "***" in told["response"]["headers"]["x-echo"]


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        (
            {"type": "basic", "username": "bob", "password": "secret://acme/hooks/password"},
            "Authorization",
            "Basic " + base64.b64encode(b"bob:pass word").decode(),
        ),
        ({"type": "bearer", "token": TOKEN}, "Authorization", f"Bearer {SECRETS['token']}"),
        ({"type": "api_key", "header": "X-Api-Key", "value": TOKEN}, "X-Api-Key", SECRETS["token"]),
    ],
)
def test_auth_fills_its_header(
    sending: Engine, workspace: Workspace, echo: Echo, auth: dict[str, str], header: str, value: str
) -> None:
    row = deliver(sending, workspace, echo.url("/500"), auth=auth)
    [request] = echo.requests
    assert request.headers[header.lower()] == value
    told = log_of(row)
    assert told["request"]["headers"] == {header: "***"}
    assert value.removeprefix("Basic ").removeprefix("Bearer ") not in str(told["response"]["headers"])
    assert value.removeprefix("Basic ") not in told["response"]["body"]


def test_a_signed_delivery_verifies_with_the_secret_and_while_it_is_rotated_with_the_one_before(
    sending: Engine, workspace: Workspace, echo: Echo
) -> None:
    signing = {"secret": "secret://acme/hooks/signing", "previous_secret": "secret://acme/hooks/previous"}
    row = deliver(sending, workspace, echo.url(), signing=signing, payload={"name": "Zoë"})
    [request] = echo.requests
    assert request.headers["webhook-id"] == str(row.id)
    for name in ("signing", "previous"):
        assert Webhook(SECRETS[name]).verify(request.body, dict(request.headers)) == {"name": "Zoë"}


def test_each_attempt_is_signed_with_its_own_time_and_the_same_id(
    sending: Engine, workspace: Workspace, echo: Echo
) -> None:
    row = deliver(
        sending,
        workspace,
        echo.url("/503"),
        signing={"secret": "secret://acme/hooks/signing"},
        retry={"max_attempts": 2, "initial_backoff_s": 1.1, "jitter": "none"},
    )
    assert row.state == "RETRYING"
    assert transitions.queue_retrying(horizon_s=5, most=10) == [row.id]
    sending.submit([row.id])
    wait_until(lambda: states_of([row.id])[row.id] == "FAILED")
    first, second = echo.requests
    for request in (first, second):
        Webhook(SECRETS["signing"]).verify(request.body, dict(request.headers))
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == str(row.id)
    assert int(second.headers["webhook-timestamp"]) > int(first.headers["webhook-timestamp"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"headers": {"X-Api-Key": "secret://globex/hooks/token"}}, "may not use secrets of the namespace 'globex'"),
        ({"headers": {"X-Api-Key": "secret://bad"}}, "A secret is named secret://namespace/name/key"),
        ({"headers": {"X-Api-Key": "secret://acme/hooks/bad"}}, "secret://acme/hooks/bad cannot be used: no header"),
        ({"signing": {"secret": TOKEN}}, "a signing secret begins with whsec_"),
    ],
)
def test_a_secret_that_may_not_be_used_ends_the_execution_unsent_with_a_clear_reason(
    sending: Engine, workspace: Workspace, echo: Echo, given: dict[str, Any], told: str
) -> None:
    row = deliver(sending, workspace, echo.url(), retry={"max_attempts": 5}, **given)
    assert (row.state, row.last_error, row.attempt) == ("FAILED", "secret_refused", 1)
    assert told in row.last_error_text
    assert DeadLetter.objects.get(id=row.id).reason == "secret_refused"
    assert echo.requests == []


def test_a_secret_that_is_missing_is_tried_again_and_found_once_it_is_there(
    sending: Engine, workspace: Workspace, echo: Echo, kept: Path
) -> None:
    row = deliver(
        sending,
        workspace,
        echo.url(),
        auth={"type": "bearer", "token": "secret://acme/hooks/late"},
        retry={"max_attempts": 2, "initial_backoff_s": 2.2, "jitter": "none"},
    )
    assert (row.state, row.last_error) == ("RETRYING", "secret_missing")
    assert row.last_error_text.startswith("There is no secret://acme/hooks/late.")
    (kept / "late").write_text("there")
    assert transitions.queue_retrying(horizon_s=5, most=10) == [row.id]
    sending.submit([row.id])
    wait_until(lambda: states_of([row.id])[row.id] == "SUCCEEDED")
    assert echo.requests[0].headers["authorization"] == "Bearer there"


def test_a_store_that_hangs_holds_up_its_own_deliveries_and_no_others(
    workspace: Workspace, echo: Echo, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, asked = threading.Event(), []

    class Hanging:
        def read(self, reference: Reference) -> bytes | None:
            asked.append(reference)
            released.wait(30)
            return b"late"

    monkeypatch.setattr(credentials, "PATIENCE_S", 0.5)
    engine = build_engine(name="hanging")
    engine._secrets._provider = Hanging()
    engine.start()
    try:
        target = {"url": echo.url(), "method": "POST", "headers": {"X-Api-Key": TOKEN}}
        waiting = make_executions(workspace, echo.url(), 50, target=target)
        engine.submit(transitions.queue_pending(ids=[row.id for row in waiting]))
        begun = time.monotonic()
        assert deliver(engine, workspace, echo.url()).state == "SUCCEEDED"
        assert time.monotonic() - begun < 0.5
        wait_until(lambda: set(states_of([row.id for row in waiting]).values()) == {"FAILED"})
        errors = Execution.objects.filter(id__in=[row.id for row in waiting]).values_list("last_error", flat=True)
        assert set(errors) == {"secret_unavailable"}
        assert len(asked) == 1
    finally:
        released.set()
        engine.begin_stop()
        engine.stop(1)


def test_a_hot_path_asks_the_store_once(sending: Engine, workspace: Workspace, echo: Echo, kept: Path) -> None:
    reads: list[Reference] = []
    provider = sending._secrets._provider

    class Counting:
        def read(self, reference: Reference) -> bytes | None:
            reads.append(reference)
            return provider.read(reference)

    sending._secrets._provider = Counting()
    target = {"url": echo.url(), "method": "POST", "headers": {"X-Api-Key": TOKEN}}
    rows = make_executions(workspace, echo.url(), 200, target=target)
    sending.submit(transitions.queue_pending(ids=[row.id for row in rows]))
    wait_until(lambda: set(states_of([row.id for row in rows]).values()) == {"SUCCEEDED"})
    assert [str(reference) for reference in reads] == [TOKEN]


@pytest.mark.parametrize("before", [0, KEEP_CAP - 30, KEEP_CAP - 3, KEEP_CAP])
def test_a_secret_on_the_edge_of_the_excerpt_leaves_no_part_of_itself(
    sending: Engine, workspace: Workspace, receiver: ProgrammableReceiver, kept: Path, before: int
) -> None:
    (kept / "long").write_text("0123456789" * 20)
    receiver.answer(Answer(body=b"x" * before + b"0123456789" * 20 + b"y" * 50))
    row = deliver(sending, workspace, receiver.url(), headers={"X-Api-Key": "secret://acme/hooks/long"})
    body = log_of(row)["response"]["body"]
    assert "0" not in body
    assert len(body) <= KEEP_CAP


def test_the_text_of_credentials_shows_nothing() -> None:
    reference = Reference("acme", "hooks", "token")
    found = credentials_of({"headers": {"X-Api-Key": str(reference)}}, {reference: "sesame"})
    assert found.headers == {"X-Api-Key": "sesame"}
    assert "sesame" not in repr(found)


# --- over the API -------------------------------------------------------------------------------------------------

REFUSED = [
    ({"headers": {"Authorization": "Bearer sesame"}}, "/headers/Authorization", "literal_secret"),
    ({"headers": {"x-api-key": "sesame"}}, "/headers/x-api-key", "literal_secret"),
    ({"headers": {"Cookie": "s=sesame"}}, "/headers/Cookie", "literal_secret"),
    ({"headers": {"X-A": "sesame secret://acme/a/b/c"}}, "/headers/X-A", "invalid_reference"),
    ({"headers": {"X-A": "secret://globex/sesame/c"}}, "/headers/X-A", "secret_not_allowed"),
    ({"auth": {"type": "bearer", "token": "sesame"}}, "/auth/token", "literal_secret"),
    ({"auth": {"type": "bearer", "token": "secret://sesame"}}, "/auth/token", "invalid_reference"),
    ({"auth": {"type": "bearer", "token": "secret://globex/a/b"}}, "/auth/token", "secret_not_allowed"),
    ({"auth": {"type": "bearer"}}, "/auth/token", "required"),
    ({"auth": {"type": "basic", "username": "a:b", "password": TOKEN}}, "/auth/username", "invalid"),
    ({"auth": {"type": "bearer", "token": TOKEN, "password": TOKEN}}, "/auth/password", "wrong_type"),
    ({"auth": {"type": "api_key", "header": "Host", "value": TOKEN}}, "/auth/header", "forbidden_header"),
    ({"auth": {"type": "digest", "token": TOKEN}}, "/auth/type", "invalid_choice"),
    ({"auth": {"type": "bearer", "token": TOKEN}, "headers": {"authorization": TOKEN}}, "/auth", "duplicate"),
    ({"signing": {"secret": "whsec_c2VzYW1l"}}, "/signing/secret", "literal_secret"),
    ({"signing": {"secret": TOKEN, "previous_secret": "whsec_c2VzYW1l"}}, "/signing/previous_secret", "literal_secret"),
    ({"signing": {}}, "/signing/secret", "required"),
]


@pytest.mark.parametrize(("part", "where", "code"), REFUSED)
def test_what_names_no_secret_that_the_workspace_may_use_is_422_and_not_repeated(
    api: ApiClient, kept: Path, part: dict[str, Any], where: str, code: str
) -> None:
    target = {"url": "https://example.com/", **part}
    for path, body in (
        ("/v1/job-definitions", {"name": "a", "target": target}),
        ("/v1/schedules", {"target": target, "delay_s": 60}),
        ("/v1/schedules", {"target": target, "every": "1h"}),
    ):
        answer = api.post(path, body)
        assert answer.status_code == 422, answer.content
        assert [(e["pointer"], e["code"]) for e in answer.json()["errors"]] == [(f"/target{where}", code)]
        if code != "secret_not_allowed":
            assert "sesame" not in answer.content.decode()
    batch = api.post("/v1/schedules/batch", {"schedules": [{"target": target, "delay_s": 60}]})
    assert [e["pointer"] for e in batch.json()["errors"]] == [f"/schedules/0/target{where}"]


def test_references_are_answered_as_they_were_given_and_only_an_operator_allows_namespaces(
    api: ApiClient, kept: Path, workspace: Workspace
) -> None:
    target = {
        "url": "https://example.com/",
        "method": "POST",
        "headers": {"X-Api-Key": TOKEN},
        "auth": {"type": "bearer", "token": TOKEN},
        "signing": {"secret": TOKEN},
    }
    job = api.post("/v1/job-definitions", {"name": "a", "target": target})
    assert job.status_code == 201, job.content
    assert job.json()["target"] == target
    headers = {"Authorization": f"Bearer {TOKEN}"}
    made = api.post("/v1/schedules", {"job_definition": "a", "delay_s": 60, "delivery": {"headers": headers}}).json()
    assert made["delivery"]["headers"] == headers
    # The override takes the place of what auth would have filled.
    overridden = api.get(f"/v1/executions/{made['execution_id']}").json()["target"]
    assert overridden["headers"] == {"X-Api-Key": TOKEN, **headers}
    assert "auth" not in overridden
    assert api.get("/v1/workspace").json()["secret_namespaces"] == ["acme"]
    Workspace.objects.filter(id=workspace.id).update(secret_namespaces=[])
    path = f"/v1/job-definitions/{job.json()['id']}"
    assert api.patch(path, {"timeout_s": 5}, content_type=MERGE).status_code == 200
    refused = api.patch(path, {"target": {"method": "PUT"}}, content_type=MERGE)
    assert (refused.status_code, refused.json()["code"]) == (422, "secret_not_allowed")


def test_auth_is_changed_and_taken_away_by_a_patch(api: ApiClient, kept: Path) -> None:
    target = {"url": "https://example.com/", "auth": {"type": "bearer", "token": TOKEN}}
    path = f"/v1/job-definitions/{api.post('/v1/job-definitions', {'name': 'a', 'target': target}).json()['id']}"
    basic = {"type": "basic", "username": "bob", "password": TOKEN}
    patched = api.patch(path, {"target": {"auth": {**basic, "token": None}}}, content_type=MERGE)
    assert patched.json()["target"]["auth"] == basic
    patched = api.patch(path, {"target": {"auth": None}}, content_type=MERGE)
    assert "auth" not in patched.json()["target"]


def test_a_literal_from_before_is_answered_to_nobody(api: ApiClient, workspace: Workspace) -> None:
    target = {"url": "https://example.com/", "method": "POST", "headers": {"Authorization": "Bearer sesame"}}
    job = services.create_job_definition(workspace=workspace, name="old", target=target)
    [row] = make_executions(workspace, "https://example.com/", target=target)
    schedule = recurring.create_recurring(
        workspace=workspace, new=Recurring(every_s=900, target=target, delivery={"headers": {"X-Api-Key": "sesame"}})
    )
    for path in (f"job-definitions/{job.id}", f"executions/{row.id}", f"schedules/{schedule.id}", "job-definitions",
                 "executions", "schedules"):  # fmt: skip
        answer = api.get(f"/v1/{path}")
        assert answer.status_code == 200
        assert "***" in answer.content.decode()
        assert "sesame" not in answer.content.decode()
