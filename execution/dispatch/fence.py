"""The second fence: a key in Redis per attempt, set right before the send and overwritten with the outcome.

Postgres is the first fence and enough by itself; this one catches a send that Postgres has forgotten (a restored
backup, a failover that lost a commit). Redis away: the send goes on and a counter says so.
"""

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import redis.asyncio
from redis.exceptions import RedisError

from execution.domain.outcome import Claim, Result
from execution.domain.states import State

log = logging.getLogger(__name__)

PREFIX = "chronos:idem:"
EXTRA_TTL_S = 3600
PATIENCE_S = 0.5
PAUSE_S = 5.0
"""After a failure Redis is left alone for so long, so that its absence does not delay sends."""


# One script for a whole batch: a command for each key costs the client more than all the rest of the fence.
# KEYS: one for each attempt. ARGV: '1' to leave keys that exist; then value and seconds to live for each key.
# Answers what each key held before.
SET_ALL = """
local only_new, answers = ARGV[1] == '1', {}
for i, key in ipairs(KEYS) do
  local value, ttl = ARGV[2 * i], ARGV[2 * i + 1]
  if only_new then
    answers[i] = redis.call('SET', key, value, 'EX', ttl, 'NX', 'GET')
  else
    redis.call('SET', key, value, 'EX', ttl)
  end
end
return answers
"""


@dataclass(slots=True)
class Fenced:
    """What the fence says of a wave."""

    free: list[Claim] = field(default_factory=list)
    known: list[Result] = field(default_factory=list)
    """The attempt was made already and this is its outcome."""
    held: list[Claim] = field(default_factory=list)
    """Another claim is at this attempt: leave it to its lease."""


class Fence:
    """For one event loop. `unfenced` counts the sends made while Redis was away."""

    def __init__(self, client: redis.asyncio.Redis, *, worker_id: UUID) -> None:
        self._set_all_script = client.register_script(SET_ALL)
        self._worker_id = worker_id
        self._away_until = 0.0
        self.unfenced = 0

    async def take(self, claims: Sequence[Claim]) -> Fenced:
        """Take the key of each attempt, in one round trip."""
        answers = await self._set_all([(c, {"claim": self._token(c)}) for c in claims], only_new=True)
        if answers is None:
            self.unfenced += len(claims)
            return Fenced(free=list(claims))
        fenced = Fenced()
        for claim, answer in zip(claims, answers, strict=True):
            holder = _holder(answer)
            if holder is not None and "outcome" in holder:
                fenced.known.append(_known(claim, holder["outcome"]))
            elif holder is None or holder["claim"] == self._token(claim):
                fenced.free.append(claim)
            else:
                fenced.held.append(claim)
        return fenced

    async def record(self, results: Sequence[Result]) -> None:
        """Overwrite the keys with the outcomes."""
        await self._set_all(
            [(r.claim, {"claim": self._token(r.claim), "outcome": _outcome(r)}) for r in results], only_new=False
        )

    def _token(self, claim: Claim) -> str:
        return f"{self._worker_id}:{claim.claim_seq}"

    async def _set_all(self, values: list[tuple[Claim, dict[str, Any]]], *, only_new: bool) -> list[Any] | None:
        """SET every key; with `only_new`, leave those that exist and answer what they hold. None: Redis is away."""
        if not values or time.monotonic() < self._away_until:
            return None
        try:
            keys, arguments = [], ["1" if only_new else "0"]
            for claim, value in values:
                keys.append(f"{PREFIX}{claim.id}:{claim.attempt}")
                arguments += [json.dumps(value), str(int(claim.timeout_s) + EXTRA_TTL_S)]
            async with asyncio.timeout(PATIENCE_S):
                return list(await self._set_all_script(keys=keys, args=arguments))
        except (RedisError, OSError, TimeoutError) as error:
            self._away_until = time.monotonic() + PAUSE_S
            log.warning("fence_away", extra={"action": "fence", "error": repr(error), "unfenced": self.unfenced})
            return None


def _holder(answer: str | None) -> dict[str, Any] | None:
    """What a key holds; something that was not written here fences nothing."""
    try:
        holder = json.loads(answer) if answer else None
    except ValueError:
        return None
    return holder if isinstance(holder, dict) and "claim" in holder else None


def _outcome(result: Result) -> dict[str, Any]:
    return {
        "state": result.state.value,
        "reason": result.reason,
        "status": result.status,
        "error": result.error,
        "error_text": result.error_text,
        "duration_ms": result.duration_ms,
        "finished_at": result.finished_at.isoformat(),
        "retry_in_s": result.retry_in_s,
        "dead_reason": result.dead_reason,
    }


def _known(claim: Claim, outcome: dict[str, Any]) -> Result:
    return Result(
        claim=claim,
        state=State(outcome["state"]),
        reason=outcome["reason"],
        status=outcome["status"],
        error=outcome["error"],
        error_text=outcome["error_text"],
        duration_ms=outcome["duration_ms"],
        finished_at=datetime.fromisoformat(outcome["finished_at"]),
        retry_in_s=outcome["retry_in_s"],
        dead_reason=outcome["dead_reason"],
    )
