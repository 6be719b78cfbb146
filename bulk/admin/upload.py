"""The upload of a file in the admin: a form for the job definition, so that the workspace is known, then the file.

The file goes into the storage while it comes, as over the API. So the form is read only after the permission was
checked, and by this module: whatever the rest of Django would read is read from here.
"""

import json
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.defaultfilters import filesizeformat
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.csrf import csrf_protect
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminFileFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from bulk import services
from bulk.api.upload import StoredFile, StoringHandler
from bulk.models import BulkJob
from chronos_site.api.problems import Problem
from chronos_site.infra.storage import StorageError, open_reader
from chronos_site.observability import tracing
from chronos_site.tenancy.models import Workspace
from execution.domain.credentials import shown
from execution.domain.targets import described
from execution.models import JobDefinition
from execution.selectors import find_job_definition
from execution.services import Refused

STORAGE_AWAY = "The object storage cannot answer right now. Try again in a moment."
SHOWN_CHARACTERS = 2000
DELIMITERS = ((",", "comma"), (";", "semicolon"), ("\t", "tab"), ("|", "bar"))


class ChooseForm(forms.Form):
    """Which job definition is to be delivered for each row."""

    workspace = forms.ModelChoiceField(
        queryset=Workspace.objects.none(), to_field_name="name", widget=UnfoldAdminSelectWidget
    )
    job = forms.CharField(
        label="Job definition",
        max_length=200,
        widget=UnfoldAdminTextInputWidget,
        help_text="Its name or id. Its URL, headers and payload may hold {{column}}.",
    )

    def __init__(self, *args: Any, workspaces: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["workspace"]
        field.queryset = workspaces.order_by("name")
        field.empty_label = None

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        if "workspace" in found and "job" in found:
            found["definition"] = find_job_definition(workspace=found["workspace"], id_or_name=found["job"])
            if found["definition"] is None:
                self.add_error("job", f"There is no job definition {found['job']!r} in {found['workspace']}.")
        return found


class StoredFileField(forms.FileField):
    """The file is in the storage by the time that the form is looked at."""

    def to_python(self, data: Any) -> StoredFile | None:  # type: ignore[override]
        return data if isinstance(data, StoredFile) else None


class FileForm(forms.Form):
    file = StoredFileField(widget=UnfoldAdminFileFieldWidget)
    delimiter = forms.ChoiceField(choices=DELIMITERS, widget=UnfoldAdminSelectWidget)
    max_invalid_share = forms.FloatField(
        label="Share of rows that may be invalid",
        min_value=0,
        max_value=1,
        initial=0.1,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text="From 0 to 1. Where more of them are, nothing is sent.",
    )
    hold = forms.BooleanField(
        required=False, widget=UnfoldBooleanWidget, help_text="Read the rows, and wait for a start."
    )
    dry_run = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanWidget,
        help_text="Show how the first rows would be sent; nothing is kept, nothing is sent.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        most = filesizeformat(settings.CHRONOS_BULK_MAX_BYTES)
        self.fields["file"].help_text = f"CSV in UTF-8; its first line names the columns. {most} at most."


def upload_view(model_admin: Any, request: HttpRequest) -> HttpResponseBase:
    """Whoever comes here may write in some workspace; in which is looked at here."""
    choose = ChooseForm(request.GET or None, workspaces=_workspaces(model_admin, request))
    if not request.GET or not choose.is_valid():
        return _page(model_admin, request, {"choose": choose, "title": "Upload a file"})
    handler = StoringHandler(choose.cleaned_data["workspace"].id)
    request.upload_handlers = [handler]
    handler.request = request
    try:
        return _upload(request, model_admin, choose, handler)
    except (Refused, Problem) as refused:
        # While the file came: it is too large, or there are two.
        model_admin.message_user(request, str(refused), messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())
    except StorageError:
        model_admin.message_user(request, STORAGE_AWAY, messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())
    finally:
        handler.abandon()


@csrf_protect
def _upload(request: HttpRequest, model_admin: Any, choose: ChooseForm, handler: StoringHandler) -> HttpResponseBase:
    """The token is checked once the form is read, and so the file stored; it goes again where it does not fit."""
    job: JobDefinition = choose.cleaned_data["definition"]
    context: dict[str, Any] = {"title": f"Upload a file for {job.name}", "job": job}
    form = FileForm(request.POST or None, request.FILES or None) if request.method == "POST" else FileForm()
    context["form"] = form
    if request.method != "POST" or not form.is_valid():
        return _page(model_admin, request, context)
    asked, stored = form.cleaned_data, handler.stored
    if stored is None:
        form.add_error("file", "No file came.")
        return _page(model_admin, request, context)
    try:
        rows = services.SHOWN_ROWS if asked["dry_run"] else 0
        with open_reader(stored.object_name) as stream:
            look = services.look_at(stream, job=job, delimiter=asked["delimiter"], rows=rows)
        if asked["dry_run"]:
            context["columns"] = look.columns
            context["rows"] = [(row, _as_sent(row)) for row in look.rows]
            return _page(model_admin, request, context)
        made = _create(choose.cleaned_data["workspace"], job, stored, asked)
    except (Refused, Problem) as refused:
        form.add_error("file", str(refused))
        return _page(model_admin, request, context)
    except StorageError:
        form.add_error("file", STORAGE_AWAY)
        return _page(model_admin, request, context)
    handler.stored = None
    model_admin.message_user(request, f"{made.file_name} is read now.", messages.SUCCESS)
    return HttpResponseRedirect(reverse("admin:bulk_bulkjob_change", args=[made.id]))


def _create(workspace: Workspace, job: JobDefinition, stored: StoredFile, asked: dict[str, Any]) -> BulkJob:
    return services.create_bulk_job(
        workspace=workspace,
        job_id=stored.job_id,
        job=job,
        file_name=stored.file_name,
        size_bytes=stored.size,
        delimiter=asked["delimiter"],
        max_invalid_share=asked["max_invalid_share"],
        start=not asked["hold"],
        traceparent=tracing.traceparent(),
    )


def _workspaces(model_admin: Any, request: HttpRequest) -> Any:
    field: Any = BulkJob._meta.get_field("workspace")
    return model_admin._choices(field, request)


def _as_sent(row: services.RenderedRow) -> dict[str, Any] | None:
    if row.target is None:
        return None
    payload = json.dumps(row.payload, ensure_ascii=False)[:SHOWN_CHARACTERS]
    return {
        "target": described(row.target),
        "headers": shown(row.target).get("headers") or {},
        "payload": payload,
    }


def _page(model_admin: Any, request: HttpRequest, more: dict[str, Any]) -> TemplateResponse:
    context = {**model_admin.admin_site.each_context(request), "opts": model_admin.opts, **more}
    context["has_view_permission"] = True
    return TemplateResponse(request, "bulk/admin/upload.html", context)
