"""Schedules: when something fires, and the list of what came of it."""

from typing import Any

from django.contrib import admin
from unfold.decorators import display

from chronos_site.tenancy.admin_base import ReadOnlyTenantAdmin, WorkspaceFilter
from execution.admin.showing import as_json, link_to, list_of, target_shown
from scheduling.models import Schedule

COLOURS = {"ACTIVE": "success", "PAUSED": "warning", "COMPLETED": "info", "CANCELLED": "warning"}


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyTenantAdmin):
    list_display = (
        "id",
        "state_shown",
        "kind",
        "when",
        "next_run_at",
        "job",
        "external_key",
        "workspace",
        "executions",
    )
    list_filter = ("state", "kind", WorkspaceFilter)
    list_select_related = ("workspace", "job_definition")
    search_fields = ("=external_key",)
    search_help_text = "Its id, or its external key."
    fieldsets = (
        (None, {"fields": ("state_shown", "pause_reason", "workspace", "job", "executions", "external_key", "tags")}),
        (
            "When",
            {"fields": ("kind", "when", "next_run_at", "starts_at", "ends_at", "max_runs", "run_count")},
        ),
        (
            "Misfire and overlap",
            {
                "fields": (
                    "misfire",
                    "misfire_grace_s",
                    "missed_count",
                    "last_misfire",
                    "overlap",
                    "pause_after_failures",
                )
            },
        ),
        ("What is sent", {"fields": ("target_shown", "payload_shown", "delivery_shown", "expires_after_s")}),
        ("Record", {"fields": ("version", "created_at", "updated_at", "id")}),
    )
    readonly_fields = (
        "state_shown",
        "job",
        "executions",
        "when",
        "next_run_at",
        "run_count",
        "missed_count",
        "last_misfire",
        "target_shown",
        "payload_shown",
        "delivery_shown",
        "id",
    )

    @display(description="State", label=COLOURS)
    def state_shown(self, row: Schedule) -> str:
        return row.state

    @admin.display(description="Fires")
    def when(self, row: Schedule) -> str:
        if row.kind == Schedule.Kind.ONCE:
            return f"once at {row.run_at:%Y-%m-%d %H:%M:%S %Z}" if row.run_at else "once"
        return f"{row.cron} ({row.timezone})" if row.kind == Schedule.Kind.CRON else f"every {row.every_s:,} s"

    @admin.display(description="Job definition")
    def job(self, row: Schedule) -> Any:
        return link_to("execution_jobdefinition", row.job_definition_id, row.job_definition)

    @admin.display(description="Executions")
    def executions(self, row: Schedule) -> Any:
        return list_of("execution_execution", "executions", schedule_id=row.pk)

    @admin.display(description="Target")
    def target_shown(self, row: Schedule) -> Any:
        return target_shown(row.target)

    @admin.display(description="Payload")
    def payload_shown(self, row: Schedule) -> Any:
        return as_json(row.payload)

    @admin.display(description="Overrides")
    def delivery_shown(self, row: Schedule) -> Any:
        return target_shown(row.delivery)
