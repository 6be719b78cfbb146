"""Where `manage.py consume_events` takes events to: open pages, a Kafka topic, standard output."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from chronos_site.infra import kafka
from execution.event_consumer import Entry, Sink

TOPIC = kafka.EVENTS_TOPIC
TOLD = "events.told"
LONGEST_S = 5.0
KAFKA_TIMEOUT_S = 20.0
PARTITIONS = 6
SUBJECTS = ("execution", "bulk_job", "operation", "schedule")
"""The member that names what an event is about: the first of these that is set."""


class SinkError(RuntimeError):
    """The entries did not all arrive; they are to be handed over again."""


def group_of(workspace_id: UUID | str) -> str:
    """The channel-layer group of a workspace's watchers."""
    return f"events.{workspace_id}"


def to_live_pages(entries: Sequence[Entry]) -> None:
    """One message for each workspace. What nobody watches is lost, as it is meant to be."""
    by_workspace: dict[str, list[str]] = {}
    for entry in entries:
        workspace = entry.event().get("workspace")
        if workspace:
            by_workspace.setdefault(workspace, []).append(entry.text)
    async_to_sync(_send)(by_workspace)


async def _send(by_workspace: dict[str, list[str]]) -> None:
    layer = get_channel_layer()
    try:
        async with asyncio.timeout(LONGEST_S):
            for workspace, texts in by_workspace.items():
                await layer.group_send(group_of(workspace), {"type": TOLD, "events": texts})
    finally:
        # The event loop ends with this call, and so must the connections that belong to it.
        await layer.flush()


def to_lines(write: Callable[[str], Any]) -> Sink:
    """A sink that writes one JSON object a line, without its end."""

    def take(entries: Sequence[Entry]) -> None:
        for entry in entries:
            write(entry.text)

    return take


class KafkaSink:
    """The topic `job-events` of the deployment's cluster, keyed by what an event is about.

    It returns once all replicas have the messages. The producer is idempotent; one that has failed is replaced.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = KAFKA_TIMEOUT_S) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._producer: Producer | None = None
        self._complaint = ""

    def __call__(self, entries: Sequence[Entry]) -> None:
        """Raises SinkError, KafkaException."""
        if self._producer is None:
            self._ensure_topic()
            self._producer = kafka.build_producer(
                self._bootstrap, timeout_s=self._timeout_s, client_id="chronos-events", on_error=self._note
            )
        failed: list[KafkaError] = []
        kept = 0

        def told(error: KafkaError | None, _message: Message) -> None:
            nonlocal kept
            if error is None:
                kept += 1
            else:
                failed.append(error)

        try:
            for entry in entries:
                self._produce(self._producer, entry, told)
            self._producer.flush(self._timeout_s + 5)
        except (KafkaException, BufferError):
            self._replace()
            raise
        if kept < len(entries):
            self._replace()
            why = failed[0].str() if failed else self._complaint or "no word from the cluster"
            raise SinkError(f"{len(entries) - kept} of {len(entries)} events are not in {TOPIC}: {why}")

    def close(self) -> None:
        self._replace()

    def _produce(self, producer: Producer, entry: Entry, told: Any) -> None:
        ends = time.monotonic() + self._timeout_s
        while True:
            try:
                producer.produce(TOPIC, value=entry.text.encode(), key=key_of(entry), on_delivery=told)
            except BufferError:
                if time.monotonic() > ends:
                    raise
                producer.poll(0.05)
            else:
                producer.poll(0)
                return

    def _replace(self) -> None:
        """What is in its buffer goes no more: it is handed over again, to another producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(1)

    def _ensure_topic(self) -> None:
        """Make the topic where it is missing. Whoever wants other settings makes it first."""
        admin = AdminClient({**kafka.client_properties(), "bootstrap.servers": self._bootstrap})
        if TOPIC in admin.list_topics(timeout=self._timeout_s).topics:
            return
        made = admin.create_topics([NewTopic(TOPIC, PARTITIONS, -1)])[TOPIC]
        try:
            made.result(self._timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _note(self, error: KafkaError) -> None:
        self._complaint = error.str()


def key_of(entry: Entry) -> bytes:
    """Events of one execution go to one partition, so that their order is kept."""
    event = entry.event()
    return next((str(event[name]) for name in SUBJECTS if event.get(name)), "").encode()
