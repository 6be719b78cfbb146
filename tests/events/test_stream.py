"""What happened is told on the stream once it is committed, and never where it is rolled back."""

import json
from typing import Any
from uuid import UUID

import pytest
import redis
from django.db import transaction

from chronos_site.observability import events
from chronos_site.tenancy.models import Workspace
from execution import services, transitions
from tests.making import make_executions

pytestmark = pytest.mark.django_db(transaction=True)


def told(server: redis.Redis, **about: Any) -> list[dict[str, Any]]:
    events.flush(5)
    found = [json.loads(fields["event"]) for _, fields in server.xrange(events.STREAM)]
    return [e for e in found if all(e.get(name) == value for name, value in about.items())]


def types(server: redis.Redis, execution_id: UUID) -> list[str]:
    return [event["type"] for event in told(server, execution=str(execution_id))]


def test_x(workspace: Workspace, redis_server: redis.Redis) -> None:
    [row] = make_executions(workspace, "http://127.0.0.1:9/")
    transitions.queue_pending(ids=[row.id])
    print(told(redis_server))
    assert types(redis_server, row.id) == ["execution.created", "execution.queued"]
