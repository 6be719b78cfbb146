"""A workspace's recurring schedules as a document that `apply_schedules` reads back without a change.

What is as it would be by default is left out. Values of headers that look like secrets are replaced by a placeholder,
which leaves the stored value as it is when the file is applied; references to secrets are written as they are. A
schedule without a key is written under `id:<its id>` where that is asked for; applying finds it again by its id.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import yaml
from django.db.models import QuerySet

from chronos_site.api.fields import TimestampField
from chronos_site.tenancy.models import Workspace
from scheduling.api.bodies import MISFIRE
from scheduling.domain import intervals
from scheduling.files.compare import LIVING, living
from scheduling.files.shape import BY_ID, DEFAULTS, KEPT, hides
from scheduling.files.yaml_text import plain_value
from scheduling.models import Schedule

HEADER = "# Recurring schedules of the workspace {name}. Read back by: manage.py apply_schedules\n"
_MOMENTS = ("anchor", "starts_at", "ends_at")
_PLAIN = ("max_runs", "jitter_s", "overlap", "pause_after_failures")
# JSON may hold these as they are; YAML's reader refuses them, or takes them for ends of lines.
_NOT_IN_YAML = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")


@dataclass(slots=True)
class Exported:
    document: dict[str, Any]
    left_out: int = 0
    """Recurring schedules without a key."""
    hidden: list[str] = field(default_factory=list)
    """`key: part.headers.name` of each value that was replaced."""


def export_schedules(*, workspace: Workspace, prefix: str | None, without_key: bool) -> Exported:
    """ACTIVE and PAUSED ones, by key; those without a key last."""
    exported = Exported({} if prefix is None else {"prefix": prefix})
    rows = living(workspace, prefix or "").select_related("job_definition")
    found = [_body(row, str(row.external_key), exported) for row in rows.iterator()]
    keyless = _keyless(workspace)
    if without_key:
        found += [_body(row, f"{BY_ID}{row.id}", exported) for row in keyless.iterator()]
    elif prefix is None:
        exported.left_out = keyless.count()
    exported.document["schedules"] = found
    return exported


def as_yaml(exported: Exported, *, workspace: str) -> str:
    text: str = yaml.dump(
        exported.document,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=1_000_000,
        default_flow_style=False,
    )
    return HEADER.format(name=workspace) + text


def as_json(exported: Exported) -> str:
    """JSON that is YAML as well."""
    text = json.dumps(exported.document, ensure_ascii=False, indent=2)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # one of two classes
    """Without aliases, and with quotes around every text that would not be read as a text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    quoted = not isinstance(plain_value(text), str) or not text.isprintable()
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if quoted else None)


_Dumper.add_representer(str, _represent_text)


def _keyless(workspace: Workspace) -> QuerySet[Schedule]:
    found = Schedule.objects.filter(workspace=workspace, external_key__isnull=True, state__in=LIVING)
    return found.exclude(kind=Schedule.Kind.ONCE).select_related("job_definition").order_by("id")


def _body(schedule: Schedule, key: str, exported: Exported) -> dict[str, Any]:
    body: dict[str, Any] = {"key": key}
    if schedule.state == Schedule.State.PAUSED:
        body["paused"] = True
    body |= dict(_rhythm(schedule))
    if schedule.job_definition is not None:
        body["job_definition"] = _name_of_job(schedule.job_definition.name, schedule.job_definition.id)
    if schedule.target is not None:
        body["target"] = _hide(schedule.target, "target", key, exported)
    if schedule.payload is not None:
        body["payload"] = schedule.payload
    if schedule.delivery:
        body["delivery"] = _hide(schedule.delivery, "delivery", key, exported)
    if schedule.tags:
        body["tags"] = list(schedule.tags)
    return body


def _name_of_job(name: str, job_id: UUID) -> str:
    """A name that could be an id would be looked up as one."""
    try:
        UUID(name)
    except ValueError:
        return name
    return str(job_id)


def _rhythm(schedule: Schedule) -> Iterator[tuple[str, Any]]:
    if schedule.cron:
        yield "cron", schedule.cron
    else:
        yield "every", intervals.write(schedule.every_s or 0)
    if schedule.cron or schedule.timezone != DEFAULTS["timezone"]:
        yield "timezone", schedule.timezone
    for name in _MOMENTS:
        if getattr(schedule, name) is not None:
            yield name, TimestampField().to_representation(getattr(schedule, name))
    for name in _PLAIN:
        if getattr(schedule, name) != DEFAULTS[name]:
            yield name, getattr(schedule, name)
    misfire = {
        member: getattr(schedule, column)
        for member, column in MISFIRE.items()
        if getattr(schedule, column) != DEFAULTS[column]
    }
    if misfire:
        yield "misfire", misfire


def _hide(part: dict[str, Any], name: str, key: str, exported: Exported) -> dict[str, Any]:
    headers = part.get("headers") or {}
    secret = [header for header, value in headers.items() if hides(header, value)]
    exported.hidden += [f"{key}: {name}.headers.{header}" for header in secret]
    shown = {header: KEPT if header in secret else value for header, value in headers.items()}
    return {
        **{member: value for member, value in part.items() if member != "headers"},
        **({"headers": shown} if shown else {}),
    }
