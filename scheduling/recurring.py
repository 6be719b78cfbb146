"""What may be done with schedules that recur, by cron or at an interval.

Every change is made under the schedule's row lock and in this order: what the old rhythm still owes is made,
occurrences that are not yet QUEUED are withdrawn (deleted), `next_run_at` is set back to the first of them or to where
the new rhythm begins. So an edit at second 59 loses nothing, for what was withdrawn is made again, and doubles nothing,
for what was QUEUED keeps its row and the unique constraint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction

from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution import making
from execution import services as execution_services
from execution.making import NewExecution
from execution.models import Execution, JobDefinition
from execution.services import Refused, VersionMismatch
from scheduling import occurrences, quotas, transitions
from scheduling.domain import cron, intervals, pace
from scheduling.domain.alike import alike
from scheduling.domain.errors import ScheduleError
from scheduling.domain.misfire import Policy
from scheduling.models import Schedule
from scheduling.occurrences import rhythm_of
from scheduling.services import Ended, KeyTaken, WrongState, insert_schedules

BY_HAND = "paused by hand"


class NotRecurring(WrongState):
    """The action is for schedules by cron or at an interval."""

    code = "not_recurring"


class NoNextOccurrence(WrongState):
    """Nothing lies ahead of the schedule."""

    code = "no_next_occurrence"


class BadRhythm(Refused):
    """The rhythm cannot be followed; `field` names the part, `code` is `invalid` or `never_fires`.

    `index` is its place in a batch.
    """

    def __init__(self, text: str, *, code: str, field: str) -> None:
        super().__init__(text)
        self.code = code
        self.field = field
        self.index = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurring:
    """All that a person says of a schedule that recurs; either `cron` or `every_s`."""

    cron: str = ""
    timezone: str = "UTC"
    every_s: int | None = None
    anchor: datetime | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_runs: int | None = None
    jitter_s: float = 0
    misfire: str = Policy.FIRE_ONCE
    misfire_grace_s: float = 60
    catch_up_window_s: float = 86_400
    misfire_limit: int = 100
    overlap: str = Execution.Overlap.ALLOW
    pause_after_failures: int | None = None
    job_definition: JobDefinition | None = None
    target: dict[str, Any] | None = None
    payload: Any = None
    delivery: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    external_key: str | None = None


FIELDS = tuple(each.name for each in fields(Recurring))
TIMING = frozenset({"cron", "timezone", "every_s", "anchor", "starts_at", "ends_at"})
"""Fields whose change moves the occurrences."""


def create_recurring(*, workspace: Workspace, new: Recurring) -> Schedule:
    """Make one schedule, as `create_recurrings` does."""
    return create_recurrings(workspace=workspace, new=[new])[0]


@transaction.atomic
def create_recurrings(*, workspace: Workspace, new: Sequence[Recurring]) -> list[Schedule]:
    """Make schedules, all or none; their first occurrences are made with them.

    Raises BadRhythm, KeyTaken, quotas.QuotaExceeded, JobGone.
    """
    execution_services.hold_jobs(jobs=[item.job_definition for item in new if item.job_definition is not None])
    quotas.check_recurring(workspace=workspace, adding=len(new))
    now = database_now()
    schedules = []
    for index, item in enumerate(new):
        try:
            schedules.append(_begin(workspace, item, now))
        except BadRhythm as error:
            error.index = index
            raise
    insert_schedules(workspace=workspace, schedules=schedules)
    plans = [occurrences.plan(schedule, now=now) for schedule in schedules]
    occurrences.write(plans, now=now)
    for schedule, planned in zip(schedules, plans, strict=True):
        schedule.next_run_at, schedule.run_count = planned.next_run_at, planned.ran
    return schedules


def _begin(workspace: Workspace, new: Recurring, now: datetime) -> Schedule:
    """Not stored yet."""
    schedule = Schedule(
        id=new_id(),
        workspace=workspace,
        created_at=now,
        updated_at=now,
        **{name: getattr(new, name) for name in FIELDS},
    )
    _set_rhythm(schedule, now)
    schedule.next_run_at = _first_after(schedule, now)
    return schedule


@transaction.atomic
def update_recurring(
    *, workspace: Workspace, schedule_id: UUID, expected_version: int | None, changes: dict[str, Any]
) -> Schedule:
    """Change fields of `Recurring`. Raises VersionMismatch, Ended, NotRecurring, BadRhythm, KeyTaken, JobGone."""
    schedule = _lock(workspace, schedule_id)
    if expected_version is not None and schedule.version != expected_version:
        raise VersionMismatch(f"The schedule has version {schedule.version} by now. Read it again, then change it.")
    changed = {name for name, value in changes.items() if not alike(getattr(schedule, name), value)}
    if not changed:
        return schedule
    now = database_now()
    active = schedule.state == Schedule.State.ACTIVE
    if active:
        _materialise(schedule, now)
    _withdraw(schedule, after=now)
    for name in changed:
        setattr(schedule, name, changes[name])
    if schedule.job_definition is not None and "job_definition" in changed:
        execution_services.hold_jobs(jobs=[schedule.job_definition])
    if changed & TIMING:
        _set_rhythm(schedule, now)
        schedule.next_run_at = _first_after(schedule, now)
    if schedule.max_runs is not None and schedule.run_count >= schedule.max_runs:
        schedule.next_run_at = None
    elif schedule.next_run_at is None:
        schedule.next_run_at = rhythm_of(schedule).after(now)
    schedule.version += 1
    schedule.updated_at = now
    _save(schedule)
    if active:
        _materialise(schedule, now)
    return schedule


@transaction.atomic
def pause_schedule(*, workspace: Workspace, schedule_id: UUID, reason: str = BY_HAND) -> Schedule:
    """Hold it: nothing that is not yet QUEUED fires until it is resumed. Safe to repeat. Raises Ended, NotRecurring."""
    return _pause(_lock(workspace, schedule_id), reason)


@transaction.atomic
def pause_failing(*, workspace_id: UUID, schedule_id: UUID, reason: str) -> None:
    """The settle loop's pause; a schedule that has ended meanwhile is left."""
    schedule = Schedule.objects.select_for_update(of=("self",)).get(workspace_id=workspace_id, id=schedule_id)
    if schedule.state == Schedule.State.ACTIVE:
        _pause(schedule, reason)


def _pause(schedule: Schedule, reason: str) -> Schedule:
    if transitions.pause_active(ids=[schedule.id], reason=reason):
        withdraw_all(schedule=schedule)
        schedule.refresh_from_db()
    return schedule


def withdraw_all(*, schedule: Schedule) -> None:
    """Take back what is not yet QUEUED and set the schedule back to it: judged on resume. Call under its lock."""
    _withdraw(schedule, after=None)
    Schedule.objects.filter(id=schedule.id).update(next_run_at=schedule.next_run_at, run_count=schedule.run_count)


@transaction.atomic
def resume_schedule(*, workspace: Workspace, schedule_id: UUID) -> Schedule:
    """Go on. What was missed follows the misfire policy; `last_misfire` tells. Safe to repeat."""
    schedule = _lock(workspace, schedule_id)
    if transitions.resume_paused(ids=[schedule.id]):
        schedule.refresh_from_db()
        _materialise(schedule, database_now())
    return schedule


@transaction.atomic
def cancel_recurring(*, workspace: Workspace, schedule_id: UUID) -> tuple[Schedule, execution_services.Cancelled]:
    """It fires no more: what is not yet QUEUED is withdrawn, what is under way is cancelled as far as it can be.

    A completed one stays as it is, with its replays and backfills.
    """
    schedule = Schedule.objects.select_for_update(of=("self",)).get(workspace=workspace, id=schedule_id)
    if schedule.state == Schedule.State.COMPLETED:
        return schedule, execution_services.Cancelled([], [], [])
    _withdraw(schedule, after=None)
    under_way = Execution.objects.filter(
        workspace=workspace, schedule_id=schedule.id, state__in=["PENDING", "QUEUED", "RUNNING", "RETRYING"]
    )
    cancelled = execution_services.cancel_executions(
        workspace=workspace, ids=list(under_way.values_list("id", flat=True)), reason="schedule_cancelled"
    )
    transitions.cancel_active(ids=[schedule.id])
    schedule.refresh_from_db()
    return schedule, cancelled


@transaction.atomic
def run_schedule(*, workspace: Workspace, schedule_id: UUID, payload: Any, traceparent: str) -> Execution:
    """One execution now, beside the rhythm, also of a paused schedule. Raises Ended, quotas.QuotaExceeded, JobGone."""
    schedule = Schedule.objects.select_related("job_definition").get(workspace=workspace, id=schedule_id)
    _refuse_ended(schedule)
    if schedule.job_definition is not None:
        execution_services.hold_jobs(jobs=[schedule.job_definition])
    snapshot = occurrences.snapshot_of(schedule)
    if payload is not None:
        snapshot["payload"] = payload
    now = database_now()
    new = NewExecution(
        **{
            **snapshot,
            "scheduled_for": now,
            "trigger": Execution.Trigger.RUN,
            "on_deadline": Execution.OnDeadline.EXPIRE,
            "traceparent": traceparent,
        }
    )
    return making.create_executions(workspace=workspace, new=[new])[0]


@transaction.atomic
def skip_next(*, workspace: Workspace, schedule_id: UUID) -> Execution:
    """Pass over the next occurrence: its row ends as SKIPPED. Safe to repeat until that time has come.

    Raises Ended, NotRecurring, NoNextOccurrence.
    """
    schedule = _lock(workspace, schedule_id)
    now = database_now()
    at = rhythm_of(schedule).after(now)
    if at is None:
        raise NoNextOccurrence("Nothing lies ahead of this schedule.", state=schedule.state)
    found = Execution.objects.filter(schedule_id=schedule.id, scheduled_for=at, run_no=0).select_for_update().first()
    if found is None and schedule.next_run_at is None:
        raise NoNextOccurrence("Nothing lies ahead of this schedule: it has made its last run.", state=schedule.state)
    if found is None:
        skipped = occurrences.skipped_by_hand(schedule, at)
        making.insert_executions(new=[(workspace.id, skipped)], now=now)
        return Execution.objects.get(id=skipped.id)
    if found.state == "PENDING":
        execution_services.skip_occurrence(execution_id=found.id, reason=occurrences.BY_HAND)
        found.refresh_from_db()
    if found.state != "SKIPPED":
        raise execution_services.NotPending(
            f"The next occurrence is {found.state} already; it can be cancelled.", state=found.state
        )
    return found


@transaction.atomic
def update_job_definition(
    *, workspace: Workspace, job_id: UUID, expected_version: int | None, **changes: Any
) -> JobDefinition:
    """The lower room's edit, and what follows for schedules: occurrences made from the old version are made again."""
    schedules = list(
        Schedule.objects.filter(workspace=workspace, job_definition_id=job_id, state=Schedule.State.ACTIVE)
        .exclude(kind=Schedule.Kind.ONCE)
        .order_by("id")
        .select_for_update(of=("self",))
    )
    before = JobDefinition.objects.filter(id=job_id).values_list("version", flat=True).first()
    job = execution_services.update_job_definition(
        workspace=workspace, job_id=job_id, expected_version=expected_version, **changes
    )
    if job.version != before:
        now = database_now()
        execution_services.hold_occurrences(schedule_ids=[schedule.id for schedule in schedules], after=now)
        for schedule in schedules:
            _withdraw(schedule, after=now)
            Schedule.objects.filter(id=schedule.id).update(
                next_run_at=schedule.next_run_at, run_count=schedule.run_count
            )
    return job


# --- the steps of a change -----------------------------------------------------------------------------------


def _lock(workspace: Workspace, schedule_id: UUID) -> Schedule:
    # Its job is not joined: who waited for the lock would get the job of before the wait, or none.
    schedule = Schedule.objects.select_for_update(of=("self",)).get(workspace=workspace, id=schedule_id)
    if schedule.kind == Schedule.Kind.ONCE:
        raise NotRecurring("This schedule fires once. Change its run_at, or cancel it.", state=schedule.state)
    _refuse_ended(schedule)
    return schedule


def _refuse_ended(schedule: Schedule) -> None:
    if schedule.state not in {Schedule.State.ACTIVE, Schedule.State.PAUSED}:
        raise Ended(f"The schedule is {schedule.state}. Make a new one.", state=schedule.state)


def _set_rhythm(schedule: Schedule, now: datetime) -> None:
    """Kind and anchor follow from what was given. Raises BadRhythm."""
    if schedule.starts_at is not None and schedule.ends_at is not None and schedule.ends_at <= schedule.starts_at:
        raise BadRhythm("ends_at must lie after starts_at.", code="invalid", field="ends_at")
    try:
        cron.check_zone(schedule.timezone)
        if schedule.cron:
            check_cron(schedule.cron)
            schedule.kind, schedule.every_s, schedule.anchor = Schedule.Kind.CRON, None, None
        else:
            check_interval(schedule.every_s or 0)
            schedule.kind = Schedule.Kind.INTERVAL
            schedule.anchor = schedule.anchor or schedule.starts_at or now
    except ScheduleError as error:
        where = {"expression": "cron"}.get(error.field, error.field)
        raise BadRhythm(str(error), code=error.code, field=where) from error


def check_cron(expression: str) -> None:
    """Raises ScheduleError where it cannot be read, never fires, or fires too often."""
    compiled, minimum_s = cron.parse(expression), settings.CHRONOS_MIN_INTERVAL_S
    if minimum_s > 1 and pace.shortest_gap_s(compiled) < minimum_s:
        raise cron.InvalidSchedule(
            "expression",
            f"The expression fires more often than every {intervals.write(minimum_s)}, the least that is taken here.",
        )


def check_interval(text: str | int) -> int:
    """The seconds that `text` names. Raises ScheduleError."""
    return intervals.parse(text, minimum_s=settings.CHRONOS_MIN_INTERVAL_S)


def _first_after(schedule: Schedule, now: datetime) -> datetime:
    """Raises BadRhythm where there is none."""
    at = rhythm_of(schedule).after(now)
    if at is None and schedule.ends_at is not None:
        raise BadRhythm(
            f"This schedule would never fire before it ends at {schedule.ends_at.isoformat()}. Give a later ends_at.",
            code="never_fires",
            field="ends_at",
        )
    if at is None:
        raise BadRhythm(
            "This schedule would never fire.", code="never_fires", field="cron" if schedule.cron else "every"
        )
    return at


def _withdraw(schedule: Schedule, *, after: datetime | None) -> None:
    """Take back what is not yet QUEUED and set the schedule, in memory, to the first of it."""
    times = execution_services.withdraw_occurrences(schedule_id=schedule.id, after=after)
    if times:
        schedule.next_run_at = times[0] if schedule.next_run_at is None else min(times[0], schedule.next_run_at)
        schedule.run_count = max(0, schedule.run_count - len(times))


def _materialise(schedule: Schedule, now: datetime) -> None:
    """Make what is due within the look-ahead at once, so that nobody waits for the loop."""
    if schedule.next_run_at is None:
        return
    known = occurrences.times_on_record([schedule])
    planned = occurrences.plan(schedule, now=now, known=known.get(schedule.id, frozenset()))
    occurrences.write([planned], now=now)
    schedule.refresh_from_db(fields=["next_run_at", "run_count", "missed_count", "last_misfire"])


def _save(schedule: Schedule) -> None:
    try:
        with transaction.atomic():
            schedule.save()
    except IntegrityError as error:
        if "schedule_external_key" in str(error):
            raise KeyTaken(str(schedule.external_key)) from error
        raise
