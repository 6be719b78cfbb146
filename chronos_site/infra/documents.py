"""JSON written fast: documents of a thousand rows go to Postgres and back to clients."""

import json
from collections.abc import Callable
from typing import Any

import orjson


def to_json(value: Any, plain: Callable[[Any], Any] | None = None) -> bytes:
    """`value` as UTF-8, with UUIDs and times as texts; `plain` says how times and what JSON does not know are written.

    What JSON can hold and the fast writer cannot (integers beyond 64 bits, deep nesting) is written by the slow one.
    """
    options = orjson.OPT_NON_STR_KEYS | (0 if plain is None else orjson.OPT_PASSTHROUGH_DATETIME)
    try:
        return orjson.dumps(value, default=plain or str, option=options)
    except TypeError:
        return json.dumps(value, default=plain or str, ensure_ascii=False, separators=(",", ":")).encode()
