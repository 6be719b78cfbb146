"""The sidebar of the admin: what whoever looks may see, in the order of a job's way."""

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

GROUPS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Jobs",
        (
            ("execution.jobdefinition", "description"),
            ("scheduling.schedule", "calendar_clock"),
            ("execution.execution", "send"),
            ("execution.deadletter", "error"),
            ("bulk.bulkjob", "table_rows"),
            ("api.operation", "manufacturing"),
        ),
    ),
    (
        "Running it",
        (
            ("execution.bucket", "inbox"),
            ("execution.worker", "memory"),
            ("execution.dispatchswitch", "toggle_on"),
            ("django_celery_beat.periodictask", "autorenew"),
        ),
    ),
    (
        "Tenants",
        (
            ("tenancy.workspace", "workspaces"),
            ("tenancy.membership", "badge"),
            ("tenancy.apikey", "key"),
            ("auth.user", "person"),
            ("auth.group", "group"),
        ),
    ),
)
ELSEWHERE = ("django_celery_beat",)
"""Rooms whose other pages are reached from one that is listed."""
OTHER_ICON = "label"


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """Groups of links. A page that no group names stands last, so that none is forgotten."""
    groups = [(title, [*items]) for title, items in GROUPS]
    named = {label for _title, items in GROUPS for label, _icon in items}
    others = [
        (model._meta.label_lower, OTHER_ICON)
        for model in admin.site._registry
        if model._meta.label_lower not in named and model._meta.app_label not in ELSEWHERE
    ]
    groups.append(("More", sorted(others)))
    found = [
        (title, [item for label, icon in items if (item := _item(request, label, icon))]) for title, items in groups
    ]
    return [{"title": title, "separator": True, "items": items} for title, items in found if items]


def _item(request: HttpRequest, label: str, icon: str) -> dict[str, Any] | None:
    model = apps.get_model(label)
    page = admin.site._registry.get(model)
    if page is None or not page.has_view_or_change_permission(request):
        return None
    link = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    title = str(model._meta.verbose_name_plural)
    return {"title": title[:1].upper() + title[1:], "icon": icon, "link": link}
