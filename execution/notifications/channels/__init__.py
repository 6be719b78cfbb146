"""The channels: one file for each kind, which says what is sent where, and sends it where HTTP alone does not do.

A kind that is added needs: its file here, its line in `KINDS` and, where it has a sender of its own, in `senders`; its
settings in `execution/api/notification_channels.py`; a member of `NotificationChannel.Kind`; its part of
docs/notifications.md.
"""

from collections.abc import Mapping

from execution.dispatch.http import HttpSender
from execution.dispatch.sender import Sender
from execution.models import NotificationChannel
from execution.notifications.channels import apprise_url, email, pagerduty, slack, webhook
from execution.notifications.channels.prepared import Prepare

Kind = NotificationChannel.Kind

KINDS: Mapping[str, Prepare] = {
    Kind.SLACK: slack.prepare,
    Kind.PAGERDUTY: pagerduty.prepare,
    Kind.WEBHOOK: webhook.prepare,
    Kind.EMAIL: email.prepare,
    Kind.APPRISE: apprise_url.prepare,
}


def senders(http: HttpSender) -> Mapping[str, Sender]:
    """Those that the engine of notifications has beside its own; a webhook is a call like any other."""
    return {
        Kind.SLACK.value: slack.SlackSender(http),
        Kind.PAGERDUTY.value: pagerduty.PagerDutySender(http),
        Kind.EMAIL.value: email.EmailSender(),
        Kind.APPRISE.value: apprise_url.AppriseSender(),
    }
