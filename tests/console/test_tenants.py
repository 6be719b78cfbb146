"""Two workspaces, and every page of the admin that shows tenants' rows: nothing of the other's comes through.

The pages are those that are registered, so a new one is walked as well; it fails here until `MAKERS` can make a row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Model
from django.forms import ModelChoiceField
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.urls import reverse
from django.urls.resolvers import URLPattern
from django.utils import timezone

from bulk.models import BulkJob
from chronos_site.api.models import Operation
from chronos_site.tenancy import services as tenancy
from chronos_site.tenancy.admin_base import Role, TenantAdmin, WorkspaceFilter
from chronos_site.tenancy.models import Membership, Workspace
from execution.models import DeadLetter, Notification, NotificationChannel, NotificationFact, NotificationRule
from scheduling.models import Schedule
from tests.making import make_executions, make_job

SITE_WIDE = {
    "auth.group",
    "auth.user",
    "django_celery_beat.clockedschedule",
    "django_celery_beat.crontabschedule",
    "django_celery_beat.intervalschedule",
    "django_celery_beat.periodictask",
    "django_celery_beat.solarschedule",
    "execution.bucket",
    "execution.dispatchswitch",
    "execution.worker",
}
"""Models of the site. Django's permissions guard their pages; a member of a workspace has none."""
VERBS = ("start", "pause", "cancel", "retry-failed")
"""What pages may be asked to do with a row."""


def bulk_job(workspace: Workspace) -> BulkJob:
    job = make_job(workspace, "https://example.com/{{n}}", name=f"of-{workspace.name}")
    return BulkJob.objects.create(
        workspace=workspace,
        job_definition=job,
        job_version=1,
        kind="http",
        target=job.target,
        timeout_s=1,
        retry={},
        file_name=f"of-{workspace.name}.csv",
        size_bytes=1,
        created_at=timezone.now(),
    )


def dead_letter(workspace: Workspace) -> DeadLetter:
    [execution] = make_executions(workspace, "https://example.com/")
    return DeadLetter.objects.create(id=execution.id, workspace=workspace, reason="too_old", attempts=1)


def operation(workspace: Workspace) -> Operation:
    now = timezone.now()
    return Operation.objects.create(
        workspace_id=workspace.id, kind="executions.cancel", filter={}, total=1, next_step_at=now, created_at=now
    )


def schedule(workspace: Workspace) -> Schedule:
    now = timezone.now()
    job = make_job(workspace, "https://example.com/", name=f"when-{workspace.name}")
    return Schedule.objects.create(
        workspace=workspace, job_definition=job, kind="cron", cron="0 9 * * *", created_at=now, updated_at=now
    )


def notification(workspace: Workspace) -> Notification:
    return Notification.objects.create(
        workspace=workspace,
        channel_id=workspace.id,
        channel_name="ops",
        channel_kind="webhook",
        event="failure",
        title=f"of-{workspace.name}",
        content={},
        target={},
        due_at=timezone.now(),
        created_at=timezone.now(),
    )


def notification_fact(workspace: Workspace) -> NotificationFact:
    now = timezone.now()
    ids = {"rule_id": workspace.id, "job_key": workspace.id, "subject_id": workspace.id}
    return NotificationFact.objects.create(
        workspace_id=workspace.id, kind="failure", stage="told", at=now, created_at=now, **ids
    )


def notification_rule(workspace: Workspace) -> NotificationRule:
    return NotificationRule.objects.create(workspace=workspace, name=f"of-{workspace.name}", events=["failure"])


MAKERS: dict[str, Callable[[Workspace], Model]] = {
    "execution.notification": notification,
    "execution.notificationchannel": lambda workspace: NotificationChannel.objects.create(
        workspace=workspace, name=f"of-{workspace.name}", kind="email"
    ),
    "execution.notificationfact": notification_fact,
    "execution.notificationrule": notification_rule,
    "api.operation": operation,
    "execution.deadletter": dead_letter,
    "execution.execution": lambda workspace: make_executions(workspace, "https://example.com/")[0],
    "execution.jobdefinition": lambda workspace: make_job(workspace, "https://a.test/", name=f"of-{workspace.name}"),
    "scheduling.schedule": schedule,
    "bulk.bulkjob": bulk_job,
    "tenancy.workspace": lambda workspace: workspace,
    "tenancy.membership": lambda workspace: Membership.objects.create(
        user=User.objects.create_user(f"of-{workspace.name}"), workspace=workspace
    ),
    "tenancy.apikey": lambda workspace: tenancy.create_api_key(workspace=workspace, name=f"of-{workspace.name}")[0],
}
TENANTS = sorted((m for m in admin.site._registry if m._meta.label_lower not in SITE_WIDE), key=lambda m: m._meta.label)
PAGES = pytest.mark.parametrize("model", TENANTS, ids=lambda model: model._meta.label_lower)


@dataclass
class Rows:
    """A row of each side, and the texts that give the other's away."""

    own: Any
    foreign: Any
    telltales: tuple[str, ...]


@pytest.fixture
def rows(model: type[Model], workspace: Workspace, other_workspace: Workspace) -> Rows:
    make = MAKERS.get(model._meta.label_lower)
    assert make is not None, (
        f"Say in MAKERS how a row of {model._meta.label} is made, or in SITE_WIDE that it is no tenant's."
    )
    own, foreign = make(workspace), make(other_workspace)
    return Rows(own, foreign, (other_workspace.name, *([str(foreign.pk)] if len(str(foreign.pk)) > 8 else [])))


@pytest.fixture
def as_role(workspace: Workspace) -> Callable[[Role], Client]:
    def logged_in(role: Role) -> Client:
        user = User.objects.create_user(f"a-{role.value}", is_staff=True)
        Membership.objects.create(user=user, workspace=workspace, role=role)
        client = Client()
        client.force_login(user)
        return client

    return logged_in


def path_of(model: type[Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def paths_of_row(model: type[Model], row: Any) -> Iterator[str]:
    """Every path of the page that names a row: change, history, and those of its own with each of their verbs."""
    for found in admin.site._registry[model].get_urls():
        names = list(found.pattern.converters) if isinstance(found, URLPattern) and found.name else []
        if not names:
            continue
        assert set(names[1:]) <= {"verb"}, f"{found.name}: teach this walk what {names[1:]} may be"
        for verb in VERBS if len(names) > 1 else ("",):
            given = {names[0]: row.pk, **({"verb": verb} if verb else {})}
            yield reverse(f"admin:{found.name}", kwargs=given)


def column_of(model: type[Model]) -> str | None:
    """The column that says whose a row is; None for a model of the site."""
    if model is Workspace:
        return "id"
    columns = {field.attname for field in model._meta.concrete_fields}
    return "workspace_id" if "workspace_id" in columns else None


def column_values(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = type(row).objects.filter(pk=row.pk).values().get()
    return found


def test_every_model_with_a_workspace_is_shown_on_the_base_and_the_others_are_named() -> None:
    for model, page in admin.site._registry.items():
        if column_of(model) is None:
            continue
        assert isinstance(page, TenantAdmin), f"{model._meta.label}: derive its page from TenantAdmin"
        assert model._meta.label_lower not in SITE_WIDE
    assert {m._meta.label_lower for m in admin.site._registry} >= SITE_WIDE


@PAGES
@pytest.mark.parametrize("role", list(Role))
def test_nothing_of_another_workspace_is_read_or_changed(
    model: type[Model], rows: Rows, role: Role, as_role: Callable[[Role], Client], other_workspace: Workspace
) -> None:
    client = as_role(role)
    before = column_values(rows.foreign)
    base = path_of(model)
    reads = role in page_of(model).readers
    queries = ["", f"?q={other_workspace.name}", f"?q={rows.foreign.pk}"]
    if WorkspaceFilter in page_of(model).list_filter:
        queries.append(f"?workspace={other_workspace.name}")
    for query in queries:
        answer = client.get(base + query)
        assert answer.status_code == (200 if reads else 403), query
        # What was asked for stands in the page again, in the search field and in links.
        text = answer.content.decode().replace(query.partition("=")[2] or "\0", "")
        for telltale in rows.telltales:
            assert telltale not in text or telltale in query, (query, telltale)
        assert f"/{rows.foreign.pk}/change/" not in answer.content.decode()
    assert not reads or str(rows.own.pk) in client.get(base).content.decode()
    for path in paths_of_row(model, rows.foreign):
        for answer in (client.get(path), client.post(path, {"post": "yes"})):
            assert answer.status_code in (302, 403, 404, 405), path
            if answer.status_code == 302:
                assert str(rows.foreign.pk) not in answer.headers["Location"], path
            assert other_workspace.name not in answer.content.decode().replace(path, ""), path
    for action in admin.site._registry[model].get_actions(request_of(client)):
        client.post(base, {"action": action, "_selected_action": [str(rows.foreign.pk)]})
    assert column_values(rows.foreign) == before


@PAGES
def test_choices_and_autocomplete_offer_nothing_of_another_workspace(
    model: type[Model], rows: Rows, as_role: Callable[[Role], Client], other_workspace: Workspace
) -> None:
    client = as_role(Role.ADMIN)
    page = admin.site._registry[model]
    request = request_of(client)
    for obj in (None, rows.own):
        for name, field in page.get_form(request, obj).base_fields.items():
            if not isinstance(field, ModelChoiceField) or field.queryset is None:
                continue
            column = column_of(field.queryset.model)
            if column is None:
                continue
            assert not field.queryset.filter(**{column: other_workspace.pk}).exists(), name
    for name in page.get_autocomplete_fields(request):
        asked = {"app_label": model._meta.app_label, "model_name": str(model._meta.model_name), "field_name": name}
        for term in ("", other_workspace.name):
            answer = client.get("/admin/autocomplete/", {**asked, "term": term})
            assert answer.status_code in (200, 403), name
            assert str(other_workspace.pk) not in answer.content.decode()
            assert other_workspace.name not in answer.content.decode()


@PAGES
def test_viewers_change_nothing_in_their_own_workspace(
    model: type[Model], rows: Rows, as_role: Callable[[Role], Client]
) -> None:
    client = as_role(Role.VIEWER)
    before = column_values(rows.own)
    base = path_of(model)
    for path in paths_of_row(model, rows.own):
        assert client.get(path).status_code in (200, 302, 403, 404, 405), path
        client.post(path, {"post": "yes"})
    page = admin.site._registry[model]
    assert client.get(f"{base}add/").status_code == 403
    for action in page.actions or ():
        client.post(base, {"action": str(action), "_selected_action": [str(rows.own.pk)]})
    assert column_values(rows.own) == before


@PAGES
def test_a_superuser_sees_every_workspace_and_no_list_counts_its_table(
    model: type[Model], rows: Rows, admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(20) as ran:
        text = admin_client.get(path_of(model)).content.decode()
    assert str(rows.own.pk) in text
    assert str(rows.foreign.pk) in text
    counts = [q["sql"] for q in ran.captured_queries if "COUNT(" in q["sql"] and model._meta.db_table in q["sql"]]
    assert all("LIMIT" in sql for sql in counts), counts
    assert admin_client.get(f"{path_of(model)}{rows.foreign.pk}/change/").status_code == 200


@PAGES
def test_staff_without_a_membership_see_nothing(model: type[Model], rows: Rows) -> None:
    client = Client()
    client.force_login(User.objects.create_user("nobody", is_staff=True))
    assert client.get(path_of(model)).status_code == 403
    assert client.get(f"{path_of(model)}{rows.own.pk}/change/").status_code in (302, 403)


def page_of(model: type[Model]) -> TenantAdmin:
    page = admin.site._registry[model]
    assert isinstance(page, TenantAdmin), f"{model._meta.label}: derive it from TenantAdmin, or name it in SITE_WIDE"
    return page


def request_of(client: Client) -> HttpRequest:
    """A request of the person whom the client has logged in."""
    request = RequestFactory().get("/admin/")
    request.user = User.objects.get(pk=client.session["_auth_user_id"])
    return request
