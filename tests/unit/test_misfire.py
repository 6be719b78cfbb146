"""Missed times: who fires, who is skipped, and that months of every second cost no more than one fire."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.domain import cron, intervals
from scheduling.domain.misfire import Policy, Reason, judge

NOW = datetime(2024, 6, 1, 12, 0, 30, tzinfo=UTC)
MISSED = [datetime(2024, 6, 1, 12, minute, tzinfo=UTC) - timedelta(minutes=9) for minute in range(9, -1, -1)]
"""Ten minutes, the latest first: 12:00 to 11:51."""


@pytest.mark.parametrize("window_s", [None, 0, 90, 10**6])
def test_skip_fires_none_and_the_policy_is_the_reason(window_s: float | None) -> None:
    verdict = judge(MISSED, now=NOW, policy="skip", window_s=window_s, limit=5)
    assert verdict.fire == ()
    assert {verdict.reason(at) for at in MISSED} == {Reason.POLICY}


@pytest.mark.parametrize("window_s", [None, 30, 10**15])
def test_fire_once_fires_the_latest_and_that_supersedes_the_others(window_s: float | None) -> None:
    verdict = judge(MISSED, now=NOW, policy=Policy.FIRE_ONCE, window_s=window_s, limit=5)
    assert verdict.fire == (MISSED[0],)
    assert verdict.reason(MISSED[0]) is None
    reasons = {verdict.reason(at) for at in MISSED[1:]}
    assert reasons == {Reason.TOO_OLD if window_s == 30 else Reason.SUPERSEDED}


def test_fire_all_fires_the_latest_up_to_the_limit_the_oldest_first() -> None:
    verdict = judge(MISSED, now=NOW, policy="fire_all", window_s=None, limit=3)
    assert verdict.fire == (MISSED[2], MISSED[1], MISSED[0])
    assert [verdict.reason(at) for at in MISSED] == [None] * 3 + [Reason.OVER_LIMIT] * 7


def test_the_window_and_the_limit_have_each_their_reason() -> None:
    verdict = judge(MISSED, now=NOW, policy="fire_all", window_s=330, limit=3)
    assert [verdict.reason(at) for at in MISSED] == [None] * 3 + [Reason.OVER_LIMIT] * 3 + [Reason.TOO_OLD] * 4


@pytest.mark.parametrize("policy", ["fire_once", "fire_all"])
def test_a_time_exactly_as_old_as_the_window_fires_and_an_older_one_does_not(policy: str) -> None:
    assert judge(MISSED[:1], now=NOW, policy=policy, window_s=30, limit=9).fire == (MISSED[0],)
    verdict = judge(MISSED[:1], now=NOW, policy=policy, window_s=29.999, limit=9)
    assert verdict.fire == ()
    assert verdict.reason(MISSED[0]) is Reason.TOO_OLD


@pytest.mark.parametrize("policy", list(Policy))
def test_where_nothing_was_missed_nothing_fires(policy: Policy) -> None:
    assert judge([], now=NOW, policy=policy, window_s=60, limit=1).fire == ()


@pytest.mark.parametrize(("policy", "most"), [("skip", 0), ("fire_once", 1), ("fire_all", 4)])
def test_no_more_times_are_taken_than_can_fire(policy: str, most: int) -> None:
    taken: list[datetime] = []

    def endless() -> Iterator[datetime]:
        while True:
            taken.append(NOW - timedelta(seconds=len(taken)))
            yield taken[-1]

    assert len(judge(endless(), now=NOW, policy=policy, window_s=None, limit=4).fire) == most
    assert len(taken) == most


def test_months_of_every_second_cost_no_more_than_what_fires() -> None:
    down = NOW - timedelta(days=200)
    begun = time.process_time()
    for policy in Policy:
        missed = cron.fires_back("* * * * * *", "Europe/Berlin", NOW)
        verdict = judge(missed, now=NOW, policy=policy, window_s=3600, limit=10)
        assert len(verdict.fire) == {"skip": 0, "fire_once": 1, "fire_all": 10}[policy]
        assert verdict.reason(down) in (Reason.POLICY, Reason.TOO_OLD)
    assert cron.count_between("* * * * * *", "Europe/Berlin", down, NOW) == 200 * 86_400
    assert judge(intervals.fires_back(1, down, NOW), now=NOW, policy="fire_once", window_s=None, limit=1).fire == (NOW,)
    assert time.process_time() - begun < 1


def test_both_passes_of_a_repeated_hour_are_two_times() -> None:
    zone = ZoneInfo("America/New_York")
    now = datetime(2024, 11, 3, 3, 0, tzinfo=zone)
    second, first = (datetime(2024, 11, 3, 1, 30, tzinfo=zone, fold=fold) for fold in (1, 0))
    verdict = judge([second, first], now=now, policy="fire_all", window_s=None, limit=9)
    assert [at.hour for at in verdict.fire] == [5, 6]
    once = judge([second, first], now=now, policy="fire_once", window_s=None, limit=9)
    assert once.reason(second) is None
    assert once.reason(first) is Reason.SUPERSEDED


@pytest.mark.parametrize(
    "missed", [[NOW + timedelta(seconds=1)], [NOW, NOW], [NOW - timedelta(seconds=2), NOW - timedelta(seconds=1)]]
)
def test_times_that_are_not_missed_or_out_of_order_are_a_mistake_of_the_caller(missed: list[datetime]) -> None:
    with pytest.raises(ValueError, match="latest first"):
        judge(missed, now=NOW, policy="fire_all", window_s=None, limit=9)


@pytest.mark.parametrize(
    ("policy", "window_s", "limit"),
    [("fire_some", None, 1), ("fire_all", -1, 1), ("fire_all", float("nan"), 1), ("fire_all", None, 0)],
)
def test_a_policy_that_cannot_be_followed_is_a_mistake_of_the_caller(
    policy: str, window_s: float | None, limit: int
) -> None:
    with pytest.raises(ValueError, match=r"fire_some|limit"):
        judge(MISSED, now=NOW, policy=policy, window_s=window_s, limit=limit)


@given(
    st.sets(st.integers(0, 10**6), max_size=60),
    st.sampled_from(Policy),
    st.none() | st.integers(0, 10**6),
    st.integers(1, 20),
)
def test_every_missed_time_either_fires_or_has_a_reason(
    ages: set[int], policy: Policy, window_s: int | None, limit: int
) -> None:
    missed = [NOW - timedelta(seconds=age) for age in sorted(ages)]
    verdict = judge(iter(missed), now=NOW, policy=policy, window_s=window_s, limit=limit)
    assert list(verdict.fire) == sorted(verdict.fire)
    assert {at for at in missed if verdict.reason(at) is None} == set(verdict.fire)
    assert len(verdict.fire) <= limit
    young = [at for at in missed if window_s is None or (NOW - at).total_seconds() <= window_s]
    expected = {"skip": [], "fire_once": young[:1], "fire_all": young[:limit]}[policy]
    assert list(verdict.fire) == expected[::-1]
