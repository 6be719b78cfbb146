"""The admin's first page: what is due, what became of things, where it stops. Told as JSON; the page draws it anew each
five seconds while somebody looks at it.

People see what is of their workspaces. What is the site's as a whole (leaders, queues, workers, breakers) is for those
who run the site: it tells how much others have.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from chronos_site.console.selectors.ahead import due_ahead
from chronos_site.console.selectors.busiest import worst_jobs
from chronos_site.console.selectors.minutes import minutes_until_now
from chronos_site.console.selectors.state import read_snapshot
from chronos_site.infra.documents import to_json
from chronos_site.tenancy.selectors import workspaces_of

SITE_PARTS = ("leaders", "queues", "unacked", "workers", "breakers")
UNTIL_OVERDUE_S = 5


@never_cache
@require_safe
def dashboard_json(request: HttpRequest) -> HttpResponse:
    """Everything that the page shows. A part that cannot be read is null, and `away` says why."""
    user: Any = request.user
    workspace_ids = None if user.is_superuser else list(workspaces_of(user=user).values_list("id", flat=True))
    return HttpResponse(to_json(read_dashboard(workspace_ids)), content_type="application/json")


def read_dashboard(workspace_ids: list[UUID] | None) -> dict[str, Any]:
    """Of these workspaces; of the whole site where it is None."""
    snapshot = read_snapshot(workspace_ids=workspace_ids)
    told: dict[str, Any] = {
        "at": snapshot.at,
        "whole_site": workspace_ids is None,
        "flower": settings.CHRONOS_FLOWER_URL if workspace_ids is None else None,
        "away": dict(snapshot.away),
        "work": snapshot.work and _work(snapshot.work, snapshot.at),
        "switches": snapshot.switches and [asdict(switch) for switch in snapshot.switches],
        "bulk_jobs": snapshot.bulk_jobs
        and [
            {**asdict(job), "page": reverse("admin:bulk_bulkjob_change", args=[job.id])} for job in snapshot.bulk_jobs
        ],
    }
    if workspace_ids is None:
        for part in SITE_PARTS:
            told[part] = getattr(snapshot, part)
        if snapshot.breakers is not None:
            told["breakers"] = [asdict(one) for one in snapshot.breakers if one.state != "closed"]
    parts: dict[str, Callable[[], Any]] = {
        "ahead": lambda: due_ahead(workspace_ids=workspace_ids),
        "minutes": lambda: minutes_until_now(workspace_ids=workspace_ids),
        "worst_jobs": lambda: worst_jobs(workspace_ids=workspace_ids),
    }
    for name, read in parts.items():
        told[name] = None if "postgres" in told["away"] else _read(read, told["away"], name)
    return told


def _read(read: Callable[[], Any], away: dict[str, str], name: str) -> Any:
    try:
        return read()
    except (DatabaseError, InterfaceError) as error:
        away[name] = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        return None


def _work(work: Any, at: Any) -> dict[str, Any]:
    late_s = None if work.oldest_due_at is None or at is None else (at - work.oldest_due_at).total_seconds()
    return {**asdict(work), "oldest_late_s": late_s if late_s is not None and late_s > UNTIL_OVERDUE_S else None}


data = admin.site.admin_view(dashboard_json)
