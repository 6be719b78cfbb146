"""Redis clients, one per process, with time limits on every call so that a half-open link cannot hang a caller."""

from functools import cache
from typing import Any

import redis
import redis.asyncio
from django.conf import settings
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

# One more try at once, for a connection that died while it was idle. The library's own default waits between tries,
# which would hold a caller for seconds while Redis is away.
ONE_MORE = 1

_OPTIONS: dict[str, Any] = {
    "socket_timeout": 5,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "decode_responses": True,
}


@cache
def client() -> redis.Redis:
    """The process's client for plain calls; threads share its pool."""
    return redis.Redis.from_url(settings.REDIS_URL, retry=Retry(NoBackoff(), ONE_MORE), **_OPTIONS)


def async_client() -> redis.asyncio.Redis:
    """A client for the event loop that calls this; the caller closes it."""
    return redis.asyncio.Redis.from_url(settings.REDIS_URL, retry=AsyncRetry(NoBackoff(), ONE_MORE), **_OPTIONS)


def impatient_client(*, timeout_s: float) -> redis.Redis:
    """A client of the caller's own that gives up after so long; the caller closes it."""
    options = {**_OPTIONS, "socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    return redis.Redis.from_url(settings.REDIS_URL, retry=Retry(NoBackoff(), ONE_MORE), **options)
