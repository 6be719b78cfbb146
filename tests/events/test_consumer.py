"""Readers of the stream: each entry is handed over at least once, whoever dies."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import pytest
import redis
from confluent_kafka.admin import AdminClient
from django.core.management import CommandError, call_command
from jsonschema import Draft202012Validator

from chronos_site.observability import events
from chronos_site.stack.site import EVENTS_READY, SiteProcess, event_consumer, manage
from chronos_site.tenancy.models import Workspace
from execution.event_consumer import Entry, Reader
from execution.event_sinks import PARTITIONS, TOPIC, KafkaSink
from tests.events.reading import SCHEMA, told
from tests.kafka_broker import OwnBroker, cluster, read
from tests.making import make_executions
from tests.processes import SiteProcesses, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

NOWHERE = "http://127.0.0.1:9/"


class Kept:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def __call__(self, entries: Sequence[Entry]) -> None:
        self.entries += entries

    @property
    def executions(self) -> list[str]:
        return [entry.event()["execution"] for entry in self.entries]


def ids_of(rows: Sequence[Any]) -> list[str]:
    return [str(row.id) for row in rows]


def reader(sink: Callable[[Sequence[Entry]], None], *, consumer: str = "one", claim_after_s: float = 60) -> Reader:
    return Reader(group="tests", consumer=consumer, sink=sink, claim_after_s=claim_after_s)


def test_two_consumers_of_a_group_share_and_another_group_gets_all(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    """The seam for readers in Python: a function and a group of one's own."""
    rows = make_executions(workspace, NOWHERE, 700)
    told(redis_server)
    sinks = [Kept(), Kept(), Kept()]
    reader(sinks[0]).run(once=True)
    reader(sinks[1], consumer="two").run(once=True)
    Reader(group="others", consumer="one", sink=sinks[2]).run(once=True)
    assert sorted(sinks[0].executions + sinks[1].executions) == sorted(ids_of(rows))
    assert sinks[2].executions == ids_of(rows)
    assert [g.pending for g in events.look().groups] == [0, 0]
    assert [g.lag for g in events.look().groups] == [0, 0]


def test_what_a_sink_did_not_take_is_handed_over_again(workspace: Workspace, redis_server: redis.Redis) -> None:
    rows = make_executions(workspace, NOWHERE, 3)
    told(redis_server)
    kept, fails = Kept(), [True, True]

    def sink(entries: Sequence[Entry]) -> None:
        kept(entries)
        if fails and fails.pop():
            raise RuntimeError("not now")

    running = reader(sink)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        wait_until(lambda: running.read.delivered == 3)
    finally:
        running.stop()
        thread.join(10)
    assert not thread.is_alive()
    assert kept.executions == ids_of(rows) * 3
    assert running.read.failures == 2


def test_what_a_dead_consumer_left_is_taken_over_and_what_was_cut_off_is_counted(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, NOWHERE, 5)
    told(redis_server)

    def dies(_entries: Sequence[Entry]) -> None:
        raise RuntimeError("dead")

    with pytest.raises(RuntimeError, match="dead"):
        reader(dies, consumer="dead").run(once=True)
    redis_server.xtrim(events.STREAM, maxlen=4, approximate=False)
    early, late = Kept(), Kept()
    waits = reader(early, consumer="early").run(once=True)
    assert early.entries == []
    time.sleep(0.05)
    done = reader(late, consumer="late", claim_after_s=0.01).run(once=True)
    assert late.executions == ids_of(rows[1:])
    assert (done.claimed, waits.lost + done.lost) == (4, 1)


def test_a_consumer_that_is_killed_loses_nothing(
    celery_processes: SiteProcesses, workspace: Workspace, redis_server: redis.Redis
) -> None:
    with OwnBrokerHeld(celery_processes) as broker:
        rows = make_executions(workspace, NOWHERE, 20)
        told(redis_server)
        first = celery_processes.start(consumer("first"), KAFKA_BOOTSTRAP=broker.bootstrap)
        wait_until(lambda: _pending(redis_server) == 20, timeout_s=30, told=lambda: celery_processes.log(first))
        first.popen.send_signal(signal.SIGKILL)
        first.popen.wait(10)
        broker.go_on()
        second = celery_processes.start(consumer("second"), KAFKA_BOOTSTRAP=broker.bootstrap)
        wait_until(
            lambda: (_pending(redis_server), _lag(redis_server)) == (0, 0),
            timeout_s=40,
            told=lambda: celery_processes.log(second),
        )
        messages = read(broker.bootstrap, TOPIC, 20, partitions=PARTITIONS)
        assert {message.key().decode() for message in messages} == set(ids_of(rows))  # type: ignore[union-attr]
        second.ask_to_stop()
        assert second.popen.wait(15) == 0


class OwnBrokerHeld(OwnBroker):
    """Has the topic, and does not answer until it is let go on."""

    def __init__(self, processes: SiteProcesses) -> None:
        super().__init__(processes._folder)

    def start(self) -> None:
        super().start()
        sink = KafkaSink(self.bootstrap)
        sink._ensure_topic()
        self.hold()


def consumer(name: str) -> SiteProcess:
    arguments = ["consume_events", "--sink", "kafka", "--consumer", name, "--claim-after", "0.5"]
    return SiteProcess(name, manage(*arguments), grace_s=15)


def _group(server: redis.Redis) -> dict[str, Any]:
    groups: Any = server.xinfo_groups(events.STREAM) if server.exists(events.STREAM) else []
    return next((g for g in groups if g["name"] == "kafka"), {})


def _pending(server: redis.Redis) -> int:
    return int(_group(server).get("pending", -1))


def _lag(server: redis.Redis) -> int:
    return int(_group(server).get("lag") or 0)


def test_kafka_has_the_events_keyed_by_execution_and_by_the_schema(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, NOWHERE, 3)
    told(redis_server)
    out = StringIO()
    call_command("consume_events", sink=["kafka"], once=True, json=True, stdout=out, stderr=StringIO())
    assert json.loads(out.getvalue())["kafka"]["delivered"] == 3
    messages = read(cluster(), TOPIC, 3, partitions=PARTITIONS)
    by_key = {message.key().decode(): json.loads(message.value()) for message in messages}  # type: ignore[union-attr,arg-type]
    for row in rows:
        event = by_key[str(row.id)]
        Draft202012Validator(SCHEMA).validate(event)
        assert (event["type"], event["execution"]) == ("execution.created", str(row.id))
    assert TOPIC in AdminClient({"bootstrap.servers": cluster()}).list_topics(timeout=10).topics


def test_the_command_writes_lines_and_refuses_what_does_not_go_together(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    [row] = make_executions(workspace, NOWHERE)
    told(redis_server)
    out = StringIO()
    call_command("consume_events", sink=["stdout"], group="lines", once=True, stdout=out, stderr=StringIO())
    assert json.loads(out.getvalue())["execution"] == str(row.id)
    for wrong in ({"sink": ["live", "stdout"], "group": "g"}, {"sink": ["stdout"], "claim_after": 0.0}):
        with pytest.raises(CommandError) as refused:
            call_command("consume_events", once=True, stdout=StringIO(), **wrong)
        assert refused.value.returncode == 2


def test_the_process_of_the_stack_stops_politely(celery_processes: SiteProcesses, redis_server: redis.Redis) -> None:
    child = celery_processes.start(event_consumer())
    celery_processes.wait_for_log(child, EVENTS_READY)
    wait_until(lambda: {g.name for g in events.look().groups} == {"live", "kafka"}, timeout_s=30)
    child.ask_to_stop()
    assert child.popen.wait(15) == 0
    assert sys.executable in child.spec.argv
