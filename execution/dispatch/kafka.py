"""One Kafka attempt: the message to the cluster, and the broker's word that all replicas have it.

The producers are idempotent: what the client sends again by itself is stored once. An attempt that ends without a word
is an unknown outcome like any other; the next one may bring the message a second time. The client gives a message up
when the attempt's time is over, so nothing is sent long after it was called failed.
"""

import asyncio
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from chronos_site.infra.kafka import KafkaRefused, allowed_bootstrap, refuse_events_topic
from execution.dispatch import attempt_span
from execution.dispatch.credentials import NO_CREDENTIALS, Credentials
from execution.dispatch.egress import Verdict
from execution.dispatch.kafka_links import Link, Links, Word
from execution.dispatch.message import body_of, headers_of
from execution.dispatch.sender import Answer
from execution.domain.kafka_errors import TIMEOUT, code_of
from execution.domain.outcome import Claim

WORD_S = 1.0
"""So long after a message's time the client may still say that it gave it up; then the attempt ends without it."""
FULL_S = 1.0
"""So long a client whose buffer is full is asked again. Not for longer: the client counts a message's time from when it
takes it, and would still hold it when the attempt is over."""
ROOM_S = 0.02


class KafkaSender:
    """Sends attempts from one event loop."""

    def __init__(self, *, name: str = "chronos") -> None:
        self._links = Links(name=name)

    async def judge(self, claim: Claim) -> Verdict:
        """Is the cluster on the list? Looked up at every attempt: it may have left since the target was saved."""
        try:
            refuse_events_topic(claim.target["topic"])
            bootstrap = allowed_bootstrap(claim.target.get("bootstrap"))
        except KafkaRefused as refused:
            return Verdict(False, str(refused))
        return Verdict(True, address=bootstrap, host=bootstrap, scheme="kafka", url=f"kafka://{bootstrap}")

    async def send(self, claim: Claim, verdict: Verdict, credentials: Credentials = NO_CREDENTIALS) -> Answer:
        """One attempt, whole within `claim.timeout_s` and a second. Never raises but for cancellation."""
        attempt_span.begin(claim, verdict)
        begun = time.monotonic()
        try:
            answer = await self._exchange(claim, verdict.host, credentials)
        except KafkaException as error:
            answer = _failed(claim, error.args[0])
        except (OSError, ValueError, TypeError) as error:
            answer = Answer(None, "kafka_client", f"The Kafka client could not be used: {error}")
        answer.error_text = credentials.scrub(answer.error_text)[:500]
        answer.duration_ms = (time.monotonic() - begun) * 1000
        return answer

    async def close(self) -> None:
        """The engine has waited for the words that were to come within its grace."""
        await self._links.close()

    async def _exchange(self, claim: Claim, bootstrap: str, credentials: Credentials) -> Answer:
        ends = asyncio.get_running_loop().time() + claim.timeout_s + WORD_S
        word: asyncio.Future[Word] = asyncio.get_running_loop().create_future()
        link = await self._post(claim, bootstrap, _message(claim, credentials), word)
        if link is None:
            return Answer(None, "kafka_queue_full", "The Kafka client holds as many messages as it may.")
        try:
            async with asyncio.timeout_at(ends):
                error, partition, offset = await word
        except TimeoutError:
            return _timed_out(claim, link.trouble)
        if error is not None:
            return _failed(claim, error, link.trouble)
        return Answer(None, None, "", headers=place_of(partition, offset), kept=True)

    async def _post(
        self, claim: Claim, bootstrap: str, message: dict[str, Any], word: "asyncio.Future[Word]"
    ) -> Link | None:
        """Hand the message to a producer. None where its buffer stays full."""
        ends = time.monotonic() + min(FULL_S, claim.timeout_s)
        while True:
            # Asked for anew each time: meanwhile it may have been parted with.
            link = self._links.get(bootstrap, claim.timeout_s)
            try:
                link.produce(message, word)
                return link
            except BufferError:
                if time.monotonic() > ends:
                    return None
            await asyncio.sleep(ROOM_S)


def _message(claim: Claim, credentials: Credentials) -> dict[str, Any]:
    """What the client is told to send."""
    body = body_of(claim)
    key, partition = claim.target.get("key"), claim.target.get("partition")
    message: dict[str, Any] = {
        "topic": claim.target["topic"],
        "value": body,
        "key": None if key is None else str(key).encode(),
        "headers": [(name, value.encode()) for name, value in headers_of(claim, credentials, body).items()],
    }
    return message if partition is None else {**message, "partition": int(partition)}


def place_of(partition: int | None, offset: int | None) -> dict[str, str]:
    """Where the message is. A broker that has it already, from a send whose answer was lost, does not say at which
    offset."""
    told = {"partition": partition, "offset": offset}
    return {name: str(number) for name, number in told.items() if number is not None and number >= 0}


def _failed(claim: Claim, error: KafkaError, trouble: str = "") -> Answer:
    code = code_of(error.name())
    return _timed_out(claim, trouble) if code == TIMEOUT else Answer(None, code, error.str())


def _timed_out(claim: Claim, trouble: str) -> Answer:
    told = f" The client's last complaint: {trouble}." if trouble else ""
    return Answer(None, TIMEOUT, f"No broker confirmed the message within {claim.timeout_s:g} s.{told}")
