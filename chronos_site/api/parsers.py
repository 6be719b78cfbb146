"""The one body format of the API: JSON, strictly. What is not JSON is 400, whatever a lenient reader might see."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from django.conf import settings
from rest_framework.parsers import BaseParser

from chronos_site.api.problems import Problem, body_too_large

DEEPEST_BODY = 100


class StrictJSONParser(BaseParser):
    """UTF-8 JSON. Refuses NaN and infinities, names given twice, and nesting beyond 100 levels."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            raise body_too_large(limit)
        return parse_json(raw)


class MergePatchParser(StrictJSONParser):
    """The same under the name that RFC 7396 gives to a merge patch; PATCH takes both."""

    media_type = "application/merge-patch+json"


def parse_json(raw: bytes) -> Any:
    """Raises Problem 400 `malformed_json` with what is wrong and, where it is known, in which line."""
    try:
        data = json.loads(
            raw.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_without_twins
        )
    except UnicodeDecodeError as error:
        raise _malformed(f"it is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise _malformed(f"{error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _malformed(f"it is nested deeper than {DEEPEST_BODY} levels") from None
    except ValueError as error:
        raise _malformed(str(error)) from None
    if nested_deeper_than(DEEPEST_BODY, data):
        raise _malformed(f"it is nested deeper than {DEEPEST_BODY} levels")
    return data


def nested_deeper_than(limit: int, data: Any) -> bool:
    """Whether lists and objects lie in each other more than `limit` deep. Walks by level: the depth is the caller's."""
    containers = [data] if isinstance(data, (dict, list)) else []
    for _ in range(limit):
        containers = [
            inner
            for container in containers
            for inner in (container.values() if isinstance(container, dict) else container)
            if isinstance(inner, (dict, list))
        ]
        if not containers:
            return False
    return bool(containers)


def _malformed(what: str) -> Problem:
    return Problem(400, "malformed_json", f"The body is no JSON that can be taken: {what}.")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twin = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {twin[:50]!r} is given twice in one object")
    return found
