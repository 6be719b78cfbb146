"""The operations of this room: replay and discard dead letters, cancel and replay executions, by filter.

Called by the API (`count`) and by the runner of `chronos_site.api.operations` (`step`, in its transaction). What a
filter finds is bound to the time it was accepted at: rows made later, executions that ended later and letters written
later are not touched, and neither is what somebody else has seen to meanwhile.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Model, QuerySet

from chronos_site.api.operations.registry import Found, Kind, Scope, Step, TryLater, register_kind
from chronos_site.tenancy.models import Workspace
from execution import dead_letters, selectors, services
from execution.domain.states import TERMINAL, State
from execution.models import DeadLetter, Execution
from execution.quotas import QuotaExceeded

REPLAY_DEAD_LETTERS = "dead_letters.replay"
DISCARD_DEAD_LETTERS = "dead_letters.discard"
CANCEL_EXECUTIONS = "executions.cancel"
REPLAY_EXECUTIONS = "executions.replay"

NOT_ENDED = [state for state in State if state not in TERMINAL]
ENDED = [state for state in State if state in TERMINAL]

REPLAY_RATE_PER_S = 100
"""A receiver that has just come back is not met by everything at once."""
REPLAY_BATCH = 200
"""Each carries a payload."""
QUOTA_WAIT_S = 10.0

Row = TypeVar("Row", bound=Model)


def register_kinds() -> None:
    """Called once, when the app is ready."""
    register_kind(
        Kind(
            name=REPLAY_DEAD_LETTERS,
            count=lambda scope: _found(_open_letters(scope)),
            step=_replay_letters,
            batch=REPLAY_BATCH,
            default_rate_per_s=REPLAY_RATE_PER_S,
        )
    )
    register_kind(
        Kind(name=DISCARD_DEAD_LETTERS, count=lambda scope: _found(_open_letters(scope)), step=_discard_letters)
    )
    register_kind(Kind(name=CANCEL_EXECUTIONS, count=lambda scope: _found(_under_way(scope)), step=_cancel_executions))
    register_kind(
        Kind(
            name=REPLAY_EXECUTIONS,
            count=lambda scope: _found(_ended(scope)),
            step=_replay_executions,
            batch=REPLAY_BATCH,
            default_rate_per_s=REPLAY_RATE_PER_S,
        )
    )


# --- what a scope finds --------------------------------------------------------------------------


def _open_letters(scope: Scope) -> QuerySet[DeadLetter]:
    found = dead_letters.find_dead_letters(
        workspace=_workspace(scope),
        statuses=[DeadLetter.Status.OPEN],
        reasons=scope.filter.get("reason", ()),
        job_ids=_ids(scope.filter, "job_definition"),
        created_from=_time(scope.filter, "created_from"),
        created_to=_time(scope.filter, "created_to"),
    )
    # A letter has the id of its execution, which may be much older: its own time tells.
    return found.filter(created_at__lte=scope.accepted_at)


def _under_way(scope: Scope) -> QuerySet[Execution]:
    return _executions(scope, among=NOT_ENDED)


def _ended(scope: Scope) -> QuerySet[Execution]:
    return _executions(scope, among=ENDED).exclude(finished_at__gt=scope.accepted_at)


def _executions(scope: Scope, *, among: Sequence[State]) -> QuerySet[Execution]:
    """Those of the filter, in the states that the action is for: all of them where the filter names none."""
    found = selectors.executions(
        workspace=_workspace(scope),
        states=scope.filter.get("state", among),
        job_ids=_ids(scope.filter, "job_definition"),
        schedule_ids=_ids(scope.filter, "schedule"),
        tags=scope.filter.get("tag", ()),
        scheduled_from=_time(scope.filter, "scheduled_for_from"),
        scheduled_to=_time(scope.filter, "scheduled_for_to"),
    )
    return found.filter(created_at__lte=scope.accepted_at)


def _found(rows: QuerySet[Row]) -> Found:
    newest: UUID | None = rows.order_by("-id").values_list("id", flat=True).first()
    return Found(rows.count(), newest)


def _next_ids(rows: QuerySet[Row], scope: Scope, after: UUID | None, limit: int) -> list[UUID]:
    rows = rows.filter(id__lte=scope.up_to)
    if after is not None:
        rows = rows.filter(id__gt=after)
    return list(rows.order_by("id").values_list("id", flat=True)[:limit])


# --- steps ---------------------------------------------------------------------------------------


def _replay_letters(scope: Scope, after: UUID | None, limit: int) -> Step:
    workspace = _workspace(scope)
    ids = _next_ids(_open_letters(scope), scope, after, limit)
    return _replay(ids, after, limit, lambda some: dead_letters.replay_dead_letters(workspace=workspace, ids=some))


def _replay_executions(scope: Scope, after: UUID | None, limit: int) -> Step:
    workspace = _workspace(scope)
    ids = _next_ids(_ended(scope), scope, after, limit)

    def replay(some: Sequence[UUID]) -> Mapping[UUID, Execution]:
        """Without those that somebody replayed or discarded as dead letters meanwhile."""
        resolved = set(
            DeadLetter.objects.filter(id__in=some, resolved_at__gt=scope.accepted_at).values_list("id", flat=True)
        )
        return dead_letters.replay_executions(workspace=workspace, ids=[i for i in some if i not in resolved])

    return _replay(ids, after, limit, replay)


def _replay(
    ids: list[UUID], after: UUID | None, limit: int, replay: Callable[[Sequence[UUID]], Mapping[UUID, Execution]]
) -> Step:
    """Replay as many of `ids` as the quota has room for. Raises TryLater where that is none."""
    if not ids:
        return Step(after=after, finished=True)
    some = ids
    while True:
        try:
            with transaction.atomic():
                made = replay(some)
            break
        except QuotaExceeded as error:
            if len(some) == 1:
                raise TryLater(str(error), after_s=QUOTA_WAIT_S) from error
            some = some[: len(some) // 2]
    return Step(
        done=len(made),
        skipped=len(some) - len(made),
        after=some[-1],
        finished=len(some) == len(ids) and len(ids) < limit,
    )


def _discard_letters(scope: Scope, after: UUID | None, limit: int) -> Step:
    ids = _next_ids(_open_letters(scope), scope, after, limit)
    done = dead_letters.discard_dead_letters(workspace=_workspace(scope), ids=ids)
    return Step(done=done, skipped=len(ids) - done, after=ids[-1] if ids else after, finished=len(ids) < limit)


def _cancel_executions(scope: Scope, after: UUID | None, limit: int) -> Step:
    """`done` are cancelled for good; `requested` are those that a worker holds: their final state tells."""
    ids = _next_ids(_under_way(scope), scope, after, limit)
    # Locked by the filter, not by the ids alone: what left its states since is not asked for any more.
    matching = list(
        _under_way(scope).filter(id__in=ids).order_by("id").select_for_update().values_list("id", flat=True)
    )
    cancelled = services.cancel_executions(workspace=_workspace(scope), ids=matching)
    done, requested = len(cancelled.done), len(cancelled.requested)
    return Step(
        done=done,
        skipped=len(ids) - done - requested,
        result={"requested": requested},
        after=ids[-1] if ids else after,
        finished=len(ids) < limit,
    )


# --- reading a frozen filter ---------------------------------------------------------------------


def _workspace(scope: Scope) -> Workspace:
    return Workspace.objects.get(id=scope.workspace_id)


def _ids(frozen: Mapping[str, Any], name: str) -> list[UUID]:
    return [UUID(text) for text in frozen.get(name, ())]


def _time(frozen: Mapping[str, Any], name: str) -> datetime | None:
    text = frozen.get(name)
    return None if text is None else datetime.fromisoformat(text)
