"""Bucket ids: the minute of `due_at` x 1024 + shard."""

import zlib
from datetime import datetime
from uuid import UUID

SHARD_SPACE = 1024


def shard_of(execution_id: UUID, shards: int) -> int:
    """The shard of an execution, 0 to shards - 1; the same for ever for one id and number of shards."""
    return zlib.crc32(execution_id.bytes) % shards


def bucket_of(execution_id: UUID, due_at: datetime, shards: int) -> int:
    """The bucket that holds an execution due at `due_at` (aware)."""
    return int(due_at.timestamp() // 60) * SHARD_SPACE + shard_of(execution_id, shards)


def first_bucket_of_minute(unix_s: float) -> int:
    """The lowest bucket id of the minute in which `unix_s` lies; every bucket below it belongs to an earlier minute."""
    return int(unix_s // 60) * SHARD_SPACE
