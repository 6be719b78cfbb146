"""What waits on the queues, read from Redis."""

import base64
import json
from uuid import UUID

import redis

from chronos_site.infra import redis as site_redis


def messages(server: redis.Redis, queue: str) -> list[list[object]]:
    """The arguments of the messages that wait on a queue, oldest first."""
    found = []
    for raw in reversed(server.lrange(queue, 0, -1)):
        body = json.loads(base64.b64decode(json.loads(raw)["body"]))
        found.append(body[0])
    return found


def queued_ids(server: redis.Redis) -> list[UUID]:
    """The ids in the dispatch messages that wait."""
    return [UUID(str(i)) for args in messages(server, "job-dispatch") for i in args[0]]  # type: ignore[attr-defined]


def take_queued_ids() -> list[UUID]:
    """The same, taken off the queue as a worker would: what stays is backlog, and stops whoever publishes."""
    server = site_redis.client()
    ids = queued_ids(server)
    server.delete("job-dispatch")
    return ids
