"""Notification channels and rules, those of the site among them, and the log of what was sent."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from rest_framework.exceptions import ValidationError as ApiValidationError
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from chronos_site.tenancy.admin_base import ReadOnlyTenantAdmin, TenantAdmin, WorkspaceFilter
from execution.api.notification_serializers import QuietHoursSerializer, checked_settings
from execution.domain.told_events import FAULTS, fault_of
from execution.models import Notification, NotificationChannel, NotificationFact, NotificationRule
from execution.notifications import services, weighing
from execution.services import SecretNotAllowed


class NotificationChannelForm(forms.ModelForm):
    class Meta:
        model = NotificationChannel
        fields = ("workspace", "name", "kind", "settings")

    def clean(self) -> dict[str, Any]:
        """The same checks as over the API."""
        found: dict[str, Any] = super().clean() or {}
        if not {"kind", "settings"} <= found.keys():
            return found
        try:
            found["settings"] = checked_settings(found["kind"], found["settings"])
            services.refuse_foreign_secrets(found.get("workspace"), found["kind"], found["settings"])
        except ApiValidationError as error:
            raise ValidationError({"settings": f"{error.detail}"}) from None
        except SecretNotAllowed as error:
            raise ValidationError({"settings": str(error)}) from None
        _check_free(self, NotificationChannel, found)
        return found


class NotificationRuleForm(forms.ModelForm):
    events = forms.MultipleChoiceField(
        choices=NotificationRule.Event.choices, widget=UnfoldAdminCheckboxSelectMultipleWidget
    )

    class Meta:
        model = NotificationRule
        fields = (
            "workspace",
            "name",
            "channels",
            "events",
            "failures_in_row",
            "job_definitions",
            "tags",
            "quiet_hours",
            "group_wait_s",
            "group_window_s",
            "enabled",
        )

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        workspace = found.get("workspace")
        if "events" in found:
            fault = fault_of(found["events"], found.get("failures_in_row"), site=workspace is None)
            if fault is not None:
                raise ValidationError({fault[0]: FAULTS[fault[1]]})
        if found.get("quiet_hours"):
            hours = QuietHoursSerializer(data=found["quiet_hours"])
            if not hours.is_valid():
                raise ValidationError({"quiet_hours": f"{hours.errors}"})
        for channel in found.get("channels", ()):
            if channel.workspace_id != (workspace and workspace.id):
                raise ValidationError({"channels": f"{channel} belongs to another workspace."})
        _check_free(self, NotificationRule, found)
        return found


def _check_free(
    form: "NotificationChannelForm | NotificationRuleForm",
    model: type[NotificationChannel | NotificationRule],
    found: dict[str, Any],
) -> None:
    """The site's own have no workspace, and the database takes two of one name there."""
    same = model.objects.filter(workspace=found.get("workspace"), name=found.get("name")).exclude(pk=form.instance.pk)
    if same.exists():
        raise ValidationError({"name": "There is another one of this name."})


@admin.register(NotificationChannel)
class NotificationChannelAdmin(TenantAdmin):
    form = NotificationChannelForm
    list_display = ("name", "kind", "workspace", "updated_at")
    list_select_related = ("workspace",)
    list_filter = ("kind", WorkspaceFilter)
    search_fields = ("name", "workspace__name")
    autocomplete_fields = ("workspace",)
    readonly_fields = ("version", "created_at", "updated_at")
    actions = ("send_test",)

    def save_model(self, request: HttpRequest, obj: NotificationChannel, form: Any, change: bool) -> None:
        obj.version += change
        super().save_model(request, obj, form, change)

    def has_delete_permission(self, request: HttpRequest, obj: NotificationChannel | None = None) -> bool:
        """Not while a rule sends to it."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.rules.exists())

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Deleting many at once would not ask each for its rules."""
        found: dict[str, Any] = super().get_actions(request)
        found.pop("delete_selected", None)
        return found

    @admin.action(description="Send a test", permissions=["change"])
    def send_test(self, request: HttpRequest, queryset: QuerySet[NotificationChannel]) -> None:
        for channel in queryset.select_related("workspace"):
            services.send_test(workspace=channel.workspace, channels=[channel])
        self.message_user(request, "Sent; the log of notifications tells what became of it.", messages.SUCCESS)


@admin.register(NotificationRule)
class NotificationRuleAdmin(TenantAdmin):
    form = NotificationRuleForm
    list_display = ("name", "workspace", "events", "enabled", "hold_until")
    list_select_related = ("workspace",)
    list_filter = ("enabled", WorkspaceFilter)
    search_fields = ("name", "workspace__name")
    autocomplete_fields = ("workspace", "channels")
    readonly_fields = ("version", "hold_until", "created_at", "updated_at")

    def save_model(self, request: HttpRequest, obj: NotificationRule, form: Any, change: bool) -> None:
        obj.version += change
        super().save_model(request, obj, form, change)
        if not obj.enabled:
            weighing.forget(rule_ids=[obj.id])

    def delete_model(self, request: HttpRequest, obj: NotificationRule) -> None:
        weighing.forget(rule_ids=[obj.id])
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[NotificationRule]) -> None:
        weighing.forget(rule_ids=list(queryset.values_list("id", flat=True)))
        super().delete_queryset(request, queryset)


@admin.register(Notification)
class NotificationAdmin(ReadOnlyTenantAdmin):
    list_display = ("title", "workspace", "channel_kind", "state", "attempt", "last_error", "created_at")
    list_select_related = ("workspace",)
    list_filter = ("state", "channel_kind", WorkspaceFilter)
    search_fields = ("id__exact",)
    ordering = ("-id",)


@admin.register(NotificationFact)
class NotificationFactAdmin(ReadOnlyTenantAdmin):
    """What is to be told, or was."""

    list_display = ("id", "kind", "stage", "rule_id", "subject_id", "error", "at")
    list_filter = ("stage", "kind", WorkspaceFilter)
    search_fields = ("group_id__exact",)
    ordering = ("-id",)
