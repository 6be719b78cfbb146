"""The request id: taken from the caller or made here, in every log line and problem, and on every answer.

The request's span begins and ends with it.
"""

import logging
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from chronos_site.observability import context, metrics, tracing

if TYPE_CHECKING:
    from chronos_site.observability.otlp import Span

log = logging.getLogger("chronos.request")

HEADER = "X-Request-Id"
_GRAMMAR = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PROBES = {"/healthz", "/readyz", "/metrics"}


_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


def request_id_from(header: str | None) -> str:
    """The caller's id where it is 1 to 64 of A-Z a-z 0-9 . _ - , else a new one."""
    return header if header is not None and _GRAMMAR.fullmatch(header) else uuid.uuid4().hex


class RequestIdMiddleware:
    """Logs one line per request, probes excepted."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        begun = _begin(request)
        return _end(request, self._get_response(request), begun)


@dataclass(slots=True)
class Begun:
    at: float
    span: "Span | None"


def _begin(request: HttpRequest) -> Begun:
    context.request_id.set(request_id_from(request.headers.get(HEADER)))
    context.workspace_id.set(None)
    return Begun(time.monotonic(), None if request.path in _PROBES else tracing.begin_request(request))


def _end(request: HttpRequest, response: HttpResponseBase, begun: Begun) -> HttpResponseBase:
    response[HEADER] = context.request_id.get() or ""
    if request.path not in _PROBES:
        lasted_s = time.monotonic() - begun.at
        route = _route(request)
        method = request.method if request.method in _METHODS else "other"
        metrics.requests.add(route, method, str(response.status_code))
        metrics.request_duration.observe((lasted_s,), route)
        log.info(
            "request",
            extra={
                "action": "answer",
                "method": request.method,
                "route": route,
                "path": request.path,
                "status": response.status_code,
                "duration_ms": round(lasted_s * 1000, 1),
            },
        )
        tracing.end_request(begun.span, request, response)
    return response


def _route(request: HttpRequest) -> str:
    """The pattern of the path, never the path: ids in it would be labels without end."""
    matched = request.resolver_match
    return f"/{matched.route}" if matched is not None else "unmatched"
