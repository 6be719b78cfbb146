"""The first page tells members of their workspaces, and those who run the site of all of it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chronos_site.tenancy.models import Membership, Workspace
from tests.making import make_executions, make_job

pytestmark = pytest.mark.django_db(transaction=True)
SOURCE = "/admin/dashboard.json"
SITE_PARTS = {"leaders", "queues", "unacked", "workers", "breakers"}


@pytest.fixture
def told() -> Callable[..., dict[str, Any]]:
    """What somebody is told: a member of these workspaces, or a superuser."""

    def ask(*workspaces: Workspace, superuser: bool = False) -> dict[str, Any]:
        user = User.objects.create_user(f"p{User.objects.count()}", is_staff=True, is_superuser=superuser)
        for workspace in workspaces:
            Membership.objects.create(user=user, workspace=workspace)
        client = Client()
        client.force_login(user)
        answer = client.get(SOURCE)
        assert answer.status_code == 200
        assert "no-store" in answer["Cache-Control"]
        found: dict[str, Any] = json.loads(answer.content)
        return found

    return ask


def test_strangers_are_sent_to_the_login(client: Client) -> None:
    assert client.get(SOURCE).status_code == 302
    client.force_login(User.objects.create_user("customer"))
    assert client.get(SOURCE).status_code == 302


def test_members_are_told_of_their_workspaces_only(
    told: Callable[..., dict[str, Any]], workspace: Workspace, other_workspace: Workspace
) -> None:
    make_executions(workspace, "http://127.0.0.1:1/", 3, job=make_job(workspace, "http://127.0.0.1:1/"))
    mine, theirs, nobody = told(workspace), told(other_workspace), told()
    assert mine["ahead"]["minutes"][0]["pending"] == 3
    assert theirs["ahead"]["minutes"][0]["pending"] == 0
    assert nobody["ahead"]["minutes"][0]["pending"] == 0
    for found in (mine, theirs, nobody):
        assert not SITE_PARTS & set(found)
        assert not found["away"]


def test_those_who_run_the_site_are_told_of_all_of_it(
    told: Callable[..., dict[str, Any]], workspace: Workspace, other_workspace: Workspace
) -> None:
    make_executions(workspace, "http://127.0.0.1:1/", 3)
    make_executions(other_workspace, "http://127.0.0.1:1/", 4)
    found = told(superuser=True)
    assert set(found) >= SITE_PARTS
    assert found["ahead"]["minutes"][0]["pending"] == 7
    assert {queue["queue"] for queue in found["queues"]} >= {"job-dispatch", "bucket-triggers", "scheduler"}
    assert [leader["held"] for leader in found["leaders"]] == [False, False, False]


def test_a_redis_that_is_away_is_named_and_the_rest_is_told(
    told: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = __import__("redis").Redis(port=1, socket_connect_timeout=1)
    monkeypatch.setattr("chronos_site.infra.redis.client", lambda: gone)
    found = told(superuser=True)
    assert "redis" in found["away"]
    assert found["queues"] is None
    assert found["work"]["running"] == 0
    assert len(found["minutes"]) == 60
