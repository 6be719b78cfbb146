"""The quota of schedules that recur. Those that fire once are held by the quota of pending executions."""

from chronos_site.tenancy.models import Workspace
from chronos_site.tenancy.quotas import register_quota
from execution.quotas import QuotaExceeded
from scheduling.models import Schedule


def check_recurring(*, workspace: Workspace, adding: int) -> None:
    """Raises QuotaExceeded. The count stops at the quota; several requests at once may pass it by what each adds."""
    limit = workspace.quota_schedules
    if _count_living(workspace, most=limit + 1) + adding > limit:
        raise QuotaExceeded(quota="recurring schedules", limit=limit, adding=adding)


def register_quotas() -> None:
    """Called once, when the app is ready."""
    register_quota(
        "recurring schedules",
        limit=lambda w: w.quota_schedules,
        used=lambda w: _count_living(w, most=w.quota_schedules),
    )


def _count_living(workspace: Workspace, *, most: int) -> int:
    living = Schedule.objects.filter(
        workspace=workspace, state__in=[Schedule.State.ACTIVE, Schedule.State.PAUSED]
    ).exclude(kind=Schedule.Kind.ONCE)
    return living[:most].count()
