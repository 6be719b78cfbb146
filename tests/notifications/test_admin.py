"""Channels and rules in the admin: the same checks as over the API, and the site's own."""

import json
from typing import Any

import pytest
from django.test import Client

from chronos_site.tenancy.models import Workspace
from execution.loops import notifications as loop
from execution.models import Notification, NotificationChannel, NotificationRule
from tests.notifications.pump import SIGNING, allow_secrets, end, make_channel, make_rule, reference, turn

pytestmark = pytest.mark.django_db

PATH = "/admin/execution"
HOOK: dict[str, Any] = {"url": "https://example.com/hook", "signing": {"secret": reference("signing")}}


@pytest.fixture(autouse=True)
def secrets(settings: Any, workspace: Workspace) -> None:
    allow_secrets(settings, workspace, signing=SIGNING)
    settings.CHRONOS_SITE_SECRET_NAMESPACES = ["acme"]


def add(client: Client, model: str, **fields: Any) -> str:
    answer = client.post(f"{PATH}/{model}/add/", fields)
    return answer.content.decode() if answer.status_code == 200 else ""


def test_a_channel_and_a_rule_of_the_site_are_made_and_told_of_a_missing_leader(admin_client: Client) -> None:
    assert add(admin_client, "notificationchannel", name="ops", kind="webhook", settings=json.dumps(HOOK)) == ""
    channel = NotificationChannel.objects.get()
    rule: dict[str, Any] = {"name": "site", "channels": [channel.id], "events": ["leader_missing", "recovery"]}
    rule |= {"group_wait_s": 0, "group_window_s": 0, "enabled": "on", "quiet_hours": "null", "tags": ""}
    assert add(admin_client, "notificationrule", **rule, job_definitions="") == ""
    assert NotificationRule.objects.get().workspace is None
    loop.look(steady=False, missing="scheduler")
    assert Notification.objects.get().event == "leader_missing"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"settings": json.dumps({"url": "https://example.com/"})}, "signing"),
        ({"kind": "slack", "settings": json.dumps({"url": "https://hooks.slack.com/x"})}, "not taken in clear"),
        ({"kind": "slack", "settings": json.dumps({"url": "secret://globex/a/b"})}, "globex"),
        ({"name": "taken"}, "another one of this name"),
    ],
)
def test_a_wrong_channel_is_refused(admin_client: Client, fields: dict[str, str], words: str) -> None:
    NotificationChannel.objects.create(name="taken", kind="webhook", settings=HOOK)
    given = {"name": "x", "kind": "webhook", "settings": json.dumps(HOOK), **fields}
    assert words in add(admin_client, "notificationchannel", **given)
    assert NotificationChannel.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"events": ["leader_missing"]}, "whole site only"),
        ({"events": ["recovery"]}, "follows a failure"),
        ({"quiet_hours": json.dumps({"from": "22", "until": "07:00", "timezone": "UTC"})}, "HH:MM"),
    ],
)
def test_a_wrong_rule_is_refused(
    admin_client: Client, workspace: Workspace, fields: dict[str, Any], words: str
) -> None:
    channel = make_channel(workspace, **HOOK)
    given = {"workspace": workspace.id, "name": "x", "channels": [channel.id], "events": ["failure"]}
    given |= {"group_wait_s": 0, "group_window_s": 0, "quiet_hours": "null", **fields}
    assert words in add(admin_client, "notificationrule", **given)
    assert not NotificationRule.objects.exists()


def test_a_rule_takes_no_channel_of_another_workspace(
    admin_client: Client, workspace: Workspace, other_workspace: Workspace
) -> None:
    channel = make_channel(workspace, **HOOK)
    given = {"workspace": other_workspace.id, "name": "x", "channels": [channel.id], "events": ["failure"]}
    given |= {"group_wait_s": 0, "group_window_s": 0, "quiet_hours": "null"}
    assert "another workspace" in add(admin_client, "notificationrule", **given)


def test_the_pages_open_and_a_test_is_sent(admin_client: Client, workspace: Workspace) -> None:
    channel = make_channel(workspace, **HOOK)
    rule = make_rule(workspace, channel)
    end(workspace, None, "FAILED")
    turn()
    told = Notification.objects.get()
    for path in (
        "notificationchannel/",
        f"notificationchannel/{channel.id}/change/",
        "notificationrule/",
        f"notificationrule/{rule.id}/change/",
        "notification/",
        f"notification/{told.id}/change/",
        "notificationfact/",
    ):
        assert admin_client.get(f"{PATH}/{path}").status_code == 200, path
    action = {"action": "send_test", "_selected_action": [str(channel.id)]}
    admin_client.post(f"{PATH}/notificationchannel/", action)
    assert Notification.objects.filter(event="test").count() == 1


def test_a_rule_that_is_deleted_forgets_what_it_had_not_told(admin_client: Client, workspace: Workspace) -> None:
    channel = make_channel(workspace, **HOOK)
    rule = make_rule(workspace, channel)
    end(workspace, None, "FAILED")
    assert admin_client.get(f"{PATH}/notificationchannel/{channel.id}/delete/").status_code == 403
    admin_client.post(f"{PATH}/notificationrule/{rule.id}/delete/", {"post": "yes"})
    turn()
    assert not Notification.objects.exists()
    assert not NotificationRule.objects.exists()
