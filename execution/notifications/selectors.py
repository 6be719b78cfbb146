"""Reads. Every one is bound to a workspace."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import QuerySet

from chronos_site.tenancy.models import Workspace
from execution.models import Notification, NotificationChannel, NotificationRule


def channels(*, workspace: Workspace) -> QuerySet[NotificationChannel]:
    return NotificationChannel.objects.filter(workspace=workspace)


def channel(*, workspace: Workspace, channel_id: UUID) -> NotificationChannel:
    """Raises NotificationChannel.DoesNotExist, also for another workspace's."""
    return channels(workspace=workspace).get(id=channel_id)


def rules(*, workspace: Workspace) -> QuerySet[NotificationRule]:
    return NotificationRule.objects.filter(workspace=workspace).prefetch_related("channels")


def rule(*, workspace: Workspace, rule_id: UUID) -> NotificationRule:
    """Raises NotificationRule.DoesNotExist, also for another workspace's."""
    return rules(workspace=workspace).get(id=rule_id)


def notifications(
    *,
    workspace: Workspace,
    states: Sequence[str] = (),
    events: Sequence[str] = (),
    channel_ids: Sequence[UUID] = (),
    rule_ids: Sequence[UUID] = (),
) -> QuerySet[Notification]:
    """Repeated values are alternatives, different filters must all hold."""
    found = Notification.objects.filter(workspace=workspace)
    for name, values in (
        ("state", states),
        ("event", events),
        ("channel_id", channel_ids),
        ("rule_id", rule_ids),
    ):
        if values:
            found = found.filter(**{f"{name}__in": values})
    return found


def notification(*, workspace: Workspace, notification_id: UUID) -> Notification:
    """Raises Notification.DoesNotExist, also for another workspace's."""
    return Notification.objects.get(workspace=workspace, id=notification_id)
