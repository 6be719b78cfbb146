"""The engine of this process: started when a Celery worker that serves the dispatch queue is ready, stopped with it."""

import gc
import logging
import os
import socket
import threading
from typing import Any

from celery.signals import worker_ready, worker_shutdown, worker_shutting_down
from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

from chronos_site.infra import mongo, secrets
from chronos_site.infra.ids import new_id
from chronos_site.observability import liveness, tracing
from execution.dispatch.attempt_log import AttemptLog
from execution.dispatch.egress import parse_networks
from execution.dispatch.engine import Engine
from execution.publish import DISPATCH_QUEUE

log = logging.getLogger(__name__)

NOT_LIBPQ = {"pool", "context", "prepare_threshold"}

_lock = threading.Lock()
_engine: Engine | None = None


def engine() -> Engine:
    """The running engine; started at the first call."""
    global _engine
    with _lock:
        if _engine is None:
            tracing.start()
            started = build_engine(name=f"{socket.gethostname()}:{os.getpid()}")
            started.start()
            liveness.watch("engine", lambda: started.alive)
            _engine = started
        return _engine


def build_engine(*, name: str) -> Engine:
    """An engine by the settings, not yet started."""
    return Engine(
        conninfo=conninfo(),
        # Random, never the host's name: two pods, or one restarted, must not pass for each other.
        worker_id=new_id(),
        name=name,
        max_in_flight=settings.CHRONOS_MAX_IN_FLIGHT,
        allow=parse_networks(settings.CHRONOS_EGRESS_ALLOW),
        attempt_log=AttemptLog(mongo.execution_logs(), prepare=mongo.ensure_indexes),
        secrets=secrets.build_store(),
    )


def conninfo() -> str:
    """Django's database as a libpq connection string, without the pool that only Django knows."""
    params: dict[str, Any] = connection.get_connection_params()
    plain = {name: value for name, value in params.items() if isinstance(value, str | int) and name not in NOT_LIBPQ}
    return make_conninfo("", **plain)


@worker_ready.connect
def _start(sender: Any, **_kwargs: object) -> None:
    if DISPATCH_QUEUE not in sender.app.amqp.queues.consume_from:
        return
    try:
        engine()
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
    if _engine is not None:
        _engine.begin_stop()


@worker_shutdown.connect
def _stop(**_kwargs: object) -> None:
    global _engine
    with _lock:
        stopping, _engine = _engine, None
    if stopping is not None:
        log.info("engine_stops", extra={"action": "engine"})
        liveness.unwatch("engine")
        stopping.stop(settings.CHRONOS_STOP_GRACE_S)
