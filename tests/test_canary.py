"""Secrets that are planted where they are kept, sent, echoed by the receiver, and then looked for everywhere else."""

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connection
from pytest_django import Settings

from chronos_site.infra import mongo
from chronos_site.observability import events, tracing
from chronos_site.stack.receiver import Answer, Received
from chronos_site.tenancy.models import Workspace
from tests.clients import ApiClient, ApiResponse, ProgrammableReceiver
from tests.kafka_broker import cluster, headers_of, make_topic, read
from tests.otlp import TraceReceiver, traced
from tests.processes import SiteProcesses, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

KEY = b"canary-of-the-signing-key"
CANARIES = {
    "header": "CanaryHeader7f3a91c2",
    "password": "CanaryPassword5be08d44",
    "signing": "whsec_" + base64.b64encode(KEY).decode(),
}
FORMS = [
    CANARIES["header"],
    CANARIES["password"],
    CANARIES["signing"].removeprefix("whsec_"),
    KEY.decode(),
    *(base64.b64encode(text.encode()).decode().rstrip("=") for text in ("bob:" + CANARIES["password"],)),
]


class Echo(ProgrammableReceiver):
    """Answers with all that it was sent: `/broken` never succeeds, `/second` does so at the second attempt."""

    def answer_to(self, request: Received) -> Answer:
        first = request.headers["x-attempt-number"] == "1"
        fails = request.path == "/broken" or (request.path == "/second" and first)
        told = {f"X-Echo-{number}": value for number, value in enumerate(request.headers.values())}
        return Answer(status=503 if fails else 200, headers=told, body=json.dumps(dict(request.headers)).encode())


class Wire:
    """Every command that Redis was sent, messages of the queues among them."""

    def __init__(self, server: redis.Redis) -> None:
        self.seen: list[str] = []
        self._server, self._end = server, f"end-{id(self)}"
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        assert self._ready.wait(5)

    def stop(self) -> str:
        self._server.echo(self._end)
        self._thread.join(10)
        return "\n".join(self.seen)

    def _listen(self) -> None:
        # Without a timeout: nothing may be sent for as long as the processes take to start.
        patient = redis.Redis.from_url(settings.REDIS_URL, decode_responses=True, socket_timeout=None)
        with patient, patient.monitor() as monitor:
            self._ready.set()
            for command in monitor.listen():
                self.seen.append(command["command"])
                if self._end in command["command"]:
                    return


@pytest.fixture
def traces(settings: Settings) -> Iterator[TraceReceiver]:
    """Takes the spans of this process; the others are told of it."""
    with TraceReceiver() as running, traced(settings, f"{running.endpoint}/v1/traces"):
        yield running


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as running:
        yield running


def everything_in_postgres() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables"
                       " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')")  # fmt: skip
        tables = [row[0] for row in cursor.fetchall()]
        found = []
        for table in tables:
            cursor.execute(f"SELECT t::text FROM {table} t")
            found += [row[0] for row in cursor.fetchall()]
    return "\n".join(found)


def everything_in_redis(server: redis.Redis) -> str:
    return "\n".join(f"{key} {_value(server, key)}" for key in server.scan_iter())


def _value(server: redis.Redis, key: str) -> Any:
    kind = server.type(key)
    readers = {"list": lambda: server.lrange(key, 0, -1), "hash": lambda: server.hgetall(key),
               "set": lambda: server.smembers(key), "zset": lambda: server.zrange(key, 0, -1, withscores=True),
               "stream": lambda: server.xrange(key)}  # fmt: skip
    return readers.get(str(kind), lambda: server.get(key))()


def everything_in_mongo() -> str:
    database = mongo.database()
    assert database is not None
    return "\n".join(str(row) for name in database.list_collection_names() for row in database[name].find())


def test_a_secret_is_found_at_the_receiver_and_nowhere_else(
    celery_processes: SiteProcesses,
    api: ApiClient,
    workspace: Workspace,
    echo: Echo,
    redis_server: redis.Redis,
    traces: TraceReceiver,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    folder = tmp_path / "secrets"
    (folder / "acme" / "hooks").mkdir(parents=True)
    for key, value in CANARIES.items():
        (folder / "acme" / "hooks" / key).write_text(value + "\n")
    Workspace.objects.filter(id=workspace.id).update(secret_namespaces=["acme"])
    wire = Wire(redis_server)
    beat = celery_processes.beat(name="beat")
    worker = celery_processes.worker(
        name="all",
        queues="scheduler,maintenance,bucket-triggers,job-dispatch",
        CHRONOS_SECRET_PROVIDER="mounted",
        CHRONOS_SECRETS_DIR=str(folder),
        LOG_LEVEL="DEBUG",
        OTEL_EXPORTER_OTLP_ENDPOINT=traces.endpoint,
    )
    answers: list[ApiResponse] = []

    def call(method: str, path: str, body: Any = None) -> Any:
        answers.append(api.call(method, f"/v1/{path}", body, {}))
        assert answers[-1].status_code < 300, answers[-1].content
        return answers[-1].json()

    # A job and schedules with secrets in a header, in auth and in signing: success, a retry, and a dead letter.
    target = {
        "method": "POST",
        "headers": {"X-Plain": "secret://acme/hooks/header"},
        "auth": {"type": "basic", "username": "bob", "password": "secret://acme/hooks/password"},
        "signing": {"secret": "secret://acme/hooks/signing"},
    }
    retry = {"max_attempts": 2, "initial_backoff_s": 0.1, "jitter": "none"}
    job = call("POST", "job-definitions", {"name": "j", "target": {**target, "url": echo.url("/good")}, "retry": retry})
    headers = {"X-Api-Key": "secret://acme/hooks/header"}
    made = [call("POST", "schedules", {"job_definition": "j", "delay_s": 0, "delivery": {"headers": headers}})]
    for path in ("/second", "/broken"):
        body = {"target": {**target, "url": echo.url(path)}, "delay_s": 0, "delivery": {"retry": retry}}
        made.append(call("POST", "schedules", body))
    ids = [each["execution_id"] for each in made]
    ids.append(call("POST", f"job-definitions/{job['id']}/run", {})["id"])
    make_topic(cluster(), "canary")
    message = {"topic": "canary", "headers": target["headers"], "signing": target["signing"]}
    ids.append(call("POST", "schedules", {"target": message, "delay_s": 0})["execution_id"])
    ends = dict(zip(ids, ["SUCCEEDED", "SUCCEEDED", "FAILED", "SUCCEEDED", "SUCCEEDED"], strict=True))

    def ended() -> bool:
        return {i: api.get(f"/v1/executions/{i}").json()["state"] for i in ids} == ends

    wait_until(ended, timeout_s=30, told=lambda: celery_processes.log(worker)[-3000:])
    replay = call("POST", f"dead-letters/{ids[2]}/replay")["id"]
    ids.append(replay)
    ends[replay] = "FAILED"
    wait_until(ended, timeout_s=30, told=lambda: celery_processes.log(worker)[-3000:])

    # At the receiver.
    assert {request.path for request in echo.requests} == {"/good", "/second", "/broken"}
    assert len(echo.requests) == 1 + 2 + 2 + 1 + 2
    for request in echo.requests:
        assert request.headers["x-plain"] == CANARIES["header"]
        assert base64.b64decode(request.headers["authorization"].split()[1]).decode() == f"bob:{CANARIES['password']}"
        assert request.headers["webhook-signature"].startswith("v1,")

    carried = headers_of(read(cluster(), "canary", 1)[0])
    assert carried["X-Plain"] == CANARIES["header"]
    assert carried["webhook-signature"].startswith("v1,")

    # Whatever the API tells of it.
    for execution_id in ids:
        call("GET", f"executions/{execution_id}")
        wait_until(lambda i=execution_id: api.get(f"/v1/executions/{i}/logs").json()["items"])  # type: ignore[misc]
        call("GET", f"executions/{execution_id}/attempts")
        call("GET", f"executions/{execution_id}/logs")
    for path in ("job-definitions", "schedules", "executions", "dead-letters", "workspace", "operations"):
        call("GET", path)
    exported = "\n".join(answer.content.decode() for answer in answers)

    celery_processes.stop()
    tracing.stop()
    stream = str(redis_server.xrange(events.STREAM))
    places = {
        "traces": traces.everything,
        "postgres": everything_in_postgres(),
        "redis": everything_in_redis(redis_server),
        "events": stream,
        "redis commands": wire.stop(),
        "mongo": everything_in_mongo(),
        "answers": exported,
        "logs of this process": caplog.text + "".join(str(vars(record)) for record in caplog.records),
        "log of the worker": celery_processes.log(worker),
        "log of beat": celery_processes.log(beat),
    }
    # Each place was really looked at: the execution, or what stands for the secret, is there.
    for place in ("postgres", "redis commands", "mongo", "answers", "traces", "events"):
        assert ids[0] in places[place], place
    assert "secret://acme/hooks/password" in places["postgres"]
    assert "execution.failed" in stream
    assert '"body":"{' in places["answers"]
    assert "***" in places["mongo"]
    attempts = [span for span in traces.spans if span.kind == "client"]
    assert len(attempts) == len(echo.requests)
    assert sum(span.failed for span in attempts) == 1 + 2 + 2
    assert traces.named("POST /v1/schedules")
    found = {(place, form) for place, text in places.items() for form in FORMS if form in text}
    assert found == set()
