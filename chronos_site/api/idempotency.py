"""`Idempotency-Key`: a POST that creates can be sent again without creating twice.

The view runs in one transaction with the record of its answer: either both are there or neither. So
- an answer that was lost on its way back is answered again from the record, with `Idempotent-Replayed: true`;
- a process that dies half-way leaves nothing, and the same key runs afresh;
- two at once meet at an advisory lock that lasts as long as the transaction: the second is 409 at once;
- what was refused or failed is rolled back and not stored: the same key may be sent again with a better body.
A key belongs to workspace, method and path, and to the body that it came with. After 24 hours it is free again.
"""

import hashlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now
from rest_framework.request import Request
from rest_framework.response import Response

from chronos_site.api.models import IdempotencyRecord
from chronos_site.api.problems import Problem
from chronos_site.api.renderers import FastJSONRenderer

KEPT_FOR = timedelta(hours=24)
LONGEST_KEY = 255
PURGE_BATCH = 1000
KEPT_HEADERS = ("Location", "ETag", "Cache-Control")

ViewMethod = Callable[..., Response]


def idempotent(view_method: ViewMethod) -> ViewMethod:
    """For the `post` of a view that creates. Does nothing for a request without the header."""
    return _wrap(view_method, hidden=())


def idempotent_hiding(*members: str) -> Callable[[ViewMethod], ViewMethod]:
    """The same, for an answer with secrets: these members are stored, and so replayed, as null."""
    return lambda view_method: _wrap(view_method, hidden=members)


def purge_idempotency_records(*, older_than: datetime) -> int:
    """Delete in small batches. Returns how many."""
    purged = 0
    while True:
        old = IdempotencyRecord.objects.filter(created_at__lt=older_than).order_by("created_at").values("id")
        deleted, _ = IdempotencyRecord.objects.filter(id__in=old[:PURGE_BATCH]).delete()
        purged += deleted
        if deleted < PURGE_BATCH:
            return purged


def _wrap(view_method: ViewMethod, *, hidden: tuple[str, ...]) -> ViewMethod:
    @wraps(view_method)
    def handle(view: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        key = _key(request)
        if key is None:
            return view_method(view, request, *args, **kwargs)
        key_row: Any = request.auth
        place = {
            "workspace_id": key_row.workspace_id,
            "method": request.method or "",
            "path": request.path,
            "key": key,
        }
        body_hash = _body_hash(request)
        with transaction.atomic():
            _lock(place)
            known = _find(place)
            if known is not None:
                return _replay(known, body_hash)
            response = view_method(view, request, *args, **kwargs)
            _store(place, body_hash, response, hidden)
            return response

    handle.takes_idempotency_key = True  # type: ignore[attr-defined]  # Read by api.schema.
    return handle


def _key(request: Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        detail = f"Idempotency-Key must be 1 to {LONGEST_KEY} printable ASCII characters."
        raise Problem(400, "invalid_idempotency_key", detail)
    return key


def _body_hash(request: Request) -> str:
    """Of the request's meaning: spaces and the order of names in objects do not count."""
    data = request.data
    if isinstance(data, dict):
        # An uploaded file stands for its content.
        data = {name: getattr(value, "sha256", value) for name, value in data.items()}
    text = json.dumps([request.META.get("QUERY_STRING", ""), data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _lock(place: dict[str, Any]) -> None:
    digest = hashlib.sha256("\n".join(str(part) for part in place.values()).encode()).digest()
    number = int.from_bytes(digest[:8], "big", signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        (free,) = cursor.fetchone()
    if not free:
        detail = "A request with this Idempotency-Key is under way. Send it again in a moment to get its answer."
        raise Problem(409, "idempotency_busy", detail, headers={"Retry-After": "1"})


def _find(place: dict[str, Any]) -> IdempotencyRecord | None:
    """A statement of its own after the lock, so that it sees what the lock's last holder committed."""
    same = IdempotencyRecord.objects.filter(**place)
    same.filter(created_at__lt=Now() - KEPT_FOR).delete()
    return same.first()


def _replay(known: IdempotencyRecord, body_hash: str) -> Response:
    if known.body_hash != body_hash:
        detail = "This Idempotency-Key was used with another body. Use a new key for a new request."
        raise Problem(422, "idempotency_key_reused", detail)
    headers = {**known.headers, "Idempotent-Replayed": "true"}
    return Response(json.loads(known.body), status=known.status, headers=headers)


def _store(place: dict[str, Any], body_hash: str, response: Response, hidden: tuple[str, ...]) -> None:
    shown = {**response.data, **dict.fromkeys(hidden)} if hidden else response.data
    IdempotencyRecord.objects.create(
        **place,
        body_hash=body_hash,
        status=response.status_code,
        body=FastJSONRenderer().render(shown).decode(),
        headers={name: response[name] for name in KEPT_HEADERS if response.has_header(name)},
    )
