"""The stream as tests read it, and the schema that its events keep."""

import json
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import redis
from jsonschema import Draft202012Validator

from chronos_site.observability import events

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "event.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
TYPES: set[str] = {
    name for branch in SCHEMA["allOf"] for name in branch["then"]["properties"]["type"]["enum"]
}  # fmt: skip


def told(server: redis.Redis, **about: Any) -> list[dict[str, Any]]:
    """Events of this process and others that the stream holds, oldest first; each keeps the schema."""
    events.flush(5)
    entries = cast("list[tuple[str, dict[str, str]]]", server.xrange(events.STREAM))
    found = [json.loads(fields[events.MEMBER]) for _, fields in entries]
    for event in found:
        VALIDATOR.validate(event)
    return [e for e in found if all(e.get(name) == value for name, value in about.items())]


def types(server: redis.Redis, execution_id: UUID) -> list[str]:
    """What was told of an execution."""
    return [event["type"].removeprefix("execution.") for event in told(server, execution=str(execution_id))]
