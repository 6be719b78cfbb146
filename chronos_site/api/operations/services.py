"""Start, find, abort and purge operations. Called by views; the work itself is the runner's.

Starting counts what the filter finds, and stores that number with the frozen filter in one transaction: dying before
its commit leaves nothing, after it the runner finds the row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet

from chronos_site.api.models import Operation
from chronos_site.api.operations import transitions
from chronos_site.api.operations.registry import Scope, kind_named
from chronos_site.infra.clock import database_now

MOST_OPEN = 100
"""Open operations of one workspace."""
KEPT_FOR = timedelta(days=30)
"""How long an ended operation can be read."""
PURGE_BATCH = 1000
ABORT_WAIT_S = 10
"""Longest wait of an abort for the step under way."""


class CountMismatch(Exception):  # noqa: N818 - named as its users say it
    """The filter finds another number of rows than the caller insists on."""

    def __init__(self, *, count: int, expect_count: int) -> None:
        super().__init__(
            f"The filter finds {count}, not {expect_count}. Look at what it finds, then send the number that you mean."
        )
        self.count = count


class TooManyOpen(Exception):  # noqa: N818 - named as its users say it
    """The workspace has as many operations under way as it may."""

    def __init__(self) -> None:
        super().__init__(f"{MOST_OPEN} operations are under way. Wait until one has ended, or abort one.")


class OperationEnded(Exception):  # noqa: N818 - named as its users say it
    """It is too late to abort."""

    def __init__(self, state: str) -> None:
        super().__init__(f"The operation is {state} already; there is nothing to abort.")
        self.state = state


@dataclass(frozen=True, slots=True)
class Started:
    """What a filter found, and the operation that was made of it; None for a dry run."""

    count: int
    operation: Operation | None


@transaction.atomic
def start_operation(
    *,
    workspace_id: UUID,
    kind: str,
    filter: Mapping[str, Any],  # noqa: A002 - its name in the API
    arguments: Mapping[str, Any] | None = None,
    expect_count: int | None = None,
    dry_run: bool = False,
    rate_per_s: int | None = None,
) -> Started:
    """Freeze the filter and store the operation; with `dry_run` only count. Raises CountMismatch, TooManyOpen."""
    chosen = kind_named(kind)
    now = database_now()
    scope = Scope(workspace_id=workspace_id, filter=filter, arguments=arguments or {}, accepted_at=now)
    found = chosen.count(scope)
    if expect_count is not None and expect_count != found.total:
        raise CountMismatch(count=found.total, expect_count=expect_count)
    if dry_run:
        return Started(found.total, None)
    if count_open_operations(workspace_id=workspace_id) >= MOST_OPEN:
        raise TooManyOpen
    operation = Operation.objects.create(
        workspace_id=workspace_id,
        kind=kind,
        filter=dict(filter),
        arguments=dict(scope.arguments),
        up_to_id=found.up_to,
        total=found.total,
        rate_per_s=chosen.default_rate_per_s if rate_per_s is None else rate_per_s,
        next_step_at=now,
        created_at=now,
    )
    transitions.tell("created", operation_id=operation.id, workspace_id=workspace_id, state=operation.state, at=now)
    return Started(found.total, operation)


def count_open_operations(*, workspace_id: UUID) -> int:
    """How many have not ended."""
    return Operation.objects.filter(workspace_id=workspace_id, state__in=Operation.OPEN).count()


@transaction.atomic
def abort_operation(*, workspace_id: UUID, operation_id: UUID) -> Operation:
    """End it now; what was done stays done. Safe to repeat. Raises Operation.DoesNotExist, OperationEnded.

    Nothing is done after this has returned: it waits for a step under way.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{ABORT_WAIT_S}s'")
    aborted = transitions.abort_operation(workspace_id=workspace_id, operation_id=operation_id)
    operation = find_operations(workspace_id=workspace_id).get(id=operation_id)
    if not aborted and operation.state != Operation.State.ABORTED:
        raise OperationEnded(operation.state)
    return operation


def find_operations(
    *, workspace_id: UUID, states: Sequence[str] = (), kinds: Sequence[str] = ()
) -> QuerySet[Operation]:
    """Repeated values are alternatives, different filters must all hold."""
    found = Operation.objects.filter(workspace_id=workspace_id)
    if states:
        found = found.filter(state__in=states)
    if kinds:
        found = found.filter(kind__in=kinds)
    return found


def purge_operations() -> int:
    """Delete what ended long ago, in small batches. Returns how many."""
    purged = 0
    while True:
        old = Operation.objects.filter(finished_at__lt=database_now() - KEPT_FOR).order_by("finished_at").values("id")
        deleted, _ = Operation.objects.filter(id__in=old[:PURGE_BATCH]).delete()
        purged += deleted
        if deleted < PURGE_BATCH:
            return purged
