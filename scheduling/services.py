"""What may be done with schedules. Each function is bound to a workspace and runs in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution import services as execution_services
from execution.domain.states import State
from execution.models import Execution, JobDefinition, JobKind
from execution.services import Cancelled, NewExecution, Refused, VersionMismatch
from scheduling import transitions
from scheduling.models import Schedule


class TooOld(Refused):
    """`run_at` lies further in the past than the grace allows. `index` is its place in a batch."""

    code = "run_at_too_old"

    def __init__(self, text: str, *, index: int) -> None:
        super().__init__(text)
        self.index = index


class Ended(Refused):
    """The schedule is completed or cancelled: it cannot be changed."""

    code = "schedule_ended"


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


@transaction.atomic
def create_schedules(
    *, workspace: Workspace, new: Sequence[NewSchedule], traceparent: str
) -> list[tuple[Schedule, Execution]]:
    """Make once-schedules and their executions, all or none. Raises TooOld, quotas.QuotaExceeded, JobGone."""
    execution_services.hold_jobs(jobs=[item.job for item in new if item.job is not None])
    now = database_now()
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
            **_delivery_of(item),
        )
        plans.append(plan)
        schedules.append(
            Schedule(
                id=plan.schedule_id,
                workspace=workspace,
                job_definition=item.job,
                target=item.target,
                payload=item.payload,
                delivery=item.delivery,
                run_at=run_at,
                expires_after_s=item.expires_after_s,
                tags=item.tags,
                execution_id=plan.id,
                created_at=now,
                updated_at=now,
            )
        )
    executions = execution_services.create_executions(workspace=workspace, new=plans)
    Schedule.objects.bulk_create(schedules, batch_size=1000)
    return list(zip(schedules, executions, strict=True))


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
        raise Ended(f"The schedule is {schedule.state}. Make a new one.")
    now = database_now()
    _refuse_too_old(run_at, now, 0)
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
        workspace=workspace, ids=[schedule.execution_id], reason="schedule_cancelled"
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
        Schedule.objects.filter(workspace=workspace, job_definition_id=job_id, state=Schedule.State.ACTIVE)
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
    """Active once-schedules of the job whose execution the deletion has just cancelled."""
    return list(
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


def _delivery_of(item: NewSchedule) -> dict[str, Any]:
    """The snapshot: the job definition or the inline target, with the schedule's overrides on top."""
    if item.job is not None:
        base = execution_services.snapshot_of(job=item.job, payload=item.payload)
    else:
        base = {
            "kind": JobKind.HTTP,
            "target": item.target,
            "payload": item.payload,
            "timeout_s": execution_services.DEFAULT_TIMEOUT_S,
            "retry": {},
            "tags": [],
        }
    overrides = item.delivery
    if overrides.get("headers"):
        base["target"] = _with_headers(base["target"], overrides["headers"])
    base["timeout_s"] = overrides.get("timeout_s", base["timeout_s"])
    base["retry"] = {**base["retry"], **overrides.get("retry", {})}
    base["tags"] = sorted({*base["tags"], *item.tags})
    return base


def _with_headers(target: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    """A copy of the target with headers replaced or added; names are case-insensitive."""
    given = {name.lower() for name in headers}
    kept = {name: value for name, value in (target.get("headers") or {}).items() if name.lower() not in given}
    return {**target, "headers": {**kept, **headers}}
