"""Limits are read as they are meant, or refused with one sentence."""

import pytest

from execution.domain.limits import InvalidLimits, Limits, RateLimit


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, Limits()),
        ({"rate_limit": {"per_s": 10}}, Limits(RateLimit(100_000))),
        ({"rate_limit": {"per_minute": 30, "burst": 5}}, Limits(RateLimit(2_000_000, 5))),
        ({"rate_limit": {"per_s": 0.5}, "max_concurrency": 3}, Limits(RateLimit(2_000_000), 3)),
    ],
)
def test_limits_are_read_as_they_are_meant(values: dict[str, object], expected: Limits) -> None:
    assert Limits.from_dict(values) == expected


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"rate_limit": {}}, "rate_limit"),
        ({"rate_limit": {"per_s": 1, "per_minute": 1}}, "rate_limit"),
        ({"rate_limit": {"per_hour": 1}}, "rate_limit"),
        ({"rate_limit": {"per_s": 0}}, "rate_limit"),
        ({"rate_limit": {"per_s": -1}}, "rate_limit"),
        ({"rate_limit": {"per_s": True}}, "rate_limit"),
        ({"rate_limit": {"per_s": "1"}}, "rate_limit"),
        ({"rate_limit": {"per_s": float("inf")}}, "rate_limit"),
        ({"rate_limit": {"per_s": 1, "burst": 0}}, "rate_limit"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_concurrency": True}, "max_concurrency"),
        ({"max_concurrency": 1.5}, "max_concurrency"),
        ({"most": 1}, "most"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused_by_name(values: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidLimits) as refused:
        Limits.from_dict(values)
    assert refused.value.field == field
