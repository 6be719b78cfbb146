"""Rate limits: GCRA in one script on the time of Redis, for a whole wave in one round trip.

What is over the rate is told when its turn is, and the turn is reserved: it comes back then and passes. Else all that
waits would come back at the same moment, for one of them to pass. Turns are reserved a few minutes ahead and no
further, for a reservation stands even if its execution is cancelled; what is beyond is told to ask again later. A
reservation that is used more than a second late is worth nothing, so that a worker that fell behind lets no crowd go.
"""

import random
from collections.abc import Sequence
from typing import Any

import redis.asyncio

from execution.domain.limits import RateLimit
from execution.domain.outcome import Claim

PREFIX = "chronos:rl:"
RESERVED = "flow_rate_limit"
"""The reason of a row that has its turn at `due_at`."""
BEYOND = "flow_rate_limit_far"
"""The reason of one that has none yet and asks again at `due_at`."""
AHEAD_S = 300.0
LATE_S = 1.0

# KEYS: one for each limit, holding the theoretical arrival time of the next send (microseconds).
# ARGV: most microseconds ahead, most late; then for each key: interval, burst, count; then for each send: its time from
# now, and 1 where a turn at that time is reserved. Answers a list for each key: 0 go, > 0 the wait from the send's own
# time, -1 too far ahead.
SCRIPT = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ahead, late = tonumber(ARGV[1]), tonumber(ARGV[2])
local at, answers = 3, {}
for k, key in ipairs(KEYS) do
  local interval, burst, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  at = at + 3
  local tat = tonumber(redis.call('GET', key) or '0')
  local answer = {}
  for i = 1, count do
    local offset, reserved = tonumber(ARGV[at]), ARGV[at + 1] == '1'
    at = at + 2
    if reserved and offset >= -late then
      tat = math.max(tat, now + offset + interval * burst)
      answer[i] = 0
    else
      local want = now + math.max(offset, 0)
      local start = math.max(tat, want)
      local wait = math.ceil(start - interval * (burst - 1) - want)
      if wait > ahead then
        answer[i] = -1
      else
        tat = start + interval
        answer[i] = math.max(wait, 0)
      end
    end
  end
  if tat > now then
    redis.call('SET', key, string.format('%.0f', tat), 'PX', math.ceil((tat - now) / 1000) + 1000)
  end
  answers[k] = answer
end
return answers
"""


class RateLimiter:
    """For one event loop."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._script = client.register_script(SCRIPT)
        self._spread = random.Random()  # noqa: S311 - spreads waits, guards nothing

    async def ask(self, limited: Sequence[tuple[Claim, RateLimit]]) -> list[tuple[Claim, float, str]]:
        """Which of these sends are over their rate: the seconds from their due time (or now), and the reason.

        Raises redis' errors.
        """
        by_key: dict[str, list[Claim]] = {}
        rates: dict[str, RateLimit] = {}
        for claim, rate in sorted(limited, key=lambda item: item[0].due_at):
            # Named by the limit too: an edited limit does not wait for the turns that were given by the old one.
            key = f"{PREFIX}{claim.job_definition_id}:{rate.interval_us:.0f}:{rate.burst}"
            by_key.setdefault(key, []).append(claim)
            rates[key] = rate
        arguments: list[Any] = [int(AHEAD_S * 1e6), int(LATE_S * 1e6)]
        for key, claims in by_key.items():
            arguments += [rates[key].interval_us, rates[key].burst, len(claims)]
            for claim in claims:
                offset_s = claim.due_at.timestamp() - claim.clock.now_s()
                arguments += [round(offset_s * 1e6), int(claim.state_reason == RESERVED)]
        answers = await self._script(keys=list(by_key), args=arguments)
        told: list[tuple[Claim, float, str]] = []
        for claims, waits in zip(by_key.values(), answers, strict=True):
            told += [(claim, *self._told(wait)) for claim, wait in zip(claims, waits, strict=True) if wait]
        return told

    def _told(self, wait_us: int) -> tuple[float, str]:
        if wait_us < 0:
            return self._spread.uniform(AHEAD_S / 2, AHEAD_S), BEYOND
        return wait_us / 1e6, RESERVED
