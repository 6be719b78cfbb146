"""The base of every admin of tenants' rows: people see and touch the workspaces that they are members of.

A superuser may do everything. Of everybody else who is staff the membership's role decides, in place of Django's own
permissions: a viewer reads, an operator acts, an admin also holds keys. Lists, searches, autocompletes, choices and
actions all begin with `get_queryset` or `formfield_for_foreignkey`, so none of them shows more.
"""

from typing import Any
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.paginator import InfinitePaginator

from chronos_site.tenancy.models import Membership, Workspace
from chronos_site.tenancy.selectors import workspaces_of

Role = Membership.Role
EVERYBODY = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})


class TenantAdmin(ModelAdmin):
    """An admin of rows that belong to a workspace, or of workspaces themselves."""

    workspace_path = "workspace_id"
    """The lookup that leads from a row to its workspace's id."""
    readers: frozenset[Role] = EVERYBODY
    writers: frozenset[Role] = OPERATORS
    # Pages of a table of millions are cut off by its key: nothing counts the table.
    paginator = InfinitePaginator
    show_full_result_count = False
    list_per_page = 50

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """What the caller may see; for what changes rows, actions among it, those that the caller may change."""
        found: QuerySet[Any] = super().get_queryset(request)
        if _is_superuser(request):
            return found
        roles = self.writers if request.method == "POST" else self.readers
        return found.filter(**{f"{self.workspace_path}__in": workspaces_of(user=request.user, roles=roles)})

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """A form offers what is the caller's; what it holds in the end is asked once more."""
        if not self.may(request, obj, self.writers):
            raise PermissionDenied
        super().save_model(request, obj, form, change)

    def may(self, request: HttpRequest, obj: Any = None, roles: frozenset[Role] = OPERATORS) -> bool:
        """Whether the caller may do what these roles may: with this row, or with any where none is given."""
        user = request.user
        if not user.is_active or not user.is_staff:
            return False
        if user.is_superuser:
            return True
        allowed = workspaces_of(user=user, roles=roles)
        if obj is None:
            return allowed.exists()
        workspace_id = self._workspace_of(obj)
        return workspace_id is not None and allowed.filter(id=workspace_id).exists()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.may(request, roles=self.readers)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, obj, self.readers)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, roles=self.writers)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, obj, self.writers)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, obj, self.writers)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        kwargs.setdefault("queryset", self._choices(db_field, request))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        kwargs.setdefault("queryset", self._choices(db_field, request))
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def _choices(self, db_field: Any, request: HttpRequest) -> QuerySet[Any]:
        """Rows that a form may name: of workspaces in which the caller may write."""
        related: Any = db_field.related_model
        found: QuerySet[Any] = related._default_manager.all()
        if _is_superuser(request):
            return found
        allowed = workspaces_of(user=request.user, roles=self.writers)
        if related is Workspace:
            return found.filter(id__in=allowed)
        if any(field.name == "workspace" for field in related._meta.fields):
            return found.filter(workspace_id__in=allowed)
        return found.none()

    def _workspace_of(self, obj: Any) -> UUID | None:
        found = obj
        for name in self.workspace_path.split("__"):
            found = getattr(found, name)
        return found  # type: ignore[no-any-return]


class ReadOnlyTenantAdmin(TenantAdmin):
    """Rows that come to be and change by what happens to them, and never in a form."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _is_superuser(request: HttpRequest) -> bool:
    user = request.user
    return not isinstance(user, AnonymousUser) and user.is_active and user.is_superuser
