"""Bulk jobs for operators: where each stands, live; what may be done with it; its results; the upload of a new one."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.views.decorators.csrf import csrf_exempt

from bulk import progress, selectors, services
from bulk.admin.upload import upload_view
from bulk.domain.numbering import number_of
from bulk.domain.states import JOB_ENDED, JobState
from bulk.download import results_response
from bulk.models import BulkJob
from chronos_site.infra import storage
from chronos_site.tenancy.admin_base import ReadOnlyTenantAdmin, WorkspaceFilter
from execution.services import Refused

SHOWN_ROWS = 20
SOCKET = "/ws/v1/bulk-jobs/"


class Action:
    """Something that may be done with a job from its page, after a question."""

    def __init__(self, label: str, question: str, change: Callable[..., BulkJob], done: str) -> None:
        self.label = label
        self.question = question
        self.change = change
        self.done = done


ACTIONS = {
    "start": Action("Start", "Send the rows that wait?", services.start_bulk_job, "It sends what waits."),
    "pause": Action(
        "Pause", "Begin no further row? Sends under way end.", services.pause_bulk_job, "No further row is begun."
    ),
    "cancel": Action(
        "Cancel",
        "Cancel it? Rows that are not under way will not be sent, and this cannot be taken back.",
        services.cancel_bulk_job,
        "Rows that are not under way will not be sent.",
    ),
    "retry-failed": Action(
        "Retry failed rows",
        "Send once more what failed, and nothing else?",
        services.retry_failed_rows,
        "What failed is sent once more.",
    ),
}


@admin.register(BulkJob)
class BulkJobAdmin(ReadOnlyTenantAdmin):
    list_display = ("file_name", "workspace", "job_definition", "state", "total", "succeeded", "failed", "created_at")
    list_select_related = ("workspace", "job_definition")
    list_filter = ("state", WorkspaceFilter)
    search_fields = ("file_name__startswith",)
    search_help_text = "The beginning of the file's name, or the id."
    ordering = ("-id",)
    change_form_outer_before_template = "bulk/admin/progress.html"
    fieldsets = (
        ("What is sent", {"fields": ("workspace", "job_definition", "job_version", "kind", "timeout_s")}),
        ("The file", {"fields": ("file_name", "size_bytes", "delimiter", "columns", "max_invalid_share")}),
        ("When", {"fields": ("created_at", "ingested_at", "started_at", "finished_at")}),
    )

    class Media:
        css = {"all": ("bulk/progress.css",)}
        js = ("bulk/progress.js",)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A new job is a file that is uploaded."""
        return self.may(request)

    def get_urls(self) -> list[Any]:
        site = self.admin_site.admin_view
        own = [
            path("add/", site(csrf_exempt(self.upload)), name="bulk_bulkjob_add"),
            path("<uuid:job_id>/progress/", site(self.progress), name="bulk_bulkjob_progress"),
            path("<uuid:job_id>/results/", site(self.results), name="bulk_bulkjob_results"),
            path("<uuid:job_id>/do/<str:verb>/", site(self.act), name="bulk_bulkjob_act"),
        ]
        return [*own, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        job = self.get_object(request, object_id)
        more = {} if job is None else self._page(request, job)
        shown: HttpResponse = super().change_view(request, object_id, form_url, {**more, **(extra_context or {})})
        return shown

    def upload(self, request: HttpRequest) -> HttpResponseBase:
        """The form, and what it sends."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        return upload_view(self, request)

    def progress(self, request: HttpRequest, job_id: UUID) -> HttpResponse:
        """What the socket tells, for a page that has none."""
        return JsonResponse(progress.shown(self._job(request, job_id)))

    def results(self, request: HttpRequest, job_id: UUID) -> HttpResponseBase:
        job = self._job(request, job_id)
        if job.results_bytes is None:
            raise Http404("It has no results.")
        try:
            return results_response(job, storage.open_reader(job.results_name))
        except storage.StorageError:
            self.message_user(request, "The object storage cannot answer right now. Try again.", messages.ERROR)
            return HttpResponseRedirect(page_of(job))

    def act(self, request: HttpRequest, job_id: UUID, verb: str) -> HttpResponse:
        """GET asks, POST does."""
        job, action = self._job(request, job_id), ACTIONS.get(verb)
        if action is None:
            raise Http404("There is no such action.")
        if not self.may(request, job):
            raise PermissionDenied
        if request.method != "POST":
            context = {
                **self.admin_site.each_context(request),
                "title": f"{action.label}: {job.file_name}",
                "opts": self.opts,
                "job": job,
                "action": action,
                "back": page_of(job),
            }
            return TemplateResponse(request, "bulk/admin/confirm.html", context)
        try:
            action.change(workspace=job.workspace, job_id=job.id)
            self.message_user(request, action.done, messages.SUCCESS)
        except Refused as refused:
            self.message_user(request, str(refused), messages.ERROR)
        return HttpResponseRedirect(page_of(job))

    def _job(self, request: HttpRequest, job_id: UUID) -> BulkJob:
        """Another workspace's is not there."""
        job: BulkJob | None = self.get_object(request, str(job_id))
        if job is None or not self.has_view_permission(request, job):
            raise Http404("There is no such bulk job.")
        return job

    def _page(self, request: HttpRequest, job: BulkJob) -> dict[str, Any]:
        faulty = job.failed + job.invalid > 0
        return {
            "title": job.file_name,
            "job": job,
            "told": progress.shown(job),
            "socket": f"{SOCKET}{job.id}?workspace={job.workspace.name}",
            "actions_of_job": [(verb, ACTIONS[verb].label) for verb in possible(job)] if self.may(request, job) else [],
            "faulty": [
                {"row": number_of(row.id), "record": row} for row in selectors.faulty_records(job=job, most=SHOWN_ROWS)
            ]
            if faulty
            else [],
        }


def possible(job: BulkJob) -> list[str]:
    """The verbs that its state allows."""
    if job.state in (JobState.PARTIAL_FAILURE, JobState.FAILED) and not job.error_code:
        return ["retry-failed"]
    if job.state in JOB_ENDED or job.cancel_requested_at is not None:
        return []
    return ["start" if job.held else "pause", "cancel"]


def page_of(job: BulkJob) -> str:
    return reverse("admin:bulk_bulkjob_change", args=[job.id])
