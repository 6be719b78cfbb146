"""The worker's side of `liveness`: where Celery's consumer shows that it consumes.

On Redis the consumer's event loop sends a BRPOP with a time limit of a second and reads the answer when the socket has
one; the channel's `handlers` say what reads it. The step stands behind that handler, and is put in place again with
every new connection. While all threads are at work no BRPOP is sent: then each turn of the loop is counted, but only if
as many tasks run in truth as there are threads. A consumer that merely believes to be full (its count of reserved
messages leaked with a cut connection) consumes nothing and shows no proof.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any

from celery import Celery, bootsteps
from celery.signals import task_postrun, task_prerun, worker_init, worker_shutting_down
from django.conf import settings
from redis.exceptions import RedisError

from chronos_site.infra import redis
from chronos_site.observability.liveness import HeartbeatFile, Liveness

_liveness: Liveness | None = None


class Running:
    """How many tasks run in this process now."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def begin(self, **_kwargs: object) -> None:
        with self._lock:
            self.count += 1

    def end(self, **_kwargs: object) -> None:
        with self._lock:
            self.count -= 1


_running = Running()


class ProofOfConsumption(bootsteps.StartStopStep):
    """Consumer step: notes each answered poll, and each turn of the loop while there is no thread to poll for."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, c: Any) -> None:
        if _liveness is not None:
            channel = c.task_consumer.channel
            channel.handlers["BRPOP"] = _noting(channel.handlers["BRPOP"], _liveness.note_poll)

    def register_with_event_loop(self, c: Any, hub: Any) -> None:
        found = _liveness
        if found is None:
            return

        def turned() -> None:
            if _running.count >= c.pool.num_processes:
                found.note_busy()

        hub.on_tick.add(turned)


def _noting(read: Callable[..., object], note: Callable[[], None]) -> Callable[..., object]:
    def read_and_note(*args: object, **kwargs: object) -> object:
        try:
            answer = read(*args, **kwargs)
        except Empty:
            note()
            raise
        note()
        return answer

    return read_and_note


def install(app: Celery) -> None:
    """Make the workers of `app` touch the file that CHRONOS_LIVENESS_FILE names; without it, nothing is done."""
    app.steps["consumer"].add(ProofOfConsumption)
    worker_init.connect(_begin)
    worker_shutting_down.connect(_stopping)
    task_prerun.connect(_running.begin)
    task_postrun.connect(_running.end)


def _begin(**_kwargs: object) -> None:
    global _liveness
    if settings.CHRONOS_LIVENESS_FILE:
        _liveness = Liveness(file=HeartbeatFile(Path(settings.CHRONOS_LIVENESS_FILE)), broker_answers=broker_answers)
        _liveness.start()


def _stopping(**_kwargs: object) -> None:
    if _liveness is not None:
        _liveness.note_stopping()


def broker_answers() -> bool:
    """Whether Redis answers a ping on a connection that works; a stale one is tried anew by the client."""
    try:
        return bool(redis.client().ping())
    except (RedisError, OSError):
        return False
