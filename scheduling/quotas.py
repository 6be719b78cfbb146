"""The quota of schedules that recur. Those that fire once are held by the quota of pending executions."""

from chronos_site.tenancy.models import Workspace
from execution.quotas import QuotaExceeded
from scheduling.models import Schedule


def check_recurring(*, workspace: Workspace, adding: int) -> None:
    """Raises QuotaExceeded. The count stops at the quota; several requests at once may pass it by what each adds."""
    limit = workspace.quota_schedules
    living = Schedule.objects.filter(
        workspace=workspace, state__in=[Schedule.State.ACTIVE, Schedule.State.PAUSED]
    ).exclude(kind=Schedule.Kind.ONCE)
    if living[: limit + 1].count() + adding > limit:
        raise QuotaExceeded(quota="recurring schedules", limit=limit, adding=adding)
