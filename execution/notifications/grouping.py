"""Grouping: what a rule wants told becomes one notification for each of its channels.

Called by the loop of notifications, in its transaction, under its lock and that of each rule. The first message goes
once nothing more has come for `group_wait_s`, or after `LONGEST_WAIT_S` of a storm; what comes within `group_window_s`
after a message is gathered into the next, and so is what comes in quiet hours. Facts and notifications change together:
dying half-way leaves the facts waiting, and the next tick tells them once.
"""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection, transaction

from chronos_site.infra import trace
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution.domain.quiet_hours import is_quiet
from execution.models import JobDefinition, Notification, NotificationChannel, NotificationRule
from execution.notifications.channels import KINDS
from execution.notifications.content import LOOPS, Content, event_of, title_of
from execution.notifications.facts import SITE_KEY

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 75
"""A storm of a minute is one message, and a longer one is told of before it ends."""
TAKEN_AT_ONCE = 50_000
MOST_JOBS = 1000
MOST_ERRORS = 10
MOST_EXAMPLES = 5
SITE = "site"

_WAITING = (
    # Two looks into the index for each rule, however much waits.
    "SELECT r.id, first.id, first.created_at, last.id, last.created_at FROM execution_notificationrule r"
    " CROSS JOIN LATERAL (SELECT id, created_at FROM execution_notificationfact"
    "  WHERE rule_id = r.id AND stage = 'waiting' ORDER BY id LIMIT 1) first"
    " CROSS JOIN LATERAL (SELECT id, created_at FROM execution_notificationfact"
    "  WHERE rule_id = r.id AND stage = 'waiting' ORDER BY id DESC LIMIT 1) last"
    " WHERE r.enabled AND (r.hold_until IS NULL OR r.hold_until <= %s)"
)
_TAKE = (
    "UPDATE execution_notificationfact SET stage = 'told', group_id = %(group)s WHERE id IN ("
    " SELECT id FROM execution_notificationfact WHERE rule_id = %(rule)s AND stage = 'waiting' AND id <= %(last)s"
    " ORDER BY id LIMIT %(most)s)"
)


def group_waiting(now: datetime) -> int:
    """Make notifications of what is to be told now. Returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, [now])
        found = cursor.fetchall()
    made = 0
    for rule_id, _, first_at, last_id, last_at in found:
        try:
            made += _tell_if_time(rule_id, last_id, now, first_at, last_at)
        except Exception as error:
            if isinstance(error, DatabaseError):
                raise
            # Of one rule: the others must not wait for it.
            log.exception("rule_failed", extra={"action": "notifications", "rule_id": str(rule_id)})
    if made:
        log.info("notifications_made", extra={"action": "notifications", "made": made})
    return made


@transaction.atomic
def _tell_if_time(rule_id: UUID, last_id: int, now: datetime, first_at: datetime, last_at: datetime) -> int:
    rule = (
        NotificationRule.objects.select_for_update(skip_locked=True, of=("self",))
        .select_related("workspace")
        .filter(id=rule_id)
        .first()
    )
    return _tell(rule, last_id, now) if rule is not None and _is_time(rule, now, first_at, last_at) else 0


def _is_time(rule: NotificationRule, now: datetime, first_at: datetime, last_at: datetime) -> bool:
    if not rule.enabled or is_quiet(rule.quiet_hours, now):
        return False
    if rule.hold_until is not None and (now < rule.hold_until or first_at < rule.hold_until):
        return now >= rule.hold_until
    calm = now - last_at >= timedelta(seconds=rule.group_wait_s)
    return calm or now - first_at >= timedelta(seconds=LONGEST_WAIT_S)


def _tell(rule: NotificationRule, last_id: int, now: datetime) -> int:
    group_id = new_id()
    with connection.cursor() as cursor:
        taken = TAKEN_AT_ONCE
        count = 0
        while taken == TAKEN_AT_ONCE:
            cursor.execute(_TAKE, {"group": group_id, "rule": rule.id, "last": last_id, "most": TAKEN_AT_ONCE})
            taken = int(cursor.rowcount)
            count += taken
    if not count:
        return 0
    content = content_of(rule, group_id)
    channels = list(rule.channels.all())
    made = make_notifications(channels, content, workspace=rule.workspace, rule=rule, group_id=group_id, now=now)
    rule.hold_until = now + timedelta(seconds=rule.group_window_s)
    rule.save(update_fields=["hold_until"])
    return len(made)


def make_notifications(
    channels: Sequence[NotificationChannel],
    content: Content,
    *,
    workspace: Workspace | None,
    now: datetime,
    rule: NotificationRule | None = None,
    group_id: UUID | None = None,
) -> list[Notification]:
    """The rows to be sent, one for each channel, and for each incident of a channel that has some."""
    return Notification.objects.bulk_create(
        Notification(
            workspace=workspace,
            rule_id=rule.id if rule else None,
            rule_name=rule.name if rule else "",
            channel_id=channel.id,
            channel_name=channel.name,
            channel_kind=channel.kind,
            group_id=group_id,
            event=content["event"],
            title=prepared.title or content["title"],
            content=content,
            target=prepared.target,
            payload=prepared.payload,
            sequence_key=prepared.sequence_key,
            due_at=now,
            traceparent=trace.parse_or_new(None),
            created_at=now,
        )
        for channel in channels
        for prepared in KINDS[channel.kind](content, channel.settings)
    )


def content_of(rule: NotificationRule, group_id: UUID) -> Content:
    """The summary of the facts of a group."""
    jobs, total = _jobs(group_id)
    counts: dict[str, int] = dict(
        _rows("SELECT kind, count(*) FROM execution_notificationfact WHERE group_id = %s GROUP BY 1", group_id)
    )
    if "failures_in_row" in counts:
        _add_numbers(rule, jobs)
    where = rule.workspace.name if rule.workspace else SITE
    [(first_at, last_at)] = _rows(
        "SELECT min(at), max(at) FROM execution_notificationfact WHERE group_id = %s", group_id
    )
    return {
        "event": event_of(counts),
        "title": title_of(counts, where=where, job=jobs[0]["name"] if total == 1 else ""),
        "workspace": None if rule.workspace is None else {"id": str(rule.workspace.id), "name": rule.workspace.name},
        "rule": {"id": str(rule.id), "name": rule.name},
        "count": sum(counts.values()),
        "counts": counts,
        "jobs": jobs,
        "jobs_total": total,
        "errors": _errors(group_id),
        "examples": _examples(group_id),
        "first_at": _time(first_at),
        "last_at": _time(last_at),
    }


def _rows(sql: str, group_id: UUID, *more: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, [group_id, *more])
        return list(cursor.fetchall())


def _jobs(group_id: UUID) -> tuple[list[dict[str, Any]], int]:
    """Jobs with the most facts first, up to `MOST_JOBS`, and how many there are."""
    rows = _rows(
        "SELECT job_key, (array_agg(job_definition_id))[1], kind, count(*), max(at),"
        " sum(count(*)) OVER (PARTITION BY job_key) FROM execution_notificationfact WHERE group_id = %s"
        " GROUP BY job_key, kind ORDER BY 6 DESC, 1, 5",
        group_id,
    )
    names = dict(JobDefinition.objects.filter(id__in={row[1] for row in rows}).values_list("id", "name"))
    jobs: dict[UUID, dict[str, Any]] = {}
    for key, job_id, kind, count, _, total in rows:
        job = jobs.setdefault(
            key,
            {"key": str(key), "id": job_id and str(job_id), "name": "", "count": int(total), "counts": {}, "last": ""},
        )
        job["name"] = LOOPS if key == SITE_KEY else names.get(job_id, job["name"])
        job["counts"][kind] = count
        job["last"] = kind  # The rows of a job come in the order of their last fact.
    return list(jobs.values())[:MOST_JOBS], len(jobs)


def _add_numbers(rule: NotificationRule, jobs: Sequence[dict[str, Any]]) -> None:
    for job in jobs:
        if "failures_in_row" in job["counts"]:
            job["in_row"] = rule.failures_in_row


def _errors(group_id: UUID) -> list[dict[str, Any]]:
    rows = _rows(
        "SELECT error, status, reason, count(*) FROM execution_notificationfact WHERE group_id = %s"
        " AND kind IN ('failure', 'failures_in_row', 'sla_violation')"
        " GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT %s",
        group_id,
        MOST_ERRORS,
    )
    return [
        {"error": error, "status": status, "reason": reason, "count": count} for error, status, reason, count in rows
    ]


def _examples(group_id: UUID) -> list[dict[str, Any]]:
    rows = _rows(
        "SELECT kind, subject_id, job_key, error, status, reason, at FROM execution_notificationfact"
        " WHERE group_id = %s ORDER BY group_id, id LIMIT %s",
        group_id,
        MOST_EXAMPLES,
    )
    return [
        {
            "kind": kind,
            "id": subject and str(subject),
            "job": str(job_key),
            "error": error,
            "status": status,
            "reason": reason,
            "at": _time(at),
        }
        for kind, subject, job_key, error, status, reason, at in rows
    ]


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
