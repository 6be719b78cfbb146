"""Operators make and revoke keys in the admin; the plaintext is in one answer and nowhere else."""

import re
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from chronos_site.tenancy import services
from chronos_site.tenancy.models import ApiKey, Workspace
from tests.clients import ApiClient

ADD = "/admin/tenancy/apikey/add/"


@pytest.fixture
def operator(admin_client: Client) -> Client:
    return admin_client


def test_a_key_made_in_the_admin_is_shown_in_the_answer_only(
    operator: Client, workspace: Workspace, admin_user: Any
) -> None:
    form = {"workspace": str(workspace.id), "name": "shop", "scopes": ["jobs:read", "workspace:read"]}
    answer = operator.post(ADD, form)
    found = re.search(r"chr_[0-9A-Za-z]{38}", answer.content.decode())
    assert answer.status_code == 200
    assert found is not None
    assert "no-store" in answer.headers["Cache-Control"]
    assert found[0] not in str(answer.cookies)
    assert found[0] not in "".join(session.session_data for session in Session.objects.all())
    key = ApiKey.objects.get()
    assert (key.scopes, key.created_by) == (["jobs:read", "workspace:read"], admin_user)
    assert ApiClient(found[0]).get("/v1/workspace").status_code == 200
    assert found[0] not in operator.get("/admin/tenancy/apikey/").content.decode()


def test_keys_are_read_only_and_never_deleted(operator: Client, workspace: Workspace) -> None:
    key, _ = services.create_api_key(workspace=workspace, name="k")
    page = operator.get(f"/admin/tenancy/apikey/{key.id}/change/")
    assert page.status_code == 200
    assert key.key_hash not in page.content.decode()
    assert operator.post(f"/admin/tenancy/apikey/{key.id}/change/", {"name": "other"}).status_code == 403
    assert operator.post(f"/admin/tenancy/apikey/{key.id}/delete/", {"post": "yes"}).status_code == 403


def test_selected_keys_are_revoked(operator: Client, workspace: Workspace) -> None:
    key, _ = services.create_api_key(workspace=workspace, name="k")
    answer = operator.post(
        "/admin/tenancy/apikey/", {"action": "revoke", "_selected_action": [str(key.id)]}, follow=True
    )
    assert answer.status_code == 200
    key.refresh_from_db()
    assert key.revoked_at is not None


@pytest.mark.parametrize("page", ["", "add/"])
@pytest.mark.parametrize("model", ["workspace", "membership", "apikey"])
def test_the_pages_of_this_room_open(operator: Client, workspace: Workspace, model: str, page: str) -> None:
    assert operator.get(f"/admin/tenancy/{model}/{page}").status_code == 200


def test_a_workspace_is_not_deleted_by_a_click(operator: Client, workspace: Workspace) -> None:
    assert operator.get(f"/admin/tenancy/workspace/{workspace.id}/change/").status_code == 200
    assert operator.post(f"/admin/tenancy/workspace/{workspace.id}/delete/", {"post": "yes"}).status_code == 403
