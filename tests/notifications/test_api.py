"""Channels, rules and the log of notifications over the API."""

from typing import Any

import pytest

from chronos_site.tenancy import services as tenancy
from chronos_site.tenancy.models import Workspace
from execution.dispatch.engine import Engine
from execution.models import NotificationChannel, NotificationRule
from execution.notifications import services
from tests.clients import ApiClient, ProgrammableReceiver
from tests.making import make_job
from tests.notifications.mail import MailServer
from tests.notifications.pump import SIGNING, allow_secrets, end, make_channel, make_rule, messages, reference, sent
from tests.processes import wait_until

pytestmark = pytest.mark.django_db

CHANNELS, RULES = "/v1/notification-channels", "/v1/notification-rules"
MERGE = {"content_type": "application/merge-patch+json"}
HOOK: dict[str, Any] = {"url": "https://example.com/hook", "signing": {"secret": reference("signing")}}


@pytest.fixture(autouse=True)
def secrets(settings: Any, workspace: Workspace) -> None:
    allow_secrets(settings, workspace, signing=SIGNING)


def test_a_channel_is_made_read_changed_and_deleted(api: ApiClient) -> None:
    made = api.post(CHANNELS, {"name": "hook", "kind": "webhook", "settings": HOOK})
    assert made.status_code == 201, made.json()
    path = f"{CHANNELS}/{made.json()['id']}"
    assert made["Location"] == path
    assert made.json()["settings"] == {**HOOK, "headers": {}}
    changed = api.patch(
        path, {"name": "hook-2", "settings": {"headers": {"X-Team": "a"}}}, if_match=made["ETag"], **MERGE
    )
    assert changed.status_code == 200, changed.json()
    assert (changed["ETag"], changed.json()["settings"]["headers"]) == ('"2"', {"X-Team": "a"})
    assert api.patch(path, {"name": "x"}, if_match='"1"', **MERGE).status_code == 412
    assert api.get(path).json() == changed.json()
    assert api.get(CHANNELS).json()["items"] == [changed.json()]
    assert api.post(CHANNELS, {"name": "hook-2", "kind": "webhook", "settings": HOOK}).json()["code"] == "name_taken"
    assert api.delete(path).status_code == 204
    assert api.get(path).status_code == 404


@pytest.mark.parametrize(
    ("kind", "given", "code", "pointer"),
    [
        ("pigeon", {}, "invalid_choice", "/kind"),
        ("slack", {}, "required", "/settings/url"),
        ("slack", [], "invalid", "/settings"),
        ("slack", {"url": "https://hooks.slack.com/services/T/B/x"}, "literal_secret", "/settings/url"),
        ("slack", {"url": "secret://acme"}, "invalid_reference", "/settings/url"),
        ("slack", {"url": "secret://globex/notify/url"}, "secret_not_allowed", "/settings/url"),
        ("slack", {"url": reference("x"), "channel": "#a"}, "unknown_field", "/settings/channel"),
        ("pagerduty", {"routing_key": "abc"}, "literal_secret", "/settings/routing_key"),
        ("pagerduty", {"routing_key": reference("x"), "severity": "loud"}, "invalid_choice", "/settings/severity"),
        ("webhook", {"url": "https://example.com/"}, "required", "/settings/signing"),
        ("webhook", {**HOOK, "url": "http://10.0.0.1/"}, "target_refused", "/settings/url"),
        (
            "webhook",
            {**HOOK, "headers": {"Authorization": "Bearer x"}},
            "literal_secret",
            "/settings/headers/Authorization",
        ),
        (
            "webhook",
            {**HOOK, "signing": {"secret": "secret://globex/a/b"}},
            "secret_not_allowed",
            "/settings/signing/secret",
        ),
        ("apprise", {"url": "discord://1/2"}, "literal_secret", "/settings/url"),
        ("email", {"to": ["a@example.com"]}, "no_mail_server", "/settings"),
        ("email", {"to": ["a at example.com"]}, "invalid", "/settings/to/0"),
        ("email", {"to": []}, "empty", "/settings/to"),
    ],
)
def test_a_wrong_channel_is_refused_with_its_place(
    api: ApiClient, kind: str, given: Any, code: str, pointer: str
) -> None:
    answer = api.post(CHANNELS, {"name": "x", "kind": kind, "settings": given})
    assert answer.status_code == 422, answer.json()
    assert (answer.json()["errors"][0]["code"], answer.json()["errors"][0]["pointer"]) == (code, pointer)
    assert not NotificationChannel.objects.exists()


def test_an_email_channel_is_taken_where_there_is_a_mail_server(api: ApiClient, mail: MailServer) -> None:
    answer = api.post(CHANNELS, {"name": "x", "kind": "email", "settings": {"to": ["a@example.com"]}})
    assert answer.status_code == 201, answer.json()


def test_a_rule_is_made_read_changed_and_deleted(api: ApiClient, workspace: Workspace) -> None:
    channel, job = make_channel(workspace, **HOOK), make_job(workspace, "https://example.com/")
    body = {
        "name": "billing",
        "channels": [str(channel.id)],
        "events": ["failure", "failures_in_row", "recovery"],
        "failures_in_row": 3,
        "job_definitions": [str(job.id)],
        "tags": ["billing"],
        "quiet_hours": {"from": "22:00", "until": "07:00", "timezone": "Europe/Berlin", "days": ["sat"]},
        "group_wait_s": 10.0,
        "group_window_s": 600.0,
        "enabled": True,
    }
    made = api.post(RULES, body)
    assert made.status_code == 201, made.json()
    assert {name: made.json()[name] for name in body} == body
    path = f"{RULES}/{made.json()['id']}"
    assert made["Location"] == path
    changed = api.patch(path, {"quiet_hours": None, "enabled": False, "tags": []}, **MERGE)
    assert changed.status_code == 200, changed.json()
    assert (changed.json()["quiet_hours"], changed.json()["enabled"], changed.json()["tags"]) == (None, False, [])
    assert api.get(RULES).json()["items"] == [changed.json()] == [api.get(path).json()]
    assert api.delete(f"{CHANNELS}/{channel.id}").json()["code"] == "channel_in_use"
    assert api.delete(path).status_code == 204
    assert api.delete(f"{CHANNELS}/{channel.id}").status_code == 204


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"events": []}, "empty", "/events"),
        ({"events": ["leader_missing"]}, "invalid_choice", "/events/0"),
        ({"events": ["recovery"]}, "needs_failure", "/events"),
        ({"events": ["failures_in_row"]}, "needs_number", "/failures_in_row"),
        ({"failures_in_row": 3}, "needs_event", "/failures_in_row"),
        ({"channels": []}, "empty", "/channels"),
        ({"channels": ["0190b5a2-7c1e-7f00-8000-000000000000"]}, "channel_not_found", "/channels/0"),
        (
            {"job_definitions": ["0190b5a2-7c1e-7f00-8000-000000000000"]},
            "job_definition_not_found",
            "/job_definitions/0",
        ),
        ({"quiet_hours": {"from": "25:00", "until": "07:00", "timezone": "UTC"}}, "invalid", "/quiet_hours/from"),
        (
            {"quiet_hours": {"from": "22:00", "until": "07:00", "timezone": "Mars/Base"}},
            "invalid_timezone",
            "/quiet_hours/timezone",
        ),
        ({"group_window_s": 100_000}, "max_value", "/group_window_s"),
        ({"colour": "red"}, "unknown_field", "/colour"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(
    api: ApiClient, workspace: Workspace, change: dict[str, Any], code: str, pointer: str
) -> None:
    channel = make_channel(workspace, **HOOK)
    answer = api.post(RULES, {"name": "x", "channels": [str(channel.id)], "events": ["failure"], **change})
    assert answer.status_code == 422, answer.json()
    assert (answer.json()["errors"][0]["code"], answer.json()["errors"][0]["pointer"]) == (code, pointer)
    assert not NotificationRule.objects.exists()


def test_a_test_is_sent_at_once_and_its_state_can_be_read(
    api: ApiClient, workspace: Workspace, sender: Engine, receiver: ProgrammableReceiver
) -> None:
    channel = make_channel(workspace, **{**HOOK, "url": receiver.url("/hook")})
    rule = make_rule(workspace, channel, quiet_hours={"from": "00:00", "until": "00:00", "timezone": "UTC"})
    answer = api.post(f"{CHANNELS}/{channel.id}/test")
    assert (answer.status_code, answer.json()["event"]) == (202, "test")
    assert messages() == [[answer.json()["id"]]]
    assert api.post(f"{RULES}/{rule.id}/test").json()["items"][0]["rule"] == str(rule.id)
    sender.submit([answer.json()["id"]])
    sent(sender)
    told = api.get(answer["Location"]).json()
    assert (told["state"], told["attempt"], told["last_status"]) == ("SUCCEEDED", 1, 200)
    wait_until(lambda: api.get(f"{answer['Location']}/attempts").json()["items"])
    [attempt] = api.get(f"{answer['Location']}/attempts").json()["items"]
    assert (attempt["state"], attempt["response"]["status"]) == ("SUCCEEDED", 200)


def test_the_log_is_listed_newest_first_and_filtered(
    api: ApiClient, workspace: Workspace, sender: Engine, receiver: ProgrammableReceiver
) -> None:
    channel = make_channel(workspace, **{**HOOK, "url": receiver.url("/hook")})
    rule = make_rule(workspace, channel)
    end(workspace, make_job(workspace, receiver.url()), "FAILED")
    sent(sender)
    services.send_test(workspace=workspace, channels=[channel])
    first = api.get("/v1/notifications?limit=1").json()
    assert [item["event"] for item in first["items"]] == ["test"]
    rest = api.get(f"/v1/notifications?cursor={first['next_cursor']}&limit=1").json()
    assert [item["event"] for item in rest["items"]] == ["failure"]
    for query, count in (
        ("state=SUCCEEDED", 1),
        ("event=test", 1),
        (f"rule={rule.id}", 1),
        (f"channel={channel.id}", 2),
        (f"channel={rule.id}", 0),
    ):
        assert len(api.get(f"/v1/notifications?{query}").json()["items"]) == count, query
    assert api.get("/v1/notifications?colour=red").status_code == 400


def test_another_tenant_finds_nothing_and_changes_nothing(
    api: ApiClient, workspace: Workspace, other_api: ApiClient
) -> None:
    channel = make_channel(workspace, **HOOK)
    rule = make_rule(workspace, channel)
    [told] = services.send_test(workspace=workspace, channels=[channel], rule=rule)
    for path in (CHANNELS, RULES, "/v1/notifications"):
        assert other_api.get(path).json()["items"] == []
    for path in (f"{CHANNELS}/{channel.id}", f"{RULES}/{rule.id}", f"/v1/notifications/{told.id}"):
        assert other_api.get(path).status_code == 404
    assert other_api.get(f"/v1/notifications/{told.id}/attempts").status_code == 404
    for path in (f"{CHANNELS}/{channel.id}", f"{RULES}/{rule.id}"):
        assert other_api.patch(path, {"name": "mine"}, **MERGE).status_code == 404
        assert other_api.delete(path).status_code == 404
        assert other_api.post(f"{path}/test").status_code == 404
    theirs = other_api.post(RULES, {"name": "x", "channels": [str(channel.id)], "events": ["failure"]})
    assert theirs.json()["code"] == "channel_not_found"
    channel.refresh_from_db()
    assert (channel.name, api.get(f"{RULES}/{rule.id}").json()["name"]) == ("webhook-0", rule.name)


def test_the_sites_own_channels_are_nobodys_over_the_api(api: ApiClient, settings: Any) -> None:
    settings.CHRONOS_SITE_SECRET_NAMESPACES = ["acme"]
    channel = make_channel(None, **HOOK)
    assert api.get(CHANNELS).json()["items"] == []
    assert api.get(f"{CHANNELS}/{channel.id}").status_code == 404


def test_a_workspace_holds_so_many_channels_and_rules_and_no_more(
    api: ApiClient, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MOST", 1)
    channel = make_channel(workspace, **HOOK)
    make_rule(workspace, channel)
    refused = api.post(CHANNELS, {"name": "b", "kind": "webhook", "settings": HOOK})
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    refused = api.post(RULES, {"name": "b", "channels": [str(channel.id)], "events": ["failure"]})
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", CHANNELS, "notifications:read"),
        ("POST", CHANNELS, "notifications:write"),
        ("GET", RULES, "notifications:read"),
        ("POST", RULES, "notifications:write"),
        ("GET", "/v1/notifications", "notifications:read"),
    ],
)
def test_a_key_needs_the_scope(workspace: Workspace, method: str, path: str, scope: str) -> None:
    others = [other for other in tenancy.ALL_SCOPES if other != scope]
    _, lacking = tenancy.create_api_key(workspace=workspace, name="lacking", scopes=others)
    answer = ApiClient(lacking).call(method, path, {}, {})
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
