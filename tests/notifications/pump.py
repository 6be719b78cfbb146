"""Drives notifications within a test: rules and facts as the services make them, and the loop's ticks."""

import base64
import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from chronos_site.infra import redis
from chronos_site.infra.clock import database_now
from chronos_site.infra.sql import statement
from chronos_site.tenancy.models import Workspace
from execution.dispatch.engine import Engine
from execution.loops import notifications as loop
from execution.models import Execution, JobDefinition, Notification, NotificationChannel, NotificationRule
from execution.notifications import services
from execution.publish import NOTIFICATIONS_QUEUE
from tests.making import copy_execution, make_executions
from tests.processes import wait_until

SIGNING = "whsec_" + base64.b64encode(b"k" * 32).decode()


def allow_secrets(settings: Any, workspace: Workspace, **values: str) -> None:
    """Secrets that `reference` names; an engine reads them if it is built afterwards."""
    settings.CHRONOS_SECRETS_FROM_ENVIRONMENT = {
        **settings.CHRONOS_SECRETS_FROM_ENVIRONMENT,
        **{f"CHRONOS_SECRET_ACME_NOTIFY_{name.upper()}": value for name, value in values.items()},
    }
    Workspace.objects.filter(id=workspace.id).update(secret_namespaces=["acme"])
    workspace.secret_namespaces = ["acme"]


def reference(name: str) -> str:
    return f"secret://acme/notify/{name}"


def make_channel(workspace: Workspace | None, kind: str = "webhook", **settings: Any) -> NotificationChannel:
    name = f"{kind}-{NotificationChannel.objects.count()}"
    return services.create_channel(workspace=workspace, name=name, kind=kind, settings=settings)


def make_rule(
    workspace: Workspace | None, *channels: NotificationChannel, events: list[str] | None = None, **fields: Any
) -> NotificationRule:
    """Without waits, unless `fields` say otherwise."""
    values: dict[str, Any] = {
        "name": f"rule-{NotificationRule.objects.count()}",
        "events": events or ["failure"],
        "group_wait_s": 0,
        "group_window_s": 0,
        **fields,
    }
    return services.create_rule(workspace=workspace, channels=[channel.id for channel in channels], **values)


def end(
    workspace: Workspace,
    job: JobDefinition | None,
    *states: str,
    error: str = "http_500",
    at: datetime | None = None,
    **fields: Any,
) -> list[Execution]:
    """Executions that end so, one after the other, by the statement that the engine ends them with."""
    made = make_executions(workspace, "http://127.0.0.1:9/", len(states), job=job, **fields)
    first = at or database_now()
    Execution.objects.filter(id__in=[row.id for row in made]).update(state="RUNNING", claim_seq=1, attempt=1)
    for number, (row, state) in enumerate(zip(made, states, strict=True)):
        finish([row], state, error=error, at=first + timedelta(milliseconds=number + 1))
    return made


def end_many(workspace: Workspace, job: JobDefinition, count: int) -> None:
    """So many failures, in batches as the engine writes them."""
    [template] = make_executions(workspace, "http://127.0.0.1:9/", job=job)
    copy_execution(template, count, state="'RUNNING'", claim_seq="1", attempt="1")
    rows = list(Execution.objects.filter(state="RUNNING"))
    for start in range(0, len(rows), 500):
        finish(rows[start : start + 500], "FAILED", error="http_503", at=database_now())


def finish(rows: list[Execution], state: str, *, error: str, at: datetime) -> None:
    """The statement of a batch of results, on Django's connection."""
    failed = state == "FAILED"
    params: dict[str, Any] = {
        "ids": [row.id for row in rows],
        "claim_seqs": [1] * len(rows),
        "states": [state] * len(rows),
        "reasons": [error if failed else ""] * len(rows),
        "statuses": [500 if failed else 200] * len(rows),
        "errors": [error if failed else ""] * len(rows),
        "error_texts": [""] * len(rows),
        "durations": [1.0] * len(rows),
        "finished": [at] * len(rows),
        "retry_ins": [None] * len(rows),
        "dead_reasons": ["attempts_exhausted" if failed else ""] * len(rows),
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement("execution", "write_results"), params)
        assert len(cursor.fetchall()) == len(rows)


def messages() -> list[list[str]]:
    """Take what waits on the queue: the ids of each message."""
    taken = []
    while (message := redis.client().rpop(NOTIFICATIONS_QUEUE)) is not None:
        [ids] = json.loads(base64.b64decode(json.loads(str(message))["body"]))[0]
        taken.append(ids)
    return taken


def turn(engine: Engine | None = None) -> bool:
    """One tick, and the sends that it has published. Always true, for conditions."""
    loop.tick()
    if engine is not None:
        for ids in messages():
            engine.submit([UUID(i) for i in ids])
    return True


def sent(engine: Engine) -> list[Notification]:
    """Turn until every notification has ended. Oldest first."""
    wait_until(lambda: turn(engine) and not unfinished(), told=lambda: str(list(Notification.objects.values())))
    return list(Notification.objects.order_by("id"))


def unfinished() -> bool:
    return Notification.objects.filter(finished_at__isnull=True).exists()
