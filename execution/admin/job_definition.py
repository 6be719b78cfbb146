"""Job definitions: what is delivered, and the lists of what came of it."""

from typing import Any

from django.contrib import admin
from django.utils.html import format_html_join

from chronos_site.tenancy.admin_base import ReadOnlyTenantAdmin, WorkspaceFilter
from execution.admin.showing import as_json, list_of, target_shown
from execution.models import JobDefinition


@admin.register(JobDefinition)
class JobDefinitionAdmin(ReadOnlyTenantAdmin):
    list_display = ("name", "workspace", "kind", "tags", "version", "paused_at", "leads_to")
    list_filter = (
        ("paused_at", admin.EmptyFieldListFilter),
        ("deleted_at", admin.EmptyFieldListFilter),
        WorkspaceFilter,
    )
    list_select_related = ("workspace",)
    search_fields = ("name__startswith",)
    search_help_text = "The beginning of its name, or its id."
    fieldsets = (
        (None, {"fields": ("name", "workspace", "leads_to", "kind", "target_shown", "payload_shown", "tags")}),
        ("How it is sent", {"fields": ("timeout_s", "retry_shown", "limits_shown")}),
        ("When", {"fields": ("version", "paused_at", "deleted_at", "created_at", "updated_at", "id")}),
    )
    readonly_fields = (
        "leads_to",
        "target_shown",
        "payload_shown",
        "retry_shown",
        "limits_shown",
        "deleted_at",
        "created_at",
        "updated_at",
        "id",
    )

    @admin.display(description="Leads to")
    def leads_to(self, job: JobDefinition) -> Any:
        return _side_by_side(
            list_of("scheduling_schedule", "schedules", job_definition__id__exact=job.pk),
            list_of("execution_execution", "executions", job_definition__id__exact=job.pk),
            list_of("execution_deadletter", "dead letters", job_definition_id=job.pk),
        )

    @admin.display(description="Target")
    def target_shown(self, job: JobDefinition) -> Any:
        return target_shown(job.target)

    @admin.display(description="Payload")
    def payload_shown(self, job: JobDefinition) -> Any:
        return as_json(job.payload)

    @admin.display(description="Retry")
    def retry_shown(self, job: JobDefinition) -> Any:
        return as_json(job.retry)

    @admin.display(description="Limits")
    def limits_shown(self, job: JobDefinition) -> Any:
        return as_json(job.limits)


def _side_by_side(*links: Any) -> Any:
    return format_html_join(" · ", "{}", ((link,) for link in links))
