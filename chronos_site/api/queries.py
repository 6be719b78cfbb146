"""What a view takes behind the `?`, and pages of lists.

    query = QueryParameters(request, many={"state": State, "tag": str}, times=("due_at_from",), page=True)
    return CursorPage(query).answer(rows.filter(state__in=query.many("state")), ThingSerializer)

A parameter that the view did not name is 400, so that a misspelt filter never answers with everything. A cursor carries
the filters that it was made with: it can be sent alone, or with the very same filters.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from chronos_site.api.fields import parse_timestamp, parse_uuid
from chronos_site.api.problems import Problem

DEFAULT_LIMIT, MOST = 50, 200
MOST_VALUES = 100
LONGEST_VALUE = 500

Filters = dict[str, list[str]]


class QueryParameters:
    """The parameters of one request, checked. Raises Problem 400 that names the `parameter`."""

    def __init__(
        self,
        request: Request,
        *,
        many: Mapping[str, type] | None = None,
        times: Sequence[str] = (),
        flags: Sequence[str] = (),
        texts: Sequence[str] = (),
        page: bool = False,
    ) -> None:
        """`many`: may be repeated, any of the values matches; str, UUID or an enum. `page`: takes limit and cursor."""
        self.path = request.path
        single = {*times, *flags, *texts, *(("limit", "cursor") if page else ())}
        sent = _sent(request, repeatable={*(many or {})}, single=single)
        self.limit = _limit(sent.pop("limit", [str(DEFAULT_LIMIT)])[0])
        self.after: UUID | None = None
        self.filters: Filters = sent
        if "cursor" in sent:
            self.after, self.filters = self._resume(sent.pop("cursor")[0], given=sent)
            if not self.filters.keys() <= {*(many or {}), *times, *flags, *texts}:
                raise _bad("cursor", "invalid_cursor", "This cursor carries filters that this list does not have.")
        self._values = {
            name: [_parsed(name, text, kind) for text in self.filters.get(name, [])]
            for name, kind in (many or {}).items()
        }
        self._times = {name: _parsed(name, self.filters[name][0], datetime) for name in times if name in self.filters}
        self._flags = {name: _parsed(name, self.filters[name][0], bool) for name in flags if name in self.filters}

    def many(self, name: str) -> list[Any]:
        """The values given, none for no filter."""
        return self._values[name]

    def time(self, name: str) -> datetime | None:
        return self._times.get(name)

    def text(self, name: str) -> str | None:
        """Of `texts`: taken once, as it is."""
        return self.filters[name][0] if name in self.filters else None

    def flag(self, name: str) -> bool:
        """False where it is not given."""
        return bool(self._flags.get(name, False))

    def cursor_after(self, last: UUID) -> str:
        """The cursor of the page that follows the row `last`."""
        text = json.dumps({"path": self.path, "after": str(last), "filters": self.filters}, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def _resume(self, cursor: str, *, given: Filters) -> tuple[UUID, Filters]:
        path, after, carried = _decode_cursor(cursor)
        if path != self.path:
            raise _bad("cursor", "invalid_cursor", "This cursor belongs to another list.")
        if given and {name: sorted(values) for name, values in given.items()} != {
            name: sorted(values) for name, values in carried.items()
        }:
            detail = "This cursor was made with other filters. Send it alone or with the filters of its first page."
            raise _bad("cursor", "cursor_mismatch", detail)
        return after, carried


class CursorPage:
    """One page, newest first: rows in descending order of their UUIDv7 `id`."""

    def __init__(self, query: QueryParameters) -> None:
        self._query = query

    def answer(self, found: QuerySet[Any, Any], serializer: type[BaseSerializer[Any]]) -> Response:
        rows = found.order_by("-id")
        if self._query.after is not None:
            rows = rows.filter(id__lt=self._query.after)
        page: list[Model] = list(rows[: self._query.limit + 1])
        more = len(page) > self._query.limit
        page = page[: self._query.limit]
        cursor = self._query.cursor_after(page[-1].pk) if more else None
        return Response({"items": serializer(page, many=True).data, "next_cursor": cursor})


def _sent(request: Request, *, repeatable: set[str], single: set[str]) -> Filters:
    sent: Filters = {}
    for name, values in request.query_params.lists():
        if name not in repeatable | single:
            allowed = ", ".join(sorted(repeatable | single)) or "none"
            raise _bad(name[:100], "unknown_parameter", f"There is no such parameter here. Known: {allowed}.")
        if name in single and len(values) > 1:
            raise _bad(name, "repeated_parameter", "This parameter is taken once.")
        if len(values) > MOST_VALUES:
            raise _bad(name, "invalid_parameter", f"At most {MOST_VALUES} values are taken.")
        if name != "cursor" and any("\0" in value or not 0 < len(value) <= LONGEST_VALUE for value in values):
            raise _bad(name, "invalid_parameter", f"A value has 1 to {LONGEST_VALUE} characters, none of them NUL.")
        sent[name] = values
    return sent


def _limit(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MOST:
        return int(text)
    raise _bad("limit", "invalid_parameter", f"Give a whole number from 1 to {MOST}.")


def _parsed(name: str, text: str, kind: type) -> Any:
    try:
        return _PARSERS.get(kind, kind)(text)
    except ValueError as error:
        detail = str(error)
        if issubclass(kind, Enum):
            detail = f"One of {', '.join(str(member.value) for member in kind)} is needed."
        elif kind is datetime and " " in text:
            detail += " A + must be written as %2B in a query."
        raise _bad(name, "invalid_parameter", detail) from None


def _parse_flag(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("Give true or false.")
    return text == "true"


_PARSERS: dict[type, Callable[[str], Any]] = {UUID: parse_uuid, datetime: parse_timestamp, bool: _parse_flag}


def _decode_cursor(cursor: str) -> tuple[str, UUID, Filters]:
    """Path, last id and filters. Whatever is not exactly that shape was not made here."""
    try:
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        path, after, filters = found["path"], parse_uuid(found["after"]), found["filters"]
        whole = isinstance(path, str) and all(_are_texts(values) for values in filters.values())
    except (ValueError, binascii.Error, KeyError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise _bad("cursor", "invalid_cursor", "This is no cursor of this API. Take next_cursor as it was answered.")
    return path, after, filters


def _are_texts(values: Any) -> bool:
    return (
        isinstance(values, list) and bool(values) and all(isinstance(text, str) and "\0" not in text for text in values)
    )


def _bad(name: str, code: str, detail: str) -> Problem:
    return Problem(400, code, f"{name}: {detail}", parameter=name)
