"""Probes. `/healthz`: the process answers. `/readyz`: it can work; Postgres alone decides, the rest is reported."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as WaitedTooLong
from typing import Any

import psycopg
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from pymongo.errors import PyMongoError
from redis.exceptions import RedisError

from chronos_site.console.connections import own_connection
from chronos_site.console.loops import loop_warnings
from chronos_site.infra import mongo, redis

LIMIT_S = 2.0
# A server that hangs holds its check's thread for some seconds; the next probes still find one.
_threads = ThreadPoolExecutor(max_workers=9, thread_name_prefix="readyz")


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 or 503 by Postgres. Each part has two seconds, all at once. `warnings` are for people."""
    checks = {name: _threads.submit(check) for name, check in CHECKS.items()}
    loops = _threads.submit(_loops)
    until = time.monotonic() + LIMIT_S
    parts = {name: _outcome(check, until) for name, check in checks.items()}
    ready = parts["postgres"] == "ok"
    degraded = [name for name, state in parts.items() if state == "away"]
    body: dict[str, Any] = {"status": "ready" if ready else "not_ready", "parts": parts, "degraded": degraded}
    body["warnings"] = _warnings(loops, until) if ready else []
    return JsonResponse(body, status=200 if ready else 503)


def _outcome(check: Future[str], until: float) -> str:
    try:
        return check.result(max(0.0, until - time.monotonic()))
    except (WaitedTooLong, psycopg.Error, RedisError, PyMongoError, OSError):
        return "away"


def _warnings(loops: Future[list[str]], until: float) -> list[str]:
    """What does not make the process unready, and should be looked at all the same."""
    try:
        return loops.result(max(0.0, until - time.monotonic()))
    except (WaitedTooLong, psycopg.Error, OSError) as error:
        return [f"The loops of the house could not be looked at: {type(error).__name__}."]


def _postgres() -> str:
    with own_connection() as own:
        own.execute("SELECT 1")
    return "ok"


def _loops() -> list[str]:
    with own_connection() as own:
        return loop_warnings(own)


def _redis() -> str:
    redis.client().ping()
    return "ok"


def _mongo() -> str:
    database = mongo.database()
    if database is None:
        return "not_configured"
    database.command("ping")
    return "ok"


CHECKS: dict[str, Callable[[], str]] = {"postgres": _postgres, "redis": _redis, "mongo": _mongo}
