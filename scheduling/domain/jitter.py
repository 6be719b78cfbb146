"""Jitter: spreads the deliveries of schedules that share a nominal time, each by an offset of its own.

The offset is a hash of the schedule and the occurrence: the same in every process, after every failover and in every
version of Python, so an occurrence that is materialised twice is due at the same microsecond. `scheduled_for` stays the
nominal time; only `due_at` moves.
"""

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from uuid import UUID

UNIX = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def offset_s(schedule_id: UUID, occurrence: datetime, jitter_s: float) -> float:
    """Seconds from 0 to less than `jitter_s`, in whole microseconds, spread evenly over occurrences and schedules."""
    if occurrence.tzinfo is None:
        raise ValueError("An occurrence needs a UTC offset.")
    if not 0 <= jitter_s <= 10**9:
        raise ValueError("jitter_s is 0 or more seconds.")
    nominal = (occurrence - UNIX) // MICROSECOND
    digest = blake2b(schedule_id.bytes + nominal.to_bytes(8, "big", signed=True), digest_size=8).digest()
    microseconds = int.from_bytes(digest, "big") * int(jitter_s * 1_000_000) >> 64
    return microseconds / 1_000_000
