"""The Kafka producers of one event loop: one for each cluster and timeout, made at need, replaced when they are spent.

A producer has a thread that carries the brokers' words to the loop, closes the producer and lets go of it; the loop
never waits for the client. The client itself gives a message up when its time is over, which is a property of the
producer: hence one for each timeout. If the process dies, what it held is an unknown outcome like any other send.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from chronos_site.infra.kafka import build_producer
from execution.domain import kafka_errors

log = logging.getLogger(__name__)

PRODUCERS = 16
"""Most producers kept; the least recently used is parted with first."""
IDLE_S = 300.0
"""A producer that is not used for so long is closed."""
WORN_S = 5.0
"""A producer whose messages time out, and still do so long after, with none that got through between, makes room for a
new one, which reads the properties anew and remembers nothing: a login may have changed, the cluster may have lost what
this producer counts on. One timeout says too little: the first message of any producer may take a second."""
POLL_S = 0.1
END_S = 2.0

Word = tuple[KafkaError | None, int | None, int | None]
"""What became of a message: an error, or its partition and offset as far as the broker told them."""


class Links:
    """For one event loop."""

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._kept: OrderedDict[tuple[str, float], Link] = OrderedDict()
        self._leaving: set[Link] = set()
        self._tidying: asyncio.TimerHandle | None = None

    def get(self, bootstrap: str, timeout_s: float) -> "Link":
        """Use it before the next await. Raises OSError or ValueError where the client cannot be set up."""
        place = (bootstrap, timeout_s)
        link = self._kept.get(place)
        if link is not None and link.spent:
            log.warning("kafka_producer_replaced", extra={"action": "kafka", "bootstrap": bootstrap})
            self._part_with(self._kept.pop(place))
            link = None
        if link is None:
            link = self._kept[place] = Link(bootstrap, timeout_s=timeout_s, name=self._name, ended=self._gone)
            if len(self._kept) > PRODUCERS:
                self._part_with(self._kept.popitem(last=False)[1])
        self._kept.move_to_end(place)
        link.used = time.monotonic()
        if self._tidying is None:
            self._tidying = asyncio.get_running_loop().call_later(IDLE_S, self._tidy)
        return link

    async def close(self) -> None:
        """What has no word by now has nobody who waits for it: it is not sent any more, if it can still be held."""
        if self._tidying is not None:
            self._tidying.cancel()
        self._leaving.update(self._kept.values())
        self._kept.clear()
        for link in self._leaving:
            link.leave(0)
        ends = time.monotonic() + END_S
        while self._leaving and time.monotonic() < ends:
            await asyncio.sleep(0.01)

    def _part_with(self, link: "Link") -> None:
        """What it has taken ends as it would have: by a word, or when its time is over."""
        self._leaving.add(link)
        link.leave(link.timeout_s + END_S)

    def _gone(self, link: "Link") -> None:
        self._leaving.discard(link)

    def _tidy(self) -> None:
        self._tidying = None
        now = time.monotonic()
        for place, link in list(self._kept.items()):
            if now - link.used >= IDLE_S:
                self._part_with(self._kept.pop(place))
        if self._kept:
            self._tidying = asyncio.get_running_loop().call_later(IDLE_S, self._tidy)


class Link:
    """A producer and its thread. Made and used on the loop; `ended` is called there when both are gone."""

    def __init__(self, bootstrap: str, *, timeout_s: float, name: str, ended: Callable[["Link"], None]) -> None:
        self.timeout_s = timeout_s
        self.used = time.monotonic()
        self.trouble = ""
        """What the client complained of since a message last got through, in its general words."""
        self._failed = False
        """Read and written on both threads, like the next: each is one plain value."""
        self._silent_since: float | None = None
        self._leave_by: float | None = None
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        try:
            self._producer = build_producer(bootstrap, timeout_s=timeout_s, client_id=name, on_error=self._complain)
        except KafkaException as error:
            # A fault of the deployment's properties, not of a message.
            raise ValueError(error.args[0].str()) from None
        self._thread = threading.Thread(target=self._run, name="kafka", daemon=True)
        self._thread.start()

    @property
    def spent(self) -> bool:
        """Nothing more is to be expected of it."""
        return self._failed or not self._thread.is_alive()

    def produce(self, message: dict[str, Any], word: "asyncio.Future[Word]") -> None:
        """Raises BufferError, KafkaException."""

        def tell(error: KafkaError | None, told: Message) -> None:
            """On the link's thread; the message is not to be touched by another."""
            self._learn(error)
            self._say(_settle, word, (error, told.partition(), told.offset()))

        try:
            self._producer.produce(**message, on_delivery=tell)
        except KafkaException as error:
            self._learn(error.args[0])
            raise

    def leave(self, within_s: float) -> None:
        """Take nothing more; end when all has its word, or after so long. May be called again to hurry."""
        self._leave_by = time.monotonic() + within_s

    def _run(self) -> None:
        while self._leave_by is None:
            self._poll()
        while len(self._producer) and time.monotonic() < self._leave_by:
            self._poll()
        self._producer.purge()
        self._poll()
        # The client is taken down here: it may wait for a name server.
        del self._producer
        self._say(self._ended, self)

    def _poll(self) -> None:
        try:
            self._producer.poll(POLL_S)
        except KafkaException:
            # A fatal error comes so, in place of a complaint. What is under way still gets its word.
            self._failed = True

    def _learn(self, error: KafkaError | None) -> None:
        if error is None:
            self._silent_since, self.trouble = None, ""
        elif error.fatal() or error.name() in kafka_errors.OF_THE_PRODUCER:
            self._failed = True
        elif kafka_errors.code_of(error.name()) == kafka_errors.TIMEOUT:
            since = self._silent_since = self._silent_since or time.monotonic()
            self._failed = self._failed or time.monotonic() - since > WORN_S

    def _complain(self, error: KafkaError) -> None:
        """On the link's thread: brokers that are away, logins that fail. Their addresses stay in the log."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.trouble:
            self.trouble = KafkaError(error.code()).str()

    def _say(self, call: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended meanwhile.
            self._loop.call_soon_threadsafe(call, *args)


def _settle(word: "asyncio.Future[Word]", said: Word) -> None:
    """Nobody waits any more where the attempt has ended meanwhile."""
    if not word.done():
        word.set_result(said)
