"""Spans by way of a real OTLP receiver: from the API call to each attempt, and what becomes of them when it is away."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import requests
from pytest_django import Settings

from chronos_site.infra.clock import database_now
from chronos_site.observability import tracing
from chronos_site.observability.otlp import Tracing
from chronos_site.stack.processes import free_port
from chronos_site.stack.receiver import Answer
from chronos_site.stack.site import ROOT
from chronos_site.tenancy.models import Workspace
from execution import transitions
from execution.dispatch.attempt_span import clean_url
from execution.dispatch.engine import Engine
from execution.models import Execution
from tests.clients import ApiClient, ProgrammableReceiver
from tests.making import make_executions, make_job, states_of
from tests.otlp import SeenSpan, TraceReceiver, traced
from tests.processes import SiteProcesses, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{CALLER}-01"
UNSAMPLED = f"00-{TRACE}-{CALLER}-00"


@pytest.fixture
def traces(settings: Settings) -> Iterator[TraceReceiver]:
    """Where this process sends its spans."""
    with TraceReceiver() as running, traced(settings, f"{running.endpoint}/v1/traces"):
        yield running


def schedule(api: ApiClient, url: str, *, parent: str | None = None, **delivery: object) -> Execution:
    body = {"target": {"url": url}, "delay_s": 0, "delivery": delivery}
    made = api.post("/v1/schedules", body, **({} if parent is None else {"traceparent": parent}))
    assert made.status_code == 201, made.content
    return Execution.objects.get(id=made.json()["execution_id"])


def deliver(engine: Engine, row: Execution, state: str = "SUCCEEDED") -> None:
    engine.submit(transitions.queue_pending(ids=[row.id]))
    wait_until(lambda: states_of([row.id]) == {row.id: state}, told=lambda: str(states_of([row.id])))


def attempts_of(traces: TraceReceiver, row: Execution, count: int) -> list[SeenSpan]:
    """The spans of its attempts in their order, once there are so many."""

    def found() -> list[SeenSpan]:
        spans = [s for s in traces.spans if s.kind == "client" and s.attributes["chronos.execution_id"] == str(row.id)]
        return sorted(spans, key=lambda span: int(span.attributes["chronos.attempt"]))

    wait_until(lambda: len(found()) >= count, told=lambda: str(traces.spans))
    return found()


def test_a_trace_goes_from_the_caller_over_the_request_to_the_attempt_and_on_to_the_receiver(
    engine: Engine, api: ApiClient, workspace: Workspace, receiver: ProgrammableReceiver, traces: TraceReceiver
) -> None:
    row = schedule(api, receiver.url("/in?token=hidden"), parent=SAMPLED)
    deliver(engine, row)
    [attempt] = attempts_of(traces, row, 1)
    [request] = traces.named("POST /v1/schedules")
    assert (request.trace_id, request.parent_id, request.kind) == (TRACE, CALLER, "server")
    assert row.traceparent == f"00-{TRACE}-{request.span_id}-01"
    assert (attempt.trace_id, attempt.parent_id, attempt.failed) == (TRACE, request.span_id, False)
    [received] = receiver.requests
    assert received.headers["traceparent"] == f"00-{TRACE}-{attempt.span_id}-01"
    assert request.attributes["http.response.status_code"] == 201
    assert request.attributes["http.route"] == "/v1/schedules"
    assert request.attributes["chronos.workspace_id"] == str(workspace.id)
    lateness = attempt.attributes.pop("chronos.lateness_ms")
    assert 0 <= lateness < 10_000
    assert attempt.name == "POST"
    assert attempt.attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "url.full": receiver.url("/in?[redacted]"),
        "server.address": "127.0.0.1",
        "server.port": receiver.port,
        "network.peer.address": "127.0.0.1",
        "network.peer.port": receiver.port,
        "chronos.execution_id": str(row.id),
        "chronos.schedule_id": str(row.schedule_id),
        "chronos.workspace_id": str(workspace.id),
        "chronos.attempt": 1,
        "chronos.state": "succeeded",
    }
    assert abs(attempt.start_s - received.arrived.timestamp()) < 1
    assert attempt.resource["service.name"] == "chronos"


def test_each_attempt_has_a_span_of_its_own_in_the_same_trace(
    engine: Engine, api: ApiClient, receiver: ProgrammableReceiver, traces: TraceReceiver
) -> None:
    receiver.answer(Answer(status=503), Answer())
    row = schedule(
        api, receiver.url(), parent=SAMPLED, retry={"max_attempts": 2, "initial_backoff_s": 0.1, "jitter": "none"}
    )
    deliver(engine, row, "RETRYING")
    engine.submit(transitions.queue_retrying(horizon_s=2, most=10))
    first, second = attempts_of(traces, row, 2)
    assert first.span_id != second.span_id
    assert {span.trace_id for span in (first, second)} == {TRACE}
    assert {span.parent_id for span in (first, second)} == {row.traceparent[36:52]}
    assert [r.headers["traceparent"][36:52] for r in receiver.requests] == [first.span_id, second.span_id]
    assert (first.failed, first.attributes["error.type"], first.attributes["chronos.state"]) == (
        True,
        "503",
        "retrying",
    )
    assert first.attributes["http.response.status_code"] == 503
    assert (second.failed, second.attributes["http.request.resend_count"]) == (False, 1)


def test_a_caller_who_says_not_sampled_is_not_recorded_and_the_receiver_is_told_so(
    engine: Engine, api: ApiClient, receiver: ProgrammableReceiver, traces: TraceReceiver
) -> None:
    row = schedule(api, receiver.url("/not"), parent=UNSAMPLED)
    deliver(engine, row)
    other = schedule(api, receiver.url("/sampled"), parent=SAMPLED)
    deliver(engine, other)
    attempts_of(traces, other, 1)
    assert row.traceparent == UNSAMPLED
    assert not any(span.attributes.get("chronos.execution_id") == str(row.id) for span in traces.spans)
    assert len(traces.named("POST /v1/schedules")) == 1
    [told] = [r.headers["traceparent"] for r in receiver.requests if r.path == "/not"]
    assert (told[:36], told[53:]) == (UNSAMPLED[:36], "00")


def test_a_sampler_that_records_everything_records_what_the_caller_did_not(
    engine: Engine,
    api: ApiClient,
    receiver: ProgrammableReceiver,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    with TraceReceiver() as traces, traced(settings, f"{traces.endpoint}/v1/traces"):
        row = schedule(api, receiver.url(), parent=UNSAMPLED)
        deliver(engine, row)
        [attempt] = attempts_of(traces, row, 1)
    assert attempt.trace_id == TRACE
    assert receiver.requests[0].headers["traceparent"] == f"00-{TRACE}-{attempt.span_id}-01"


def test_without_a_caller_s_trace_one_begins_with_the_request(
    engine: Engine, api: ApiClient, receiver: ProgrammableReceiver, traces: TraceReceiver
) -> None:
    row = schedule(api, receiver.url())
    deliver(engine, row)
    [attempt] = attempts_of(traces, row, 1)
    [request] = traces.named("POST /v1/schedules")
    assert request.parent_id == ""
    assert (attempt.trace_id, attempt.parent_id) == (request.trace_id, request.span_id)


def test_an_occurrence_begins_a_trace_of_its_own(
    engine: Engine, api: ApiClient, receiver: ProgrammableReceiver, traces: TraceReceiver
) -> None:
    made = api.post("/v1/schedules", {"target": {"url": receiver.url()}, "every": "1m"}, traceparent=SAMPLED)
    assert made.status_code == 201, made.content
    row = Execution.objects.earliest("scheduled_for")
    Execution.objects.filter(id=row.id).update(due_at=database_now())
    deliver(engine, row)
    [attempt] = attempts_of(traces, row, 1)
    [begins] = [span for span in traces.named("create execution") if span.span_id == attempt.parent_id]
    assert (begins.parent_id, begins.trace_id) == ("", attempt.trace_id)
    assert attempt.trace_id != TRACE


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ({"url": "http://10.0.0.1/hook?token=hidden"}, "target_refused"),
        ({"url": "http://127.0.0.1:9999/hook", "headers": {"X-Key": "secret://acme/a/b"}}, "secret_missing"),
        ({"url": "http://no-such-name.invalid/"}, "dns"),
    ],
)
def test_an_attempt_that_ends_before_its_send_has_a_span_that_says_why(
    engine: Engine, workspace: Workspace, traces: TraceReceiver, target: dict[str, object], error: str
) -> None:
    Workspace.objects.filter(id=workspace.id).update(secret_namespaces=["acme"])
    [row] = make_executions(
        workspace,
        "",
        target={"method": "POST", "headers": {}, **target},
        traceparent=SAMPLED,
        retry={"max_attempts": 1},
    )
    deliver(engine, row, "FAILED")
    [attempt] = attempts_of(traces, row, 1)
    assert (attempt.failed, attempt.attributes["error.type"]) == (True, error)
    assert "http.response.status_code" not in attempt.attributes
    assert "hidden" not in traces.everything


def test_a_send_that_gets_no_answer_has_a_span_as_long_as_the_wait(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, traces: TraceReceiver
) -> None:
    receiver.answer(Answer(hang=True))
    job = make_job(workspace, receiver.url())
    [row] = make_executions(workspace, receiver.url(), job=job, traceparent=SAMPLED, timeout_s=1.0)
    deliver(engine, row, "FAILED")
    [attempt] = attempts_of(traces, row, 1)
    assert (attempt.failed, attempt.attributes["error.type"]) == (True, "timeout")
    assert attempt.told == "No complete answer within 1 s."
    assert attempt.attributes["chronos.job_definition_id"] == str(job.id)
    assert 0.9 < attempt.end_s - attempt.start_s < 2


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://example.com/a?b=c#d", "https://example.com/a?[redacted]"),
        ("https://example.com/a#d?e", "https://example.com/a"),
        ("https://bob:pw@example.com/a@b", "https://example.com/a@b"),
        ("https://example.com/", "https://example.com/"),
    ],
)
def test_a_url_is_told_without_what_may_carry_a_secret(url: str, told: str) -> None:
    assert clean_url(url) == told


def test_with_the_span_receiver_away_deliveries_go_on_and_what_is_dropped_is_counted_and_said_once(
    engine: Engine,
    workspace: Workspace,
    receiver: ProgrammableReceiver,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    settings.CHRONOS_TRACES_CAPACITY = 20
    with traced(settings, f"http://127.0.0.1:{free_port()}/v1/traces"):
        rows = make_executions(workspace, receiver.url(), 300, traceparent=SAMPLED)
        engine.submit(transitions.queue_pending(ids=[row.id for row in rows]))
        wait_until(lambda: Execution.objects.filter(state="SUCCEEDED").count() == 300)
        found = tracing.active()
        assert found is not None
        wait_until(lambda: engine._slots.free == engine._slots.total)
        tracing.stop()
        assert found.buffer.dropped == 300
    said = [record.msg for record in caplog.records if record.name.startswith("opentelemetry")]
    assert len(said) <= 1, said
    assert sum(record.msg == "spans_dropped" for record in caplog.records) == 1


def test_a_span_receiver_that_never_answers_holds_up_neither_deliveries_nor_the_end(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, traces: TraceReceiver
) -> None:
    traces.answer(Answer(hang=True))
    rows = make_executions(workspace, receiver.url(), 600, traceparent=SAMPLED)
    begun = time.monotonic()
    engine.submit(transitions.queue_pending(ids=[row.id for row in rows]))
    wait_until(lambda: Execution.objects.filter(state="SUCCEEDED").count() == 600)
    assert time.monotonic() - begun < 5
    wait_until(lambda: traces.requests)
    begun = time.monotonic()
    tracing.stop(1)
    assert time.monotonic() - begun < 2


FORKS = f"""
import os, sys
import django
django.setup()
from chronos_site.observability import tracing
def one(name):
    tracing.begin(name, kind="internal", parent="{SAMPLED}", attributes={{}}).end()
one("parent before")
child = os.fork()
if child == 0:
    one("child")
    tracing.stop()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
one("parent after")
"""

SILENT = """
import sys
import django
django.setup()
from execution.dispatch import runtime
from chronos_site.observability import tracing
assert tracing.begin("x", kind="internal", parent=None, attributes={}) is None
assert tracing.traceparent()[53:] == "00"
assert not [name for name in sys.modules if name.startswith("opentelemetry.exporter") or name.endswith(".otlp")]
"""


def run_python(program: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_forked_child_sends_its_own_spans_and_none_of_its_parent_s() -> None:
    with TraceReceiver() as traces:
        run_python(FORKS, OTEL_EXPORTER_OTLP_ENDPOINT=traces.endpoint)
        assert sorted(span.name for span in traces.spans) == ["child", "parent after", "parent before"]


def test_without_an_endpoint_the_exporter_is_not_imported() -> None:
    run_python(SILENT)


def test_a_setting_that_the_sdk_refuses_costs_the_traces_and_not_the_deliveries(
    engine: Engine,
    workspace: Workspace,
    receiver: ProgrammableReceiver,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER", "nobody")
    with pytest.raises(RuntimeError, match="nobody"):
        Tracing(endpoint="http://127.0.0.1:1/", capacity=1)
    with traced(settings, "http://127.0.0.1:1/v1/traces"):
        [row] = make_executions(workspace, receiver.url(), traceparent=SAMPLED)
        deliver(engine, row)
    assert [record.msg for record in caplog.records].count("tracing_did_not_start") == 1


def test_the_processes_of_the_site_send_their_last_spans_before_they_end(
    celery_processes: SiteProcesses,
    api: ApiClient,
    receiver: ProgrammableReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TraceReceiver() as traces:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "site")
        port = free_port()
        web = celery_processes.web(port=port)
        celery_processes.beat(name="beat")
        queues = "scheduler,maintenance,bucket-triggers,job-dispatch"
        worker = celery_processes.worker(name="all", queues=queues)
        wait_until(lambda: _call(port, "GET", "/healthz", api)[0] == 200, timeout_s=30)
        run_at = (database_now() + timedelta(seconds=1)).isoformat()
        body = {"target": {"url": receiver.url()}, "run_at": run_at}
        status, made = _call(port, "POST", "/v1/schedules", api, body)
        assert status == 201, made
        receiver.wait_for(1, timeout_s=20)
        row = Execution.objects.get(id=made["execution_id"])
        wait_until(lambda: states_of([row.id]) == {row.id: "SUCCEEDED"}, timeout_s=10)
        celery_processes.stop(web, worker)
        [attempt] = [span for span in traces.spans if span.kind == "client"]
        [request] = traces.named("POST /v1/schedules")
        assert (request.trace_id, request.parent_id) == (TRACE, CALLER)
        assert attempt.parent_id == request.span_id
        assert receiver.requests[0].headers["traceparent"] == f"00-{TRACE}-{attempt.span_id}-01"
        assert traces.named("fan_out")[0].attributes["chronos.published"] == 1
        assert {span.resource["service.name"] for span in traces.spans} == {"site"}
        assert not traces.named("GET /healthz")


def _call(port: int, method: str, path: str, api: ApiClient, body: object = None) -> tuple[int, dict[str, str]]:
    try:
        answer = requests.request(
            method,
            f"http://127.0.0.1:{port}{path}",
            json=body,
            headers={"Authorization": f"Bearer {api.key}", "traceparent": SAMPLED},
            timeout=10,
        )
    except requests.ConnectionError:
        return 0, {}
    return answer.status_code, answer.json()
