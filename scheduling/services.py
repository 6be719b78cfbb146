"""What may be done with schedules. Each function is bound to a workspace and runs in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction

from chronos_site.infra.clock import DatabaseClock, database_now
from chronos_site.infra.documents import to_json
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution import making
from execution import services as execution_services
from execution.domain.states import State
from execution.making import Placed
from execution.models import Execution, JobDefinition
from execution.services import Cancelled, NewExecution, Refused, VersionMismatch
from scheduling import transitions
from scheduling.models import Schedule
from scheduling.snapshot import delivery_of


class TooOld(Refused):
    """`run_at` lies further in the past than the grace allows. `index` is its place in a batch."""

    code = "run_at_too_old"

    def __init__(self, text: str, *, index: int) -> None:
        super().__init__(text)
        self.index = index


class Recurs(Refused):
    """The change is for schedules that fire once."""

    code = "schedule_recurs"


class WrongState(Refused):
    """The schedule as it stands does not allow it."""

    def __init__(self, text: str, *, state: str) -> None:
        super().__init__(text)
        self.state = state


class Ended(WrongState):
    """The schedule is completed or cancelled: it cannot be changed."""

    code = "schedule_ended"


class KeyTaken(Refused):
    """Another schedule of the workspace has this external_key. `index` is its place in a batch."""

    code = "external_key_taken"

    def __init__(self, key: str, *, index: int = 0) -> None:
        super().__init__(
            f"A schedule with external_key {key!r} exists already. Choose another key, or PUT to this one."
        )
        self.index = index


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """One time to fire: `run_at`, or `delay_s` from now; bound to a job definition or to an inline target."""

    run_at: datetime | None = None
    delay_s: float | None = None
    job: JobDefinition | None = None
    target: dict[str, Any] | None = None
    payload: Any = None
    delivery: dict[str, Any] = field(default_factory=dict)
    """Overrides, already checked: headers (merged into the target's), timeout_s, retry."""
    expires_after_s: float | None = None
    tags: list[str] = field(default_factory=list)
    external_key: str | None = None


def create_schedules(
    *, workspace: Workspace, new: Sequence[NewSchedule], traceparent: str, clock: DatabaseClock | None = None
) -> list[tuple[Schedule, Placed]]:
    """Make once-schedules and their executions in the caller's transaction, which is over where this raises.

    `clock` is the database's as it was read for the same request, where it was: it saves a query.
    Raises TooOld, KeyTaken, quotas.QuotaExceeded, JobGone.
    """
    execution_services.hold_jobs(jobs=[item.job for item in new if item.job is not None])
    now = database_now() if clock is None else clock.now()
    schedules: list[Schedule] = []
    plans: list[NewExecution] = []
    for index, item in enumerate(new):
        run_at = now + timedelta(seconds=item.delay_s or 0) if item.run_at is None else item.run_at
        _refuse_too_old(run_at, now, index)
        plan = NewExecution(
            schedule_id=new_id(),
            scheduled_for=run_at,
            start_deadline=_deadline(run_at, item.expires_after_s),
            trigger=Execution.Trigger.SCHEDULE,
            traceparent=traceparent,
            **delivery_of(
                job=item.job,
                target=item.target,
                payload=item.payload,
                overrides=item.delivery,
                tags=item.tags,
            ),
        )
        plans.append(plan)
        schedules.append(
            _once(
                id=plan.schedule_id,
                workspace_id=workspace.id,
                job_definition_id=None if item.job is None else item.job.id,
                target=item.target,
                payload=item.payload,
                delivery=item.delivery,
                run_at=run_at,
                expires_after_s=item.expires_after_s,
                tags=item.tags,
                external_key=item.external_key,
                execution_id=plan.id,
                created_at=now,
                updated_at=now,
            )
        )
    placed = making.add_executions(workspace=workspace, new=plans, now=now)
    insert_schedules(workspace=workspace, schedules=schedules)
    return list(zip(schedules, placed, strict=True))


def _once(**values: Any) -> Schedule:
    """A new once-schedule from its columns: thousands come at once, and the constructor takes three times as long."""
    columns = {**_defaults(), **values}
    return Schedule.from_db(connection.alias, list(columns), list(columns.values()))


@cache
def _defaults() -> dict[str, Any]:
    """The columns in their order; what has no constant default is always given."""
    plain = Schedule()
    return {str(field.attname): getattr(plain, field.attname) for field in Schedule._meta.concrete_fields}


def insert_schedules(*, workspace: Workspace, schedules: Sequence[Schedule]) -> None:
    """Store new schedules, all or none. A cancelled schedule gives its key up to the next that takes it.

    Raises KeyTaken, also where two of them have the same key.
    """
    places: dict[str, int] = {}
    for index, schedule in enumerate(schedules):
        if schedule.external_key is not None and places.setdefault(schedule.external_key, index) != index:
            raise KeyTaken(schedule.external_key, index=index)
    if not places:
        _insert(schedules)
        return
    holders = Schedule.objects.filter(workspace=workspace, external_key__in=places)
    holders.filter(state=Schedule.State.CANCELLED).update(external_key=None)
    try:
        with transaction.atomic():
            _insert(schedules)
    except IntegrityError as error:
        if "schedule_external_key" not in str(error):
            raise
        taken = holders.values_list("external_key", flat=True)
        key = min((key for key in taken if key in places), key=lambda key: places[key], default=min(places))
        raise KeyTaken(key, index=places[key]) from error


def _insert(schedules: Sequence[Schedule]) -> None:
    """As one JSON document: a parameter for each value would cost several times as much."""
    names = [str(field.attname) for field in Schedule._meta.concrete_fields]
    columns = ", ".join(str(field.column) for field in Schedule._meta.concrete_fields)
    rows = to_json([{name: getattr(schedule, name) for name in names} for schedule in schedules]).decode()
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO scheduling_schedule ({columns})"  # noqa: S608 - the columns are the model's own
            f" SELECT {columns} FROM json_populate_recordset(NULL::scheduling_schedule, %s::json)",
            [rows],
        )
    for schedule in schedules:
        schedule._state.adding, schedule._state.db = False, connection.alias
    transitions.tell_created(schedules)


@transaction.atomic
def move_schedule(
    *, workspace: Workspace, schedule_id: UUID, run_at: datetime, expected_version: int | None
) -> tuple[Schedule, Execution]:
    """Give a once-schedule another time, while its execution is PENDING.

    Raises VersionMismatch, Ended, TooOld, execution.services.NotPending: honoured whole or refused whole.
    """
    schedule = Schedule.objects.select_for_update(of=("self",)).get(workspace=workspace, id=schedule_id)
    if expected_version is not None and schedule.version != expected_version:
        raise VersionMismatch(f"The schedule has version {schedule.version} by now. Read it again, then change it.")
    if schedule.state != Schedule.State.ACTIVE:
        raise Ended(f"The schedule is {schedule.state}. Make a new one.", state=schedule.state)
    now = database_now()
    _refuse_too_old(run_at, now, 0)
    if schedule.execution_id is None:
        raise Recurs("This schedule recurs: it has no run_at. Change its cron or interval instead.")
    execution = execution_services.move_execution(
        workspace=workspace,
        execution_id=schedule.execution_id,
        run_at=run_at,
        start_deadline=_deadline(run_at, schedule.expires_after_s),
    )
    schedule.run_at = run_at
    schedule.version += 1
    schedule.updated_at = now
    schedule.save(update_fields=["run_at", "version", "updated_at"])
    return schedule, execution


@transaction.atomic
def cancel_schedule(*, workspace: Workspace, schedule_id: UUID) -> tuple[Schedule, Cancelled]:
    """It fires no more; its execution is cancelled as far as no send has begun. Safe to repeat.

    A schedule whose execution has ended by itself stays as it is: the caller looks at `Cancelled.ended`.
    """
    schedule = Schedule.objects.select_for_update(of=("self",)).get(workspace=workspace, id=schedule_id)
    cancelled = execution_services.cancel_executions(
        workspace=workspace, ids=[schedule.execution_id] if schedule.execution_id else [], reason="schedule_cancelled"
    )
    if not cancelled.ended:
        transitions.cancel_active(ids=[schedule.id])
        schedule.refresh_from_db()
    return schedule, cancelled


@transaction.atomic
def delete_job_definition(*, workspace: Workspace, job_id: UUID, cascade: bool) -> None:
    """Delete a job definition; with `cascade` its waiting schedules are cancelled first.

    Raises execution.services.JobHasSchedules where schedules still wait and `cascade` is off.
    """
    # Schedules before executions, as everybody locks them who moves or cancels a schedule.
    list(
        Schedule.objects.filter(
            workspace=workspace, job_definition_id=job_id, state__in=[Schedule.State.ACTIVE, Schedule.State.PAUSED]
        )
        .order_by("id")
        .select_for_update(of=("self",))
        .values_list("id", flat=True)
    )
    execution_services.delete_job_definition(workspace=workspace, job_id=job_id)
    waiting = _waiting_schedules(workspace=workspace, job_id=job_id)
    if waiting and not cascade:
        raise execution_services.JobHasSchedules(
            f"{len(waiting)} schedules of this job definition have not fired yet. Cancel them, or pass cascade=true."
        )
    transitions.cancel_active(ids=waiting)


def _waiting_schedules(*, workspace: Workspace, job_id: UUID) -> list[UUID]:
    """Schedules of the job that recur, and active once-schedules whose execution the deletion has just cancelled."""
    recurring = Schedule.objects.filter(
        workspace=workspace, job_definition_id=job_id, state__in=[Schedule.State.ACTIVE, Schedule.State.PAUSED]
    ).exclude(kind=Schedule.Kind.ONCE)
    return list(recurring.values_list("id", flat=True)) + list(
        Schedule.objects.filter(
            workspace=workspace,
            job_definition_id=job_id,
            state=Schedule.State.ACTIVE,
            execution_id__in=Execution.objects.filter(
                workspace=workspace, job_definition_id=job_id, state=State.CANCELLED, state_reason="job_deleted"
            ).values("id"),
        ).values_list("id", flat=True)
    )


def _refuse_too_old(run_at: datetime, now: datetime, index: int) -> None:
    grace = settings.CHRONOS_RUN_AT_GRACE_S
    if run_at < now - timedelta(seconds=grace):
        raise TooOld(f"run_at is more than {grace:g} s in the past. Send a later time.", index=index)


def _deadline(run_at: datetime, expires_after_s: float | None) -> datetime | None:
    return None if expires_after_s is None else run_at + timedelta(seconds=expires_after_s)
