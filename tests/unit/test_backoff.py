"""Waits between attempts: the table of right answers, its rules, and policies that cannot be followed."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.domain.backoff import InvalidPolicy, RetryPolicy, delay, next_wait
from tests.unit.cases import rows

STEADY: dict[str, Any] = {
    "max_attempts": 5,
    "initial_backoff_s": 10,
    "multiplier": 2,
    "max_backoff_s": 300,
    "jitter": "none",
}
FINITE = st.floats(min_value=1e-6, max_value=1e9)


def waits(policy: dict[str, Any], rng: random.Random | None = None) -> list[float]:
    """All waits of a job that always fails and whose attempts take no time."""
    found: list[float] = []
    while (wait := next_wait(policy, len(found) + 1, elapsed_s=sum(found), rng=rng)) is not None:
        found.append(wait)
    return found


def check(expect: dict[str, Any], policy: dict[str, Any], attempt: int | None, rng: random.Random) -> None:
    found = waits(policy, rng) if attempt is None else [delay(policy, attempt, rng)]
    if "bounds_s" in expect:
        bounds = expect["bounds_s"] if attempt is None else [expect["bounds_s"]]
        assert len(found) == len(bounds)
        assert all(low <= wait <= high for wait, (low, high) in zip(found, bounds, strict=True))
    else:
        expected = expect["delays_s"] if attempt is None else [expect["delay_s"]]
        assert found == pytest.approx(expected, rel=0, abs=1e-9)


@pytest.mark.parametrize("row", rows("backoff"))
def test_a_policy_waits_as_the_table_says(row: dict[str, Any]) -> None:
    policy, expect = row["policy"], row["expect"]
    if "error" in expect:
        with pytest.raises(InvalidPolicy) as caught:
            RetryPolicy.from_dict(policy)
        assert caught.value.code == expect["error"]
        assert caught.value.field in policy
        with pytest.raises(InvalidPolicy):
            delay(policy, 1)
        return
    for seed in range(20):
        check(expect, policy, row.get("attempt"), random.Random(seed))


@pytest.mark.parametrize("name", ["initial_backoff_s", "multiplier", "max_backoff_s", "max_elapsed_s"])
@pytest.mark.parametrize("value", [0, -1, -0.0, math.nan, math.inf, -math.inf, True, "10", [], {}, 10**400, 1j])
def test_a_number_of_a_policy_is_finite_and_above_zero(name: str, value: object) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        RetryPolicy.from_dict({**STEADY, name: value})
    assert caught.value.field == name


@pytest.mark.parametrize("name", ["max_attempts", "initial_backoff_s", "multiplier", "max_backoff_s", "jitter"])
def test_only_the_elapsed_limit_may_be_null(name: str) -> None:
    assert RetryPolicy.from_dict({**STEADY, "max_elapsed_s": None}).max_elapsed_s is None
    with pytest.raises(InvalidPolicy):
        RetryPolicy.from_dict({**STEADY, name: None})


@pytest.mark.parametrize("value", [0, -3, 2.5, 3.0, math.nan, math.inf, True, "3", None])
def test_attempts_are_a_whole_number_from_one(value: object) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        RetryPolicy.from_dict({**STEADY, "max_attempts": value})
    assert caught.value.field == "max_attempts"


@pytest.mark.parametrize("value", ["", "None", "FULL", "equal", True, 0, ["full"]])
def test_jitter_is_none_or_full(value: object) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        RetryPolicy.from_dict({**STEADY, "jitter": value})
    assert caught.value.field == "jitter"


@pytest.mark.parametrize("value", [404, "404", [200], [600], [True], ["404"], [404.0], None, [[404]], {404: 1}])
def test_listed_statuses_are_whole_numbers_that_can_be_retried(value: object) -> None:
    assert RetryPolicy.from_dict({**STEADY, "retryable_statuses": [404, 302]}).retryable_statuses == (404, 302)
    with pytest.raises(InvalidPolicy) as caught:
        RetryPolicy.from_dict({**STEADY, "retryable_statuses": value})
    assert caught.value.field == "retryable_statuses"


def test_an_unknown_part_is_refused_and_named() -> None:
    with pytest.raises(InvalidPolicy) as caught:
        RetryPolicy.from_dict({**STEADY, "max_atempts": 3})
    assert caught.value.field == "max_atempts"


@pytest.mark.parametrize("value", [None, [], "full", 3])
def test_a_policy_is_an_object(value: Any) -> None:
    with pytest.raises(InvalidPolicy):
        RetryPolicy.from_dict(value)


def test_missing_parts_take_their_defaults_and_a_policy_made_directly_is_checked_too() -> None:
    assert RetryPolicy.from_dict({}) == RetryPolicy()
    with pytest.raises(InvalidPolicy):
        RetryPolicy(max_attempts=0)


@pytest.mark.parametrize("attempt", [0, -1, True, 1.0, math.nan])
def test_attempts_are_counted_from_one(attempt: Any) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        delay(STEADY, attempt)


@pytest.mark.parametrize(
    ("multiplier", "initial", "cap", "expected"),
    [(2, 1, 3600, 3600), (1, 7, 3600, 7), (0.5, 7, 3600, 0), (1 + 2**-52, 7, 3600, 3600), (1e308, 1e-300, 1e9, 1e9)],
)
def test_the_number_of_the_attempt_cannot_overflow(
    multiplier: float, initial: float, cap: float, expected: float
) -> None:
    policy = {**STEADY, "multiplier": multiplier, "initial_backoff_s": initial, "max_backoff_s": cap}
    assert delay(policy, 10**400) == pytest.approx(expected)


def test_a_power_beyond_every_float_may_still_give_a_wait_below_the_cap() -> None:
    policy = {**STEADY, "initial_backoff_s": 1e-300, "multiplier": 1e10, "max_backoff_s": 1e300}
    assert delay(policy, 32) == pytest.approx(1e10, rel=1e-9)


@pytest.mark.parametrize(
    ("retry_after", "expected"), [(None, 10), (0, 10), (5, 10), (120, 120), (7200, 3600), (-5, 10), (math.nan, 10)]
)
def test_the_wait_is_the_longer_of_backoff_and_capped_retry_after(retry_after: float | None, expected: float) -> None:
    assert next_wait(STEADY, 1, elapsed_s=0, retry_after_s=retry_after) == expected


def test_a_backoff_above_the_cap_of_retry_after_wins() -> None:
    policy = {**STEADY, "initial_backoff_s": 7200, "max_backoff_s": 7200}
    assert next_wait(policy, 1, elapsed_s=0, retry_after_s=86_400) == 7200


def test_after_the_last_attempt_there_is_none_whatever_the_receiver_asks() -> None:
    assert next_wait(STEADY, 4, elapsed_s=0, retry_after_s=60) == 80
    assert next_wait(STEADY, 5, elapsed_s=0, retry_after_s=60) is None
    assert next_wait(STEADY, 9, elapsed_s=0) is None


def test_the_elapsed_limit_may_be_met_and_not_passed() -> None:
    policy = {**STEADY, "max_elapsed_s": 70}
    assert next_wait(policy, 3, elapsed_s=30) == 40
    assert next_wait(policy, 3, elapsed_s=30.001) is None
    assert next_wait(policy, 1, elapsed_s=0, retry_after_s=70) == 70
    assert next_wait(policy, 1, elapsed_s=0, retry_after_s=71) is None


def test_the_elapsed_limit_is_met_in_spite_of_binary_fractions() -> None:
    policy = {**STEADY, "initial_backoff_s": 0.1, "max_elapsed_s": 0.3}
    assert waits(policy) == pytest.approx([0.1, 0.2])


def test_full_jitter_draws_from_the_whole_range_and_from_the_given_generator_only() -> None:
    policy = RetryPolicy.from_dict({**STEADY, "jitter": "full"})
    rng = random.Random(1)
    drawn = [delay(policy, 3, rng) for _ in range(4000)]
    assert min(drawn) < 1
    assert max(drawn) > 39
    assert sum(drawn) / len(drawn) == pytest.approx(20, abs=1)
    assert [delay(policy, 3, random.Random(7)) for _ in range(3)] == [delay(policy, 3, random.Random(7))] * 3
    assert 0 <= delay(policy, 3) <= 40


@given(FINITE, FINITE, FINITE, st.integers(1, 10**6), st.sampled_from(["none", "full"]), st.integers())
def test_a_wait_is_never_negative_and_never_above_the_cap(
    initial: float, multiplier: float, cap: float, attempt: int, jitter: str, seed: int
) -> None:
    policy = RetryPolicy.from_dict(
        {"initial_backoff_s": initial, "multiplier": multiplier, "max_backoff_s": cap, "jitter": jitter}
    )
    assert 0 <= delay(policy, attempt, random.Random(seed)) <= cap


@given(st.floats(0.01, 100), st.floats(1, 10), st.floats(0.01, 10_000), st.integers(1, 12), st.floats(0.01, 10_000))
def test_all_waits_together_stay_within_both_limits(
    initial: float, multiplier: float, cap: float, attempts: int, elapsed: float
) -> None:
    policy = {
        "max_attempts": attempts,
        "initial_backoff_s": initial,
        "multiplier": multiplier,
        "max_backoff_s": cap,
        "max_elapsed_s": elapsed,
        "jitter": "none",
    }
    found = waits(policy)
    assert len(found) < attempts
    assert sum(found) <= elapsed + 1e-6
    assert found == pytest.approx([min(cap, initial * multiplier**step) for step in range(len(found))])
    if len(found) < attempts - 1:
        assert sum(found) + min(cap, initial * multiplier ** len(found)) > elapsed
