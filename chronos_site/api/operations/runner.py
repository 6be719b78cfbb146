"""The runner: does open operations step by step, workspaces in turn.

Called by the task `run_operations`, every second. Each step is one transaction that does the work and moves cursor and
counters: dying half-way rolls all of it back, and the next tick does it again. Two runners at once share the operations
(SKIP LOCKED), and an operation's steps never run beside each other. A step that must wait (TryLater) or that the
database broke off is put off; any other error ends the operation as FAILED, with what was done before kept. Kinds that
this process does not know are left to one that does.
"""

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connection, transaction

from chronos_site.api.models import Operation
from chronos_site.api.operations import transitions
from chronos_site.api.operations.registry import Scope, Step, TryLater, kind_named, kind_names

log = logging.getLogger(__name__)

BUDGET_S = 5.0
SETBACK_WAIT_S = 5.0
MOST_SETBACKS = 5
"""Tries in a row that the database may break off; then the operation is FAILED."""
_DUE = "state IN ('QUEUED', 'RUNNING') AND next_step_at <= clock_timestamp()"
_one_tick = threading.Lock()


@dataclass(slots=True)
class Ran:
    """What one tick did."""

    steps: int = 0
    put_off: int = 0
    failed: int = 0


class _StoodStill(Exception):  # noqa: N818 - a fault of a kind, never shown
    """A step passed nothing and did not end."""


def tick_operations() -> None:
    """One tick, unless this process is still at its last one: the pool's other threads belong to other tasks."""
    if not _one_tick.acquire(blocking=False):
        return
    try:
        run_operations()
    finally:
        _one_tick.release()


def run_operations(*, budget_s: float = BUDGET_S) -> Ran:
    """Take steps until nothing is due or the time is up."""
    ran = Ran()
    ends = time.monotonic() + budget_s
    while due := _due_operations():
        before = ran.steps + ran.put_off + ran.failed
        for operation_id in due:
            if time.monotonic() >= ends:
                return ran
            _take_turn(operation_id, ran)
        if ran.steps + ran.put_off + ran.failed == before:
            break  # What is due is in other runners' hands.
    return ran


def _due_operations() -> list[UUID]:
    """One due operation of each workspace, the one that waits longest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (workspace_id) next_step_at, id FROM api_operation"  # noqa: S608 - constants
            f" WHERE {_DUE} AND kind = ANY(%s) ORDER BY workspace_id, next_step_at",
            [kind_names()],
        )
        found: list[tuple[datetime, UUID]] = cursor.fetchall()
    return [operation_id for _at, operation_id in sorted(found)]


def _take_turn(operation_id: UUID, ran: Ran) -> None:
    """One step, or what is noted where it could not be done."""
    try:
        with transaction.atomic():
            operation = _claim(operation_id)
            if operation is None:
                return
            _do_step(operation)
        ran.steps += 1
    except TryLater as error:
        ran.put_off += 1
        transitions.put_off_operation(operation_id=operation_id, after_s=error.after_s, waiting_for=str(error))
    except (DatabaseError, InterfaceError) as error:
        log.warning("operation_set_back", exc_info=error, extra=_named(operation_id))
        _set_back(operation_id, ran)
    except Exception as error:
        log.exception("operation_failed", extra=_named(operation_id))
        ran.failed += transitions.fail_operation(
            operation_id=operation_id,
            error=f"A step failed unexpectedly ({type(error).__name__}). What was done before it stays done;"
            " start a new operation for the rest, or report this one's id.",
        )


def _claim(operation_id: UUID) -> Operation | None:
    """The row, locked; None where another runner has it or it is no longer due."""
    found: list[Operation] = list(
        Operation.objects.raw(
            f"SELECT * FROM api_operation WHERE id = %s AND {_DUE} FOR UPDATE SKIP LOCKED",  # noqa: S608 - constants
            [operation_id],
        )
    )
    return found[0] if found else None


def _do_step(operation: Operation) -> None:
    """The next rows, the cursor and the counters, in the caller's transaction."""
    if operation.state == Operation.State.QUEUED:
        transitions.begin_operation(operation_id=operation.id)
    step = _step(operation)
    if not step.finished and (step.passed == 0 or step.after in {None, operation.after_id}):
        raise _StoodStill(operation.kind)
    done, skipped, failed = operation.done + step.done, operation.skipped + step.skipped, operation.failed + step.failed
    result = dict(operation.result)
    for name, count in step.result.items():
        result[name] = result.get(name, 0) + count
    transitions.advance_operation(
        operation_id=operation.id,
        after=step.after,
        done=done,
        skipped=skipped,
        failed=failed,
        result=result,
        pace_s=step.passed / operation.rate_per_s if operation.rate_per_s else None,
    )
    if step.finished:
        gone = max(operation.total - done - skipped - failed - sum(result.values()), 0)
        transitions.succeed_operation(operation_id=operation.id, gone=gone)
        counts = {"total": operation.total, "done": done, "skipped": skipped + gone, "failed_rows": failed}
        log.info("operation_succeeded", extra={**_named(operation.id), "kind": operation.kind, **counts})


def _step(operation: Operation) -> Step:
    if operation.up_to_id is None:
        return Step(after=None, finished=True)
    kind = kind_named(operation.kind)
    scope = Scope(
        workspace_id=operation.workspace_id,
        filter=operation.filter,
        arguments=operation.arguments,
        accepted_at=operation.created_at,
        up_to=operation.up_to_id,
    )
    # With a rate, at most one second's worth at a time.
    limit = min(kind.batch, operation.rate_per_s or kind.batch)
    return kind.step(scope, operation.after_id, limit)


def _set_back(operation_id: UUID, ran: Ran) -> None:
    """The database broke the step off: try again, but not for ever.

    A deadlock, a timeout, a lost connection, or a table that a deployment has not migrated yet: all of them pass.
    """
    setbacks = transitions.set_back_operation(
        operation_id=operation_id,
        after_s=SETBACK_WAIT_S,
        waiting_for="The database broke off the last step; it is tried again.",
    )
    if setbacks <= MOST_SETBACKS:
        ran.put_off += 1
        return
    ran.failed += transitions.fail_operation(
        operation_id=operation_id,
        error=f"The database broke off the same step {setbacks} times. What was done before it stays done;"
        " start a new operation for the rest, with a narrower filter.",
    )


def _named(operation_id: UUID) -> dict[str, str]:
    return {"action": "operations", "operation_id": str(operation_id)}
