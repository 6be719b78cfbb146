"""Replay and discard: what a person does about executions that failed for good, one by one or by filter.

The original is never changed. A replay is a new execution with the same snapshot, which names the one it repeats; it
runs under the next `run_no` of its occurrence. Both actions are guarded by the dead letter's status, so that two people
who press the same button replay once. Everybody locks executions before dead letters, each in the order of ids.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet

from chronos_site.infra.clock import database_now
from chronos_site.infra.sql import statement
from chronos_site.observability import tracing
from chronos_site.tenancy.models import Workspace
from execution import selectors, services
from execution.domain.states import TERMINAL
from execution.models import DeadLetter, Execution
from execution.services import NewExecution, Refused


class NotEnded(Refused):
    """The execution is still on its way: there is nothing to repeat yet."""

    code = "execution_not_ended"


class AlreadyResolved(Refused):
    """The dead letter was replayed or discarded before."""

    code = "dead_letter_resolved"

    def __init__(self, text: str, *, status: str) -> None:
        super().__init__(text)
        self.status = status


def find_dead_letters(
    *,
    workspace: Workspace,
    statuses: Sequence[str] = (),
    reasons: Sequence[str] = (),
    job_ids: Sequence[UUID] = (),
    created_from: datetime | None = None,
    created_to: datetime | None = None,
) -> QuerySet[DeadLetter]:
    """Repeated values are alternatives, different filters must all hold; from is inclusive, to is exclusive."""
    found = selectors.dead_letters(workspace=workspace, statuses=statuses, reasons=reasons, job_ids=job_ids)
    if created_from is not None:
        found = found.filter(created_at__gte=created_from)
    if created_to is not None:
        found = found.filter(created_at__lt=created_to)
    return found


# --- replay --------------------------------------------------------------------------------------


@transaction.atomic
def replay_execution(*, workspace: Workspace, execution_id: UUID) -> Execution:
    """Run an ended execution once more, now. Its open dead letter, if it has one, counts as replayed.

    Raises Execution.DoesNotExist, NotEnded, quotas.QuotaExceeded.
    """
    made = replay_executions(workspace=workspace, ids=[execution_id]).get(execution_id)
    if made is None:
        state = Execution.objects.get(workspace=workspace, id=execution_id).state
        raise NotEnded(f"The execution is {state}. Wait until it has ended, or cancel it.")
    return made


@transaction.atomic
def replay_executions(*, workspace: Workspace, ids: Sequence[UUID]) -> dict[UUID, Execution]:
    """Run those that have ended once more, now. Returns the new executions by the ids of the old.

    What is still on its way, or is not there, is left out. Raises quotas.QuotaExceeded, and then none was made.
    """
    _lock_originals(workspace, ids)
    originals = list(Execution.objects.filter(workspace=workspace, id__in=ids, state__in=TERMINAL).order_by("id"))
    if not originals:
        return {}
    made = _make_again(workspace, originals)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE execution_deadletter d SET status = 'replayed', resolved_at = clock_timestamp(),"
            " replayed_as = w.made FROM unnest(%s::uuid[], %s::uuid[]) AS w(id, made)"
            " WHERE d.id = w.id AND d.status = 'open'",
            [[original.id for original in originals], [execution.id for execution in made]],
        )
    return {original.id: execution for original, execution in zip(originals, made, strict=True)}


@transaction.atomic
def replay_dead_letter(*, workspace: Workspace, dead_letter_id: UUID) -> tuple[Execution, bool]:
    """Replay an open dead letter. Safe to repeat: the second time answers the same execution and False.

    Raises DeadLetter.DoesNotExist, AlreadyResolved where it was discarded, quotas.QuotaExceeded.
    """
    made = replay_dead_letters(workspace=workspace, ids=[dead_letter_id]).get(dead_letter_id)
    if made is not None:
        return made, True
    letter = DeadLetter.objects.get(workspace=workspace, id=dead_letter_id)
    if letter.status == DeadLetter.Status.DISCARDED:
        raise AlreadyResolved("The dead letter was discarded. Replay its execution instead.", status=letter.status)
    if letter.replayed_as is None:
        raise Execution.DoesNotExist
    return Execution.objects.get(workspace=workspace, id=letter.replayed_as), False


@transaction.atomic
def replay_dead_letters(*, workspace: Workspace, ids: Sequence[UUID]) -> dict[UUID, Execution]:
    """Replay those of the dead letters that are open. Returns the new executions by the dead letters' ids.

    Raises quotas.QuotaExceeded, and then none was made.
    """
    _lock_originals(workspace, ids)
    return replay_executions(workspace=workspace, ids=_lock_open_letters(workspace, ids))


# --- discard -------------------------------------------------------------------------------------


@transaction.atomic
def discard_dead_letter(*, workspace: Workspace, dead_letter_id: UUID) -> DeadLetter:
    """Close an open dead letter without a replay. Safe to repeat. Raises AlreadyResolved where it was replayed."""
    discard_dead_letters(workspace=workspace, ids=[dead_letter_id])
    letter = DeadLetter.objects.get(workspace=workspace, id=dead_letter_id)
    if letter.status == DeadLetter.Status.REPLAYED:
        raise AlreadyResolved("The dead letter was replayed already.", status=letter.status)
    return letter


@transaction.atomic
def discard_dead_letters(*, workspace: Workspace, ids: Sequence[UUID]) -> int:
    """Close those that are open; their executions stay as they are. Returns how many."""
    still_open = _lock_open_letters(workspace, ids)
    return DeadLetter.objects.filter(id__in=still_open, status=DeadLetter.Status.OPEN).update(
        status=DeadLetter.Status.DISCARDED, resolved_at=database_now()
    )


def _lock_open_letters(workspace: Workspace, ids: Sequence[UUID]) -> list[UUID]:
    return list(
        DeadLetter.objects.filter(workspace=workspace, id__in=ids, status=DeadLetter.Status.OPEN)
        .order_by("id")
        .select_for_update(no_key=True)
        .values_list("id", flat=True)
    )


def _lock_originals(workspace: Workspace, ids: Sequence[UUID]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement("execution", "lock_originals"), {"ids": list(ids), "workspace_id": workspace.id})


def _make_again(workspace: Workspace, originals: Sequence[Execution]) -> list[Execution]:
    """New executions from the old ones' snapshots, in their order."""
    now: datetime = database_now()
    run_nos = _next_run_nos(originals)
    return services.create_executions(
        workspace=workspace,
        new=[
            NewExecution(
                scheduled_for=original.scheduled_for,
                due_at=now,
                trigger=Execution.Trigger.REPLAY,
                kind=original.kind,
                target=original.target,
                payload=original.payload,
                timeout_s=original.timeout_s,
                retry=original.retry,
                limits=original.limits,
                tags=original.tags,
                traceparent=tracing.traceparent(),
                schedule_id=original.schedule_id,
                job_definition_id=original.job_definition_id,
                job_version=original.job_version,
                run_no=run_no,
                replay_of=original.id,
            )
            for original, run_no in zip(originals, run_nos, strict=True)
        ],
    )


def _next_run_nos(originals: Sequence[Execution]) -> list[int]:
    """The run number of each one's replay: the next of its occurrence, 0 where it has no schedule."""
    with connection.cursor() as cursor:
        cursor.execute(statement("execution", "select_last_run_nos"), {"ids": [original.id for original in originals]})
        last = {(schedule_id, scheduled_for): run_no for schedule_id, scheduled_for, run_no in cursor.fetchall()}
    numbers = []
    for original in originals:
        occurrence = (original.schedule_id, original.scheduled_for)
        if original.schedule_id is None:
            numbers.append(0)
            continue
        last[occurrence] += 1
        numbers.append(last[occurrence])
    return numbers
