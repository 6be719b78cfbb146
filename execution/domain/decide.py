"""What follows from an attempt's outcome: success, another attempt at a later time, or the end. Pure."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .backoff import RetryPolicy, next_wait
from .classify import Kind, Outcome
from .states import State


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the execution goes. `retry_in_s` belongs to RETRYING, `dead_reason` to FAILED."""

    state: State
    retry_in_s: float | None = None
    dead_reason: str = ""


def decide(
    outcome: Outcome, *, policy: Mapping[str, Any], attempt: int, elapsed_s: float, rng: random.Random | None = None
) -> Decision:
    """`attempt` is the one that came to `outcome`; `elapsed_s` counts from the begin of the first."""
    if outcome.kind == Kind.SUCCESS:
        return Decision(State.SUCCEEDED)
    if outcome.kind == Kind.TERMINAL:
        return Decision(State.FAILED, dead_reason="terminal_answer")
    parsed = RetryPolicy.from_dict(policy)
    wait_s = next_wait(parsed, attempt, elapsed_s=elapsed_s, retry_after_s=outcome.retry_after_s, rng=rng)
    if wait_s is not None:
        return Decision(State.RETRYING, retry_in_s=wait_s)
    exhausted = attempt >= parsed.max_attempts
    return Decision(State.FAILED, dead_reason="attempts_exhausted" if exhausted else "too_old")
