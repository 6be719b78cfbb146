"""Quotas of a workspace: pending executions and job definitions.

Counting a million pending rows at every POST would cost more than the POST. Each process remembers a count for some
seconds and adds what it let in; only where that comes near the quota does it count again.
"""

import threading
import time
from dataclasses import dataclass
from uuid import UUID

from chronos_site.api.operations.services import MOST_OPEN, count_open_operations
from chronos_site.tenancy.models import Workspace
from chronos_site.tenancy.quotas import register_quota
from execution.domain.states import State
from execution.models import Execution, JobDefinition

FRESH_S = 10.0


class QuotaExceeded(Exception):  # noqa: N818 - named as its users say it
    """The workspace holds as much as it may. `quota` names the limit, `limit` is its number."""

    def __init__(self, *, quota: str, limit: int, adding: int) -> None:
        super().__init__(
            f"The workspace may hold {limit} {quota}; {adding} more would pass that. Wait, or ask for a higher quota."
        )
        self.quota = quota
        self.limit = limit


@dataclass(slots=True)
class _Count:
    at: float
    pending: int


_counts: dict[UUID, _Count] = {}
_lock = threading.Lock()


def check_pending(*, workspace: Workspace, adding: int) -> None:
    """Raises QuotaExceeded where `adding` more pending executions would pass the workspace's quota.

    Several processes may together pass it by what they let in within ten seconds.
    """
    limit = workspace.quota_pending_executions
    with _lock:
        known = _counts.get(workspace.id)
    if known is None or time.monotonic() - known.at > FRESH_S or known.pending + adding > limit:
        known = _Count(time.monotonic(), _count_pending(workspace, most=limit + 1))
    if known.pending + adding > limit:
        raise QuotaExceeded(quota="pending executions", limit=limit, adding=adding)
    with _lock:
        known.pending += adding
        _counts[workspace.id] = known


def pending_used(workspace: Workspace) -> int:
    """How many are pending, counted up to the quota; up to ten seconds old."""
    with _lock:
        known = _counts.get(workspace.id)
    if known is not None and time.monotonic() - known.at <= FRESH_S:
        return known.pending
    return _count_pending(workspace, most=workspace.quota_pending_executions)


def job_definitions_used(workspace: Workspace) -> int:
    """How many there are that are not deleted."""
    return JobDefinition.objects.filter(workspace=workspace, deleted_at__isnull=True).count()


def register_quotas() -> None:
    """Called once, when the app is ready."""
    register_quota("pending executions", limit=lambda w: w.quota_pending_executions, used=pending_used)
    register_quota("job definitions", limit=lambda w: w.quota_job_definitions, used=job_definitions_used)
    register_quota(
        "open operations", limit=lambda _w: MOST_OPEN, used=lambda w: count_open_operations(workspace_id=w.id)
    )


def check_job_definitions(*, workspace: Workspace, adding: int) -> None:
    """Raises QuotaExceeded."""
    limit = workspace.quota_job_definitions
    if job_definitions_used(workspace) + adding > limit:
        raise QuotaExceeded(quota="job definitions", limit=limit, adding=adding)


def _count_pending(workspace: Workspace, *, most: int) -> int:
    return Execution.objects.filter(workspace=workspace, state=State.PENDING)[:most].count()
