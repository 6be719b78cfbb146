"""What has to happen so that a workspace holds what a file asks for. Reads, and changes nothing.

Called inside the transaction that will act on it, or alone for a dry run. Everything that can be wrong is found here
and told at once: job definitions that are not there, placeholders with nothing behind them, schedules that would never
fire. What another does between this look and the change is caught by the version that the change expects.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from chronos_site.api.fields import parse_uuid
from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution.domain.credentials import foreign_references
from execution.domain.targets import HTTP, USUAL_METHOD, kind_of
from execution.models import JobDefinition
from execution.selectors import job_definitions
from scheduling.domain.alike import alike
from scheduling.domain.rhythm import Rhythm
from scheduling.files.crontab import Fault
from scheduling.files.shape import BY_ID, KEPT, Wanted
from scheduling.models import Schedule

LIVING = (Schedule.State.ACTIVE, Schedule.State.PAUSED)
TIMING = ("cron", "timezone", "every_s", "anchor", "starts_at", "ends_at")


class Kind(StrEnum):
    MAKE = "made"
    CHANGE = "changed"
    LEAVE = "unchanged"
    CANCEL = "cancelled"
    ENDED = "ended"
    """There is one of this key that has ended, and nothing else is asked for."""


@dataclass(slots=True, kw_only=True)
class Step:
    kind: Kind
    key: str
    line: int = 0
    wanted: Wanted | None = None
    schedule: Schedule | None = None
    """The row that is there; for a MAKE one that has ended and gives its key up. Afterwards the one that came of it."""
    changes: dict[str, Any] = field(default_factory=dict)
    """New values by field of `Recurring`, in a CHANGE."""
    before: dict[str, Any] = field(default_factory=dict)
    """What stood there."""
    pause: bool | None = None
    """True: pause it; False: resume it."""


def compare(
    *, workspace: Workspace, wanted: Sequence[Wanted], prune: str | None = None, remake: bool = True
) -> tuple[list[Step], list[Fault]]:
    """A step for each wanted schedule, in the file's order, then one for each that is to be cancelled.

    `prune` is the beginning of the keys that are the file's own. `remake` False leaves cancelled schedules cancelled.
    Steps mean nothing where there is a fault.
    """
    known = _by_key(workspace, [item.key for item in wanted])
    jobs = _find_jobs(workspace, {item.values["job_definition"] for item in wanted} - {None})
    now = database_now()
    steps: list[Step] = []
    faults: list[Fault] = []
    for item in map(_copy, wanted):
        found = known.get(item.key)
        wrong = _resolve(item, found, jobs) + _foreign_secrets(workspace, item)
        step = None if wrong else _step(item, found, remake=remake)
        if step is not None and not wrong:
            wrong = _check(step, now)
        faults += wrong
        if step is not None:
            steps.append(step)
    if prune is not None:
        steps += _surplus(workspace, prune, {item.key for item in wanted})
    return steps, faults


def _copy(item: Wanted) -> Wanted:
    """Rows and kept secrets are put in place below; another look must begin with what the file says."""
    return replace(item, values=dict(item.values))


# --- looking up ----------------------------------------------------------------------------------------------


def _by_key(workspace: Workspace, keys: Iterable[str]) -> dict[str, Schedule]:
    """By external_key; by id where the key is the one of an export."""
    keys = list(keys)
    ids = {found: key for key in keys if (found := id_of(key)) is not None}
    rows = Schedule.objects.filter(
        Q(external_key__in=keys) | Q(id__in=list(ids), external_key__isnull=True), workspace=workspace
    ).select_related("job_definition")
    return {row.external_key if row.external_key is not None else ids[row.id]: row for row in rows}


def id_of(key: str) -> UUID | None:
    """The id in a key of the form that an export gives to schedules without one."""
    if not key.startswith(BY_ID):
        return None
    try:
        return parse_uuid(key.removeprefix(BY_ID))
    except ValueError:
        return None


def _find_jobs(workspace: Workspace, wanted: set[str]) -> dict[str, JobDefinition]:
    """By id or by name, in at most two queries."""
    ids: dict[UUID, str] = {}
    for text in wanted:
        try:
            ids[UUID(text)] = text
        except ValueError:
            continue
    found = job_definitions(workspace=workspace)
    jobs = {ids[job.id]: job for job in found.filter(id__in=list(ids))} if ids else {}
    names = wanted - jobs.keys()
    if names:
        jobs.update({job.name: job for job in found.filter(name__in=names)})
    return jobs


def living(workspace: Workspace, prefix: str = "") -> QuerySet[Schedule]:
    """Recurring schedules with a key that begins so, as far as they have not ended, by key."""
    found = Schedule.objects.filter(workspace=workspace, external_key__startswith=prefix, state__in=LIVING)
    return found.exclude(kind=Schedule.Kind.ONCE).order_by("external_key")


def living_keys(workspace: Workspace, prefix: str) -> set[str]:
    return {str(key) for key in living(workspace, prefix).values_list("external_key", flat=True)}


def _surplus(workspace: Workspace, prefix: str, keys: set[str]) -> list[Step]:
    return [
        Step(kind=Kind.CANCEL, key=str(row.external_key), schedule=row)
        for row in living(workspace, prefix)
        if row.external_key not in keys
    ]


# --- one schedule --------------------------------------------------------------------------------------------


def _resolve(item: Wanted, found: Schedule | None, jobs: dict[str, JobDefinition]) -> list[Fault]:
    """Put rows and kept values in the place of what names them."""
    wrong = []
    name = item.values["job_definition"]
    if isinstance(name, str):
        if name in jobs:
            item.values["job_definition"] = jobs[name]
        else:
            wrong.append(
                item.fault(f"job_definition: There is no job definition {name!r} in this workspace.", "job_definition")
            )
    for part in ("target", "delivery"):
        wrong += _put_back_secrets(item, part, found)
    if found is None and id_of(item.key) is not None:
        wrong.append(item.fault("key: There is no schedule of this id here. Give it a key of its own.", "key"))
    elif found is not None and found.kind == Schedule.Kind.ONCE and found.state in LIVING:
        wrong.append(item.fault("key: This is the key of a schedule that fires once. Choose another.", "key"))
    return wrong


def _foreign_secrets(workspace: Workspace, item: Wanted) -> list[Fault]:
    return [
        item.fault(f"{part}.{'.'.join(path)}: {why}", part, *path)
        for part in ("target", "delivery")
        for path, why in foreign_references(item.values[part], workspace.secret_namespaces)
    ]


def _put_back_secrets(item: Wanted, part: str, found: Schedule | None) -> list[Fault]:
    given = (item.values[part] or {}).get("headers") or {}
    hidden = [name for name, value in given.items() if value == KEPT]
    if not hidden:
        return []
    stored = ((getattr(found, part) if found is not None else None) or {}).get("headers") or {}
    there = {name.lower(): value for name, value in stored.items()}
    item.values[part] = {
        **item.values[part],
        "headers": {name: there.get(name.lower(), value) if value == KEPT else value for name, value in given.items()},
    }
    return [
        item.fault(
            f"{part}.headers.{name}: There is no stored value to leave as it is. Write the value.",
            part,
            "headers",
            name,
        )
        for name in hidden
        if name.lower() not in there
    ]


def _step(item: Wanted, found: Schedule | None, *, remake: bool) -> Step:
    if found is None:
        return Step(kind=Kind.MAKE, key=item.key, line=item.line, wanted=item, pause=item.paused or None)
    step = Step(kind=Kind.LEAVE, key=item.key, line=item.line, wanted=item, schedule=found)
    if found.kind == Schedule.Kind.INTERVAL and item.values["every_s"] is not None and item.values["anchor"] is None:
        item.values["anchor"] = found.anchor
    for name, value in item.values.items():
        before = _stored(found, name)
        if not alike(before, value):
            step.changes[name], step.before[name] = value, before
    if found.state not in LIVING:
        # As a PUT to the key would have it: what has ended makes room, unless it has done all that is asked for.
        again = remake and (found.state == Schedule.State.CANCELLED or bool(step.changes))
        step.kind = Kind.MAKE if again else Kind.ENDED
        step.pause = item.paused or None
        return step
    if item.paused is not None and item.paused != (found.state == Schedule.State.PAUSED):
        step.pause = item.paused
    if step.changes or step.pause is not None:
        step.kind = Kind.CHANGE
    return step


def _stored(schedule: Schedule, name: str) -> Any:
    value = getattr(schedule, name)
    if name == "target" and value is not None:
        return {**({"method": USUAL_METHOD} if kind_of(value) == HTTP else {}), "headers": {}, **value}
    return value


def _check(step: Step, now: datetime) -> list[Fault]:
    """What the services would refuse, one schedule at a time and in the middle of the work."""
    item = step.wanted
    if item is None or step.kind in (Kind.LEAVE, Kind.ENDED):
        return []
    starts_at, ends_at = item.values["starts_at"], item.values["ends_at"]
    if starts_at is not None and ends_at is not None and ends_at <= starts_at:
        return [item.fault("ends_at: ends_at must lie after starts_at.", "ends_at")]
    if step.kind == Kind.MAKE or any(name in step.changes for name in TIMING):
        return _check_fires(item, now)
    return []


def _check_fires(item: Wanted, now: datetime) -> list[Fault]:
    values = item.values
    rhythm = Rhythm(
        expression=values["cron"],
        timezone=values["timezone"],
        every_s=values["every_s"] or 0,
        anchor=values["anchor"] or now,
        starts_at=values["starts_at"],
        ends_at=values["ends_at"],
    )
    if rhythm.after(now) is not None:
        return []
    place = "ends_at" if values["ends_at"] is not None else "cron"
    return [item.fault(f"{place}: This schedule would never fire.", place)]
