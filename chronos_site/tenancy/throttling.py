"""Requests per second, per key and per workspace: GCRA in one Lua script by Redis' own clock.

Both limits are tested together: a request that one of them refuses uses up neither. With Redis away every request goes
through, and the log says so: the limit protects, it must not take the API down with it.
"""

import logging
import time
from functools import cache
from typing import cast

import redis
from django.conf import settings
from django.views import View
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from chronos_site.tenancy.authentication import calling_key
from chronos_site.tenancy.models import ApiKey

log = logging.getLogger(__name__)

BURST_S = 2
TIME_LIMIT_S = 0.25
PAUSE_S = 1.0
LOG_EVERY_S = 10.0

# KEYS: one per limit. ARGV: their rates per second, then the burst in microseconds. Answers the wait in microseconds,
# 0 for "go". A key holds the time until which its limit is used up (the theoretical arrival time).
_SCRIPT = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local burst = tonumber(ARGV[#KEYS + 1])
local next, wait = {}, 0
for i, key in ipairs(KEYS) do
  local used_until = math.max(tonumber(redis.call('GET', key) or '0'), now)
  next[i] = used_until + 1000000 / tonumber(ARGV[i])
  wait = math.max(wait, next[i] - burst - now)
end
if wait > 0 then return math.ceil(wait) end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, string.format('%.0f', next[i]), 'PX', math.ceil((next[i] - now) / 1000) + 1)
end
return 0
"""


class ApiRateThrottle(BaseThrottle):
    _wait_s: float | None = None

    def allow_request(self, request: Request, view: View) -> bool:
        if request.auth is None:
            return True
        self._wait_s = _gate.wait_s(calling_key(request))
        return self._wait_s == 0

    def wait(self) -> float | None:
        return self._wait_s


class _Gate:
    """The process's way to Redis. After a failure it leaves Redis alone for a second, so a dead one costs little."""

    def __init__(self) -> None:
        self._not_before = 0.0
        self._logged_at = float("-inf")

    def wait_s(self, key: ApiKey) -> float:
        """0 where the request may go."""
        now = time.monotonic()
        if now < self._not_before:
            return 0
        try:
            return _ask(key)
        except (RedisError, OSError) as error:
            self._not_before = time.monotonic() + PAUSE_S
            if now - self._logged_at >= LOG_EVERY_S:
                self._logged_at = now
                log.warning("rate_limit_off", extra={"action": "throttle", "error": str(error)})
            return 0


_gate = _Gate()


def _ask(key: ApiKey) -> float:
    # The braces keep both keys on one node of a cluster.
    base = f"chronos:rl:{{{key.workspace_id}}}"
    rates = [settings.CHRONOS_RATE_LIMIT_PER_KEY]
    rates.append(key.workspace.rate_limit_per_s or settings.CHRONOS_RATE_LIMIT_PER_WORKSPACE)
    answer = _client().eval(_SCRIPT, 2, f"{base}:key:{key.id}", f"{base}:all", *rates, BURST_S * 1_000_000)
    return cast("int", answer) / 1_000_000


@cache
def _client() -> redis.Redis:
    """A client of its own: a request waits a quarter of a second for its limit, not five."""
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=TIME_LIMIT_S,
        socket_connect_timeout=TIME_LIMIT_S,
        socket_keepalive=True,
        # One more try: after a restart of Redis every kept connection is dead once.
        retry=Retry(NoBackoff(), 1),
    )
