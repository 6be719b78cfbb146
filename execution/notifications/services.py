"""What may be done with channels and rules. Every function is bound to a workspace (None: the site) and is one
transaction. Raises `Refused` subclasses with one clear sentence."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings as site
from django.db import IntegrityError, transaction

from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution.domain import credentials
from execution.loops.notifications import publish_due
from execution.models import JobDefinition, Notification, NotificationChannel, NotificationRule
from execution.notifications import grouping, weighing
from execution.notifications.content import Content, title_of
from execution.quotas import QuotaExceeded
from execution.services import NameTaken, Refused, SecretNotAllowed, VersionMismatch

MOST = 50
"""Channels, and rules, of one workspace."""
TEST_KEY = "test"

T = TypeVar("T")


class ChannelInUse(Refused):
    code = "channel_in_use"


class UnknownReference(Refused):
    """A rule names something that is not in its workspace; `field` and `index` say where."""

    def __init__(self, text: str, *, code: str, field: str, index: int) -> None:
        super().__init__(text)
        self.code = code
        self.field = field
        self.index = index


# --- channels --------------------------------------------------------------------------------------------------------


@transaction.atomic
def create_channel(
    *, workspace: Workspace | None, name: str, kind: str, settings: dict[str, Any]
) -> NotificationChannel:
    """Raises NameTaken, SecretNotAllowed, QuotaExceeded."""
    _check_quota(NotificationChannel, workspace, "notification channels")
    refuse_foreign_secrets(workspace, kind, settings)
    return _unless_taken(
        lambda: NotificationChannel.objects.create(workspace=workspace, name=name, kind=kind, settings=settings),
        name=name,
    )


@transaction.atomic
def update_channel(
    *, workspace: Workspace | None, channel_id: UUID, expected_version: int | None = None, **fields: Any
) -> NotificationChannel:
    """Raises NameTaken, VersionMismatch, SecretNotAllowed. What is on its way already goes to where it was to go."""
    channel = NotificationChannel.objects.select_for_update().get(workspace=workspace, id=channel_id)
    _check_version(channel, expected_version)
    for name, value in fields.items():
        setattr(channel, name, value)
    refuse_foreign_secrets(workspace, channel.kind, channel.settings)
    channel.version += 1
    _unless_taken(channel.save, name=channel.name)
    return channel


@transaction.atomic
def delete_channel(*, workspace: Workspace | None, channel_id: UUID) -> None:
    """Raises ChannelInUse. The log of what was sent stays."""
    channel = NotificationChannel.objects.select_for_update().get(workspace=workspace, id=channel_id)
    rule = channel.rules.first()
    if rule is not None:
        raise ChannelInUse(f"The rule {rule.name!r} sends to this channel. Take the channel out of its rules first.")
    channel.delete()


def refuse_foreign_secrets(workspace: Workspace | None, kind: str, settings: dict[str, Any]) -> None:
    """Raises SecretNotAllowed."""
    allowed = site.CHRONOS_SITE_SECRET_NAMESPACES if workspace is None else workspace.secret_namespaces
    part = settings if kind == NotificationChannel.Kind.WEBHOOK else {"secrets": secrets_of(settings)}
    places = credentials.foreign_references(part, allowed)
    if places:
        raise SecretNotAllowed([(("settings", *(p for p in path if p != "secrets")), why) for path, why in places])


def secrets_of(settings: dict[str, Any]) -> dict[str, str]:
    """The references in the settings of a channel that is no webhook."""
    return {name: settings[name] for name in ("url", "routing_key") if name in settings}


# --- rules -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def create_rule(*, workspace: Workspace | None, channels: Sequence[UUID], **fields: Any) -> NotificationRule:
    """Raises NameTaken, UnknownReference, QuotaExceeded."""
    _check_quota(NotificationRule, workspace, "notification rules")
    found = _channels(workspace, channels)
    _check_jobs(workspace, fields.get("job_definitions", ()))
    rule = _unless_taken(lambda: NotificationRule.objects.create(workspace=workspace, **fields), name=fields["name"])
    rule.channels.set(found)
    return rule


@transaction.atomic
def update_rule(
    *,
    workspace: Workspace | None,
    rule_id: UUID,
    channels: Sequence[UUID],
    expected_version: int | None = None,
    **fields: Any,
) -> NotificationRule:
    """Raises NameTaken, VersionMismatch, UnknownReference. A rule that is switched off forgets what it had not told."""
    rule = NotificationRule.objects.select_for_update().get(workspace=workspace, id=rule_id)
    _check_version(rule, expected_version)
    found = _channels(workspace, channels)
    _check_jobs(workspace, fields.get("job_definitions", ()))
    for name, value in fields.items():
        setattr(rule, name, value)
    rule.version += 1
    if not rule.enabled:
        rule.hold_until = None
        weighing.forget(rule_ids=[rule.id])
    _unless_taken(rule.save, name=rule.name)
    rule.channels.set(found)
    return rule


@transaction.atomic
def delete_rule(*, workspace: Workspace | None, rule_id: UUID) -> None:
    """What is on its way is sent, and the log of what was stays."""
    rule = NotificationRule.objects.select_for_update().get(workspace=workspace, id=rule_id)
    weighing.forget(rule_ids=[rule.id])
    rule.delete()


def _channels(workspace: Workspace | None, ids: Sequence[UUID]) -> list[NotificationChannel]:
    # Locked: one that is deleted meanwhile must not leave a rule without it.
    found = {
        channel.id: channel
        for channel in NotificationChannel.objects.select_for_update()
        .filter(workspace=workspace, id__in=ids)
        .order_by("id")
    }
    for index, channel_id in enumerate(ids):
        if channel_id not in found:
            raise UnknownReference(
                f"There is no notification channel {channel_id} in this workspace.",
                code="channel_not_found",
                field="channels",
                index=index,
            )
    return list(found.values())


def _check_jobs(workspace: Workspace | None, ids: Sequence[UUID]) -> None:
    known = set(
        JobDefinition.objects.filter(workspace=workspace, id__in=ids, deleted_at__isnull=True).values_list(
            "id", flat=True
        )
    )
    for index, job_id in enumerate(ids):
        if job_id not in known:
            raise UnknownReference(
                f"There is no job definition {job_id} in this workspace.",
                code="job_definition_not_found",
                field="job_definitions",
                index=index,
            )


# --- tests -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def send_test(
    *, workspace: Workspace | None, channels: Sequence[NotificationChannel], rule: NotificationRule | None = None
) -> list[Notification]:
    """A test for each channel, at once, whatever the rule's hours say. The notifications' states tell the rest."""
    now = database_now()
    content = _test_content(workspace, rule)
    made = grouping.make_notifications(channels, content, workspace=workspace, rule=rule, now=now)
    transaction.on_commit(publish_due)
    return made


def _test_content(workspace: Workspace | None, rule: NotificationRule | None) -> Content:
    counts = {"test": 1}
    where = workspace.name if workspace else grouping.SITE
    job = {"key": TEST_KEY, "id": None, "name": TEST_KEY, "count": 1, "counts": counts, "last": "test"}
    return {
        "event": "test",
        "title": title_of(counts, where=where),
        "workspace": None if workspace is None else {"id": str(workspace.id), "name": workspace.name},
        "rule": None if rule is None else {"id": str(rule.id), "name": rule.name},
        "count": 1,
        "counts": counts,
        "jobs": [job],
        "jobs_total": 1,
        "errors": [],
        "examples": [],
        "first_at": None,
        "last_at": None,
    }


# --- both ------------------------------------------------------------------------------------------------------------


def _check_quota(model: type[NotificationChannel | NotificationRule], workspace: Workspace | None, quota: str) -> None:
    if workspace is not None and model.objects.filter(workspace=workspace).count() >= MOST:
        raise QuotaExceeded(quota=quota, limit=MOST, adding=1)


def _check_version(row: NotificationChannel | NotificationRule, expected: int | None) -> None:
    if expected is not None and row.version != expected:
        raise VersionMismatch(f"It has version {row.version} by now. Read it again, then change it.")


def _unless_taken(write: Callable[[], T], *, name: str) -> T:
    try:
        with transaction.atomic():
            return write()
    except IntegrityError as error:
        raise NameTaken(f"The workspace has another one called {name!r}.") from error
