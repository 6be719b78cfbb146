"""Workspaces, members and keys for operators. A key's plaintext is in the answer to the POST that makes it only."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from unfold.admin import TabularInline
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminTextInputWidget

from chronos_site.tenancy import services
from chronos_site.tenancy.admin_base import ADMINS, TenantAdmin, WorkspaceFilter
from chronos_site.tenancy.models import ApiKey, Membership, Scope, Workspace


class MembershipInline(TabularInline):
    model = Membership
    extra = 0
    autocomplete_fields = ("user",)


@admin.register(Workspace)
class WorkspaceAdmin(TenantAdmin):
    workspace_path = "id"
    writers = frozenset()
    list_display = (
        "name",
        "quota_pending_executions",
        "quota_job_definitions",
        "quota_schedules",
        "rate_limit_per_s",
        "secret_namespaces",
        "created_at",
    )
    ordering = ("name",)
    search_fields = ("name",)
    readonly_fields = ("id", "created_at")
    inlines = (MembershipInline,)

    def has_delete_permission(self, request: HttpRequest, obj: Workspace | None = None) -> bool:
        """A workspace owns executions by the million; it does not go by a click."""
        return False


class UserByNameField(forms.ModelChoiceField):
    """A person, by the name that they log in with: who may add members need not see everybody."""

    def __init__(self) -> None:
        super().__init__(
            User.objects.filter(is_active=True),
            to_field_name="username",
            widget=UnfoldAdminTextInputWidget(),
            help_text="The name that they log in with. It takes the staff status as well to see these pages.",
            error_messages={"invalid_choice": "Nobody logs in with this name."},
        )


class NewMembershipForm(forms.ModelForm):
    user = UserByNameField()

    class Meta:
        model = Membership
        fields = ("user", "workspace", "role")


@admin.register(Membership)
class MembershipAdmin(TenantAdmin):
    writers = ADMINS
    list_display = ("user", "workspace", "role")
    list_filter = ("role", WorkspaceFilter)
    list_select_related = ("user", "workspace")
    search_fields = ("user__username", "workspace__name")
    autocomplete_fields = ("workspace",)

    def get_form(self, request: HttpRequest, obj: Membership | None = None, change: bool = False, **kwargs: Any) -> Any:
        return super().get_form(request, obj, change, **({} if obj else {"form": NewMembershipForm}), **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Membership | None = None) -> tuple[str, ...]:
        return ("user", "workspace") if obj else ()


class ApiKeyForm(forms.ModelForm):
    scopes = forms.MultipleChoiceField(choices=Scope.choices, widget=UnfoldAdminCheckboxSelectMultipleWidget)

    class Meta:
        model = ApiKey
        fields = ("workspace", "name", "scopes", "expires_at")


@admin.register(ApiKey)
class ApiKeyAdmin(TenantAdmin):
    readers = writers = ADMINS
    form = ApiKeyForm
    list_display = ("name", "workspace", "prefix", "scopes", "expires_at", "revoked_at", "last_used_at")
    list_select_related = ("workspace",)
    list_filter = (("revoked_at", admin.EmptyFieldListFilter), WorkspaceFilter)
    search_fields = ("name", "prefix", "workspace__name")
    autocomplete_fields = ("workspace",)
    actions = ("revoke",)

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """One key is read only; the list stays open for its actions."""
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """Keys are revoked: the row says who held what."""
        return False

    def get_exclude(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        return ("key_hash", "previous_key_hash")

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Keys are only ever added here: the service makes the row, and the form's object becomes it."""
        made, request.new_api_key = services.create_api_key(  # type: ignore[attr-defined]
            workspace=obj.workspace,
            name=obj.name,
            scopes=obj.scopes,
            expires_at=obj.expires_at,
            created_by=request.user if request.user.is_authenticated else None,
        )
        obj.__dict__.update(made.__dict__)

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """The key, in this answer. Not through messages: they travel in a cookie."""
        plaintext = request.new_api_key  # type: ignore[attr-defined]
        context = {**self.admin_site.each_context(request), "title": "New API key", "key": obj, "plaintext": plaintext}
        response = TemplateResponse(request, "admin/tenancy/apikey/created.html", context)
        add_never_cache_headers(response)
        return response

    @admin.action(description="Revoke the selected keys", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset.select_related("workspace"):
            services.revoke_api_key(workspace=key.workspace, key_id=key.id)
        self.message_user(request, "The selected keys are revoked.")
