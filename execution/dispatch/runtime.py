"""The engines of this process: one for each queue of deliveries that its Celery worker serves.

Started when the worker is ready, stopped with it. Which table a queue's messages speak of is told by its room, with
`deliver_from`, when Django starts.
"""

import gc
import logging
import os
import socket
import threading
import time
from typing import Any

from celery.signals import worker_ready, worker_shutdown, worker_shutting_down
from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

from chronos_site.infra import mongo, secrets
from chronos_site.infra.ids import new_id
from chronos_site.observability import liveness, metrics, tracing
from execution.dispatch.attempt_log import AttemptLog
from execution.dispatch.egress import parse_networks
from execution.dispatch.engine import Engine, SendersOf, SourceOf
from execution.dispatch.source import ExecutionSource
from execution.publish import DISPATCH_QUEUE

log = logging.getLogger(__name__)

NOT_LIBPQ = {"pool", "context", "prepare_threshold"}

_lock = threading.Lock()
_sources: dict[str, SourceOf] = {DISPATCH_QUEUE: ExecutionSource}
_senders: dict[str, SendersOf] = {}
_engines: dict[str, Engine] = {}


metrics.Watched(
    "chronos_engine_in_flight",
    "Claimed by this process and not yet finished.",
    lambda: {(queue,): running.in_flight for queue, running in list(_engines.items())},
    ("queue",),
)
metrics.Watched(
    "chronos_attempt_logs_dropped",
    "Attempts' logs that MongoDB never took.",
    lambda: {(queue,): running.logs_dropped for queue, running in list(_engines.items())},
    ("queue",),
    rises=True,
)


def deliver_from(queue: str, source: SourceOf, *, senders: SendersOf | None = None) -> None:
    """Messages of the queue name rows of this source, which may need senders beside those for HTTP and Kafka."""
    _sources[queue] = source
    if senders is not None:
        _senders[queue] = senders


def engine(queue: str = DISPATCH_QUEUE) -> Engine:
    """The running engine of a queue; started at the first call."""
    with _lock:
        if queue not in _engines:
            tracing.start()
            started = build_engine(name=f"{socket.gethostname()}:{os.getpid()}", queue=queue)
            started.start()
            liveness.watch(f"engine {queue}", lambda: started.alive)
            _engines[queue] = started
        return _engines[queue]


def build_engine(*, name: str, queue: str = DISPATCH_QUEUE) -> Engine:
    """An engine by the settings, not yet started."""
    return Engine(
        source=_sources[queue],
        queue=queue,
        conninfo=conninfo(),
        # Random, never the host's name: two pods, or one restarted, must not pass for each other.
        worker_id=new_id(),
        name=name,
        max_in_flight=settings.CHRONOS_MAX_IN_FLIGHT,
        allow=parse_networks(settings.CHRONOS_EGRESS_ALLOW),
        attempt_log=AttemptLog(mongo.execution_logs(), prepare=mongo.ensure_indexes),
        secrets=secrets.build_store(),
        senders=_senders.get(queue),
    )


def conninfo() -> str:
    """Django's database as a libpq connection string, without the pool that only Django knows."""
    params: dict[str, Any] = connection.get_connection_params()
    plain = {name: value for name, value in params.items() if isinstance(value, str | int) and name not in NOT_LIBPQ}
    return make_conninfo("", **plain)


@worker_ready.connect
def _start(sender: Any, **_kwargs: object) -> None:
    served = [queue for queue in _sources if queue in sender.app.amqp.queues.consume_from]
    if not served:
        return
    try:
        for queue in served:
            engine(queue)
    except Exception as error:
        # Celery would log it and go on without an engine: a worker that takes messages and delivers nothing.
        log.critical("engine_did_not_start", extra={"action": "engine"}, exc_info=error)
        raise SystemExit(1) from error
    _spare_collections()


def _spare_collections() -> None:
    """What a worker has loaded stays for its life: collections that look through it again and again find nothing."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@worker_shutting_down.connect
def _begin_stop(**_kwargs: object) -> None:
    for running in list(_engines.values()):
        running.begin_stop()


@worker_shutdown.connect
def _stop(**_kwargs: object) -> None:
    with _lock:
        stopping = dict(_engines)
        _engines.clear()
    ends = time.monotonic() + settings.CHRONOS_STOP_GRACE_S
    for queue, running in stopping.items():
        log.info("engine_stops", extra={"action": "engine", "queue": queue})
        liveness.unwatch(f"engine {queue}")
        running.stop(max(0.0, ends - time.monotonic()))
