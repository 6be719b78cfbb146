"""Replay and discard: what a person does about an execution that failed for good.

The original is never changed. A replay is a new execution with the same snapshot, which names the one it repeats; it
runs under the next `run_no` of its occurrence. Both actions are guarded by the dead letter's status, so that two people
who press the same button replay once.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Max

from chronos_site.infra import trace
from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution import services
from execution.domain.states import TERMINAL, State
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


@transaction.atomic
def replay_execution(*, workspace: Workspace, execution_id: UUID) -> Execution:
    """Run an ended execution once more, now. Its open dead letter, if it has one, counts as replayed.

    Raises Execution.DoesNotExist, NotEnded, quotas.QuotaExceeded.
    """
    original = Execution.objects.select_for_update().get(workspace=workspace, id=execution_id)
    if State(original.state) not in TERMINAL:
        raise NotEnded(f"The execution is {original.state}. Wait until it has ended, or cancel it.")
    made = _make_again(workspace, original)
    DeadLetter.objects.filter(workspace=workspace, id=execution_id, status=DeadLetter.Status.OPEN).update(
        status=DeadLetter.Status.REPLAYED, resolved_at=database_now(), replayed_as=made.id
    )
    return made


@transaction.atomic
def replay_dead_letter(*, workspace: Workspace, dead_letter_id: UUID) -> tuple[Execution, bool]:
    """Replay an open dead letter. Safe to repeat: the second time answers the same execution and False.

    Raises DeadLetter.DoesNotExist, AlreadyResolved where it was discarded, quotas.QuotaExceeded.
    """
    letter = DeadLetter.objects.select_for_update().get(workspace=workspace, id=dead_letter_id)
    if letter.status == DeadLetter.Status.REPLAYED and letter.replayed_as is not None:
        return Execution.objects.get(workspace=workspace, id=letter.replayed_as), False
    if letter.status == DeadLetter.Status.DISCARDED:
        raise AlreadyResolved("The dead letter was discarded. Replay its execution instead.", status=letter.status)
    return replay_execution(workspace=workspace, execution_id=dead_letter_id), True


@transaction.atomic
def discard_dead_letter(*, workspace: Workspace, dead_letter_id: UUID) -> DeadLetter:
    """Close an open dead letter without a replay. Safe to repeat. Raises AlreadyResolved where it was replayed."""
    letter = DeadLetter.objects.select_for_update().get(workspace=workspace, id=dead_letter_id)
    if letter.status == DeadLetter.Status.REPLAYED:
        raise AlreadyResolved("The dead letter was replayed already.", status=letter.status)
    if letter.status == DeadLetter.Status.OPEN:
        letter.status = DeadLetter.Status.DISCARDED
        letter.resolved_at = database_now()
        letter.save(update_fields=["status", "resolved_at"])
    return letter


def _make_again(workspace: Workspace, original: Execution) -> Execution:
    last = Execution.objects.filter(schedule_id=original.schedule_id, scheduled_for=original.scheduled_for).aggregate(
        last=Max("run_no")
    )["last"]
    now: datetime = database_now()
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
                tags=original.tags,
                traceparent=trace.parse_or_new(None),
                schedule_id=original.schedule_id,
                job_definition_id=original.job_definition_id,
                job_version=original.job_version,
                run_no=0 if original.schedule_id is None else last + 1,
                replay_of=original.id,
            )
        ],
    )[0]
