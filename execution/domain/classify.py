"""What an answer means: delivered, worth another attempt, or failed for good.

Called by the engine once per attempt. Pure: the clock is an argument, and nothing that a receiver puts into its
headers makes it raise.

    2xx                                         success
    408, 425, 429, 5xx except 501 and 505,
    and the codes that a policy lists           retryable
    no whole answer (timeouts, network errors)  retryable, unless the request itself cannot be sent
    everything else, redirects included         terminal

A receiver that answers `X-Chronos-No-Retry: true` beside anything but a 2xx makes the outcome terminal.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from . import kafka_errors

RETRY_AFTER_CAP_S = 3600.0
"""A receiver may ask for an hour at most."""
NO_RETRY_HEADER = "x-chronos-no-retry"
RETRY_AFTER_HEADER = "retry-after"

RETRYABLE_4XX = frozenset({408, 425, 429})
TERMINAL_5XX = frozenset({501, 505})
TERMINAL_ERRORS = (
    frozenset({"request", "target_refused", "secret_refused", "channel_refused"}) | kafka_errors.TERMINAL_CODES
)
"""Error codes of requests that never left and never will: they cannot be built, the target may not be called, or a
secret may not be used; of messages that no broker would take, and of notifications that no channel would."""


class Kind(StrEnum):
    SUCCESS = "success"
    RETRYABLE = "retryable"
    TERMINAL = "terminal"


@dataclass(frozen=True, slots=True)
class Outcome:
    kind: Kind
    retry_after_s: float | None = None
    """Seconds that the receiver asked to wait, 0 to 3600; None where it asked for none, or no retry follows."""
    reason: str = ""
    """One short sentence for a person."""


def classify(
    *, status: int | None, error: str | None, headers: Mapping[str, str], now: datetime, policy: object = None
) -> Outcome:
    """Judge one attempt.

    `status` is the final status, None where no whole answer came; then `error` is a short code such as `timeout`.
    `now` is the aware time of the answer. `policy` may carry `retryable_statuses`, as attribute or key: codes that are
    retried beside the usual ones (never a 2xx).
    """
    if error is not None or status is None:
        return _without_answer(error or "no answer")
    if 200 <= status <= 299:
        return Outcome(Kind.SUCCESS, reason=f"The receiver answered {status}.")
    if not _is_retryable(status, policy):
        redirect = " Redirects are not followed." if 300 <= status <= 399 else ""
        return Outcome(Kind.TERMINAL, reason=f"The receiver answered {status}.{redirect}")
    if (_header(headers, NO_RETRY_HEADER) or "").lower() == "true":
        return Outcome(Kind.TERMINAL, reason=f"The receiver answered {status} and asked for no retry.")
    wait_s = retry_after_s(_header(headers, RETRY_AFTER_HEADER), now=now)
    return Outcome(Kind.RETRYABLE, wait_s, f"The receiver answered {status}.")


def retry_after_s(value: str | None, *, now: datetime) -> float | None:
    """Seconds that a Retry-After asks for, capped at an hour; None for what RFC 9110 does not define.

    A date that is not after `now`, or lies in the year 9999, says nothing. Dates are UTC, whatever the machine's zone
    and language.
    """
    text = (value or "").strip(" \t")
    if _DIGITS.fullmatch(text):
        digits = text.lstrip("0")
        # The length is judged first: int() refuses thousands of digits, and takes its time for hundreds.
        return RETRY_AFTER_CAP_S if len(digits) > 4 else min(float(digits or "0"), RETRY_AFTER_CAP_S)
    when = _http_date(text, now.astimezone(UTC))
    if when is None or when.year == 9999 or when <= now:
        return None
    return min((when - now).total_seconds(), RETRY_AFTER_CAP_S)


def _without_answer(error: str) -> Outcome:
    if error in TERMINAL_ERRORS:
        return Outcome(Kind.TERMINAL, reason=f"The request could not be sent: {error}.")
    return Outcome(Kind.RETRYABLE, reason=f"No whole answer came: {error}.")


def _is_retryable(status: int, policy: object) -> bool:
    if status in RETRYABLE_4XX or status in _listed(policy):
        return True
    return 500 <= status <= 599 and status not in TERMINAL_5XX


def _listed(policy: object) -> Collection[object]:
    name = "retryable_statuses"
    found = policy.get(name) if isinstance(policy, Mapping) else getattr(policy, name, None)
    return found if isinstance(found, list | tuple | set | frozenset) else ()


def _header(headers: Mapping[str, str], name: str) -> str | None:
    """The first header of that name in any letter case, without the white space around it."""
    for key, value in headers.items():
        if str(key).lower() == name:
            return str(value).strip(" \t")
    return None


# --- HTTP-date, RFC 9110 section 5.6.7 -------------------------------------------------------------------------------
# Names are matched letter by letter: strptime would follow the machine's language, email.utils takes far more forms.

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DIGITS = re.compile(r"[0-9]+")
_DATE_FORMS = (
    re.compile(rf"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT"),
    re.compile(rf"{_LONG_DAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT"),
    re.compile(rf"{_DAY} {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})"),
)


def _http_date(text: str, now: datetime) -> datetime | None:
    for form in _DATE_FORMS:
        match = form.fullmatch(text)
        if match:
            break
    else:
        return None
    month = _MONTHS.index(match["month"]) + 1
    day, hour, minute, second = (int(match[part]) for part in ("day", "hour", "minute", "second"))
    leap = second == 60
    if leap:
        second = 59
    year = int(match["year"])
    if len(match["year"]) == 2:
        year = _full_year(year, (month, day, hour, minute, second), now)
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC) + timedelta(seconds=leap)
    except (ValueError, OverflowError):
        return None


def _full_year(two_digits: int, rest: tuple[int, int, int, int, int], now: datetime) -> int:
    """The latest year with these digits whose moment is not more than 50 years ahead."""
    horizon = (now.year + 50, now.month, now.day, now.hour, now.minute, now.second)
    year = now.year - now.year % 100 + 100 + two_digits
    while (year, *rest) > horizon:
        year -= 100
    return year
