"""The one place that makes executions and buckets: creating, running now, replaying, materialising, backfilling.

Buckets are locked before the rows go in, so none of them can be closed over a row. All rows of a call go in with one
statement. An occurrence, `(schedule_id, scheduled_for, run_no)`, exists once: whoever comes second makes nothing. What
is due within the look-ahead is triggered on commit, best effort: the fire loop finds it anyway.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from chronos_site.infra.clock import database_now
from chronos_site.infra.documents import to_json
from chronos_site.infra.ids import new_id
from chronos_site.infra.sql import statement
from chronos_site.observability import events, metrics
from chronos_site.tenancy.models import Workspace
from execution import buckets, publish, quotas
from execution.domain.buckets import bucket_of
from execution.domain.events import EventType, row_event
from execution.domain.states import State
from execution.models import Execution


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExecution:
    """What an execution is made from: a snapshot, independent of its job definition from then on."""

    scheduled_for: datetime
    """The nominal time, aware."""
    due_at: datetime | None = None
    """When to send; None: `scheduled_for`, or now where that has passed."""
    start_deadline: datetime | None = None
    on_deadline: str = Execution.OnDeadline.EXPIRE
    concurrency_key: str | None = None
    overlap: str = Execution.Overlap.ALLOW
    skipped: str = ""
    """A reason, where the occurrence is only put on record and will never be sent."""
    trigger: str
    kind: str
    target: dict[str, Any]
    payload: Any
    timeout_s: float
    retry: dict[str, Any]
    limits: dict[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = field(default_factory=list)
    traceparent: str
    schedule_id: UUID | None = None
    job_definition_id: UUID | None = None
    job_version: int | None = None
    run_no: int = 0
    replay_of: UUID | None = None
    id: UUID = field(default_factory=new_id)


class OccurrenceExists(Exception):  # noqa: N818 - a state of affairs
    """Another made this very run of the occurrence first."""


@dataclass(frozen=True, slots=True)
class Placed:
    """When a new execution is due, and in which bucket; no bucket for what is only put on record."""

    due_at: datetime
    bucket_id: int | None


@transaction.atomic
def create_executions(*, workspace: Workspace, new: Sequence[NewExecution]) -> list[Execution]:
    """Make executions of one workspace, within its quota. Raises quotas.QuotaExceeded, OccurrenceExists."""
    now = database_now()
    placed = add_executions(workspace=workspace, new=new, now=now)
    return [_as_model(workspace, item, place, now) for item, place in zip(new, placed, strict=True)]


def add_executions(*, workspace: Workspace, new: Sequence[NewExecution], now: datetime) -> list[Placed]:
    """The same in the caller's transaction, which is over where this raises. `now` is the database's clock."""
    quotas.check_pending(workspace=workspace, adding=len(new))
    placed = insert_executions(new=[(workspace.id, item) for item in new], now=now)
    if len(placed) < len(new):
        raise OccurrenceExists("This run of the occurrence was made by another meanwhile.")
    return [placed[item.id] for item in new]


def insert_executions(*, new: Sequence[tuple[UUID, NewExecution]], now: datetime) -> dict[UUID, Placed]:
    """Make executions, each for its workspace, in the caller's transaction. Returns those that were really made.

    No quota is looked at: what a schedule owes is made however much waits. `now` is the database's clock.
    """
    shards = settings.CHRONOS_BUCKET_SHARDS
    places: list[Placed] = []
    for _, item in new:
        due_at = max(item.due_at or item.scheduled_for, now)
        places.append(Placed(due_at, None if item.skipped else bucket_of(item.id, due_at, shards)))
    buckets.open_buckets(place.bucket_id for place in places if place.bucket_id is not None)
    rows = [_row(workspace_id, item, place) for (workspace_id, item), place in zip(new, places, strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(statement("execution", "insert_executions"), {"rows": to_json(rows).decode(), "now": now})
        made: dict[UUID, str] = dict(cursor.fetchall())
    events.write_on_commit([_created(item, made[item.id]) for _, item in new if item.id in made])
    transaction.on_commit(partial(_count, [item for _, item in new if item.id in made]))
    placed = {item.id: place for (_, item), place in zip(new, places, strict=True) if item.id in made}
    trigger_soon(placed.values(), now)
    return placed


def _count(made: Sequence[NewExecution]) -> None:
    for (kind, trigger), number in Counter((item.kind, item.trigger) for item in made).items():
        metrics.created.add(str(kind), str(trigger), by=number)


def _created(item: NewExecution, row: str) -> str:
    return row_event(EventType.SKIPPED if item.skipped else EventType.CREATED, row, reason=item.skipped)


def trigger_soon(placed: Any, now: datetime) -> None:
    """On commit, trigger the buckets of what is due within the look-ahead; takes anything with due_at and bucket_id."""
    horizon = now + timedelta(seconds=settings.CHRONOS_DISPATCH_HORIZON_S)
    soon = sorted({place.bucket_id for place in placed if place.bucket_id is not None and place.due_at <= horizon})
    if soon:
        transaction.on_commit(lambda: _trigger(soon), robust=True)


def _trigger(bucket_ids: list[int]) -> None:
    unsent = publish.publish_triggers(bucket_ids)
    buckets.untrigger(bucket_ids=unsent)


def _row(workspace_id: UUID, item: NewExecution, place: Placed) -> dict[str, Any]:
    return {
        "id": item.id,
        "workspace_id": workspace_id,
        "job_definition_id": item.job_definition_id,
        "job_version": item.job_version,
        "schedule_id": item.schedule_id,
        "scheduled_for": item.scheduled_for,
        "run_no": item.run_no,
        "replay_of": item.replay_of,
        "trigger": item.trigger,
        "kind": item.kind,
        "target": item.target,
        "payload": item.payload,
        "timeout_s": item.timeout_s,
        "retry": item.retry,
        "limits": item.limits,
        "tags": item.tags,
        "traceparent": item.traceparent,
        "state": State.SKIPPED if item.skipped else State.PENDING,
        "state_reason": item.skipped,
        "due_at": place.due_at,
        "start_deadline": item.start_deadline,
        "on_deadline": item.on_deadline,
        "bucket_id": place.bucket_id,
        "concurrency_key": item.concurrency_key,
        "overlap": item.overlap,
    }


def _as_model(workspace: Workspace, item: NewExecution, place: Placed, now: datetime) -> Execution:
    row = Execution(
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
        limits=item.limits,
        tags=list(item.tags),
        traceparent=item.traceparent,
        state=State.SKIPPED if item.skipped else State.PENDING,
        state_reason=item.skipped,
        due_at=place.due_at,
        start_deadline=item.start_deadline,
        on_deadline=item.on_deadline,
        bucket_id=place.bucket_id,
        concurrency_key=item.concurrency_key,
        overlap=item.overlap,
        created_at=now,
        finished_at=now if item.skipped else None,
    )
    row._state.adding = False
    row._state.db = "default"
    return row
