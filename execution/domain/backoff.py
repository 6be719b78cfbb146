"""How long to wait before the next attempt, and whether there is one.

Called when a policy is stored (`RetryPolicy.from_dict`) and when a failed attempt is written (`next_wait`). Pure: no
clock, no state; randomness comes from the generator that is handed in. Seconds throughout.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, cast

RETRY_AFTER_CAP_S = 3600.0
ROUNDING_S = 1e-6
"""Sums of binary fractions overshoot: 0.1 + 0.2 must still fit into 0.3."""

_RANDOM = random.Random()  # noqa: S311 - spreads retries, guards nothing


class InvalidPolicy(ValueError):  # noqa: N818 - named for what it says of the policy
    """A retry policy that cannot be followed. `field` names the part, empty where it is the whole."""

    code = "invalid_policy"

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a delivery is tried again. Every instance is valid: the constructor checks all parts."""

    max_attempts: int = 5
    """Attempts in all, the first one included."""
    initial_backoff_s: float = 10.0
    multiplier: float = 2.0
    max_backoff_s: float = 300.0
    """Caps every wait of the policy, the first one too; a receiver's Retry-After is not capped by it."""
    jitter: Literal["none", "full"] = "full"
    """`full` draws each wait uniformly from 0 to the policy's wait."""
    max_elapsed_s: float | None = None
    """No attempt begins later than this after the first one began; None sets no limit."""
    retryable_statuses: tuple[int, ...] = ()
    """Codes, 300 to 599, that are retried beside the usual ones."""

    def __post_init__(self) -> None:
        _check_attempts(self.max_attempts)
        for name in ("initial_backoff_s", "multiplier", "max_backoff_s"):
            _check_positive(name, getattr(self, name))
        if self.max_elapsed_s is not None:
            _check_positive("max_elapsed_s", self.max_elapsed_s)
        if not isinstance(self.jitter, str) or self.jitter not in ("none", "full"):
            raise InvalidPolicy("jitter", "jitter must be 'none' or 'full'.")
        _check_statuses(self.retryable_statuses)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The policy that `values` describe; missing parts take their defaults. Raises InvalidPolicy."""
        if not isinstance(values, Mapping):
            raise InvalidPolicy("", "A retry policy is an object.")
        known = {part.name for part in fields(cls)}
        for name in values:
            if name not in known:
                raise InvalidPolicy(str(name), "A retry policy has no such part.")
        parts = dict(values)
        if isinstance(parts.get("retryable_statuses"), list):
            parts["retryable_statuses"] = tuple(parts["retryable_statuses"])
        return cls(**parts)


def delay(policy: RetryPolicy | Mapping[str, Any], attempt: int, rng: random.Random | None = None) -> float:
    """Seconds to wait after failed attempt `attempt` (1, 2, …), by the policy alone, jitter included."""
    policy = _policy(policy)
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1:
        raise ValueError("Attempts are counted from 1.")
    wait_s = _grown(policy, attempt - 1)
    return (rng or _RANDOM).uniform(0.0, wait_s) if policy.jitter == "full" else wait_s


def next_wait(
    policy: RetryPolicy | Mapping[str, Any],
    attempt: int,
    *,
    elapsed_s: float,
    retry_after_s: float | None = None,
    rng: random.Random | None = None,
) -> float | None:
    """Seconds from failed attempt `attempt` to the next, or None where there is no next.

    `elapsed_s` counts from the begin of the first attempt; `retry_after_s` is what the receiver asked for. There is no
    next attempt when `attempt` was the last, or when the wait would pass the policy's `max_elapsed_s` (to meet it
    exactly is allowed).
    """
    policy = _policy(policy)
    wait_s = delay(policy, attempt, rng)
    if attempt >= policy.max_attempts:
        return None
    if retry_after_s is not None:
        wait_s = max(wait_s, min(retry_after_s, RETRY_AFTER_CAP_S))
    if policy.max_elapsed_s is not None and elapsed_s + wait_s > policy.max_elapsed_s + ROUNDING_S:
        return None
    return wait_s


def _policy(policy: RetryPolicy | Mapping[str, Any]) -> RetryPolicy:
    return policy if isinstance(policy, RetryPolicy) else RetryPolicy.from_dict(policy)


def _grown(policy: RetryPolicy, steps: int) -> float:
    """min(cap, initial * multiplier ** steps), also where the power is beyond every float."""
    initial, multiplier, cap = float(policy.initial_backoff_s), float(policy.multiplier), float(policy.max_backoff_s)
    power = float(min(steps, 10**300))
    try:
        return min(cap, initial * math.pow(multiplier, power))
    except OverflowError:
        exponent = math.log(initial) + power * math.log(multiplier)
        return cap if exponent >= math.log(cap) else math.exp(exponent)


def _check_attempts(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidPolicy("max_attempts", "max_attempts must be a whole number of at least 1.")


def _check_positive(name: str, value: object) -> None:
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        valid = valid and math.isfinite(cast(float, value)) and cast(float, value) > 0
    except OverflowError:
        valid = False
    if not valid:
        raise InvalidPolicy(name, f"{name} must be a finite number above 0.")


def _check_statuses(value: object) -> None:
    codes = value if isinstance(value, tuple) else (None,)
    if not all(isinstance(code, int) and not isinstance(code, bool) and 300 <= code <= 599 for code in codes):
        raise InvalidPolicy("retryable_statuses", "retryable_statuses must be a list of whole numbers, 300 to 599.")
