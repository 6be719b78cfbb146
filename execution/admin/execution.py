"""Executions: the list, and one page for each with its attempts, what was asked and what was answered."""

import logging
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from pymongo.errors import PyMongoError
from unfold.decorators import display

from chronos_site.tenancy.admin_base import ReadOnlyTenantAdmin, WorkspaceFilter
from execution import selectors
from execution.admin.showing import NOTHING, as_json, link_to, target_shown
from execution.domain.states import State
from execution.models import DeadLetter, Execution, JobDefinition

log = logging.getLogger(__name__)

NAMES = 200
"""Job definitions that a name may stand for in a search."""
COLOURS = {
    State.SUCCEEDED.value: "success",
    State.FAILED.value: "danger",
    State.RETRYING.value: "warning",
    State.EXPIRED.value: "warning",
    State.CANCELLED.value: "warning",
    State.PENDING.value: "info",
    State.QUEUED.value: "info",
    State.RUNNING.value: "primary",
}


@admin.register(Execution)
class ExecutionAdmin(ReadOnlyTenantAdmin):
    list_display = (
        "id",
        "state_shown",
        "job",
        "workspace",
        "scheduled_for",
        "attempt",
        "last_status",
        "last_error",
        "trigger",
    )
    # By nothing that no index holds: a rare trigger among millions of rows would be looked for in all of them.
    list_filter = ("state", WorkspaceFilter)
    list_select_related = ("workspace", "job_definition")
    search_fields = ("id",)
    search_help_text = "Id of an execution or a schedule, or the beginning of a job definition's name."
    change_form_outer_after_template = "execution/admin/attempts.html"
    fieldsets = (
        (
            None,
            {"fields": ("state_shown", "state_reason", "workspace", "job", "schedule", "dead_letter", "replays")},
        ),
        (
            "When",
            {
                "fields": (
                    "scheduled_for",
                    "due_at",
                    "start_deadline",
                    "started_at",
                    "finished_at",
                    "trigger",
                )
            },
        ),
        ("Last attempt", {"fields": ("attempt", "last_status", "last_error", "last_error_text", "last_duration_ms")}),
        ("What is sent", {"fields": ("kind", "target_shown", "payload_shown", "timeout_s", "retry_shown", "tags")}),
        (
            "How it is held",
            {
                "fields": (
                    "bucket_id",
                    "claim_seq",
                    "worker_id",
                    "lease_until",
                    "park_reason",
                    "cancel_requested_at",
                    "id",
                )
            },
        ),
    )
    readonly_fields = (
        "state_shown",
        "job",
        "schedule",
        "dead_letter",
        "replays",
        "target_shown",
        "payload_shown",
        "retry_shown",
        "id",
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By what an index holds: keys, or the job definitions that a name stands for."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            key = UUID(term)
        except ValueError:
            jobs = JobDefinition.objects.filter(name__startswith=term).values_list("id", flat=True)[:NAMES]
            return queryset.filter(job_definition_id__in=list(jobs)), False
        return queryset.filter(Q(pk=key) | Q(schedule_id=key)), False

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, object_id)
        more = {} if row is None else _attempts(row)
        answer: HttpResponse = super().change_view(request, object_id, form_url, {**more, **(extra_context or {})})
        return answer

    @display(description="State", label=COLOURS)
    def state_shown(self, row: Execution) -> str:
        return row.state

    @admin.display(description="Job definition")
    def job(self, row: Execution) -> Any:
        return link_to("execution_jobdefinition", row.job_definition_id, row.job_definition)

    @admin.display(description="Schedule")
    def schedule(self, row: Execution) -> Any:
        return link_to("scheduling_schedule", row.schedule_id)

    @admin.display(description="Dead letter")
    def dead_letter(self, row: Execution) -> Any:
        found = DeadLetter.objects.filter(id=row.id).first()
        return (
            NOTHING if found is None else link_to("execution_deadletter", found.id, f"{found.reason}, {found.status}")
        )

    @admin.display(description="Repeats")
    def replays(self, row: Execution) -> Any:
        return link_to("execution_execution", row.replay_of)

    @admin.display(description="Target")
    def target_shown(self, row: Execution) -> Any:
        return target_shown(row.target)

    @admin.display(description="Payload")
    def payload_shown(self, row: Execution) -> Any:
        return as_json(row.payload)

    @admin.display(description="Retry")
    def retry_shown(self, row: Execution) -> Any:
        return as_json(row.retry)


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyTenantAdmin):
    list_display = ("id", "reason", "status", "last_status", "last_error", "attempts", "workspace", "created_at", "job")
    list_filter = ("status", "reason", WorkspaceFilter)
    list_select_related = ("workspace",)
    search_fields = ("id",)
    search_help_text = "Id of the execution, or the error's code."
    fields = (
        "execution",
        "job",
        "workspace",
        "reason",
        "last_status",
        "last_error",
        "attempts",
        "status",
        "resolved_at",
        "replayed",
        "created_at",
    )
    readonly_fields = ("execution", "job", "replayed")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        try:
            return queryset.filter(pk=UUID(term)), False
        except ValueError:
            return (queryset.filter(last_error=term) if term else queryset), False

    @admin.display(description="Execution")
    def execution(self, row: DeadLetter) -> Any:
        return link_to("execution_execution", row.id)

    @admin.display(description="Job definition")
    def job(self, row: DeadLetter) -> Any:
        return link_to("execution_jobdefinition", row.job_definition_id)

    @admin.display(description="Replayed as")
    def replayed(self, row: DeadLetter) -> Any:
        return link_to("execution_execution", row.replayed_as)


def _attempts(row: Execution) -> dict[str, Any]:
    """The logs of its attempts. Without MongoDB the page is there all the same, and says so."""
    try:
        found = selectors.attempt_logs(workspace=row.workspace, execution_id=row.id)
    except PyMongoError as error:
        log.warning("attempt_logs_unread", extra={"action": "admin", "error": str(error)[:300]})
        return {"attempts": [], "attempts_away": True}
    return {"attempts": [(entry.get("attempt"), as_json(_plain(entry))) for entry in found], "attempts_away": False}


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)
        for name, value in entry.items()
        if name not in ("_id", "workspace_id", "execution_id")
    }
