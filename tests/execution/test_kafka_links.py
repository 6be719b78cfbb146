"""The producers of a worker: what they survive, when one is replaced, and that none is kept for nothing."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from chronos_site.infra import mongo
from chronos_site.tenancy.models import Workspace
from execution import transitions
from execution.dispatch import kafka_links
from execution.dispatch.breaker import read_breakers
from execution.dispatch.engine import Engine
from execution.dispatch.kafka import place_of
from execution.dispatch.runtime import build_engine
from execution.loops.retry import queue_due_retries
from execution.models import Execution
from tests.broker import take_queued_ids
from tests.kafka_broker import OwnBroker, cluster, make_topic, read
from tests.making import make_executions, states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

RETRY = {"max_attempts": 50, "initial_backoff_s": 0.2, "multiplier": 1, "jitter": "none"}


@pytest.fixture
def broker(tmp_path: Path, settings: Any) -> Iterator[OwnBroker]:
    (tmp_path / "logs").mkdir(exist_ok=True)
    with OwnBroker(tmp_path) as running:
        settings.KAFKA_BOOTSTRAP_ALLOW = [running.bootstrap]
        make_topic(running.bootstrap, "t")
        yield running


def messages(
    workspace: Workspace, bootstrap: str, count: int = 1, *, topic: str = "t", **fields: Any
) -> list[Execution]:
    target = {"topic": topic, "bootstrap": bootstrap, "headers": {}}
    return make_executions(workspace, "", count, kind="kafka", target=target, **{"timeout_s": 10.0, **fields})


def submit(engine: Engine, rows: list[Execution]) -> list[Execution]:
    engine.submit(transitions.queue_pending(ids=[row.id for row in rows]))
    return rows


def warm_up(engine: Engine, workspace: Workspace, bootstrap: str, timeout_s: float) -> None:
    """Make the producer for this timeout; its first message may take a second."""
    rows = submit(engine, messages(workspace, bootstrap, payload="warm", timeout_s=timeout_s, retry=RETRY))
    wait_for(rows, "SUCCEEDED", engine=engine)


def wait_for(rows: list[Execution], state: str, *, engine: Engine | None = None, timeout_s: float = 15) -> None:
    """With an engine, what waits for another attempt gets it."""
    ids = [row.id for row in rows]

    def reached() -> bool:
        if engine is not None:
            queue_due_retries()
            engine.submit(take_queued_ids())
        return set(states_of(ids).values()) == {state}

    wait_until(
        reached, timeout_s=timeout_s, step_s=0.1, told=lambda: str(Execution.objects.filter(id__in=ids).values())
    )


def links() -> int:
    return sum(thread.name == "kafka" for thread in threading.enumerate())


def test_a_message_whose_confirmation_was_lost_is_sent_again_by_the_client_and_stored_once(
    engine: Engine, workspace: Workspace, broker: OwnBroker
) -> None:
    wait_for(submit(engine, messages(workspace, broker.bootstrap)), "SUCCEEDED")
    broker.proxy.cut_on_reply_to(lambda sent: b"just-once" in sent)
    [row] = submit(engine, messages(workspace, broker.bootstrap, payload="just-once"))
    wait_for([row], "SUCCEEDED")
    assert broker.proxy.cuts == 1
    [last] = submit(engine, messages(workspace, broker.bootstrap, payload="last"))
    wait_for([last], "SUCCEEDED")
    assert sorted(message.value() or b"" for message in read(broker.bootstrap, "t", 3)) == [
        b'"just-once"',
        b'"last"',
        b'{"n":1}',
    ]
    logs = mongo.execution_logs()
    assert logs is not None
    wait_until(lambda: logs.find_one({"execution_id": str(row.id)}))
    [found] = logs.find({"execution_id": str(row.id)})
    assert found["response"]["partition"] in (0, 1, 2)


def test_a_broker_that_does_not_tell_the_offset_has_the_message_all_the_same() -> None:
    assert place_of(2, 7) == {"partition": "2", "offset": "7"}
    assert place_of(2, None) == place_of(2, -1) == {"partition": "2"}


def test_a_cluster_that_hung_takes_messages_again_once_it_goes_on(
    engine: Engine, workspace: Workspace, broker: OwnBroker
) -> None:
    warm_up(engine, workspace, broker.bootstrap, 1.0)
    broker.proxy.blackhole(new=True)
    rows = submit(engine, messages(workspace, broker.bootstrap, 5, timeout_s=1.0, retry=RETRY))
    wait_for(rows, "RETRYING")
    broker.proxy.heal()
    wait_for(rows, "SUCCEEDED", engine=engine)


def test_a_cluster_that_comes_back_and_remembers_nothing_takes_messages_again(
    engine: Engine, workspace: Workspace, broker: OwnBroker
) -> None:
    warm_up(engine, workspace, broker.bootstrap, 1.0)
    broker.kill()
    rows = submit(engine, messages(workspace, broker.bootstrap, 3, timeout_s=1.0, retry=RETRY))
    wait_for(rows, "RETRYING")
    rows[0].refresh_from_db()
    assert rows[0].last_error == "timeout"
    assert "complaint: Local: " in rows[0].last_error_text
    assert broker.bootstrap not in rows[0].last_error_text
    broker.start()
    make_topic(broker.bootstrap, "t")
    wait_for(rows, "SUCCEEDED", engine=engine, timeout_s=kafka_links.WORN_S + 15)


def test_an_attempt_shorter_than_a_producer_needs_to_begin_is_not_answered_by_ever_new_producers(
    engine: Engine, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_links, "WORN_S", 0.5)
    topic = f"short.{uuid4().hex}"
    make_topic(cluster(), topic)
    retry = {**RETRY, "initial_backoff_s": 1.5}
    rows = submit(engine, messages(workspace, cluster(), topic=topic, timeout_s=0.2, retry=retry))
    wait_for(rows, "SUCCEEDED", engine=engine)


def test_a_producer_that_has_failed_for_good_tells_so_at_once_and_another_takes_its_place(
    engine: Engine, workspace: Workspace, broker: OwnBroker, caplog: pytest.LogCaptureFixture
) -> None:
    wait_for(submit(engine, messages(workspace, broker.bootstrap, timeout_s=20.0)), "SUCCEEDED")
    broker.proxy.cut_on_reply_to(lambda sent: b"doubtful" in sent)
    rows = submit(engine, messages(workspace, broker.bootstrap, payload="doubtful", timeout_s=20.0, retry=RETRY))
    wait_until(lambda: broker.proxy.cuts == 1)
    broker.proxy.refuse()
    broker.kill()
    broker.start()
    broker.proxy.accept()
    make_topic(broker.bootstrap, "t")
    begun = time.monotonic()
    wait_for(rows, "SUCCEEDED", engine=engine)
    assert "FATAL" in caplog.text
    assert time.monotonic() - begun < 10, "it did not wait for the message's time to be over"
    assert Execution.objects.get(id=rows[0].id).attempt == 2


def test_a_topic_that_is_not_there_is_named_so_opens_no_breaker_and_is_found_once_it_is_made(
    engine: Engine, workspace: Workspace, settings: Any
) -> None:
    settings.CHRONOS_BREAKER_FAILURES = 2
    missing = f"missing.{uuid4().hex}"
    rows = submit(engine, messages(workspace, cluster(), 5, topic=missing, timeout_s=6.0, retry=RETRY))
    wait_for(rows, "RETRYING")
    rows[0].refresh_from_db()
    assert rows[0].last_error in ("kafka_unknown_topic_or_part", "kafka_unknown_topic")
    assert read_breakers() == []
    make_topic(cluster(), missing)
    wait_for(rows, "SUCCEEDED", engine=engine)


def test_a_full_buffer_is_waited_for_and_no_message_is_lost(
    engine: Engine, workspace: Workspace, broker: OwnBroker, settings: Any, tmp_path: Path
) -> None:
    hold_one_at_a_time(settings, tmp_path)
    rows = submit(engine, messages(workspace, broker.bootstrap, 20))
    wait_for(rows, "SUCCEEDED")
    assert len(read(broker.bootstrap, "t", 20)) == 20


def test_a_buffer_that_stays_full_costs_an_attempt_and_says_nothing_against_the_cluster(
    engine: Engine, workspace: Workspace, broker: OwnBroker, settings: Any, tmp_path: Path
) -> None:
    hold_one_at_a_time(settings, tmp_path)
    broker.proxy.blackhole(new=True)
    submit(engine, messages(workspace, broker.bootstrap, timeout_s=8.0))
    begun = time.monotonic()
    wait_until(lambda: links() >= 1)
    rows = submit(
        engine, messages(workspace, broker.bootstrap, 3, timeout_s=8.0, retry={**RETRY, "initial_backoff_s": 60})
    )
    wait_for(rows, "RETRYING", timeout_s=5)
    assert time.monotonic() - begun < 6
    assert set(Execution.objects.filter(state="RETRYING").values_list("last_error", flat=True)) == {"kafka_queue_full"}
    assert read_breakers() == []


def hold_one_at_a_time(settings: Any, tmp_path: Path) -> None:
    place = tmp_path / "kafka.properties"
    place.write_text("queue.buffering.max.messages=1\n")
    settings.KAFKA_PROPERTIES_FILE = str(place)


def test_a_worker_that_stops_while_a_cluster_hangs_ends_within_its_grace(
    workspace: Workspace, broker: OwnBroker
) -> None:
    engine = build_engine(name="stops")
    engine.start()
    wait_for(submit(engine, messages(workspace, broker.bootstrap, timeout_s=30.0)), "SUCCEEDED")
    broker.proxy.blackhole(new=True)
    for timeout_s in range(20, 30):
        submit(engine, messages(workspace, broker.bootstrap, timeout_s=float(timeout_s)))
    wait_until(lambda: Execution.objects.filter(state="RUNNING", begun_seq__gt=0).count() == 10)
    begun = time.monotonic()
    engine.begin_stop()
    engine.stop(1)
    assert time.monotonic() - begun < 1 + kafka_links.END_S + 1
    assert Execution.objects.filter(state="RUNNING").count() == 10, "their outcome is unknown, which the lease tells"
    wait_until(lambda: links() == 0)


def test_producers_are_as_many_as_are_allowed_and_none_is_kept_unused(
    engine: Engine, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_links, "PRODUCERS", 3)
    monkeypatch.setattr(kafka_links, "IDLE_S", 1.0)
    topic = f"many.{uuid4().hex}"
    make_topic(cluster(), topic)
    rows = [row for n in range(8) for row in messages(workspace, cluster(), topic=topic, timeout_s=10.0 + n)]
    submit(engine, rows)
    wait_for(rows, "SUCCEEDED")
    assert links() > 0
    wait_until(lambda: links() <= 3)
    wait_until(lambda: links() == 0)
    [again] = submit(engine, messages(workspace, cluster(), topic=topic))
    wait_for([again], "SUCCEEDED")
