"""The base of every admin of tenants' rows: people see and touch the workspaces that they are members of.

A superuser may do everything. Of everybody else who is staff the membership's role decides, in place of Django's own
permissions: a viewer reads, an operator acts, an admin also holds keys. Lists, searches, autocompletes, choices and
actions all begin with `get_queryset` or `formfield_for_foreignkey`. Filters, which read rows by another way, are
held to that by a system check.

Lists never count their table, and sort by nothing that no index holds.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.utils import get_fields_from_path
from django.core import checks
from django.core.exceptions import FieldDoesNotExist, PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin
from unfold.checks import UnfoldModelAdminChecks

from chronos_site.tenancy.models import Membership, Workspace
from chronos_site.tenancy.selectors import workspaces_of

Role = Membership.Role
EVERYBODY = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})

COUNTED = 2000
"""Rows that a list counts, and through which it can be paged; whoever looks for more narrows it."""
OFFERED = 200
"""Workspaces that the filter names."""
_KEPT = "_workspaces_by_roles"


class CappedPaginator(Paginator):
    """Counts as far as COUNTED. A count of all would read the index of millions of rows for each page."""

    template_name = "admin/tenancy/pages.html"

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: COUNTED + 1].count()) if isinstance(rows, QuerySet) else len(rows)

    @property
    def told(self) -> str:
        """The count in words."""
        return f"{COUNTED:,} and more" if self.count > COUNTED else f"{self.count:,}"


class WorkspaceFilter(admin.SimpleListFilter):
    """By workspace, of those that whoever looks belongs to. Django's own filters name all, or read the whole table."""

    title = "workspace"
    parameter_name = "workspace"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        self._path = model_admin.workspace_path
        found = workspaces_of(user=request.user, roles=model_admin.readers).order_by("name")
        return [(name, name) for name in found.values_list("name", flat=True)[:OFFERED]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The queryset is limited already: the name of another's workspace finds nothing."""
        if not self.value():
            return queryset
        found = Workspace.objects.filter(name=self.value()).values_list("id", flat=True)
        # A literal, so that the plan may look at how many rows that workspace has.
        return queryset.filter(**{f"{self._path}__in": list(found)})


class TenantChecks(UnfoldModelAdminChecks):
    """Refuses what would offer the rows of every workspace."""

    def check(self, admin_obj: Any, **kwargs: Any) -> list[checks.CheckMessage]:
        found: list[checks.CheckMessage] = super().check(admin_obj, **kwargs)
        for item in admin_obj.list_filter:
            if self._reads_rows(admin_obj.model, item):
                hint = "Write a SimpleListFilter, as tenancy.admin_base.WorkspaceFilter is."
                text = f"The filter {item!r} would offer every workspace's rows, or read the table for its choices."
                found.append(checks.Error(text, hint=hint, obj=admin_obj.__class__, id="chronos.E001"))
        return found

    @staticmethod
    def _reads_rows(model: type[Model], item: Any) -> bool:
        """Whether a filter takes its choices from a table: relations do, and so do fields without choices."""
        if isinstance(item, tuple | list):
            return not issubclass(item[1], admin.EmptyFieldListFilter)
        if not isinstance(item, str):
            return False
        try:
            field: Any = get_fields_from_path(model, item)[-1]
        except FieldDoesNotExist:
            return True
        closed = field.choices or field.get_internal_type() in ("BooleanField", "DateTimeField")
        return LOOKUP_SEP in item or not closed


class TenantAdmin(ModelAdmin):
    """An admin of rows that belong to a workspace, or of workspaces themselves."""

    workspace_path = "workspace_id"
    """The lookup that leads from a row to its workspace's id."""
    readers: frozenset[Role] = EVERYBODY
    writers: frozenset[Role] = OPERATORS
    checks_class = TenantChecks
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    ordering: Sequence[str] = ("-pk",)
    sortable_by: Sequence[str] = ()
    """Columns that an index holds in their order."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """What the caller may see."""
        found: QuerySet[Any] = super().get_queryset(request)
        allowed = self._workspaces(request, self.writers if request.method == "POST" else self.readers)
        return found if allowed is None else found.filter(**{f"{self.workspace_path}__in": allowed})

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """An id finds its row at once; anything else is looked for in the search fields."""
        try:
            key = self.opts.pk.to_python(str(UUID(search_term.strip())))
        except (ValueError, ValidationError):
            found: tuple[QuerySet[Any], bool] = super().get_search_results(request, queryset, search_term)
            return found
        return queryset.filter(pk=key), False

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
        allowed = self._workspaces(request, roles)
        if allowed is None:
            return True
        if obj is None:
            return bool(allowed)
        if not isinstance(obj, Model):  # The theme's actions hand over an id.
            obj = self.get_object(request, str(obj))
        return obj is not None and self._workspace_of(obj) in allowed

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

    def has_act_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """For `@admin.action(permissions=["act"])`, where nothing is edited in a form."""
        return self.may(request, obj, self.writers)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        kwargs.setdefault("queryset", self._choices(db_field, request))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        kwargs.setdefault("queryset", self._choices(db_field, request))
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def _workspaces(self, request: HttpRequest, roles: frozenset[Role]) -> Collection[UUID] | None:
        """The ids of those in which the caller has one of the roles; None for all. Read once for each request."""
        user: Any = request.user
        if user.is_active and user.is_superuser:
            return None
        kept: dict[frozenset[Role], list[UUID]] = request.__dict__.setdefault(_KEPT, {})
        if roles not in kept:
            kept[roles] = list(workspaces_of(user=user, roles=roles).values_list("id", flat=True)) if roles else []
        return kept[roles]

    def _choices(self, db_field: Any, request: HttpRequest) -> QuerySet[Any]:
        """Rows that a form may name: of workspaces in which the caller may write."""
        related: Any = db_field.related_model
        found: QuerySet[Any] = related._default_manager.all()
        allowed = self._workspaces(request, self.writers)
        if allowed is None:
            return found
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


class ReadOnly:
    """Rows that come to be and change by what happens to them, and never in a form."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnlyTenantAdmin(ReadOnly, TenantAdmin):
    """Tenants' rows to look at, and to act on by actions of the page's own."""


class ReadOnlySiteAdmin(ReadOnly, ModelAdmin):
    """Rows of the site, for those who have Django's permission to see them."""

    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    sortable_by: Sequence[str] = ()
