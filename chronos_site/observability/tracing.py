"""Tracing: spans of requests, of fan-outs and of attempts, sent to an OTLP receiver where one is set.

Set by `OTEL_EXPORTER_OTLP_ENDPOINT`; without it nothing of OpenTelemetry is imported and `begin` costs a look at the
process id. A trace goes from the caller's `traceparent` over the request to the execution, whose row keeps it, and from
there to each attempt. Whether it is recorded is the caller's flag to say, and the sampler's where a trace begins here.

Each process has a tracer of its own, made at `start` or at the first span. A forked child makes its own: threads do not
survive a fork. Dying half-way costs the spans that were not yet sent, and nothing else.
"""

import atexit
import logging
import os
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from chronos_site.infra import trace
from chronos_site.observability import context

if TYPE_CHECKING:
    from chronos_site.observability.otlp import Span, Tracing

log = logging.getLogger(__name__)

FLUSH_S = 3.0
"""Longest that the end of a process waits for its last spans."""

_lock = threading.Lock()
_pid = 0
_tracing: "Tracing | None" = None


# --- the tracer of this process --------------------------------------------------------------------------------------


def start() -> None:
    """Make the tracer now, so that no send pays for the import. Safe to repeat."""
    global _pid, _tracing
    with _lock:
        if _pid == os.getpid():
            return
        _tracing = _build()
        _pid = os.getpid()


def stop(timeout_s: float = FLUSH_S) -> None:
    """Send what waits, for at most `timeout_s`. Safe to repeat."""
    if _tracing is not None and _pid == os.getpid():
        _tracing.buffer.stop(timeout_s)


def active() -> "Tracing | None":
    """None where no exporter is set."""
    if _pid != os.getpid():
        start()
    return _tracing


def _build() -> "Tracing | None":
    endpoint = settings.CHRONOS_TRACES_ENDPOINT
    if endpoint is None:
        return None
    try:
        # Imported here alone: who has no exporter does not pay for it.
        otlp = import_module("chronos_site.observability.otlp")
        built: Tracing = otlp.Tracing(endpoint=endpoint, capacity=settings.CHRONOS_TRACES_CAPACITY)
    except Exception:
        log.exception("tracing_did_not_start", extra={"action": "trace"})
        return None
    atexit.register(stop)
    return built


# --- spans -----------------------------------------------------------------------------------------------------------


def begin(
    name: str,
    *,
    kind: str,
    parent: str | None,
    attributes: Mapping[str, "str | int | float | bool"],
    began_s: float | None = None,
) -> "Span | None":
    """A span; None where it is not recorded. `kind`: client, server, producer, consumer or internal.

    `parent` is a traceparent; without a valid one a trace begins. `began_s`: Unix seconds, now where None.
    """
    found = active()
    if found is None:
        return None
    return found.begin(name, kind=kind, parent=trace.parse(parent), attributes=attributes, began_s=began_s)


def record(name: str, *, began_s: float, attributes: Mapping[str, "str | int | float | bool"]) -> None:
    """A step that began at `began_s` (Unix seconds) and ends now, in a trace of its own."""
    span = begin(name, kind="internal", parent=None, attributes=attributes, began_s=began_s)
    if span is not None:
        span.end()


def traceparent() -> str:
    """What an execution made now belongs to: the request that is served, else a trace of its own."""
    return context.traceparent.get() or new_trace()


def new_trace() -> str:
    """A trace that begins here. Recorded, its first span says when the execution was made."""
    span = begin("create execution", kind="producer", parent=None, attributes={})
    if span is None:
        return trace.parse_or_new(None)
    span.end()
    return span.traceparent


# --- requests --------------------------------------------------------------------------------------------------------


def begin_request(request: HttpRequest) -> "Span | None":
    """The request's span, and the trace that belongs to what it makes."""
    header = request.headers.get("traceparent")
    span = begin(request.method or "", kind="server", parent=header, attributes={}) if active() else None
    context.traceparent.set(trace.parse_or_new(header) if span is None else span.traceparent)
    return span


def end_request(span: "Span | None", request: HttpRequest, response: HttpResponseBase) -> None:
    context.traceparent.set(None)
    if span is None:
        return
    route = request.resolver_match.route if request.resolver_match else None
    if route is not None:
        span.rename(f"{request.method} /{route}")
    span.set(_request_attributes(request, route))
    span.set({"http.response.status_code": response.status_code})
    # By the conventions, what the caller did wrong is no error of the server's.
    span.end(error=str(response.status_code) if response.status_code >= 500 else None)


def _request_attributes(request: HttpRequest, route: str | None) -> dict[str, Any]:
    """Never the query, which is nobody else's business, and no header but the caller's own name for itself."""
    host, _, port = request.META.get("HTTP_HOST", "").rpartition(":")
    named = host if port.isdigit() else request.META.get("HTTP_HOST", "")
    return {
        "http.request.method": request.method,
        "http.route": None if route is None else f"/{route}",
        "url.path": request.path,
        "url.scheme": request.scheme,
        "server.address": named or None,
        "server.port": int(port) if port.isdigit() else None,
        "user_agent.original": request.headers.get("user-agent"),
        "chronos.request_id": context.request_id.get(),
        "chronos.workspace_id": context.workspace_id.get(),
    }


class FlushAtShutdown:
    """Around an ASGI application that knows no lifespan: the server's end is when the last spans are sent."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._application(scope, receive, send)
            return
        await receive()
        start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        stop()
        await send({"type": "lifespan.shutdown.complete"})
