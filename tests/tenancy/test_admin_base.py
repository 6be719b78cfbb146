"""Roles decide in the admin: who adds keys and members, and what an action may touch."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client

from chronos_site.tenancy import admin_base, services
from chronos_site.tenancy.admin import ApiKeyAdmin
from chronos_site.tenancy.admin_base import Role
from chronos_site.tenancy.models import ApiKey, Membership, Workspace

KEYS = "/admin/tenancy/apikey/"
MEMBERS = "/admin/tenancy/membership/"


@pytest.fixture
def person(db: None) -> User:
    return User.objects.create_user("ada", is_staff=True)


@pytest.fixture
def ada(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def join(person: User, workspace: Workspace, role: Role) -> None:
    Membership.objects.create(user=person, workspace=workspace, role=role)


def test_an_admin_of_a_workspace_makes_keys_there_and_nowhere_else(
    ada: Client, person: User, workspace: Workspace, other_workspace: Workspace
) -> None:
    join(person, workspace, Role.ADMIN)
    join(person, other_workspace, Role.OPERATOR)
    form = {"name": "shop", "scopes": ["jobs:read"]}
    assert "chr_" in ada.post(f"{KEYS}add/", {**form, "workspace": str(workspace.id)}).content.decode()
    refused = ada.post(f"{KEYS}add/", {**form, "workspace": str(other_workspace.id)})
    assert refused.status_code == 200
    assert "Select a valid choice" in refused.content.decode()
    assert [key.workspace for key in ApiKey.objects.all()] == [workspace]


def test_an_operator_has_nothing_to_do_with_keys(ada: Client, person: User, workspace: Workspace) -> None:
    join(person, workspace, Role.OPERATOR)
    assert ada.get(KEYS).status_code == 403
    assert ada.get(f"{KEYS}add/").status_code == 403
    assert ada.get(f"{MEMBERS}add/").status_code == 403


def test_members_are_added_by_the_name_they_log_in_with(ada: Client, person: User, workspace: Workspace) -> None:
    join(person, workspace, Role.ADMIN)
    User.objects.create_user("grace")
    form = {"workspace": str(workspace.id), "role": "viewer"}
    assert "Nobody logs in with this name." in ada.post(f"{MEMBERS}add/", {**form, "user": "gr"}).content.decode()
    assert ada.post(f"{MEMBERS}add/", {**form, "user": "grace"}).status_code == 302
    made = Membership.objects.get(user__username="grace")
    assert made.workspace == workspace
    assert ada.post(f"{MEMBERS}{made.pk}/change/", {"role": "operator"}).status_code == 302
    made.refresh_from_db()
    assert (made.role, made.user.username) == ("operator", "grace")


def test_an_action_leaves_rows_alone_that_one_may_only_read(
    ada: Client, person: User, workspace: Workspace, other_workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApiKeyAdmin, "readers", admin_base.EVERYBODY)
    join(person, workspace, Role.ADMIN)
    join(person, other_workspace, Role.VIEWER)
    made = [services.create_api_key(workspace=w, name="k")[0] for w in (workspace, other_workspace)]
    selected = {"action": "revoke", "_selected_action": [str(key.id) for key in made]}
    ada.post(KEYS, selected)
    assert [key.id for key in ApiKey.objects.filter(revoked_at__isnull=False)] == [made[0].id]


def test_a_list_counts_as_far_as_people_page_and_no_further(
    admin_client: Client, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_base, "COUNTED", 3)
    for n in range(5):
        services.create_api_key(workspace=workspace, name=f"key-{n}")
    text = admin_client.get(KEYS).content.decode()
    assert "3 and more" in text
    assert "key-4" in text


@pytest.mark.parametrize(
    "chosen", ["workspace", "workspace__name", "name", ("workspace", admin.RelatedFieldListFilter)]
)
def test_a_filter_that_would_offer_every_workspaces_rows_is_refused(chosen: Any) -> None:
    page = type("Page", (admin_base.TenantAdmin,), {"list_filter": (chosen,)})(ApiKey, admin.site)
    assert [error.id for error in page.check()] == ["chronos.E001"]
