"""Each kind of channel, against a real receiver or mail server: what comes there, and what is told of it."""

import json
from typing import Any

import pytest
from django.db import connection
from standardwebhooks import Webhook

from chronos_site.infra import mongo
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution.dispatch.engine import Engine
from execution.models import Notification
from execution.notifications import services
from tests.clients import ProgrammableReceiver
from tests.making import make_job
from tests.notifications.mail import MailServer
from tests.notifications.pump import SIGNING, allow_secrets, end, make_channel, make_rule, reference, sent, turn
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

SECRETS = {"signing": SIGNING, "routing": "R0UTING-KEY-1234567890", "path": "T000/B000/very-secret-path"}


@pytest.fixture(autouse=True)
def secrets(workspace: Workspace, settings: Any, receiver: ProgrammableReceiver) -> None:
    urls = {
        "slack": receiver.url(f"/services/{SECRETS['path']}"),
        "apprise": f"json://127.0.0.1:{receiver.port}/hook/{SECRETS['path']}?redirect=yes&retry=5&wait=9",
        "local": "syslog://",
        "inner": "json://169.254.169.254/latest",
        "template": "discord://1234567890/abcdefghijk?%74emplate=/etc/passwd",
        "many": "ntfy://" + "/".join(f"topic{number}" for number in range(20)),
        "words": "not a url",
    }
    allow_secrets(settings, workspace, **SECRETS, **urls)
    settings.CHRONOS_PAGERDUTY_URL = receiver.url("/pagerduty")


def everything_stored() -> str:
    """All that Postgres and MongoDB hold of notifications, as text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(n)::text FROM execution_notification n")
        rows = [row[0] for row in cursor.fetchall()]
    logs = mongo.execution_logs()
    assert logs is not None
    ids = [str(found) for found in Notification.objects.values_list("id", flat=True)]
    wait_until(lambda: logs.count_documents({"execution_id": {"$in": ids}}) >= len(ids))
    return " ".join([*rows, *(str(log) for log in logs.find({"execution_id": {"$in": ids}}))])


def test_a_webhook_is_signed_and_says_what_failed(
    workspace: Workspace, sender: Engine, receiver: ProgrammableReceiver
) -> None:
    job = make_job(workspace, receiver.url(), name="nightly <report>")
    channel = make_channel(workspace, url=receiver.url("/hook"), signing={"secret": reference("signing")})
    make_rule(workspace, channel)
    [execution] = end(workspace, job, "FAILED", error="http_503")
    [told] = sent(sender)
    [request] = receiver.requests
    body = Webhook(SIGNING).verify(request.body, dict(request.headers))
    assert (told.state, told.last_status, told.attempt) == ("SUCCEEDED", 200, 1)
    assert request.headers["webhook-id"] == str(told.id)
    assert body["type"] == "notification.failure"
    assert body["data"]["title"] == "acme: an execution failed for good (nightly <report>)"
    assert body["data"]["examples"][0]["id"] == str(execution.id)
    assert body["data"]["errors"] == [{"error": "http_503", "status": 500, "reason": "attempts_exhausted", "count": 1}]


def test_slack_is_called_at_the_secret_url_which_nothing_else_learns(
    workspace: Workspace, sender: Engine, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(status=503, body=f"no {SECRETS['path']}".encode()), Answer())
    job = make_job(workspace, receiver.url(), name="<!channel> & co")
    make_rule(workspace, make_channel(workspace, "slack", url=reference("slack")))
    end(workspace, job, "FAILED")
    [told] = sent(sender)
    assert (told.state, told.attempt) == ("SUCCEEDED", 2)
    assert {request.path for request in receiver.requests} == {f"/services/{SECRETS['path']}"}
    text = json.loads(receiver.requests[0].body)["text"]
    assert "&lt;!channel&gt; &amp; co" in text
    assert SECRETS["path"] not in everything_stored()


def test_pagerduty_opens_one_incident_for_a_job_and_resolves_it_on_recovery(
    workspace: Workspace, sender: Engine, receiver: ProgrammableReceiver
) -> None:
    job, other = make_job(workspace, receiver.url(), name="one"), make_job(workspace, receiver.url(), name="two")
    channel = make_channel(workspace, "pagerduty", routing_key=reference("routing"), severity="critical")
    make_rule(workspace, channel, events=["failure", "recovery"])
    end(workspace, job, "FAILED", "FAILED")
    end(workspace, other, "FAILED")
    sent(sender)
    end(workspace, job, "SUCCEEDED")
    sent(sender)
    events = [json.loads(request.body) for request in receiver.requests]
    assert {request.path for request in receiver.requests} == {"/pagerduty/v2/enqueue"}
    assert {event["routing_key"] for event in events} == {SECRETS["routing"]}
    by_job: dict[str, list[str]] = {}
    for event in events:
        by_job.setdefault(event["payload"]["component"], []).append(event["event_action"])
    assert by_job == {"one": ["trigger", "resolve"], "two": ["trigger"]}
    assert len({event["dedup_key"] for event in events}) == 2
    assert {event["payload"]["severity"] for event in events} == {"critical"}
    assert SECRETS["routing"] not in everything_stored()


def test_an_incident_is_resolved_after_it_was_opened_and_not_before(
    workspace: Workspace, sender: Engine, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(status=503), Answer())
    job = make_job(workspace, receiver.url())
    channel = make_channel(workspace, "pagerduty", routing_key=reference("routing"))
    make_rule(workspace, channel, events=["failure", "recovery"])
    end(workspace, job, "FAILED")
    wait_until(lambda: turn(sender) and receiver.requests)
    end(workspace, job, "SUCCEEDED")
    sent(sender)
    actions = [json.loads(request.body)["event_action"] for request in receiver.requests]
    assert actions == ["trigger", "trigger", "resolve"]


def test_an_email_comes_over_the_sites_server_once_it_takes_it(
    workspace: Workspace, sender: Engine, receiver: ProgrammableReceiver, mail: MailServer
) -> None:
    mail.answers = ["451 come back later", "250 OK"]
    job = make_job(workspace, receiver.url(), name="name\nBcc: evil@example.com")
    make_rule(workspace, make_channel(workspace, "email", to=["a@example.com", "b@example.com"]))
    end(workspace, job, "FAILED")
    [told] = sent(sender)
    [message] = mail.messages
    assert (told.state, told.attempt) == ("SUCCEEDED", 2)
    assert mail.recipients == [["a@example.com", "b@example.com"]]
    assert message["Subject"] == "[Chronos] acme: an execution failed for good (name Bcc: evil@example.com)"
    assert message["Message-ID"] == f"<{told.id}@chronos>"
    assert "http_500" in message.get_content()


@pytest.mark.parametrize("refusal", ["recipient", "message"])
def test_what_the_mail_server_refuses_for_good_is_not_sent_again_and_says_why(
    workspace: Workspace, sender: Engine, mail: MailServer, refusal: str
) -> None:
    if refusal == "recipient":
        mail.refused = {"a@example.com": "550 no such user"}
    else:
        mail.answers = ["554 spam"]
    services.send_test(workspace=workspace, channels=[make_channel(workspace, "email", to=["a@example.com"])])
    [told] = sent(sender)
    assert (told.state, told.attempt, told.last_error) == ("FAILED", 1, "channel_refused")
    assert ("no such user" if refusal == "recipient" else "spam") in told.last_error_text


def test_a_mail_server_that_is_away_is_tried_again(workspace: Workspace, sender: Engine, settings: Any) -> None:
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    services.send_test(workspace=workspace, channels=[make_channel(workspace, "email", to=["a@example.com"])])
    [told] = sent(sender)
    assert (told.state, told.attempt, told.last_error) == ("FAILED", 3, "smtp")


def test_an_apprise_url_is_sent_to_and_kept_secret_and_no_redirect_followed(
    workspace: Workspace, sender: Engine, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(status=302, headers={"Location": "/elsewhere"}), Answer())
    channel = make_channel(workspace, "apprise", url=reference("apprise"))
    services.send_test(workspace=workspace, channels=[channel])
    [told] = sent(sender)
    assert (told.state, told.attempt) == ("SUCCEEDED", 2)
    assert {request.path for request in receiver.requests} == {f"/hook/{SECRETS['path']}"}
    assert json.loads(receiver.requests[-1].body)["title"] == "acme: this is a test"
    assert SECRETS["path"] not in everything_stored()


@pytest.mark.parametrize(
    ("kind", "secret", "error", "words"),
    [
        ("apprise", "local", "channel_refused", "not taken"),
        ("apprise", "template", "channel_refused", "template"),
        ("apprise", "words", "channel_refused", "not taken"),
        ("apprise", "many", "channel_refused", "more than 10 receivers"),
        ("apprise", "inner", "target_refused", "not a public address"),
        ("slack", "words", "target_refused", "cannot be called"),
        ("slack", "nothing", "secret_missing", "no secret://acme/notify/nothing"),
    ],
)
def test_a_channel_that_cannot_be_used_says_why_in_its_notification(
    workspace: Workspace, sender: Engine, kind: str, secret: str, error: str, words: str
) -> None:
    services.send_test(workspace=workspace, channels=[make_channel(workspace, kind, url=reference(secret))])
    [told] = sent(sender)
    assert (told.state, told.last_error) == ("FAILED", error)
    assert words in told.last_error_text


def test_the_egress_guard_stands_before_webhooks_and_pagerduty_alike(
    workspace: Workspace, sender: Engine, settings: Any
) -> None:
    settings.CHRONOS_PAGERDUTY_URL = "http://10.0.0.1"
    channels = [
        make_channel(workspace, "pagerduty", routing_key=reference("routing")),
        make_channel(workspace, url="http://10.0.0.1/x", signing={"secret": reference("signing")}),
    ]
    services.send_test(workspace=workspace, channels=channels)
    assert {told.last_error for told in sent(sender)} == {"target_refused"}
