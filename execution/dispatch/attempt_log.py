"""Attempt logs on their way to MongoDB: a bounded buffer, written in batches by a thread of its own.

Deliveries never wait for MongoDB. While it is away the buffer keeps the newest documents and counts what it dropped.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, PyMongoError

from chronos_site.infra.references import names_secret
from execution.domain.credentials import HIDDEN, auth_header
from execution.domain.outcome import Result
from execution.domain.targets import KAFKA, kind_of

log = logging.getLogger(__name__)

CAPACITY = 20_000
BATCH = 1000
FLUSH_S = 0.25
AWAY_S = 5.0

_SECRET_WORDS = ("authorization", "cookie", "token", "secret", "key", "password", "signature")


class AttemptLog:
    """`collection` None: no MongoDB is configured, and nothing is kept."""

    def __init__(
        self, collection: Collection[dict[str, Any]] | None, *, prepare: Callable[[], None] = lambda: None
    ) -> None:
        """`prepare` makes the indexes; it runs on the log's thread until it succeeds once."""
        self._collection = collection
        self._prepare: Callable[[], None] | None = prepare
        self._waiting: deque[dict[str, Any]] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="attempt-log", daemon=True)
        self.dropped = 0

    def start(self) -> None:
        if self._collection is not None:
            self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Write what waits, for at most `timeout_s`."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def add(self, results: list[Result], *, worker: str) -> None:
        if self._collection is None:
            return
        for result in results:
            if len(self._waiting) >= CAPACITY:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(document(result, worker=worker))

    def _run(self) -> None:
        while True:
            stopping = self._stop.wait(FLUSH_S)
            while self._waiting:
                if not self._write([self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]):
                    break
            if stopping:
                return

    def _write(self, batch: list[dict[str, Any]]) -> bool:
        """Insert a batch. False: MongoDB is away, and the batch is back in the buffer as far as it has room."""
        if self._collection is None:
            return True
        try:
            if self._prepare is not None:
                self._prepare()
                self._prepare = None
            self._collection.insert_many(batch, ordered=False)
        except BulkWriteError:
            return True  # Doubles of what an earlier, half-acknowledged batch has written.
        except PyMongoError as error:
            room = CAPACITY - len(self._waiting)
            self.dropped += max(0, len(batch) - room)
            self._waiting.extendleft(reversed(batch[-room:] if room > 0 else []))
            log.warning(
                "attempt_log_away", extra={"action": "attempt_log", "dropped": self.dropped, "error": str(error)[:200]}
            )
            self._stop.wait(AWAY_S)
            return False
        return True


def document(result: Result, *, worker: str) -> dict[str, Any]:
    """The log of one attempt: the request with secrets redacted, at most 4 KiB of the response, timings, the error."""
    claim = result.claim
    return {
        "_id": f"{claim.id}:{claim.claim_seq}",
        "execution_id": str(claim.id),
        "workspace_id": str(claim.workspace_id),
        "attempt": claim.attempt,
        "at": result.began_at or result.finished_at,
        "finished_at": result.finished_at,
        "duration_ms": round(result.duration_ms, 3),
        "lateness_ms": round((((result.began_at or result.finished_at) - claim.due_at).total_seconds()) * 1000, 3),
        "worker": worker,
        "state": result.state.value,
        "reason": result.reason,
        "request": {**_called(claim.target), "headers": _request_headers(claim.target), "address": result.address},
        "response": _response(result),
        "error": None if result.error is None else {"code": result.error, "text": result.error_text},
    }


def _called(target: dict[str, Any]) -> dict[str, Any]:
    if kind_of(target) == KAFKA:
        return {name: target.get(name) for name in ("topic", "key", "partition")}
    return {"method": target.get("method"), "url": without_query(str(target.get("url", "")))}


def _response(result: Result) -> dict[str, Any] | None:
    """What the receiver answered, or where the broker has the message; None where nothing came back."""
    if result.status is not None:
        return {
            "status": result.status,
            "headers": redact(result.response_headers),
            "body": result.response_excerpt,
        }
    return {name: int(value) for name, value in result.response_headers.items()} or None


def redact(headers: dict[str, str]) -> dict[str, str]:
    """Headers whose name hints at a secret keep their name only."""
    return {
        name: "[redacted]" if any(word in name.lower() for word in _SECRET_WORDS) else value
        for name, value in headers.items()
    }


def _request_headers(target: dict[str, Any]) -> dict[str, str]:
    """Whatever came from a reference is hidden, whatever the header is called."""
    headers = target.get("headers") or {}
    told = redact(headers) | {name: HIDDEN for name, value in headers.items() if names_secret(value)}
    filled = auth_header(target.get("auth"))
    return told if filled is None else {**told, filled: HIDDEN}


def without_query(url: str) -> str:
    """Queries often carry tokens: the log keeps where the call went, not what it brought."""
    base, mark, _query = url.partition("?")
    return f"{base}?[redacted]" if mark else base
