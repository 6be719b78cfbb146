"""Every refusal of the API as problem+json (RFC 9457).

    {"type": "about:blank", "title": "Not Found", "status": 404, "detail": one sentence, "code": for programs,
     "request_id": …, "errors": [{"pointer": RFC 6901, "code", "detail"}]}

Views raise `Problem`, or what Django and DRF raise by themselves; `exception_handler` turns all of it into this shape.
What nobody expected becomes a 500 that says nothing of the inside and is logged with its request id.
"""

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.settings import api_settings

from chronos_site.observability import context as log_context

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
MOST_ERRORS = 100
LONGEST_TOKEN = 200
PAYLOAD_TOO_LARGE = "payload_too_large"


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """What is wrong with one place of the body. An empty pointer is the whole body."""

    pointer: str
    code: str
    detail: str


class Problem(exceptions.APIException):
    """A refusal. `extra` become members of the answer; `code` is for programs and never changes its meaning."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail, code)
        self.status_code = status
        self.code = code
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.extra = extra

    def body(self) -> dict[str, Any]:
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": str(self.detail),
            "code": self.code,
            "request_id": log_context.request_id.get(),
            "errors": [asdict(error) for error in self.errors[:MOST_ERRORS]],
            **self.extra,
        }
        if len(self.errors) > MOST_ERRORS:
            body["errors_total"] = len(self.errors)
        # Half a surrogate pair in a caller's field name must not break the answer that names it.
        safe: dict[str, Any] = json.loads(json.dumps(body, ensure_ascii=False, default=str).encode("utf-8", "replace"))
        return safe


def not_found() -> Problem:
    return Problem(404, "not_found", "There is nothing here for this workspace. Check the path and the id in it.")


def server_error() -> Problem:
    return Problem(500, "internal_error", "Something failed on our side. Try again, or report the request id.")


def problem_response(problem: Problem) -> HttpResponse:
    """For what answers outside DRF's views."""
    return HttpResponse(
        json.dumps(problem.body()), status=problem.status_code, headers=problem.headers, content_type=CONTENT_TYPE
    )


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response:
    """DRF's EXCEPTION_HANDLER."""
    problem = _as_problem(exc)
    if problem.status_code >= 500:
        log.error("request_failed", exc_info=exc, extra={"action": "answer", "status": problem.status_code})
    headers = {**problem.headers}
    challenge = getattr(exc, "auth_header", None)
    if challenge:
        headers["WWW-Authenticate"] = challenge
    return Response(problem.body(), status=problem.status_code, headers=headers, content_type=CONTENT_TYPE)


def _as_problem(exc: Exception) -> Problem:
    match exc:
        case Problem():
            return exc
        case exceptions.ValidationError():
            return validation_problem(exc.detail)
        case exceptions.Throttled():
            wait = max(1, math.ceil(getattr(exc, "wait", None) or 1))
            return Problem(
                429, "rate_limited", f"Too many requests. Try again in {wait} s.", headers={"Retry-After": str(wait)}
            )
        case Http404() | exceptions.NotFound():
            return not_found()
        case PermissionDenied():
            return Problem(403, "permission_denied", "You may not do this.")
        case RequestDataTooBig():
            return body_too_large()
        case OperationalError() | InterfaceError():
            detail = "The database cannot answer right now. Try again in a few seconds."
            return Problem(503, "database_unavailable", detail, headers={"Retry-After": "2"})
        case exceptions.APIException():
            return _of_framework(exc)
    return server_error()


def _of_framework(exc: exceptions.APIException) -> Problem:
    """DRF's own one-sentence refusals: 400, 401, 403, 405, 406, 415. The Allow header is set by the view."""
    detail = exc.detail
    code = getattr(detail, "code", None) or exc.default_code
    return Problem(exc.status_code, str(code), str(detail))


def body_too_large(limit: int | None = None) -> Problem:
    most = "" if limit is None else f" At most {limit} bytes are taken."
    return Problem(413, "body_too_large", f"The request's body is too large.{most}")


def validation_problem(detail: Any, *, prefix: str = "") -> Problem:
    """422 for the nested errors of a serializer, each with its pointer; 413 where one of them is a size.

    `prefix` is the pointer of what the serializer was given.
    """
    # What is too large comes first: it gives the answer its status.
    errors = sorted(_flatten(detail, prefix), key=lambda error: error.code != PAYLOAD_TOO_LARGE)
    first = errors[0] if errors else FieldProblem(prefix, "invalid", "The body is not valid.")
    where = f"{first.pointer}: " if first.pointer else ""
    more = f" ({len(errors) - 1} more in errors.)" if len(errors) > 1 else ""
    status, code = (413, PAYLOAD_TOO_LARGE) if first.code == PAYLOAD_TOO_LARGE else (422, "invalid")
    return Problem(status, code, f"{where}{first.detail}{more}", errors=errors)


def _flatten(detail: Any, pointer: str) -> Iterator[FieldProblem]:
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            own = name == api_settings.NON_FIELD_ERRORS_KEY
            yield from _flatten(inner, pointer if own else f"{pointer}/{_token(name)}")
    elif isinstance(detail, (list, tuple)):
        for index, inner in enumerate(detail):
            nested = isinstance(inner, (Mapping, list, tuple))
            yield from _flatten(inner, f"{pointer}/{index}" if nested else pointer)
    else:
        yield FieldProblem(pointer, str(getattr(detail, "code", "invalid")), str(detail))


def _token(name: Any) -> str:
    """One reference token. A name that nobody would give a field is cut: the answer should not grow with it."""
    text = str(name)
    if len(text) > LONGEST_TOKEN:
        text = f"{text[:LONGEST_TOKEN]}…"
    return text.replace("~", "~0").replace("/", "~1")
