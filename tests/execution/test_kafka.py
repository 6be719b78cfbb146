"""Kafka deliveries through the engine: what arrives, what fails how, and that a broker in trouble holds up no other."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution import switches, transitions
from execution.dispatch.breaker import read_breakers
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine
from execution.domain.classify import Kind, classify
from execution.domain.kafka_errors import code_of
from execution.loops.retry import queue_due_retries
from execution.models import DeadLetter, Execution
from tests.broker import take_queued_ids
from tests.clients import ApiClient, ProgrammableReceiver
from tests.kafka_broker import OwnBroker, cluster, headers_of, make_topic, read
from tests.making import make_executions, states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

JOBS, SCHEDULES = "/v1/job-definitions", "/v1/schedules"


@pytest.fixture
def topic() -> str:
    name = f"orders.{uuid4().hex}"
    make_topic(cluster(), name)
    return name


@pytest.fixture
def broker(tmp_path: Path, settings: Any) -> Iterator[OwnBroker]:
    (tmp_path / "logs").mkdir(exist_ok=True)
    with OwnBroker(tmp_path) as running:
        settings.KAFKA_BOOTSTRAP_ALLOW = [running.bootstrap]
        yield running


def messages_for(workspace: Workspace, target: dict[str, Any], count: int = 1, **fields: Any) -> list[Execution]:
    return make_executions(workspace, "", count, kind="kafka", target={"headers": {}, **target}, **fields)


def submit(engine: Engine, rows: list[Execution]) -> None:
    engine.submit(transitions.queue_pending(ids=[row.id for row in rows]))


def wait_for(rows: list[Execution], state: str, timeout_s: float = 15) -> None:
    ids = [row.id for row in rows]
    wait_until(lambda: set(states_of(ids).values()) == {state}, timeout_s=timeout_s, told=lambda: str(states_of(ids)))


def test_a_message_arrives_with_its_key_partition_payload_and_headers(
    engine: Engine, workspace: Workspace, topic: str
) -> None:
    target = {"topic": topic, "key": "köln", "partition": 2, "headers": {"X-Team": "billing"}}
    [row] = messages_for(workspace, target, payload={"name": "Zoë"})
    submit(engine, [row])
    wait_for([row], "SUCCEEDED")
    [message] = read(cluster(), topic, 1)
    assert (message.key(), message.partition()) == ("köln".encode(), 2)
    assert message.value() == '{"name":"Zoë"}'.encode()
    headers = headers_of(message)
    assert headers["X-Execution-Id"] == headers["X-Job-Id"] == str(row.id)
    assert (headers["X-Attempt-Number"], headers["X-Team"]) == ("1", "billing")
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Scheduled-For"].endswith("Z")
    assert headers["traceparent"].split("-")[1] == row.traceparent.split("-")[1]
    row.refresh_from_db()
    assert row.last_status is None
    assert not row.last_error


def test_messages_with_one_key_go_to_one_partition_and_none_is_lost(
    engine: Engine, workspace: Workspace, topic: str
) -> None:
    rows = messages_for(workspace, {"topic": topic, "key": "k"}, 300)
    for start in range(0, 300, 100):
        submit(engine, rows[start : start + 100])
    wait_for(rows, "SUCCEEDED")
    found = read(cluster(), topic, 300)
    assert {headers_of(message)["X-Execution-Id"] for message in found} == {str(row.id) for row in rows}
    assert len({message.partition() for message in found}) == 1


def test_a_broker_that_is_away_costs_an_attempt_and_the_next_one_delivers(
    engine: Engine, workspace: Workspace, broker: OwnBroker
) -> None:
    make_topic(broker.bootstrap, "t")
    broker.kill()
    retry = {"max_attempts": 5, "initial_backoff_s": 0.2, "multiplier": 1, "jitter": "none"}
    [row] = messages_for(workspace, {"topic": "t", "bootstrap": broker.bootstrap}, timeout_s=1.0, retry=retry)
    submit(engine, [row])
    wait_for([row], "RETRYING")
    row.refresh_from_db()
    assert row.last_error == "timeout"
    broker.start()
    make_topic(broker.bootstrap, "t")

    def turn() -> bool:
        queue_due_retries()
        engine.submit(take_queued_ids())
        return states_of([row.id]) == {row.id: "SUCCEEDED"}

    wait_until(turn, timeout_s=20, step_s=0.2)
    assert int(headers_of(read(broker.bootstrap, "t", 1)[0])["X-Attempt-Number"]) >= 2


def test_a_message_that_arrives_closes_the_breaker_of_its_cluster(
    engine: Engine, workspace: Workspace, broker: OwnBroker, settings: Any
) -> None:
    settings.CHRONOS_BREAKER_FAILURES, settings.CHRONOS_BREAKER_PAUSE_S = 2, 0.5
    make_topic(broker.bootstrap, "t")
    broker.kill()
    target = {"topic": "t", "bootstrap": broker.bootstrap}
    lost = messages_for(workspace, target, 2, timeout_s=1.0)
    submit(engine, lost)
    wait_for(lost, "FAILED")
    broker.start()
    make_topic(broker.bootstrap, "t")
    wait_until(lambda: [found.state for found in read_breakers()] == ["half_open"])
    [probe] = messages_for(workspace, target)
    submit(engine, [probe])
    wait_for([probe], "SUCCEEDED")
    wait_until(lambda: read_breakers() == [], told=lambda: str(read_breakers()))


def test_a_broker_that_hangs_holds_up_nobody_else_and_its_message_is_given_up_in_time(
    engine: Engine, workspace: Workspace, broker: OwnBroker, topic: str, receiver: ProgrammableReceiver
) -> None:
    make_topic(broker.bootstrap, "t")
    first = messages_for(workspace, {"topic": "t", "bootstrap": broker.bootstrap}, timeout_s=2.0)
    submit(engine, first)
    wait_for(first, "SUCCEEDED")
    broker.hold()
    begun = time.monotonic()
    stuck = messages_for(workspace, {"topic": "t", "bootstrap": broker.bootstrap}, 20, timeout_s=2.0)
    submit(engine, stuck)
    others = [*messages_for(workspace, {"topic": topic}, 20), *make_executions(workspace, receiver.url(), 20)]
    submit(engine, others)
    wait_for(others, "SUCCEEDED", timeout_s=2)
    wait_for(stuck, "FAILED", timeout_s=8)
    assert time.monotonic() - begun < 6
    assert {row.last_error for row in Execution.objects.filter(id__in=[row.id for row in stuck])} == {"timeout"}
    broker.go_on()


def test_a_stop_waits_for_messages_under_way(workspace: Workspace, topic: str) -> None:
    engine = build_engine(name="stops")
    engine.start()
    rows = messages_for(workspace, {"topic": topic}, 100)
    submit(engine, rows)
    wait_until(lambda: Execution.objects.filter(begun_seq__gt=0).count() == 100, timeout_s=5)
    engine.begin_stop()
    engine.stop(5)
    assert set(states_of([row.id for row in rows]).values()) == {"SUCCEEDED"}
    assert len(read(cluster(), topic, 100)) == 100


def test_a_message_that_no_broker_would_take_is_a_dead_letter_at_once(
    engine: Engine, workspace: Workspace, topic: str
) -> None:
    [row] = messages_for(workspace, {"topic": topic}, payload="x" * 2_000_000, retry={"max_attempts": 5})
    submit(engine, [row])
    wait_for([row], "FAILED")
    letter = DeadLetter.objects.get(id=row.id)
    assert (letter.reason, letter.last_error, letter.attempts) == ("terminal_answer", "kafka_msg_size_too_large", 1)


def test_an_unknown_topic_or_partition_is_tried_again(engine: Engine, workspace: Workspace, topic: str) -> None:
    retry = {"max_attempts": 3, "initial_backoff_s": 60}
    rows = messages_for(workspace, {"topic": topic, "partition": 99}, timeout_s=2.0, retry=retry)
    submit(engine, rows)
    wait_for(rows, "RETRYING")
    rows[0].refresh_from_db()
    assert rows[0].last_error in ("kafka_unknown_partition", "timeout")


def test_a_cluster_that_left_the_list_is_refused_at_the_send_and_says_so(
    engine: Engine, workspace: Workspace, api: ApiClient, settings: Any
) -> None:
    settings.KAFKA_BOOTSTRAP_ALLOW = ["other.example.com:9092"]
    target = {"topic": "t", "bootstrap": "Other.example.com:9092"}
    job = api.post(JOBS, {"name": "k", "target": target})
    assert (job.status_code, job.json()["kind"], job.json()["target"]["bootstrap"]) == (
        201,
        "kafka",
        "other.example.com:9092",
    )
    settings.KAFKA_BOOTSTRAP_ALLOW = []
    [row] = messages_for(workspace, job.json()["target"], retry={"max_attempts": 5})
    submit(engine, [row])
    wait_for([row], "FAILED")
    letter = DeadLetter.objects.get(id=row.id)
    assert letter.reason == "target_refused"
    assert "KAFKA_BOOTSTRAP_ALLOW" in Execution.objects.get(id=row.id).last_error_text


@pytest.mark.parametrize(
    ("target", "pointer", "words"),
    [
        ({"topic": "a b"}, "/target/topic", "letters, digits"),
        ({"topic": ".."}, "/target/topic", "letters, digits"),
        ({"topic": "t" * 250}, "/target/topic", "249"),
        ({"topic": "t", "partition": -1}, "/target/partition", "0"),
        ({"topic": "t", "partition": "1"}, "/target/partition", ""),
        ({"topic": "t", "key": 5}, "/target/key", ""),
        ({"topic": "t", "url": "https://example.com/"}, "/target/url", "not both"),
        ({}, "/target/url", "one of them is needed"),
        ({"topic": "t", "method": "POST"}, "/target/method", "does not belong to a Kafka message"),
        ({"topic": "t", "auth": {"type": "bearer", "token": "secret://a/b/c"}}, "/target/auth", "does not belong"),
        ({"url": "https://example.com/", "key": "k"}, "/target/key", "does not belong to an HTTP call"),
        ({"topic": "t", "bootstrap": "nowhere"}, "/target/bootstrap", "host:port"),
        ({"topic": "t", "bootstrap": "evil.example.com:9092"}, "/target/bootstrap", "not on the list"),
        ({"topic": "job-events"}, "/target/topic", "the events of Chronos itself"),
        ({"topic": "t", "headers": {"X-Execution-Id": "1"}}, "/target/headers/X-Execution-Id", "set by Chronos"),
        ({"topic": "t", "headers": {"Authorization": "Bearer abc"}}, "/target/headers/Authorization", "in clear"),
    ],
)
def test_a_wrong_target_is_refused_with_its_place_and_one_sentence(
    api: ApiClient, target: dict[str, Any], pointer: str, words: str
) -> None:
    for path, body in ((JOBS, {"name": "k", "target": target}), (SCHEDULES, {"target": target, "delay_s": 5})):
        answer = api.post(path, body)
        assert answer.status_code == 422, answer.json()
        [fault] = [fault for fault in answer.json()["errors"] if fault["pointer"] == pointer]
        assert words in fault["detail"], fault


def test_without_a_cluster_kafka_is_refused_and_says_what_to_set(api: ApiClient, settings: Any) -> None:
    settings.KAFKA_BOOTSTRAP = None
    [fault] = api.post(JOBS, {"name": "k", "target": {"topic": "t"}}).json()["errors"]
    assert "KAFKA_BOOTSTRAP" in fault["detail"]


def test_the_kind_of_a_job_is_that_of_its_target(api: ApiClient) -> None:
    assert api.post(JOBS, {"name": "a", "target": {"topic": "t"}}).json()["kind"] == "kafka"
    assert api.post(JOBS, {"name": "b", "target": {"url": "https://example.com/"}}).json()["kind"] == "http"
    answer = api.post(JOBS, {"name": "c", "kind": "http", "target": {"topic": "t"}})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/kind")


def test_a_schedule_with_a_topic_makes_kafka_executions(api: ApiClient, topic: str) -> None:
    made = api.post(SCHEDULES, {"target": {"topic": topic, "key": "k"}, "delay_s": 3600, "payload": {"a": 1}})
    assert made.status_code == 201, made.json()
    row = Execution.objects.get()
    assert (row.kind, row.target) == ("kafka", {"topic": topic, "key": "k", "headers": {}})


def test_a_switch_stops_what_goes_to_a_cluster(engine: Engine, workspace: Workspace, topic: str) -> None:
    switches.close_switch(scope="destination", value=f"kafka://{cluster()}")
    [row] = messages_for(workspace, {"topic": topic})
    submit(engine, [row])
    wait_for([row], "PENDING")
    row.refresh_from_db()
    assert row.park_reason == "dispatch_switch"
    assert row.due_at <= database_now()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("MSG_SIZE_TOO_LARGE", Kind.TERMINAL),
        ("TOPIC_AUTHORIZATION_FAILED", Kind.TERMINAL),
        ("TOPIC_EXCEPTION", Kind.TERMINAL),
        ("INVALID_RECORD", Kind.TERMINAL),
        ("POLICY_VIOLATION", Kind.TERMINAL),
        ("UNKNOWN_TOPIC_OR_PART", Kind.RETRYABLE),
        ("_UNKNOWN_TOPIC", Kind.RETRYABLE),
        ("_UNKNOWN_PARTITION", Kind.RETRYABLE),
        ("_MSG_TIMED_OUT", Kind.RETRYABLE),
        ("NOT_ENOUGH_REPLICAS", Kind.RETRYABLE),
        ("NOT_LEADER_FOR_PARTITION", Kind.RETRYABLE),
        ("LEADER_NOT_AVAILABLE", Kind.RETRYABLE),
        ("_TRANSPORT", Kind.RETRYABLE),
        ("_ALL_BROKERS_DOWN", Kind.RETRYABLE),
        ("_AUTHENTICATION", Kind.RETRYABLE),
        ("THROTTLING_QUOTA_EXCEEDED", Kind.RETRYABLE),
        ("_FATAL", Kind.RETRYABLE),
        ("_QUEUE_FULL", Kind.RETRYABLE),
        ("PRODUCER_FENCED", Kind.RETRYABLE),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", Kind.RETRYABLE),
        ("UNKNOWN_PRODUCER_ID", Kind.RETRYABLE),
        ("NETWORK_EXCEPTION", Kind.RETRYABLE),
        ("CLUSTER_AUTHORIZATION_FAILED", Kind.TERMINAL),
        ("RECORD_LIST_TOO_LARGE", Kind.TERMINAL),
    ],
)
def test_each_error_of_kafka_is_for_good_or_worth_another_attempt(name: str, kind: Kind) -> None:
    assert classify(status=None, error=code_of(name), headers={}, now=database_now()).kind == kind


def test_properties_that_cannot_be_read_cost_an_attempt_and_name_no_value(
    engine: Engine, workspace: Workspace, topic: str, settings: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    place = tmp_path / "kafka.properties"
    place.write_text("# login\nsasl.password=CanaryOfKafka\nno.such.property=1\n")
    settings.KAFKA_PROPERTIES_FILE = str(place)
    [row] = messages_for(workspace, {"topic": topic}, timeout_s=3.0, retry={"max_attempts": 3, "initial_backoff_s": 60})
    submit(engine, [row])
    wait_for([row], "RETRYING")
    row.refresh_from_db()
    assert row.last_error == "kafka_client"
    assert "no.such.property" in row.last_error_text
    assert "CanaryOfKafka" not in row.last_error_text + caplog.text


def test_a_client_whose_buffer_is_full_is_asked_again_until_all_have_gone(
    engine: Engine, workspace: Workspace, topic: str, settings: Any, tmp_path: Path
) -> None:
    place = tmp_path / "kafka.properties"
    place.write_text("queue.buffering.max.messages=5\n")
    settings.KAFKA_PROPERTIES_FILE = str(place)
    rows = messages_for(workspace, {"topic": topic}, 100, timeout_s=20.0)
    submit(engine, rows)
    # Five at a time, and each that finds no room waits a moment: on a busy machine longer than the others take.
    wait_for(rows, "SUCCEEDED", timeout_s=60)
    assert len(read(cluster(), topic, 100)) == 100
