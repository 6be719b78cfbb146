"""MongoDB: attempt logs. Nothing waits for it and nothing is lost upward when it is away."""

from functools import cache
from typing import Any

from django.conf import settings
from pymongo import ASCENDING, DESCENDING, MongoClient
from pymongo.collection import Collection
from pymongo.database import Database

Document = dict[str, Any]


@cache
def database() -> Database[Document] | None:
    """The database of logs, or None where MONGO_URL is not set. Connecting happens at first use."""
    if settings.MONGO_URL is None:
        return None
    client: MongoClient[Document] = MongoClient(
        settings.MONGO_URL,
        serverSelectionTimeoutMS=2000,
        connectTimeoutMS=2000,
        socketTimeoutMS=5000,
        tz_aware=True,
        appname="chronos",
    )
    return client[settings.MONGO_DATABASE]


def execution_logs() -> Collection[Document] | None:
    """One document per attempt: request (redacted), response (at most 4 KiB), timings, error."""
    found = database()
    return None if found is None else found["execution_logs"]


def ensure_indexes() -> None:
    """Make the indexes: by execution, by time for the TTL. Safe to repeat. Raises pymongo's errors."""
    logs = execution_logs()
    if logs is None:
        return
    logs.create_index([("execution_id", ASCENDING), ("attempt", DESCENDING)])
    logs.create_index("at", expireAfterSeconds=settings.CHRONOS_LOG_TTL_DAYS * 86_400)
