"""The meaning of answers: the table of right answers, its rules one by one, and what hostile receivers send."""

import locale
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execution.domain.classify import RETRY_AFTER_CAP_S, Kind, Outcome, classify, retry_after_s
from tests.unit.cases import rows

NOW = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LONG_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def answered(status: int, policy: object = None, **headers: str) -> Outcome:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return classify(status=status, error=None, headers=named, now=NOW, policy=policy)


@pytest.fixture
def far_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("row", rows("http_outcomes"))
def test_an_answer_means_what_the_table_says(row: dict[str, Any]) -> None:
    response, expect = row["response"], row["expect"]
    outcome = classify(
        status=response.get("status"),
        error=response.get("transport_error"),
        headers=response["headers"],
        now=datetime.fromisoformat(row["now"]),
    )
    assert outcome.kind == expect["class"]
    assert outcome.reason
    if expect["delay_s"] is None:
        assert outcome.retry_after_s is None
    else:
        low, high = expect["delay_s"]
        assert low <= max(row["policy_backoff_s"], outcome.retry_after_s or 0) <= high


@pytest.mark.parametrize("status", range(200, 600))
def test_every_status_has_the_class_of_the_design(status: int) -> None:
    expected = Kind.TERMINAL
    if status < 300:
        expected = Kind.SUCCESS
    elif status in (408, 425, 429) or (status >= 500 and status not in (501, 505)):
        expected = Kind.RETRYABLE
    assert answered(status).kind == expected


@pytest.mark.parametrize("error", ["timeout", "connect_timeout", "connect", "network", "tls", "dns", "internal", "new"])
def test_an_attempt_without_a_whole_answer_is_retryable(error: str) -> None:
    for status in (None, 200, 404):
        outcome = classify(status=status, error=error, headers={"Retry-After": "60"}, now=NOW)
        assert outcome.kind == "retryable"
        assert outcome.retry_after_s is None


@pytest.mark.parametrize("error", ["request", "target_refused"])
def test_a_request_that_can_never_leave_is_terminal(error: str) -> None:
    assert classify(status=None, error=error, headers={}, now=NOW).kind == "terminal"


@pytest.mark.parametrize(
    "policy",
    [{"retryable_statuses": [404, 302, 200, "410"]}, SimpleNamespace(retryable_statuses=(404, 302, 200, "410"))],
)
def test_a_policy_adds_codes_and_takes_none_away(policy: object) -> None:
    assert answered(404, policy, Retry_After="7") == Outcome(Kind.RETRYABLE, 7.0, "The receiver answered 404.")
    assert answered(302, policy).kind == "retryable"
    assert answered(500, policy).kind == "retryable"
    assert answered(410, policy).kind == "terminal"
    assert answered(200, policy).kind == "success"


@pytest.mark.parametrize(
    "policy", [None, {}, {"retryable_statuses": None}, {"retryable_statuses": "404"}, 404, object()]
)
def test_a_policy_without_a_list_adds_nothing(policy: object) -> None:
    assert answered(404, policy).kind == "terminal"
    assert answered(503, policy).kind == "retryable"


@pytest.mark.parametrize("value", ["true", "True", " TRUE\t"])
@pytest.mark.parametrize("name", ["X-Chronos-No-Retry", "x-chronos-no-retry", "X-CHRONOS-NO-RETRY"])
def test_a_receiver_can_ask_for_no_retry(name: str, value: str) -> None:
    headers = {"Retry-After": "60", name: value}
    for policy in (None, {"retryable_statuses": [503]}):
        outcome = classify(status=503, error=None, headers=headers, now=NOW, policy=policy)
        assert outcome.kind == "terminal"
        assert outcome.retry_after_s is None
    assert classify(status=204, error=None, headers=headers, now=NOW).kind == "success"


@pytest.mark.parametrize("value", ["", "false", "0", "1", "yes", "true, true", "tru\x00e", "\uff34RUE"])
def test_anything_but_true_does_not_stop_retries(value: str) -> None:
    assert answered(503, X_Chronos_No_Retry=value).kind == "retryable"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("000", 0),
        ("007", 7),
        (" 120\t", 120),
        ("3599", 3599),
        ("3601", 3600),
        ("0" * 9_999 + "5", 5),
        ("9" * 10_000, 3600),
        ("Tue, 10 Mar 2026 12:00:01 GMT", 1),
        ("Wed, 11 Mar 2026 12:00:00 GMT", 3600),
        ("Tue, 10 Mar 2026 12:01:60 GMT", 120),
        ("Tuesday, 10-Mar-26 12:00:30 GMT", 30),
        ("Tue Mar 10 12:00:45 2026", 45),
    ],
)
def test_a_readable_retry_after_is_honoured_up_to_an_hour(value: str, seconds: float) -> None:
    assert retry_after_s(value, now=NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "+5",
        "-0",
        "5s",
        "5.0",
        "1e3",
        "0x10",
        "1_000",
        "120, 60",
        "12 0",
        "\u0661\u0662",  # Arabic digits
        "\u00b2",  # superscript two
        "\uff15",  # full-width five
        "5\x00",
        "\x005",
        "5\n",
        "\u00a05",
        "Tue, 10 Mar 2026 12:00:00 GMT",  # now
        "Tue, 10 Mar 2026 11:59:59 GMT",
        "Fri, 31 Dec 9999 23:59:60 GMT",
        "Fri Dec 31 23:59:59 9999",
        "Thu, 31 Dec 9998 23:59:60 GMT",
        "Sat, 01 Jan 0000 00:00:00 GMT",
        "Tue, 10 Mar 2026 12:05:00 UTC",
        "Tue, 10 Mar 2026 12:05:00 +0000",
        "Tue, 10 Mar 2026 12:05:00 EST",
        "Tue, 10 Mar 2026 12:05:00",
        "Tue, 10 Mar 2026 12:05 GMT",
        "10 Mar 2026 12:05:00 GMT",
        "tue, 10 mar 2026 12:05:00 gmt",
        "Tue, 10 M\u00e4r 2026 12:05:00 GMT",
        "Di, 10 Mar 2026 12:05:00 GMT",
        "Tue,  10 Mar 2026 12:05:00 GMT",
        "Tue, 1\u0660 Mar 2026 12:05:00 GMT",
        "Tue, 31 Feb 2026 12:05:00 GMT",
        "Tue, 10 Mar 2026 24:05:00 GMT",
        "Tue, 10 Mar 2026 12:60:00 GMT",
        "Tue, 10 Mar 2026 12:05:61 GMT",
        "Tue, 10-Mar-26 12:05:00 GMT",
        "Tuesday, 10-Mar-2026 12:05:00 GMT",
        "Tue Mar 10 12:05:00 2026 GMT",
        "Tue Mar 010 12:05:00 2026",
        "Tue, 10 Mar 2026 12:05:00 GMT\x00",
        "2026-03-10T12:05:00Z",
        "1773144300.5",
    ],
)
def test_a_retry_after_that_says_nothing_is_ignored(value: str) -> None:
    assert answered(429, Retry_After=value) == Outcome(Kind.RETRYABLE, None, "The receiver answered 429.")


def test_a_single_digit_day_of_asctime_is_padded_with_a_space() -> None:
    now = datetime(2026, 3, 2, 23, 59, 0, tzinfo=UTC)
    assert retry_after_s("Tue Mar  3 00:00:00 2026", now=now) == 60
    assert retry_after_s("Tue Mar 03 00:00:00 2026", now=now) == 60
    assert retry_after_s("Tue Mar 3 00:00:00 2026", now=now) is None


@pytest.mark.parametrize(
    ("now", "value", "seconds"),
    [
        ("2026-03-10T12:00:00+00:00", "Tuesday, 10-Mar-76 12:00:00 GMT", 3600),  # 50 years ahead exactly: 2076
        ("2026-03-10T12:00:00+00:00", "Tuesday, 10-Mar-76 12:00:01 GMT", None),  # a second more: 1976
        ("2026-03-10T12:00:00+00:00", "Sunday, 06-Nov-94 08:49:37 GMT", None),
        ("2099-12-31T23:59:30+00:00", "Friday, 01-Jan-00 00:00:00 GMT", 30),  # the next century
        ("1999-12-31T23:59:30+00:00", "Saturday, 01-Jan-00 00:00:00 GMT", 30),
    ],
)
def test_two_digit_years_follow_the_rule_of_fifty_years(now: str, value: str, seconds: float | None) -> None:
    assert retry_after_s(value, now=datetime.fromisoformat(now)) == seconds


@pytest.mark.usefixtures("far_zone")
def test_dates_are_utc_in_every_zone_of_the_machine_and_of_the_clock() -> None:
    local = NOW.astimezone()
    assert local.utcoffset() != timedelta(0)
    for now in (NOW, local):
        assert retry_after_s("Tue Mar 10 12:05:00 2026", now=now) == 300
        assert retry_after_s("Tue, 10 Mar 2026 12:05:00 GMT", now=now) == 300
        assert retry_after_s("Tuesday, 10-Mar-26 12:05:00 GMT", now=now) == 300


def test_dates_are_english_in_every_language_of_the_machine() -> None:
    before = locale.setlocale(locale.LC_TIME)
    for name in ("de_DE.UTF-8", "tr_TR.UTF-8", "C.UTF-8"):
        try:
            locale.setlocale(locale.LC_TIME, name)
        except locale.Error:
            continue
        try:
            assert retry_after_s("Tue, 10 Mar 2026 12:05:00 GMT", now=NOW) == 300
        finally:
            locale.setlocale(locale.LC_TIME, before)


@given(st.datetimes(datetime(2000, 1, 1), datetime(2190, 1, 1)), st.integers(1, 86_400))  # noqa: DTZ001 - hypothesis asks for naive bounds
def test_the_three_forms_of_one_moment_say_the_same(naive: datetime, ahead: int) -> None:
    now = naive.replace(microsecond=0, tzinfo=UTC)
    when = now + timedelta(seconds=ahead)
    day, month = when.weekday(), MONTHS[when.month - 1]
    clock = f"{when:%H:%M:%S}"
    for text in (
        f"{DAYS[day]}, {when.day:02} {month} {when.year} {clock} GMT",
        f"{LONG_DAYS[day]}, {when.day:02}-{month}-{when.year % 100:02} {clock} GMT",
        f"{DAYS[day]} {month} {when.day:2} {clock} {when.year}",
    ):
        assert retry_after_s(text, now=now) == min(ahead, RETRY_AFTER_CAP_S)


@given(
    st.integers(100, 999),
    st.dictionaries(st.sampled_from(["Retry-After", "retry-after", "X-Chronos-No-Retry", "Other"]), st.text()),
)
def test_no_header_makes_it_raise(status: int, headers: dict[str, str]) -> None:
    outcome = classify(status=status, error=None, headers=headers, now=NOW)
    assert outcome.retry_after_s is None or 0 <= outcome.retry_after_s <= RETRY_AFTER_CAP_S
    assert outcome.retry_after_s is None or outcome.kind == "retryable"
