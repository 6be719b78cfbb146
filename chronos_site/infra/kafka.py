"""Kafka clusters: which of them messages may go to, and a producer for one.

The cluster of the deployment is `KAFKA_BOOTSTRAP`; others are allowed by name in `KAFKA_BOOTSTRAP_ALLOW`. What a client
needs beside (TLS, SASL) is read from the file `KAFKA_PROPERTIES_FILE`, in librdkafka's own words. Brokers are reached
at the addresses that the cluster tells, so the list is the guard: nobody but the operator names a cluster.
"""

import logging
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from django.conf import settings

log = logging.getLogger(__name__)

_SERVER = re.compile(r"(?:[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:]+\]):([0-9]{1,5})")

EVENTS_TOPIC = "job-events"
UNKNOWN_TOPIC_S = 5.0
"""So long, and at most half of an attempt's time, a topic that is not there may still be on its way to all brokers."""


class KafkaRefused(ValueError):  # noqa: N818 - a verdict
    """No message may go there; the text says why, and what to do."""


@lru_cache(maxsize=1024)
def parse_bootstrap(text: str) -> str:
    """`host:port,host:port`, in lower case and without spaces. Raises ValueError with one sentence."""
    servers = [part.strip().lower() for part in text.split(",")]
    for server in servers:
        found = _SERVER.fullmatch(server)
        if found is None or not 1 <= int(found[1]) <= 65_535:
            raise ValueError(f"{server!r} is no Kafka server. Write host:port, and commas between several.")
    return ",".join(servers)


def allowed_bootstrap(wanted: str | None) -> str:
    """The cluster that a target means: the one it names, else the deployment's. Raises KafkaRefused."""
    own = settings.KAFKA_BOOTSTRAP
    if wanted is None:
        if own is None:
            raise KafkaRefused("no Kafka cluster is set up here; set KAFKA_BOOTSTRAP")
        return str(own)
    try:
        bootstrap = parse_bootstrap(wanted)
    except ValueError as error:
        raise KafkaRefused(str(error).rstrip(".")) from None
    if bootstrap != own and bootstrap not in settings.KAFKA_BOOTSTRAP_ALLOW:
        raise KafkaRefused(
            f"the Kafka cluster {bootstrap} is not on the list of allowed ones; add it to KAFKA_BOOTSTRAP_ALLOW"
        )
    return bootstrap


def refuse_events_topic(topic: str) -> None:
    """The topic of Chronos' own events is no target: whoever reads it takes it for true. Raises KafkaRefused."""
    if topic == EVENTS_TOPIC:
        raise KafkaRefused(f"the topic {EVENTS_TOPIC} carries the events of Chronos itself; choose another")


def build_producer(
    bootstrap: str, *, timeout_s: float, client_id: str, on_error: Callable[[KafkaError], None]
) -> Producer:
    """An idempotent producer that waits for all replicas and gives a message up after `timeout_s`.

    `on_error` is told what goes wrong beside the messages, on the thread that polls.
    Raises OSError, ValueError or KafkaException where the properties cannot be read or used.
    """

    def tell(error: KafkaError) -> None:
        log.warning("kafka_error", extra={"action": "kafka", "code": error.name(), "error": error.str()[:200]})
        on_error(error)

    return Producer(
        {
            **client_properties(),
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": max(1, int(timeout_s * 1000)),
            "linger.ms": 5,
            "allow.auto.create.topics": False,
            # Else a topic that is not there would look like a cluster that does not answer.
            "topic.metadata.propagation.max.ms": int(min(UNKNOWN_TOPIC_S, timeout_s / 2) * 1000),
            "error_cb": tell,
            "logger": log,
        }
    )


def count_brokers(bootstrap: str, *, timeout_s: float) -> int:
    """How many brokers the cluster has. Raises KafkaException where it does not answer in time."""
    given: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": "chronos", "logger": log}
    client = AdminClient({**client_properties(), **given})
    return len(client.list_topics(timeout=timeout_s).brokers)


def client_properties() -> dict[str, str]:
    """The file's lines `name=value`; `#` begins a comment."""
    place = settings.KAFKA_PROPERTIES_FILE
    if place is None:
        return {}
    found: dict[str, str] = {}
    for number, line in enumerate(Path(place).read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            name, equals, value = text.partition("=")
            if not equals:
                raise ValueError(f"line {number} of KAFKA_PROPERTIES_FILE is not name=value")
            found[name.strip()] = value.strip()
    return found
