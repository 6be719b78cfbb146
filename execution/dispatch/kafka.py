"""One Kafka attempt: the message to the cluster, and the broker's word that all replicas have it.

The producers are idempotent: what the client sends again by itself is stored once. An attempt that ends without a word
is an unknown outcome like any other; the next one may bring the message a second time. The client gives a message up
when the attempt's time is over, so nothing is sent long after it was called failed.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chronos_site.infra.kafka import KafkaRefused, allowed_bootstrap, build_producer
from execution.dispatch import attempt_span
from execution.dispatch.credentials import NO_CREDENTIALS, Credentials
from execution.dispatch.egress import Verdict
from execution.dispatch.message import body_of, headers_of
from execution.dispatch.sender import Answer
from execution.domain.kafka_errors import code_of
from execution.domain.outcome import Claim

log = logging.getLogger(__name__)

PRODUCERS = 16
"""Most producers kept, one for each cluster and timeout; the least recently used is closed first."""
POLL_S = 0.1
WORD_S = 1.0
"""So long after a message's time the client may still say that it gave it up; then the attempt ends without it."""
ROOM_S = 0.02
"""A client whose buffer is full is asked again after so long."""
FLUSH_S = 5.0


class KafkaSender:
    """Sends attempts from one event loop."""

    def __init__(self, *, name: str = "chronos") -> None:
        self._name = name
        self._links: OrderedDict[tuple[str, float], _Link] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def judge(self, claim: Claim) -> Verdict:
        """Is the cluster on the list? Looked up at every attempt: it may have left since the target was saved."""
        try:
            bootstrap = allowed_bootstrap(claim.target.get("bootstrap"))
        except KafkaRefused as refused:
            return Verdict(False, str(refused))
        return Verdict(True, address=bootstrap, host=bootstrap, scheme="kafka", url=f"kafka://{bootstrap}")

    async def send(self, claim: Claim, verdict: Verdict, credentials: Credentials = NO_CREDENTIALS) -> Answer:
        """One attempt, whole within `claim.timeout_s` and a second. Never raises but for cancellation."""
        attempt_span.begin(claim, verdict)
        begun = time.monotonic()
        try:
            async with asyncio.timeout(claim.timeout_s + WORD_S):
                answer = await self._exchange(claim, verdict.host, credentials)
        except TimeoutError:
            answer = _timed_out(claim)
        except KafkaException as error:
            answer = _answer_to(claim, error.args[0])
        except (OSError, ValueError, TypeError, UnicodeError) as error:
            answer = Answer(None, "kafka_client", f"The Kafka client could not be used: {error}")
        answer.error_text = credentials.scrub(answer.error_text)[:500]
        answer.duration_ms = (time.monotonic() - begun) * 1000
        return answer

    async def close(self) -> None:
        links, self._links = list(self._links.values()), OrderedDict()
        await asyncio.gather(*(asyncio.to_thread(link.close) for link in links), *self._closing)

    async def _exchange(self, claim: Claim, bootstrap: str, credentials: Credentials) -> Answer:
        link = self._link(bootstrap, claim.timeout_s)
        body = body_of(claim)
        key = claim.target.get("key")
        message: dict[str, Any] = {
            "topic": claim.target["topic"],
            "value": body,
            "key": None if key is None else str(key).encode(),
            "headers": [(name, value.encode()) for name, value in headers_of(claim, credentials, body).items()],
        }
        if claim.target.get("partition") is not None:
            message["partition"] = int(claim.target["partition"])
        word: asyncio.Future[tuple[KafkaError | None, int | None, int | None]] = (
            asyncio.get_running_loop().create_future()
        )
        while True:
            try:
                link.produce(message, word)
                break
            except BufferError:
                await asyncio.sleep(ROOM_S)
        error, partition, offset = await word
        if error is not None:
            return _answer_to(claim, error)
        return Answer(None, None, "", headers={"partition": str(partition), "offset": str(offset)}, kept=True)

    def _link(self, bootstrap: str, timeout_s: float) -> "_Link":
        """The producer for a cluster and a timeout; one that has failed for good makes room for another."""
        place = (bootstrap, timeout_s)
        link = self._links.get(place)
        if link is not None and link.broken:
            self._part_with(self._links.pop(place))
            link = None
        if link is None:
            try:
                link = _Link(build_producer(bootstrap, timeout_s=timeout_s, client_id=self._name))
            except KafkaException as error:
                # A fault of the deployment's properties, not of this message.
                raise ValueError(error.args[0].str()) from None
            self._links[place] = link
            if len(self._links) > PRODUCERS:
                self._part_with(self._links.popitem(last=False)[1])
        self._links.move_to_end(place)
        return link

    def _part_with(self, link: "_Link") -> None:
        """Close it beside the loop; what it has taken may still end."""
        task = asyncio.create_task(asyncio.to_thread(link.close))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


@dataclass(slots=True)
class _Link:
    """A producer, and the thread that carries its words to the loop."""

    producer: Producer
    broken: bool = False
    """The client has given up for good: nothing that it is asked to send will be sent."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._poll, name="kafka", daemon=True)
        self._thread.start()

    def produce(self, message: dict[str, Any], word: "asyncio.Future[Any]") -> None:
        """Raises BufferError, KafkaException."""
        loop = word.get_loop()

        def tell(error: KafkaError | None, told: Message) -> None:
            """On the polling thread."""
            self.broken = self.broken or (error is not None and _is_final(error))
            # The broker's place is read here: the message is not to be touched by another thread.
            said = (error, told.partition(), told.offset())
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, word, said)

        try:
            self.producer.produce(**message, on_delivery=tell)
        except KafkaException as error:
            self.broken = self.broken or _is_final(error.args[0])
            raise

    def close(self) -> None:
        """Wait a moment for what is under way; then the rest is let go."""
        self.producer.flush(FLUSH_S)
        self._stopped.set()
        self._thread.join(1)
        self.producer.purge()
        self.producer.flush(0)

    def _poll(self) -> None:
        while not self._stopped.is_set():
            self.producer.poll(POLL_S)


def _is_final(error: KafkaError) -> bool:
    return error.fatal() or error.code() == KafkaError._FATAL


def _settle(word: "asyncio.Future[Any]", said: object) -> None:
    """Nobody waits any more where the attempt has ended meanwhile."""
    if not word.done():
        word.set_result(said)


def _timed_out(claim: Claim) -> Answer:
    return Answer(None, "timeout", f"No broker confirmed the message within {claim.timeout_s:g} s.")


def _answer_to(claim: Claim, error: KafkaError) -> Answer:
    code = code_of(error.name())
    return _timed_out(claim) if code == "timeout" else Answer(None, code, error.str())
