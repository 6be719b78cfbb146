"""Operations for operators: long actions on what a filter finds, and how far each has come."""

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from chronos_site.api.models import Operation
from chronos_site.tenancy.admin_base import ReadOnlyTenantAdmin, WorkspaceFilter
from chronos_site.tenancy.models import Workspace


@admin.register(Operation)
class OperationAdmin(ReadOnlyTenantAdmin):
    list_display = (
        "id",
        "kind",
        "state",
        "total",
        "done",
        "skipped",
        "failed",
        "workspace",
        "created_at",
        "finished_at",
    )
    list_filter = ("state", WorkspaceFilter)
    search_fields = ("=kind",)
    search_help_text = "Its id, or its kind."
    exclude = ("workspace_id",)
    readonly_fields = ("workspace",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With names: the room of operations knows of workspaces by their id alone."""
        name = Workspace.objects.filter(id=OuterRef("workspace_id")).values("name")
        found: QuerySet[Any] = super().get_queryset(request).annotate(workspace_name=Subquery(name))
        return found

    @admin.display(description="Workspace")
    def workspace(self, row: Any) -> str:
        return str(row.workspace_name)
