"""The circuit breaker of each destination (scheme://host:port): one that fails in a row is left alone for a while.

    closed ─ N failures in a row ─→ open ─ pause over ─→ half-open: one probe ─ success ─→ closed
                                     ↑                       └─ failure: a longer pause ─┘

A failure is what is worth another attempt: no whole answer, 429, 5xx and so on; but for a Kafka topic that is not there
and the like, which say nothing. Any other answer says that the destination is alive, a refusal like 404 too. The state
is in Redis, one for all workers, so half-open lets one probe through and not one for each. Workers look which
destinations are in trouble at most twice a second, and pay nothing for the others; so a success may reset a count of
failures half a second late. A probe that dies with its worker is replaced when its time is up. Without Redis every
breaker is closed.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import redis.asyncio
from django.conf import settings

from chronos_site.infra import redis as site_redis
from execution.dispatch.destination import origin_of_target
from execution.domain.kafka_errors import NO_WORD_ON_THE_CLUSTER
from execution.domain.outcome import Claim, Result
from execution.domain.states import State

TROUBLED = "chronos:breakers"
PREFIX = "chronos:breaker:"
REASON = "flow_breaker_open"
LOOK_S = 0.5
PROBE_EXTRA_S = 30
KEEP_S = 600
"""A destination that nobody calls any more is forgotten after so long."""
FAILED, ALIVE, SILENT = "f", "s", "n"

# KEYS: the set of the troubled, then a hash for each destination. ARGV for each: count, then token and longest
# microseconds of each send. Answers for each destination its pause (ms), then for each send: 0 go, -2 go as the probe,
# -1 another is the probe, > 0 milliseconds until it opens halfway.
ADMIT = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local at, answers = 1, {}
for k = 2, #KEYS do
  local key, count = KEYS[k], tonumber(ARGV[at])
  at = at + 1
  local state, ends, pause, probe_ends = unpack(redis.call('HMGET', key, 'state', 'until', 'pause', 'probe_until'))
  local answer = {tonumber(pause or '0')}
  for i = 1, count do
    local token, longest = ARGV[at], tonumber(ARGV[at + 1])
    at = at + 2
    if state ~= 'open' then
      answer[i + 1] = 0
    elseif now < tonumber(ends) then
      answer[i + 1] = math.ceil((tonumber(ends) - now) / 1000)
    elseif now < tonumber(probe_ends or '0') then
      answer[i + 1] = -1
    else
      probe_ends = now + longest
      redis.call('HSET', key, 'probe', token, 'probe_until', string.format('%.0f', probe_ends))
      answer[i + 1] = -2
    end
  end
  answers[k - 1] = answer
end
return answers
"""

# KEYS as above. ARGV: failures that open, first pause (ms), longest pause (ms), time to keep (ms); then for each
# destination: its name, a factor for the pause, count, and token and kind of each outcome in their order.
RECORD = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local most, first, longest, keep = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local at = 5
for k = 2, #KEYS do
  local key, name, factor, count = KEYS[k], ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  at = at + 3
  local function open(pause)
    local ends = string.format('%.0f', now + pause * factor * 1000)
    redis.call('HSET', key, 'state', 'open', 'pause', pause, 'until', ends)
    redis.call('HDEL', key, 'probe', 'probe_until')
  end
  for i = 1, count do
    local token, kind = ARGV[at], ARGV[at + 1]
    at = at + 2
    local state, pause, probe = unpack(redis.call('HMGET', key, 'state', 'pause', 'probe'))
    if kind == 's' then
      redis.call('DEL', key)
      redis.call('SREM', KEYS[1], name)
    elseif kind == 'f' then
      local fails = redis.call('HINCRBY', key, 'fails', 1)
      redis.call('SADD', KEYS[1], name)
      if state ~= 'open' and fails >= most then
        open(first)
      elseif state == 'open' and probe == token then
        open(math.min(tonumber(pause) * 2, longest))
      end
    elseif probe == token then
      redis.call('HDEL', key, 'probe', 'probe_until')
    end
  end
  if redis.call('EXISTS', key) == 1 then
    local ends = tonumber(redis.call('HGET', key, 'until') or '0')
    redis.call('PEXPIRE', key, math.ceil(math.max(ends - now, 0) / 1000) + keep)
  end
end
"""


class Breakers:
    """For one event loop. Every method raises redis' errors."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._admit = client.register_script(ADMIT)
        self._record = client.register_script(RECORD)
        self._troubled: set[str] = set()
        self._looked = 0.0
        self._probes: set[str] = set()
        self._spread = random.Random()  # noqa: S311 - spreads waits, guards nothing

    async def ask(self, claims: Sequence[Claim]) -> list[tuple[Claim, float, str]]:
        """Which of these sends would meet an open breaker: the seconds to wait, and the reason."""
        if time.monotonic() - self._looked > LOOK_S:
            self._troubled = {str(origin) for origin in await self._client.smembers(TROUBLED)}
            self._looked = time.monotonic()
        by_origin: dict[str, list[Claim]] = defaultdict(list)
        if self._troubled:
            for claim in claims:
                origin = origin_of_target(claim.target)
                if origin in self._troubled:
                    by_origin[origin].append(claim)
        if not by_origin:
            return []
        arguments: list[Any] = []
        for asking in by_origin.values():
            arguments.append(len(asking))
            for claim in asking:
                arguments += [_token(claim), int((claim.timeout_s + PROBE_EXTRA_S) * 1e6)]
        answers = await self._admit(keys=_keys(by_origin), args=arguments)
        told: list[tuple[Claim, float, str]] = []
        for asking, (pause_ms, *waits) in zip(by_origin.values(), answers, strict=True):
            told += self._told(asking, pause_ms / 1000, waits)
        return told

    def _told(self, asking: Sequence[Claim], pause_s: float, waits: Sequence[int]) -> list[tuple[Claim, float, str]]:
        """The first comes back when the breaker opens halfway; the others spread over as long again."""
        told: list[tuple[Claim, float, str]] = []
        for claim, wait in zip(asking, waits, strict=True):
            if wait == -2:
                self._probes.add(_token(claim))
            elif wait == -1:
                told.append((claim, self._spread.uniform(1, 1 + pause_s), REASON))
            elif wait > 0:
                told.append((claim, wait / 1000 + (self._spread.uniform(0, pause_s) if told else 0), REASON))
        return told

    async def record(self, results: Sequence[Result]) -> None:
        """Count what these sends say of their destinations."""
        await self._note([(result.claim, _kind(result)) for result in results])

    async def release(self, claims: Iterable[Claim]) -> None:
        """These were let through and then not sent: a probe among them makes room for another."""
        if self._probes:
            await self._note([(claim, SILENT) for claim in claims])

    async def _note(self, said: Sequence[tuple[Claim, str]]) -> None:
        by_origin: dict[str, list[Any]] = defaultdict(list)
        for claim, kind in said:
            token = _token(claim)
            origin = origin_of_target(claim.target)
            if kind == FAILED:
                self._troubled.add(origin)
            if origin and (origin in self._troubled or token in self._probes):
                by_origin[origin] += [token, kind]
            self._probes.discard(token)
        if not by_origin:
            return
        arguments: list[Any] = [
            settings.CHRONOS_BREAKER_FAILURES,
            int(settings.CHRONOS_BREAKER_PAUSE_S * 1000),
            int(settings.CHRONOS_BREAKER_LONGEST_PAUSE_S * 1000),
            KEEP_S * 1000,
        ]
        for origin, outcomes in by_origin.items():
            arguments += [origin, self._spread.uniform(0.8, 1.2), len(outcomes) // 2, *outcomes]
        await self._record(keys=_keys(by_origin), args=arguments)


def _keys(origins: Iterable[str]) -> list[str]:
    return [TROUBLED, *(PREFIX + origin for origin in origins)]


def _token(claim: Claim) -> str:
    return f"{claim.id}:{claim.claim_seq}"


def _kind(result: Result) -> str:
    """What a result says of the destination."""
    if result.error == "internal" or result.error in NO_WORD_ON_THE_CLUSTER:
        return SILENT
    if result.state is State.RETRYING or result.dead_reason in ("attempts_exhausted", "too_old"):
        return FAILED
    # A broker that has the message answers without a status.
    return ALIVE if result.state is State.SUCCEEDED or result.status is not None else SILENT


# --- for people and gauges -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BreakerState:
    """A destination with failures since its last sign of life."""

    origin: str
    state: str
    """closed, open or half_open."""
    failures: int
    pause_s: float
    half_open_at: datetime | None
    probing: bool


def read_breakers() -> list[BreakerState]:
    """The destinations in trouble, by name. Raises redis' errors."""
    client = site_redis.client()
    origins = sorted(str(origin) for origin in client.smembers(TROUBLED))
    with client.pipeline(transaction=False) as pipe:
        pipe.time()
        for origin in origins:
            pipe.hgetall(PREFIX + origin)
        (seconds, micros), *rows = pipe.execute()
    gone = [origin for origin, row in zip(origins, rows, strict=True) if not row]
    if gone:
        client.srem(TROUBLED, *gone)
    now_us = seconds * 1_000_000 + micros
    return [_state(origin, row, now_us) for origin, row in zip(origins, rows, strict=True) if row]


def _state(origin: str, row: dict[str, str], now_us: int) -> BreakerState:
    is_open, until_us = row.get("state") == "open", float(row.get("until", 0))
    return BreakerState(
        origin=origin,
        state="closed" if not is_open else "open" if now_us < until_us else "half_open",
        failures=int(row.get("fails", 0)),
        pause_s=float(row.get("pause", 0)) / 1000,
        half_open_at=datetime.fromtimestamp(until_us / 1e6, UTC) if is_open else None,
        probing=now_us < float(row.get("probe_until", 0)),
    )
