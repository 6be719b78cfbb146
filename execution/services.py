"""What may be done with job definitions and executions. `create_executions` is the one place that makes executions.

Every function is bound to a workspace, runs in one transaction and raises `Refused` subclasses with one clear sentence.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution import buckets, publish, quotas, transitions
from execution.domain.buckets import bucket_of
from execution.domain.states import TERMINAL, State
from execution.models import Execution, JobDefinition

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S = 30.0

T = TypeVar("T")


class Refused(Exception):  # noqa: N818 - the base of names like NameTaken
    """The request cannot be done; `code` for machines, the text for people."""

    code = "refused"


class NameTaken(Refused):
    code = "name_taken"


class VersionMismatch(Refused):
    code = "version_mismatch"


class JobGone(Refused):
    code = "job_deleted"


class JobHasSchedules(Refused):
    code = "job_has_schedules"


class NotPending(Refused):
    """The execution has left PENDING: it is too late to change its time."""

    code = "not_pending"

    def __init__(self, text: str, *, state: str) -> None:
        super().__init__(text)
        self.state = state


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExecution:
    """What an execution is made from: a snapshot, independent of its job definition from then on."""

    scheduled_for: datetime
    """The nominal time, aware."""
    due_at: datetime | None = None
    """When to send; None: `scheduled_for`, or now where that has passed."""
    start_deadline: datetime | None = None
    trigger: str
    kind: str
    target: dict[str, Any]
    payload: Any
    timeout_s: float
    retry: dict[str, Any]
    tags: list[str] = field(default_factory=list)
    traceparent: str
    schedule_id: UUID | None = None
    job_definition_id: UUID | None = None
    job_version: int | None = None
    run_no: int = 0
    replay_of: UUID | None = None
    id: UUID = field(default_factory=new_id)


# --- executions ----------------------------------------------------------------------------------


@transaction.atomic
def create_executions(*, workspace: Workspace, new: Sequence[NewExecution]) -> list[Execution]:
    """Make executions and their buckets, in the caller's transaction. Raises quotas.QuotaExceeded.

    Buckets are locked before the rows go in, so none of them can be closed over a row. What is due within the
    look-ahead is triggered on commit, best effort: the fire loop finds it anyway.
    """
    now = database_now()
    quotas.check_pending(workspace=workspace, adding=len(new))
    shards = settings.CHRONOS_BUCKET_SHARDS
    rows = []
    for item in new:
        due_at = max(item.due_at or item.scheduled_for, now)
        rows.append(
            Execution(
                id=item.id,
                workspace=workspace,
                job_definition_id=item.job_definition_id,
                job_version=item.job_version,
                schedule_id=item.schedule_id,
                scheduled_for=item.scheduled_for,
                run_no=item.run_no,
                replay_of=item.replay_of,
                trigger=item.trigger,
                kind=item.kind,
                target=item.target,
                payload=item.payload,
                timeout_s=item.timeout_s,
                retry=item.retry,
                tags=item.tags,
                traceparent=item.traceparent,
                state=State.PENDING,
                due_at=due_at,
                start_deadline=item.start_deadline,
                bucket_id=bucket_of(item.id, due_at, shards),
                created_at=now,
            )
        )
    buckets.open_buckets(row.bucket_id for row in rows if row.bucket_id is not None)
    Execution.objects.bulk_create(rows, batch_size=1000)
    _trigger_soon(rows, now)
    return rows


def _trigger_soon(rows: Sequence[Execution], now: datetime) -> None:
    """On commit, trigger the buckets of rows that are due within the look-ahead."""
    horizon = now + timedelta(seconds=settings.CHRONOS_DISPATCH_HORIZON_S)
    soon = sorted({row.bucket_id for row in rows if row.bucket_id is not None and row.due_at <= horizon})
    if soon:
        transaction.on_commit(lambda: _trigger(soon), robust=True)


def _trigger(bucket_ids: list[int]) -> None:
    unsent = publish.publish_triggers(bucket_ids)
    buckets.untrigger(bucket_ids=unsent)


@transaction.atomic
def move_execution(
    *, workspace: Workspace, execution_id: UUID, run_at: datetime, start_deadline: datetime | None
) -> Execution:
    """Give a PENDING execution another time; its bucket changes with it. Raises NotPending once fan-out took it.

    The new time is a new nominal time. The row keeps its id, which the caller was given when it was made.
    """
    now = database_now()
    due_at = max(run_at, now)
    bucket_id = bucket_of(execution_id, due_at, settings.CHRONOS_BUCKET_SHARDS)
    # The bucket before the row, as everybody who adds to a bucket does.
    buckets.open_buckets([bucket_id])
    row = Execution.objects.select_for_update().get(workspace=workspace, id=execution_id)
    if row.state != State.PENDING:
        raise NotPending(
            f"The execution is {row.state}; its time can be changed while it is PENDING only.", state=row.state
        )
    row.scheduled_for = run_at
    row.start_deadline = start_deadline
    row.due_at = due_at
    if row.bucket_id is not None:
        row.bucket_id = bucket_id
    row.save(update_fields=["scheduled_for", "start_deadline", "due_at", "bucket_id"])
    _trigger_soon([row], now)
    return row


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The honest answer: done, asked for (a worker holds it), or too late."""

    done: list[UUID]
    requested: list[UUID]
    ended: list[UUID]


@transaction.atomic
def cancel_executions(*, workspace: Workspace, ids: Sequence[UUID], reason: str = "cancelled") -> Cancelled:
    """Cancel what no worker holds; ask the worker where one does; leave what has ended."""
    states = dict(
        Execution.objects.filter(workspace=workspace, id__in=ids)
        .order_by("id")
        .select_for_update()
        .values_list("id", "state")
    )
    waiting = [i for i, state in states.items() if state in {State.PENDING, State.QUEUED, State.RETRYING}]
    running = [i for i, state in states.items() if state == State.RUNNING]
    done = transitions.cancel_waiting(ids=waiting, reason=reason) if waiting else []
    if running:
        Execution.objects.filter(id__in=running, cancel_requested_at__isnull=True).update(
            cancel_requested_at=timezone.now()
        )
    return Cancelled(done, running, [i for i, state in states.items() if State(state) in TERMINAL])


def release_parked(*, most: int) -> int:
    """Put up to `most` parked executions of resumed jobs back into buckets. Returns how many. Call in a transaction.

    The job's row is locked, as fan-out does before it parks: whatever was parked before the resume is seen here.
    """
    released = 0
    for job in JobDefinition.objects.filter(has_parked=True, paused_at__isnull=True).order_by("id")[:100]:
        if released >= most:
            break
        released += _release_job(job_id=job.id, most=most - released)
    return released


@transaction.atomic
def _release_job(*, job_id: UUID, most: int) -> int:
    job = JobDefinition.objects.select_for_update(no_key=True).get(id=job_id)
    if job.paused_at is not None:
        return 0
    now = database_now()
    rows = list(
        Execution.objects.filter(job_definition_id=job_id, state=State.PENDING, bucket_id__isnull=True)
        .order_by("id")
        .select_for_update()
        .only("id", "due_at")[: most + 1]
    )
    batch = rows[:most]
    for row in batch:
        row.due_at = max(row.due_at, now)
        row.bucket_id = bucket_of(row.id, row.due_at, settings.CHRONOS_BUCKET_SHARDS)
    buckets.open_buckets(row.bucket_id for row in batch if row.bucket_id is not None)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE execution_execution e SET due_at = w.due_at, bucket_id = w.bucket_id, park_reason = ''"
            " FROM unnest(%s::uuid[], %s::timestamptz[], %s::bigint[]) AS w(id, due_at, bucket_id)"
            " WHERE e.id = w.id AND e.state = 'PENDING' AND e.bucket_id IS NULL",
            [[r.id for r in batch], [r.due_at for r in batch], [r.bucket_id for r in batch]],
        )
        released = int(cursor.rowcount)
    if len(rows) <= most:
        JobDefinition.objects.filter(id=job_id).update(has_parked=False)
    _trigger_soon(batch, now)
    return released


# --- job definitions -----------------------------------------------------------------------------


def create_job_definition(*, workspace: Workspace, **fields: Any) -> JobDefinition:
    """Raises NameTaken, quotas.QuotaExceeded."""
    quotas.check_job_definitions(workspace=workspace, adding=1)
    return _unless_name_taken(
        lambda: JobDefinition.objects.create(workspace=workspace, **fields), name=str(fields.get("name"))
    )


@transaction.atomic
def update_job_definition(
    *, workspace: Workspace, job_id: UUID, expected_version: int | None, **fields: Any
) -> JobDefinition:
    """Change fields and raise the version. Executions keep their snapshots. Raises NameTaken, VersionMismatch."""
    job = JobDefinition.objects.select_for_update(no_key=True).get(
        workspace=workspace, id=job_id, deleted_at__isnull=True
    )
    if expected_version is not None and job.version != expected_version:
        raise VersionMismatch(f"The job definition has version {job.version} by now. Read it again, then change it.")
    changed = [name for name, value in fields.items() if getattr(job, name) != value]
    if not changed:
        return job
    for name in changed:
        setattr(job, name, fields[name])
    job.version += 1
    _unless_name_taken(lambda: job.save(update_fields=[*changed, "version", "updated_at"]), name=job.name)
    return job


def _unless_name_taken(write: Callable[[], T], *, name: str) -> T:
    try:
        with transaction.atomic():
            return write()
    except IntegrityError as error:
        if "job_definition_name" in str(error):
            raise NameTaken(f"A job definition named {name!r} exists already. Choose another name.") from error
        raise


@transaction.atomic
def delete_job_definition(*, workspace: Workspace, job_id: UUID) -> None:
    """Take it out of use: waiting executions end, RUNNING ones go on, history stays.

    Callers see to its schedules first: this room knows none. The row is locked against `hold_jobs`, so that nobody
    makes an execution of the job that this deletion does not see. A pause ends with the job: what it would park could
    never be resumed.
    """
    job = JobDefinition.objects.select_for_update().get(workspace=workspace, id=job_id, deleted_at__isnull=True)
    job.deleted_at = timezone.now()
    job.paused_at = None
    job.has_parked = False
    job.save(update_fields=["deleted_at", "paused_at", "has_parked"])
    waiting = list(
        Execution.objects.filter(
            workspace=workspace, job_definition=job, state__in=[State.PENDING, State.QUEUED, State.RETRYING]
        )
        .order_by("id")
        .values_list("id", flat=True)
    )
    transitions.cancel_waiting(ids=waiting, reason="job_deleted")


@transaction.atomic
def pause_job_definition(*, workspace: Workspace, job_id: UUID) -> JobDefinition:
    """Hold every execution of the job that has not begun. Safe to repeat."""
    job = JobDefinition.objects.select_for_update(no_key=True).get(
        workspace=workspace, id=job_id, deleted_at__isnull=True
    )
    if job.paused_at is None:
        job.paused_at = timezone.now()
        job.save(update_fields=["paused_at"])
    return job


@transaction.atomic
def resume_job_definition(*, workspace: Workspace, job_id: UUID) -> JobDefinition:
    """Let go what the pause held: the first thousands at once, the rest by the fire loop. Safe to repeat."""
    job = JobDefinition.objects.select_for_update(no_key=True).get(
        workspace=workspace, id=job_id, deleted_at__isnull=True
    )
    if job.paused_at is not None:
        job.paused_at = None
        job.save(update_fields=["paused_at"])
        if job.has_parked:
            _release_job(job_id=job.id, most=1000)
    return job


def hold_jobs(*, jobs: Sequence[JobDefinition]) -> None:
    """Keep the jobs from being deleted until the caller's transaction ends. Raises JobGone where one is deleted."""
    wanted = sorted({job.id for job in jobs})
    if not wanted:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM execution_jobdefinition WHERE id = ANY(%s) AND deleted_at IS NULL"
            " ORDER BY id FOR KEY SHARE",
            [wanted],
        )
        if len(cursor.fetchall()) < len(wanted):
            raise JobGone("The job definition was deleted meanwhile.")


@transaction.atomic
def run_job_definition(*, workspace: Workspace, job: JobDefinition, payload: Any, traceparent: str) -> Execution:
    """One execution now, with the job's payload unless another is given. Raises quotas.QuotaExceeded, JobGone."""
    hold_jobs(jobs=[job])
    return create_executions(
        workspace=workspace,
        new=[
            NewExecution(
                scheduled_for=database_now(),
                trigger=Execution.Trigger.RUN,
                traceparent=traceparent,
                **snapshot_of(job=job, payload=payload),
            )
        ],
    )[0]


def snapshot_of(*, job: JobDefinition, payload: Any) -> dict[str, Any]:
    """The fields of NewExecution that come from a job definition; `payload` None takes the job's own."""
    return {
        "kind": job.kind,
        "target": job.target,
        "payload": job.payload if payload is None else payload,
        "timeout_s": job.timeout_s,
        "retry": job.retry,
        "tags": list(job.tags),
        "job_definition_id": job.id,
        "job_version": job.version,
    }
