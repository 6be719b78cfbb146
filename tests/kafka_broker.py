"""Kafka as the tests see it: topics made, messages read back, a broker of a test's own that can be held or killed."""

import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from django.conf import settings

from chronos_site.stack.processes import free_port
from chronos_site.stack.servers import Kafka
from tests.processes import wait_until
from tests.proxy import Proxy

READ_S = 15.0


def make_topic(bootstrap: str, topic: str, *, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(10)


def cluster() -> str:
    """The broker of the test run."""
    bootstrap = settings.KAFKA_BOOTSTRAP
    assert bootstrap is not None
    return bootstrap


def read(bootstrap: str, topic: str, count: int, *, partitions: int = 3) -> list[Message]:
    """The first so many messages of a topic. Raises AssertionError where they do not come."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    ends = time.monotonic() + READ_S
    try:
        while len(found) < count:
            assert time.monotonic() < ends, f"{len(found)} of {count} messages came"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
    finally:
        consumer.close()
    return found


def headers_of(message: Message) -> dict[str, str]:
    found: list[tuple[str, bytes]] = message.headers() or []  # type: ignore[assignment]
    return {name: value.decode() for name, value in found}


class OwnBroker:
    """One that the test may hold, kill and start again on the same port; all its clients pass a proxy."""

    def __init__(self, folder: Path) -> None:
        self._kafka = Kafka(home=folder, port=free_port(), environment=dict(os.environ))
        self.proxy = Proxy("127.0.0.1", self._kafka.port)

    @property
    def bootstrap(self) -> str:
        return f"{self.proxy.host}:{self.proxy.port}"

    def __enter__(self) -> Self:
        self.proxy.__enter__()
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.proxy.__exit__()
        self.kill()

    def start(self) -> None:
        spec = self._kafka.spec()
        argv = list(spec.argv)
        argv[argv.index("--advertised-listener-url") + 1] = f"tcp://{self.bootstrap}"
        with spec.log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, env=dict(spec.environment))
        wait_until(self._kafka.is_ready, told=lambda: "the broker did not start")

    def hold(self) -> None:
        """It keeps its connections and answers nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)
