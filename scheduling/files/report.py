"""What the commands print of their steps: lines for people, objects for programs; secrets in neither."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from chronos_site.api.fields import TimestampField
from execution.domain.targets import described
from execution.models import JobDefinition
from scheduling.domain import words
from scheduling.files.compare import Kind, Step
from scheduling.files.crontab import Fault
from scheduling.files.shape import hides

HIDDEN = "(hidden)"
NONE = "(none)"
LONGEST = 200
SIGNS = {Kind.MAKE: "+", Kind.CHANGE: "~", Kind.LEAVE: "=", Kind.CANCEL: "-", Kind.ENDED: "="}


def sentence(file: str, fault: Fault) -> str:
    key = f"{fault.key}: " if fault.key else ""
    return f"{file}:{fault.line}: {printable(key + fault.text)}"


def fault_object(fault: Fault) -> dict[str, Any]:
    return {"line": fault.line, "key": fault.key or None, "reason": fault.text}


def lines_of(step: Step) -> list[str]:
    """The step, then what changes, field by field."""
    head = f"{SIGNS[step.kind]} {printable(step.key)}"
    if step.kind == Kind.MAKE and step.wanted is not None:
        return [f"{head}  {when(step.wanted.values)}: {call(step.wanted.values)}{' (paused)' if step.pause else ''}"]
    if step.kind == Kind.CHANGE:
        return [head, *(f"    {place}: {old} → {new}" for place, old, new in differences(step))]
    if step.kind == Kind.ENDED and step.schedule is not None:
        return [f"{head}  {step.schedule.state}, and stays so"]
    return [head]


def step_object(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {
        "key": step.key,
        "outcome": step.kind.value,
        "line": step.line or None,
        "schedule_id": None if step.schedule is None else str(step.schedule.id),
    }
    if step.kind == Kind.CHANGE:
        found["changes"] = [{"field": place, "old": old, "new": new} for place, old, new in differences(step)]
    return found


def counts(steps: list[Step]) -> dict[str, int]:
    return {kind.value: sum(step.kind == kind for step in steps) for kind in Kind}


def when(values: dict[str, Any]) -> str:
    if values["cron"]:
        return f"{values['cron']}, {words.describe(values['cron'], values['timezone'])}"
    return words.describe_interval(values["every_s"])


def call(values: dict[str, Any]) -> str:
    target, job = values["target"], values["job_definition"]
    if target is None:
        return f"job definition {job.name if isinstance(job, JobDefinition) else job}"
    return printable(_without_query(described(target)))


def differences(step: Step) -> Iterator[tuple[str, str, str]]:
    """Each changed place with its old and new text."""
    for name, new in step.changes.items():
        old = step.before[name]
        if isinstance(old, Mapping) and isinstance(new, Mapping) and name != "payload":
            yield from _inner(name, old, new)
        else:
            yield name, _text(name, old), _text(name, new)
    if step.pause is not None:
        yield "paused", _text("paused", not step.pause), _text("paused", step.pause)


def _inner(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        place = f"{path}.{name}"
        if isinstance(before or {}, Mapping) and isinstance(after or {}, Mapping):
            yield from _inner(place, before or {}, after or {})
        else:
            yield place, _text(place, before), _text(place, after)


def _text(path: str, value: Any) -> str:
    if value is None or value == "" or value == {} or value == []:
        return NONE
    if isinstance(value, JobDefinition):
        return value.name
    if isinstance(value, datetime):
        return TimestampField().to_representation(value)
    if ".headers." in path and hides(path.rsplit(".headers.", 1)[-1], value):
        return HIDDEN
    if isinstance(value, Mapping) and path in ("target", "delivery"):
        value = _with_hidden_headers(value)
    text = json.dumps(value, ensure_ascii=False)
    return printable(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")


def _with_hidden_headers(part: Mapping[str, Any]) -> dict[str, Any]:
    headers = part.get("headers") or {}
    return {**part, "headers": {name: HIDDEN if hides(name, value) else value for name, value in headers.items()}}


def _without_query(url: str) -> str:
    base, mark, _ = url.partition("?")
    return f"{base}?…" if mark else base


def printable(text: str) -> str:
    """A file's text must not steer the terminal that reads about it."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
