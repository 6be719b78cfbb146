"""What may be done with job definitions and executions; `execution.making` makes the executions.

Every function is bound to a workspace, runs in one transaction and raises `Refused` subclasses with one clear sentence.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from chronos_site.infra.clock import database_now
from chronos_site.observability import events
from chronos_site.tenancy.models import Workspace
from execution import buckets, quotas, transitions
from execution.domain import credentials
from execution.domain.buckets import bucket_of
from execution.domain.events import ROW, EventType, row_event
from execution.domain.states import TERMINAL, State
from execution.making import NewExecution, create_executions, trigger_soon
from execution.models import Execution, JobDefinition

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S = 30.0
JOB_PAUSED = "job_paused"
"""The park reason of what waits for its job definition to be resumed."""
MISFIRE = "misfire"
"""The park reason of what its schedule's misfire policy has to judge."""

_LOCK_NOT_QUEUED = (
    # In id order, as everybody does who takes several.
    "SELECT id FROM execution_execution"
    " WHERE schedule_id = ANY(%s) AND state = 'PENDING' AND trigger = 'schedule' AND run_no = 0 AND attempt = 0"
    " AND (%s::timestamptz IS NULL OR scheduled_for > %s) ORDER BY id FOR UPDATE"
)

T = TypeVar("T")


class Refused(Exception):  # noqa: N818 - the base of names like NameTaken
    """The request cannot be done; `code` for machines, the text for people."""

    code = "refused"


class NameTaken(Refused):
    code = "name_taken"


class VersionMismatch(Refused):
    code = "version_mismatch"


class SecretNotAllowed(Refused):
    """References to namespaces that the workspace may not use; `places` are paths in the job, each with a sentence."""

    code = "secret_not_allowed"

    def __init__(self, places: Sequence[tuple[credentials.Path, str]]) -> None:
        super().__init__(places[0][1])
        self.places = places


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


# --- executions ----------------------------------------------------------------------------------


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
    trigger_soon([row], now)
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
    rows = (
        Execution.objects.filter(workspace=workspace, id__in=ids)
        .order_by("id")
        .select_for_update()
        .values_list("id", "state", "concurrency_key")
    )
    states = {execution_id: state for execution_id, state, _ in rows}
    keys = [key for _, _, key in rows if key is not None]
    waiting = [i for i, state in states.items() if state in {State.PENDING, State.QUEUED, State.RETRYING}]
    running = [i for i, state in states.items() if state == State.RUNNING]
    done = transitions.cancel_waiting(ids=waiting, reason=reason) if waiting else []
    if done and keys:
        transitions.release_overlapped(keys=keys)
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
        Execution.objects.filter(
            job_definition_id=job_id, state=State.PENDING, bucket_id__isnull=True, park_reason=JOB_PAUSED
        )
        .order_by("id")
        .select_for_update()
        .only("id", "due_at")[: most + 1]
    )
    released = _unpark(rows[:most], reason=JOB_PAUSED, now=now)
    if len(rows) <= most:
        JobDefinition.objects.filter(id=job_id).update(has_parked=False)
    return released


def _unpark(rows: Sequence[Execution], *, reason: str, now: datetime) -> int:
    """Put locked rows that are parked for this reason back into buckets, due by their time or now."""
    for row in rows:
        row.due_at = max(row.due_at, now)
        row.bucket_id = bucket_of(row.id, row.due_at, settings.CHRONOS_BUCKET_SHARDS)
    buckets.open_buckets(row.bucket_id for row in rows if row.bucket_id is not None)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE execution_execution e SET due_at = w.due_at, bucket_id = w.bucket_id, park_reason = '',"
            " start_deadline = CASE WHEN park_reason = 'misfire' THEN NULL ELSE start_deadline END"
            " FROM unnest(%s::uuid[], %s::timestamptz[], %s::bigint[]) AS w(id, due_at, bucket_id)"
            " WHERE e.id = w.id AND e.state = 'PENDING' AND e.park_reason = %s",
            [[r.id for r in rows], [r.due_at for r in rows], [r.bucket_id for r in rows], reason],
        )
        released = int(cursor.rowcount)
    trigger_soon(rows, now)
    return released


def release_missed(*, ids: Sequence[UUID], now: datetime) -> int:
    """Occurrences that missed their deadline and fire after all: now, and without a deadline. Call in a transaction."""
    rows = Execution.objects.filter(id__in=ids).order_by("id").select_for_update().only("id", "due_at")
    return _unpark(list(rows), reason=MISFIRE, now=now)


def skip_occurrence(*, execution_id: UUID, reason: str) -> bool:
    """Pass over a PENDING occurrence. False where it is PENDING no more."""
    return bool(transitions.skip_pending(ids=[execution_id], reason=reason))


def withdraw_occurrences(*, schedule_id: UUID, after: datetime | None) -> list[datetime]:
    """Delete a schedule's occurrences that are not yet QUEUED (later than `after`), under the schedule's lock.

    Deleted, not cancelled: a cancelled row would keep the occurrence's key, and it could not be made again. A retry
    that waits for its job to be resumed is left: its receiver knows it by its id. Returns their nominal times; the
    caller sets the schedule back to the first of them.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH held AS ({_LOCK_NOT_QUEUED})"  # noqa: S608 - constants
            " DELETE FROM execution_execution e USING held WHERE e.id = held.id"
            f" RETURNING e.scheduled_for, {ROW}",
            [[schedule_id], after, after],
        )
        rows = cursor.fetchall()
    events.write_on_commit([row_event(EventType.WITHDRAWN, row) for _time, row in rows])
    return sorted(row[0] for row in rows)


def hold_occurrences(*, schedule_ids: Sequence[UUID], after: datetime | None) -> None:
    """Lock what `withdraw_occurrences` would take of each: call it before one schedule is withdrawn after the other."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK_NOT_QUEUED, [list(schedule_ids), after, after])


# --- job definitions -----------------------------------------------------------------------------


def create_job_definition(*, workspace: Workspace, **fields: Any) -> JobDefinition:
    """Raises NameTaken, SecretNotAllowed, quotas.QuotaExceeded."""
    _refuse_foreign_secrets(workspace, fields)
    quotas.check_job_definitions(workspace=workspace, adding=1)
    return _unless_name_taken(
        lambda: JobDefinition.objects.create(workspace=workspace, **fields), name=str(fields.get("name"))
    )


@transaction.atomic
def update_job_definition(
    *, workspace: Workspace, job_id: UUID, expected_version: int | None, **fields: Any
) -> JobDefinition:
    """Change fields and raise the version. Executions keep their snapshots.

    Raises NameTaken, VersionMismatch, SecretNotAllowed.
    """
    job = JobDefinition.objects.select_for_update(no_key=True).get(
        workspace=workspace, id=job_id, deleted_at__isnull=True
    )
    if expected_version is not None and job.version != expected_version:
        raise VersionMismatch(f"The job definition has version {job.version} by now. Read it again, then change it.")
    changed = [name for name, value in fields.items() if getattr(job, name) != value]
    if not changed:
        return job
    _refuse_foreign_secrets(workspace, {name: fields[name] for name in changed})
    for name in changed:
        setattr(job, name, fields[name])
    job.version += 1
    _unless_name_taken(lambda: job.save(update_fields=[*changed, "version", "updated_at"]), name=job.name)
    return job


def _refuse_foreign_secrets(workspace: Workspace, fields: dict[str, Any]) -> None:
    """A first look; the worker judges again at every send, by what the workspace may use then."""
    places = credentials.foreign_references(fields.get("target"), workspace.secret_namespaces)
    if places:
        raise SecretNotAllowed([(("target", *path), why) for path, why in places])


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
        "limits": job.limits,
        "tags": list(job.tags),
        "job_definition_id": job.id,
        "job_version": job.version,
    }
