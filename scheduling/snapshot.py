"""What an execution of a schedule delivers: the job definition or inline target, the schedule's overrides on top."""

from typing import Any

from execution import services as execution_services
from execution.domain.credentials import auth_header
from execution.domain.targets import kind_of
from execution.models import JobDefinition


def delivery_of(
    *,
    job: JobDefinition | None,
    target: dict[str, Any] | None,
    payload: Any,
    overrides: dict[str, Any],
    tags: list[str],
) -> dict[str, Any]:
    """The fields of NewExecution that say what is sent; overrides are headers, timeout_s and retry, already checked."""
    if job is not None:
        base = execution_services.snapshot_of(job=job, payload=payload)
    else:
        base = {
            "kind": kind_of(target or {}),
            "target": target,
            "payload": payload,
            "timeout_s": execution_services.DEFAULT_TIMEOUT_S,
            "retry": {},
            "tags": [],
        }
    if overrides.get("headers"):
        base["target"] = _with_headers(base["target"], overrides["headers"])
    base["timeout_s"] = overrides.get("timeout_s", base["timeout_s"])
    if overrides.get("retry"):
        base["retry"] = {**base["retry"], **overrides["retry"]}
    if tags:
        base["tags"] = sorted({*base["tags"], *tags})
    return base


def _with_headers(target: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    """A copy of the target with headers replaced or added; names are case-insensitive.

    A header that the target's `auth` would fill takes its place.
    """
    given = {name.lower() for name in headers}
    kept = {name: value for name, value in (target.get("headers") or {}).items() if name.lower() not in given}
    made = {**target, "headers": {**kept, **headers}}
    if (auth_header(target.get("auth")) or "").lower() in given:
        del made["auth"]
    return made
