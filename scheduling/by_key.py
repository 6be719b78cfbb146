"""Schedules under their caller's own key: PUT makes one, replaces it, or finds that nothing changes.

The same body twice changes nothing, not even the version. Two at once make one schedule: the unique constraint lets the
first in, and the second then replaces what it finds. What has ended gives its key up to a body that is different; so
does a cancelled schedule to any body.
"""

from dataclasses import replace
from typing import Any

from django.db import transaction

from chronos_site.tenancy.models import Workspace
from execution.models import Execution
from execution.services import Refused, VersionMismatch
from scheduling import creation, recurring, services
from scheduling.domain.alike import alike
from scheduling.models import Schedule
from scheduling.recurring import Recurring
from scheduling.services import KeyTaken, NewSchedule, WrongState

TRIES = 3

ONCE_FIELDS = ("target", "payload", "delivery", "expires_after_s", "tags")


class OtherKind(WrongState):
    """A schedule that fires once does not become one that recurs, nor the other way round."""

    code = "other_kind"


class FixedContent(Refused):
    """Of a schedule that fires once only the time can be changed."""

    code = "content_fixed"


def put_schedule(
    *,
    workspace: Workspace,
    external_key: str,
    new: NewSchedule | Recurring,
    expected_version: int | None,
    traceparent: str,
) -> tuple[Schedule, bool]:
    """The schedule, and whether it was made.

    Raises VersionMismatch, OtherKind, FixedContent, and whatever creating, changing and moving raise.
    """
    new = replace(new, external_key=external_key)
    for _ in range(TRIES - 1):
        try:
            return _put(workspace, new, expected_version, traceparent)
        except KeyTaken:  # Another made it after we looked: look again.
            continue
    return _put(workspace, new, expected_version, traceparent)


@transaction.atomic
def _put(
    workspace: Workspace, new: NewSchedule | Recurring, expected_version: int | None, traceparent: str
) -> tuple[Schedule, bool]:
    found = (
        Schedule.objects.select_for_update(of=("self",))
        .filter(workspace=workspace, external_key=new.external_key)
        .first()
    )
    if expected_version is not None and (found is None or found.version != expected_version):
        detail = "There is no schedule under this key" if found is None else f"The schedule has version {found.version}"
        raise VersionMismatch(f"{detail} by now. Read it again, then change it.")
    if found is None:
        return _create(workspace, new, traceparent), True
    new = _with_anchor(found, new)
    if found.state == Schedule.State.CANCELLED or (found.state == Schedule.State.COMPLETED and _differs(found, new)):
        Schedule.objects.filter(id=found.id).update(external_key=None)
        return _create(workspace, new, traceparent), True
    if not _differs(found, new):
        return found, False
    return _replace(workspace, found, new), False


def _create(workspace: Workspace, new: NewSchedule | Recurring, traceparent: str) -> Schedule:
    return creation.create_schedules(workspace=workspace, new=[new], traceparent=traceparent)[0][0]


def _with_anchor(found: Schedule, new: NewSchedule | Recurring) -> NewSchedule | Recurring:
    """An interval keeps counting from where it counts, unless the body says otherwise."""
    if isinstance(new, Recurring) and new.every_s is not None and new.anchor is None:
        return replace(new, anchor=new.starts_at or found.anchor)
    return new


def _differs(found: Schedule, new: NewSchedule | Recurring) -> bool:
    if isinstance(new, Recurring):
        return any(not alike(getattr(found, name), value) for name, value in _fields(new).items())
    return found.run_at != new.run_at or _content_differs(found, new)


def _content_differs(found: Schedule, new: NewSchedule) -> bool:
    return found.job_definition != new.job or any(
        not alike(getattr(found, name), getattr(new, name)) for name in ONCE_FIELDS
    )


def _replace(workspace: Workspace, found: Schedule, new: NewSchedule | Recurring) -> Schedule:
    recurs = isinstance(new, Recurring)
    if recurs == (found.kind == Schedule.Kind.ONCE):
        was, will = ("fires once", "recurs") if recurs else ("recurs", "fires once")
        raise OtherKind(f"The schedule under this key {was}, this one {will}. Cancel it first.", state=found.state)
    if isinstance(new, Recurring):
        return recurring.update_recurring(
            workspace=workspace, schedule_id=found.id, expected_version=None, changes=_fields(new)
        )
    if _content_differs(found, new):
        raise FixedContent("Of a schedule that fires once only run_at can be changed. Cancel it, then send this again.")
    assert new.run_at is not None  # noqa: S101 - the API takes no delay_s here
    moved: tuple[Schedule, Execution] = services.move_schedule(
        workspace=workspace, schedule_id=found.id, run_at=new.run_at, expected_version=None
    )
    return moved[0]


def _fields(new: Recurring) -> dict[str, Any]:
    return {name: getattr(new, name) for name in recurring.FIELDS}
